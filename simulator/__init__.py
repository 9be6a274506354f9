"""The EPU in NumPy: machine numbers, instructions, program file, two engines, cycles."""

from epu.simulator.machine import Machine
from epu.simulator.program import Buffer, Constant, DebugMap, Decode, KernelSpan, Program, Tap
from epu.simulator.simulation import RunResult, Simulator, simulate
from epu.simulator.taps import TapRecorder
from epu.simulator.timing import CycleCount

__all__ = [
    "Buffer",
    "Constant",
    "CycleCount",
    "DebugMap",
    "Decode",
    "KernelSpan",
    "Machine",
    "Program",
    "RunResult",
    "Simulator",
    "Tap",
    "TapRecorder",
    "simulate",
]
