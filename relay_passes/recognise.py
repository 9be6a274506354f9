"""View of a Relay function → drafts of typed nodes, from the outputs backwards; every call lands in a draft."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from epu.relay_passes.draft import Draft, Use
from epu.relay_passes.fold_qdq import fold_qdq
from epu.relay_passes.linear import linear_group
from epu.relay_passes.relay_view import Step, View
from epu.relay_passes.rows import draft_of
from epu.simulator.errors import UnsupportedNode

Refusals = dict[Step, UnsupportedNode]


@dataclass(frozen=True)
class Recognised:
    """Drafts in topological order, and why some of their roots must stay on the host (``op`` is then Relay's)."""

    drafts: list[Draft]
    refusals: Refusals


def recognise(view: View) -> Recognised:
    """Drafts of all calls that the outputs need. A call no row takes becomes a draft of itself, with its refusal."""
    refusals: Refusals = {}

    def row(step: Step) -> Draft:
        try:
            return draft_of(step)
        except UnsupportedNode as error:
            refusals[step] = error
            return host_draft(step)

    drafts = needed_drafts(view, row)
    folded = fold_qdq(drafts, view.outputs)
    return Recognised(folded, {draft.root: refusals[draft.root] for draft in folded if draft.root in refusals})


def host_draft(step: Step) -> Draft:
    """Draft of a call the EPU does not take, together with the calls it was refused with."""
    members = linear_group(step)
    outside = [arg for member in members for arg in member.args if arg not in members]
    return Draft(step.op, step, [Use(arg) for arg in outside], members=members)


def needed_drafts(view: View, row: Callable[[Step], Draft]) -> list[Draft]:
    """Apply ``row`` to each call whose value an output or a later draft reads."""
    needed = set(_steps(view.outputs))
    pending = sorted(view.steps, key=lambda step: step.index)
    drafts = []
    while pending:
        step = pending.pop()
        if step not in needed:
            continue
        draft = row(step)
        drafts.append(draft)
        inputs = set(_steps(use.operand for use in draft.inputs))
        pending.extend(made for made in inputs - needed if made.origin is None)
        needed |= inputs
    return drafts[::-1]


def _steps(operands: Iterable[object]) -> Iterable[Step]:
    return (operand for operand in operands if isinstance(operand, Step))
