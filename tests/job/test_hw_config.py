"""HWConfig: defaults, parsing, names, and the sentence each bad value gets."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from epu.hw_config import HWConfig
from epu.simulator.errors import ConfigError
from epu.simulator.machine import MIB, PRODUCTS, Machine


def test_the_name_of_the_seed() -> None:
    hw = HWConfig(
        product="QC-U",
        ocm_size="8MB",
        lrm_size="4kB",
        macs_per_pe=16,
        clock_freq_ghz=1.56,
        ext_rd_bw="64GBps",
        ext_wr_bw="64GBps",
        num_cores=1,
    )
    assert str(hw) == "QC-U_1d56_8MB_4kB_64GBps_64GBps_16_OFF_x1_x1"
    assert hw.module_name("my-model_q") == "my-model_q_QC_U_1d56_8MB_4kB_64GBps_64GBps_16_OFF_x1_x1"
    assert hw == HWConfig()


def test_qc_n_of_the_other_seed() -> None:
    hw = HWConfig(product="QC-N", macs_per_pe=8, ext_rd_bw="8GBps", ext_wr_bw="8GBps", clock_freq_ghz=0.5)
    assert str(hw) == "QC-N_0d5_4MB_4kB_8GBps_8GBps_8_OFF_x1_x1"


@pytest.mark.parametrize("product", PRODUCTS)
def test_defaults_are_those_of_the_machine(product: str) -> None:
    assert HWConfig(product).machine == Machine.for_product(product)


def test_text_and_numbers_mean_the_same() -> None:
    text = HWConfig(ocm_size="2MB", lrm_size="8 kB", ext_rd_bw="32GB/s", ext_wr_bw="500MBps")
    numbers = HWConfig(ocm_size=2 * MIB, lrm_size=8192, ext_rd_bw=32, ext_wr_bw=0.5)
    assert text == numbers
    assert text.machine == numbers.machine
    assert (text.machine.ocm_bytes, text.machine.ext_wr_gbps) == (2 * MIB, 0.5)


def test_sizes_between_units_keep_their_value() -> None:
    assert HWConfig(ocm_size="1.5MB").ocm_size == "1536kB"
    assert HWConfig(lrm_size=1000).lrm_size == "1000B"


def test_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        HWConfig().product = "QC-N"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("product", "QC-X", "QC-N, QC-P, QC-U"),
        ("ocm_size", "8 parsecs", '"8MB" or "4kB"'),
        ("ocm_size", "8GB", '"8MB" or "4kB"'),
        ("ocm_size", 0, "1kB to 64MB"),
        ("ocm_size", float("inf"), "1kB to 64MB"),
        ("ocm_size", 1025, "in steps of 8 bytes"),
        ("ocm_size", None.__class__, '"8MB"'),
        ("lrm_size", "1MB", "64B to 64kB"),
        ("macs_per_pe", 12, "8 or 16"),
        ("macs_per_pe", True, "8 or 16"),
        ("clock_freq_ghz", 0, "0.05 to 4 GHz"),
        ("clock_freq_ghz", float("nan"), "0.05 to 4 GHz"),
        ("clock_freq_ghz", "fast", "a number in GHz"),
        ("ext_rd_bw", "-1GBps", '"64GBps"'),
        ("ext_rd_bw", -1, "0.1 to 1024 GBps"),
        ("ext_wr_bw", float("inf"), "0.1 to 1024 GBps"),
        ("num_cores", 2, "must be 1"),
        ("num_cores", 0, "must be 1"),
    ],
)
def test_bad_values_are_refused_with_field_value_and_what_is_allowed(field: str, value: Any, allowed: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        HWConfig(**{field: value})
    message = str(refusal.value)
    assert field in message
    assert repr(value) in message
    assert allowed in message


def test_numbers_typed_at_a_prompt() -> None:
    """``--ext-rd-bw 64`` and ``--ocm-size 8388608`` arrive as text."""
    typed = HWConfig(ext_rd_bw="64", ocm_size="8388608")
    assert str(typed) == str(HWConfig(ext_rd_bw="64GBps", ocm_size="8MB"))
