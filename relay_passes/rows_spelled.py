"""Relay → typed nodes for operators that Relay spells as several calls of one ONNX node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from epu.relay_passes.draft import Draft, Use
from epu.relay_passes.relay_view import Const, Operand, Step, same_onnx_node

Pattern = Any  # (Relay op, argument patterns…), "x" the variable, "$name" a scalar constant, a number
RELATIVE = 1e-6  # of float32 constants

CUBE = ("multiply", ("multiply", "x", "x"), "x")
TANH_ARGUMENT = ("multiply", 0.7978845608, ("add", "x", ("multiply", 0.044715, CUBE)))
SPELLINGS: dict[str, tuple[tuple[str, dict[str, Any], Pattern], ...]] = {
    "multiply": (
        ("Gelu", {}, ("multiply", "x", ("multiply", 0.5, ("add", 1.0, ("erf", ("multiply", "x", 0.7071067812)))))),
        (
            "Gelu",
            {"approximate": "tanh"},
            ("multiply", "x", ("multiply", 0.5, ("add", 1.0, ("tanh", TANH_ARGUMENT)))),
        ),
        ("HardSwish", {}, ("multiply", "x", ("clip", ("add", ("multiply", "x", 1 / 6), 0.5)))),
    ),
    "add": (
        (
            "Softplus",
            {},
            ("add", ("nn.relu", "x"), ("log", ("add", 1.0, ("exp", ("negative", ("abs", "x")))))),
        ),
        (
            "Elu",
            {},
            ("add", ("nn.relu", "x"), ("multiply", "$alpha", ("subtract", ("exp", ("minimum", "x", 0.0)), 1.0))),
        ),
    ),
    "divide": (("Reciprocal", {}, ("divide", 1.0, "x")),),
    "sqrt": (("ReduceL2", {}, ("sqrt", ("sum", ("multiply", "x", "x")))),),
}


@dataclass
class Match:
    """What a pattern's names stand for, and its calls, the outermost first."""

    root: Step
    variable: Operand | None = None
    scalars: dict[str, float] = field(default_factory=dict)
    members: list[Step] = field(default_factory=list)

    def operand(self, pattern: Pattern, found: Operand) -> bool:
        if isinstance(pattern, tuple):
            return isinstance(found, Step) and self.step(pattern, found)
        if pattern == "x":
            self.variable = self.variable or found
            return found is self.variable
        if not isinstance(found, Const) or found.data.size != 1:
            return False
        value = float(found.data.reshape(-1)[0])
        if isinstance(pattern, str):
            self.scalars[pattern[1:]] = value
            return True
        return bool(np.isclose(value, pattern, rtol=RELATIVE, atol=0.0))

    def step(self, pattern: Pattern, found: Step) -> bool:
        """A call of the pattern's operator in the ONNX node of the root."""
        name, *arguments = pattern
        if found.op != name or len(found.args) != len(arguments) or not self.belongs(found):
            return False
        self.members.append(found)
        return all(self.operand(each, argument) for each, argument in zip(arguments, found.args))

    def belongs(self, found: Step) -> bool:
        return found is self.root or same_onnx_node(found, self.root)


def matches(step: Step) -> Iterator[tuple[str, dict[str, Any], Match]]:
    for op, attrs, pattern in SPELLINGS.get(step.op, ()):
        match = Match(step)
        if match.step(pattern, step) and match.variable is not None:
            yield op, {**attrs, **match.scalars}, match


def spelled(attributes: dict[str, Callable[[Step], dict[str, Any]]]) -> Callable[[Step], Draft | None]:
    """Row of all spellings; ``attributes`` reads those of a Relay op within one, such as a sum's axes."""

    def row(step: Step) -> Draft | None:
        if step.dtype != "float32":
            return None
        for op, attrs, match in matches(step):
            for member in match.members:
                attrs.update(attributes[member.op](member) if member.op in attributes else {})
            return Draft(op, step, [Use(match.variable)], attrs, None, match.members)
        return None

    return row
