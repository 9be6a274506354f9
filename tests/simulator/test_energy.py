"""Energy is counted work times stated numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from epu.simulator.energy import energy_of
from epu.simulator.machine import Machine
from epu.simulator.work import Work

MACHINE = replace(Machine.for_product("QC-N"), pj_mac=2.0, pj_operation=3.0, pj_port_byte=5.0, pj_ext_byte=7.0)


def test_each_kind_of_work_has_its_own_price() -> None:
    energy = energy_of(Work(macs=10, operations=100, port_bytes=1000, ext_bytes=10_000), MACHINE)
    found = (energy.mac, energy.compute, energy.ocm, energy.external)
    assert found == pytest.approx((20e-12, 300e-12, 5e-9, 70e-9), rel=1e-12)
    assert energy.total == pytest.approx(75.32e-9, rel=1e-12)


def test_energy_of_parts_adds_up() -> None:
    first, second = Work(1, 2, 3, 4), Work(5, 6, 7, 8)
    whole = energy_of(first + second, MACHINE).total
    assert whole == pytest.approx(energy_of(first, MACHINE).total + energy_of(second, MACHINE).total, rel=1e-12)
