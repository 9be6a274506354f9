"""Splits a padded copy (``if inside then X else constant``) into a fill and the copy of the inside box."""

from __future__ import annotations

from dataclasses import dataclass

from .nest import Access, Expression, Key, Nest


@dataclass(frozen=True)
class Piece:
    """A box of the nest's iteration space: filled with ``fill``, or copied from ``source``."""

    low: tuple[int, ...]
    shape: tuple[int, ...]
    source: Access | None
    fill: int = 0


def split_padded(nest: Nest, env: dict[Key, int]) -> list[Piece]:
    """Fill of the whole box, then the copy of the part in which all conditions hold; a plain copy or fill is one piece."""
    whole = tuple(loop.extent for loop in nest.loops)
    zero = (0,) * len(whole)
    if nest.value[0] == "load":
        return [Piece(zero, whole, Access(nest.value[1], nest.value[2]))]
    if nest.value[0] == "imm":
        return [Piece(zero, whole, None, nest.value[1])]
    _, _, _, condition, inside, outside = nest.value
    bounds = {loop.var: (0, loop.extent) for loop in nest.loops}
    for test in _conjuncts(condition):
        _narrow(bounds, test, env)
    low = tuple(bounds[loop.var][0] for loop in nest.loops)
    shape = tuple(bounds[loop.var][1] - bounds[loop.var][0] for loop in nest.loops)
    fill = Piece(zero, whole, None, outside[1])
    return [fill, Piece(low, shape, Access(inside[1], inside[2]))] if min(shape) > 0 else [fill]


def _conjuncts(condition: Expression) -> list[Expression]:
    if condition[0] == "op" and condition[1] == "and":
        return [*_conjuncts(condition[3]), *_conjuncts(condition[4])]
    return [condition]


def _narrow(bounds: dict[Key, tuple[int, int]], test: Expression, env: dict[Key, int]) -> None:
    """``test`` is ("compare", affine): affine < 0."""
    constant, parts = test[1]
    constant += sum(c * env[var] for var, c in parts if var not in bounds)
    ((var, coefficient),) = [part for part in parts if part[0] in bounds] or [(None, 0)]
    if var is None:
        raise ValueError("a padding condition depends on no loop")
    low, high = bounds[var]
    if coefficient > 0:  # coefficient * v < -constant
        high = min(high, -(constant // coefficient))
    else:  # v > constant / -coefficient
        low = max(low, constant // -coefficient + 1)
    bounds[var] = (low, high)
