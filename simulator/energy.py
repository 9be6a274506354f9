"""Dynamic energy of a run: counted work times the machine's energy for each kind of work. No leakage, no clock tree.

The energies are assumptions of ``Machine``, from the table for 45 nm in M. Horowitz, "Computing's energy problem", ISSCC 2014:
int8 multiply and add 0.23 pJ, 32-bit add 0.1 pJ, 8 kB memory 10 pJ and 1 MB memory 100 pJ per 64 bits, DRAM 1.3 nJ
per 64 bits. A product reads one byte of LRM, an ALU operation moves three words. They rank designs; they are no one's chip.
"""

from __future__ import annotations

from dataclasses import dataclass

from epu.simulator.machine import Machine
from epu.simulator.program import Program
from epu.simulator.work import Work, work_of

PICO = 1e-12


@dataclass(frozen=True)
class Energy:
    """Joules by where they go."""

    mac: float
    compute: float
    ocm: float
    external: float

    @property
    def total(self) -> float:
        return self.mac + self.compute + self.ocm + self.external


def energy_of(work: Work, machine: Machine) -> Energy:
    """Energy of that much work on that machine."""
    return Energy(
        mac=work.macs * machine.pj_mac * PICO,
        compute=work.operations * machine.pj_operation * PICO,
        ocm=work.port_bytes * machine.pj_port_byte * PICO,
        external=work.ext_bytes * machine.pj_ext_byte * PICO,
    )


def energy_of_program(program: Program) -> Energy:
    """Energy of one inference; like the cycles it does not depend on the values."""
    return energy_of(work_of(program.code), program.machine)
