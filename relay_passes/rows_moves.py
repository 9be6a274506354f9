"""Relay → typed nodes for moves by constant positions, and for resizing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from epu.relay_passes.draft import Draft, Use, const_array, refuse
from epu.relay_passes.relay_view import Step, same_onnx_node


def _move(op: str, attributes: Callable[[Step], dict[str, Any]]) -> Callable[[Step], Draft]:
    """Row of an operator that reads the first argument; the others are constants in its attributes."""

    def row(step: Step) -> Draft:
        return Draft(op, step, [Use(step.args[0])], attributes(step), None, [step])

    return row


def _take(step: Step) -> dict[str, Any]:
    found = const_array(step, step.args[1], "index")
    if step.attrs.axis is None:
        raise refuse(step, "the axis must be given", None, "Pass axis=0")
    axis = int(step.attrs.axis) % len(step.args[0].shape)
    return {"axis": axis, "indices": tuple(int(each) for each in np.ravel(found))}


def _expand(step: Step) -> dict[str, Any]:
    return {}


def _tile(step: Step) -> dict[str, Any]:
    repeats = tuple(int(each) for each in step.attrs.reps)
    rank = len(step.args[0].shape)
    if len(repeats) > rank:
        raise refuse(step, f"there must be {rank} repeats at most", len(repeats), "Reshape the tensor first")
    return {"repeats": (1,) * (rank - len(repeats)) + repeats}


def _pad(step: Step) -> Draft:
    """With the slice before it where that is the negative padding of the same ONNX node."""
    mode, inner = str(step.attrs.pad_mode), step.args[0]
    fill = const_array(step, step.args[1], "padding value").reshape(-1)[0].item() if mode == "constant" else 0
    pads, members = _pads(step), [step]
    if isinstance(inner, Step) and inner.op == "strided_slice" and same_onnx_node(inner, step):
        members.append(inner)
        pads = tuple(wide - cut for wide, cut in zip(pads, _cut(inner)))
        inner = inner.args[0]
    return Draft("Pad", step, [Use(inner)], {"mode": mode, "pads": pads, "value": fill}, None, members)


def _cut(step: Step) -> tuple[int, ...]:
    """How many positions a slice takes off: all begins, then all ends."""
    begins, ends = ([int(each) for each in found] for found in (step.attrs.begin, step.attrs.end))
    return (*begins, *(size - end for size, end in zip(step.args[0].shape, ends)))


def _mirror_pad(step: Step) -> dict[str, Any]:
    if str(step.attrs.mode) != "REFLECT":
        raise refuse(step, "the mode must be REFLECT", step.attrs.mode, "Leave it on the host")
    return {"mode": "reflect", "pads": _pads(step), "value": 0}


def _pads(step: Step) -> tuple[int, ...]:
    """Relay's pairs as ONNX has them: all begins, then all ends."""
    pairs = [tuple(int(each) for each in pair) for pair in step.attrs.pad_width]
    return (*(low for low, _ in pairs), *(high for _, high in pairs))


def _check_layout(step: Step) -> None:
    if str(step.attrs.layout) != "NCHW":
        raise refuse(step, "the layout must be NCHW", step.attrs.layout, "Use relay.transform.ConvertLayout")


def _depth_to_space(step: Step) -> dict[str, Any]:
    _check_layout(step)
    return {"blocksize": int(step.attrs.block_size), "mode": str(step.attrs.mode)}


def _space_to_depth(step: Step) -> dict[str, Any]:
    _check_layout(step)
    return {"blocksize": int(step.attrs.block_size)}


METHODS = {"nearest_neighbor": "nearest", "linear": "linear"}
ROUNDINGS = {"round": "round_prefer_ceil"}  # of non-negative positions


def _resize(step: Step) -> dict[str, Any]:
    _check_layout(step)
    attrs, method = step.attrs, str(step.attrs.method)
    if method not in METHODS:
        raise refuse(step, "the method must be nearest_neighbor or linear", method, "Leave it on the host")
    where = str(attrs.coordinate_transformation_mode)
    found = {"mode": METHODS[method], "coordinate_transformation_mode": where}
    default = "round" if where == "align_corners" else "floor"
    rounding = str(attrs.rounding_method) or default
    return found | ({"nearest_mode": ROUNDINGS.get(rounding, rounding)} if method == "nearest_neighbor" else {})


MOVES: dict[str, tuple[Callable[[Step], Draft], ...]] = {
    "take": (_move("Gather", _take),),
    "broadcast_to": (_move("Expand", _expand),),
    "tile": (_move("Tile", _tile),),
    "nn.pad": (_pad,),
    "nn.mirror_pad": (_move("Pad", _mirror_pad),),
    "nn.depth_to_space": (_move("DepthToSpace", _depth_to_space),),
    "nn.space_to_depth": (_move("SpaceToDepth", _space_to_depth),),
    "image.resize2d": (_move("Resize", _resize),),
}
