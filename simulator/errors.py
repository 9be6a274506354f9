"""The one tree of exceptions of the project; ``epu.errors`` re-exports it."""

from __future__ import annotations


class EpuError(Exception):
    """Root of every error the project raises on purpose."""


class UserError(EpuError):
    """A bad argument, file or model: the message names it, the limit, the value found and the remedy."""


class UnsupportedNode(UserError):
    """An ONNX node the EPU cannot run; the message names the node and the limit it breaks."""


class CapacityError(UserError):
    """Something does not fit a memory of the machine."""


class ConfigError(UserError):
    """A machine or compiler setting outside its limits."""


class ProgramError(EpuError):
    """A program file that is truncated, corrupt, of another version, or that breaks the machine's limits."""


class MachineFault(EpuError):
    """The machine stopped: the program did what the hardware forbids.

    ``pc``, ``instruction`` (its text), ``operand`` (its field name) and ``node`` (ONNX node, from the debug map; empty
    where unknown) say where; ``reason`` names the limit and the value found.
    """

    def __init__(self, reason: str, *, pc: int = -1, instruction: str = "", operand: str = "", node: str = "") -> None:
        self.reason = reason
        self.pc = pc
        self.instruction = instruction
        self.operand = operand
        self.node = node
        super().__init__(self._text())

    def _text(self) -> str:
        where = f"ONNX node '{self.node}': " if self.node else ""
        operand = f", operand '{self.operand}'" if self.operand else ""
        return f"{where}machine fault at pc {self.pc}{operand}: {self.reason}. Instruction: {self.instruction}"

    def at(self, pc: int, instruction: str, node: str) -> MachineFault:
        """The same fault with its place filled in."""
        return MachineFault(self.reason, pc=pc, instruction=instruction, operand=self.operand, node=node)
