"""Nodes that work on whole rows or windows: softmax, layer norm, means, pooling; and moves."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.constants import ceil_log2, exp2_table, exp_table, fixed_constant, inverse, is_power_of_two, multiplier
from epu.elementary import LN_2, LOG2_E, RECIPROCAL_SEED, ROOT_SEED
from epu.errors import UnsupportedNode
from epu.graph import Graph, Node, Tensor
from epu.lanes import rshr
from epu.lowering.lowered import Lowered, dtype_of, operand, result, zero_of
from epu.lowering.observe import covered_result, observe_sum
from epu.lowering.split import by_fields, by_rows, transpose_kernel
from epu.operators.layer_norm import DEFAULT_EPSILON, ROLES, layer_norm_format, normalised_count
from epu.operators.quantize import quantize_multiplier
from epu.operators.reduce_mean import mean_constants, reduced_axes
from epu.operators.row import frac, input_tensor, quantized
from epu.operators.softmax import dequantize, probability_tensor


def lower_softmax_int8(node: Node, graph: Graph, rounding: str) -> Lowered:
    from epu.tir_schedules.rowwise import softmax_int8

    x, shares = operand(node, graph, 0), probability_tensor(node, graph)
    kind = quantized(x)
    others = [name for name in node.outputs if name != shares.name]
    if len(others) > 1 or (others and shares.name in node.outputs):
        raise UnsupportedNode(
            f"ONNX node '{node.name}' (Softmax): one consumer format is supported, found outputs {node.outputs}. "
            "Let all readers use the quantised result."
        )
    length, rounded = x.shape[-1], dtype_of(graph.tensors[others[0]]) if others else ""
    build = lambda rows: softmax_int8(rows, length, rounding, RECIPROCAL_SEED, kind.dtype, rounded)  # noqa: E731
    kernel, splits = by_rows(prod(x.shape[:-1]), build)
    scalars = {"share_shift": 30 - frac(shares)}
    constants = {"EXP": exp_table(kind.scale[0], 30)}
    lowered = Lowered(node, kernel, {"X": x.name}, {"Y": node.outputs[0]}, constants, scalars, splits=splits)
    if others:
        out = graph.tensors[others[0]]
        factor, shift = quantize_multiplier(quantized(out).scale[0], frac(shares))
        scalars.update(factor=factor, shift=shift, zero_point=zero_of(out))
        lowered.observed["shares"] = shares.name
    if node.attrs["dequantized"]:
        codes = np.arange(-128, 128) if kind.dtype == "int8" else np.arange(256)
        target = graph.tensors[node.attrs["dequantized"]]
        lowered.derived[target.name] = (x.name, dequantize(x, target, codes.astype(np.int64), rounding))
    return lowered


def lower_softmax(node: Node, graph: Graph, rounding: str) -> Lowered:
    from epu.tir_schedules.rowwise import softmax_fixed

    x, y = operand(node, graph, 0), result(node, graph)
    build = lambda rows: softmax_fixed(rows, x.shape[-1], RECIPROCAL_SEED, LOG2_E, LN_2)  # noqa: E731
    kernel, splits = by_rows(prod(x.shape[:-1]), build)
    scalars = {"exponent_shift": frac(x) + 4, "share_shift": 30 - frac(y)}
    return Lowered(node, kernel, {"X": x.name}, {"Y": y.name}, {"EXP2": exp2_table(256, 30)}, scalars, splits=splits)


def lower_layer_norm(node: Node, graph: Graph, rounding: str) -> Lowered:
    from epu.tir_schedules.rowwise import layer_norm

    x, y = operand(node, graph, 0), result(node, graph)
    count, form, named = normalised_count(node, graph), layer_norm_format(node, graph), "mean" in node.attrs
    gamma, beta = operand(node, graph, 1), input_tensor(node, graph, 2)
    build = lambda rows: layer_norm(rows, count, ROOT_SEED, named, beta is not None)  # noqa: E731
    kernel, splits = by_rows(prod(x.shape) // count, build)
    constants: dict[str, Any] = {"gamma": np.asarray(gamma.data)}
    if beta is not None:
        constants["beta"] = beta_constant(node, beta, frac(y))
    half = form.wide // 2
    mean = mean_constants(count, frac(x), form.mean)
    scalars = {
        "mean_first": mean.first,
        "x_shift": frac(x) - form.centred,
        "mean_to_centred": form.mean - form.centred,
        "square_shift": form.square_shift,
        "variance_first": ceil_log2(count),
        "epsilon": fixed_constant(float(np.float32(node.attrs.get("epsilon", DEFAULT_EPSILON))), form.wide),
        "deviation_shift": 30 + half - form.deviation,
        "normal_shift": form.centred - half + 30 - form.normalised,
        "scale_shift": form.normalised + frac(gamma) - form.scaled,
        "out_shift": form.scaled - frac(y),
    }
    if not is_power_of_two(count):
        factor, k = inverse(count)
        scalars.update(
            mean_factor=mean.factor, mean_shift=mean.shift, variance_factor=factor, variance_shift=k - ceil_log2(count)
        )
    lowered = Lowered(node, kernel, {"X": x.name}, {"Y": y.name}, constants, scalars, splits=splits)
    if named:
        lowered.observed = {role: node.attrs[role] for role in ROLES}
    return lowered


def beta_constant(node: Node, beta: Tensor, fraction_bits: int) -> NDArray[np.int32]:
    """beta in the output's format."""
    moved = rshr(np.asarray(beta.data, np.int64), np.int64(frac(beta) - fraction_bits))
    if np.abs(moved).max(initial=0) >= 2**31:
        raise UnsupportedNode(
            f"ONNX node '{node.name}' (LayerNormalization): beta must fit the output's format of {fraction_bits} fraction "
            f"bits, found {np.abs(moved).max()} of 2**31 units. Calibrate the output's range with it."
        )
    return moved.astype(np.int32)


def reduced_rows(node: Node, graph: Graph) -> tuple[int, int]:
    """Rows and their length; the reduced axes are the last ones (``reduce_last_axes`` sees to it)."""
    x = operand(node, graph, 0)
    axes = tuple(range(2, len(x.shape))) if "Global" in node.op else reduced_axes(node, graph)
    if axes != tuple(range(len(x.shape) - len(axes), len(x.shape))):
        raise UnsupportedNode(
            f"ONNX node '{node.name}' ({node.op}): the last axes must be reduced, found axes {axes} of rank "
            f"{len(x.shape)}. Transpose first."
        )
    count = prod(x.shape[axis] for axis in axes)
    return prod(x.shape) // count, count


def lower_mean(node: Node, graph: Graph, rounding: str) -> Lowered:
    """ReduceMean, GlobalAveragePool."""
    from epu.tir_schedules.movement import MeanShape, mean

    x, y = operand(node, graph, 0), result(node, graph)
    rows, count = reduced_rows(node, graph)
    if node.op == "QLinearGlobalAveragePool":
        scale = np.float32(quantized(x).scale[0]) / (np.float32(quantized(y).scale[0]) * np.float32(count))
        factor, shift = multiplier(float(np.float32(scale)))
        scalars = {"offset": count * zero_of(x), "factor": factor, "shift": shift, "zero_point": zero_of(y)}
        shape = MeanShape(rows, count, dtype_of(x), dtype_of(y), rounding, bool(covered_result(node)))
        splits = by_fields(shape, {"m": "rows"}, mean)
        lowered = Lowered(node, mean(shape), {"X": x.name}, {"Y": y.name}, {}, scalars, splits=splits)
        observe_sum(lowered, graph, "total", quantized(x).scale[0] / count, dtype="int64", zero=count * zero_of(x))
        return lowered
    k = mean_constants(count, frac(x), frac(y))
    scalars = {"first": k.first} if not k.factor else {"first": k.first, "factor": k.factor, "shift": k.shift}
    shape = MeanShape(rows, count, "int32")
    splits = by_fields(shape, {"m": "rows"}, mean)
    return Lowered(node, mean(shape), {"X": x.name}, {"Y": y.name}, {}, scalars, splits=splits)


def lower_transpose(node: Node, graph: Graph, rounding: str) -> Lowered:
    x = operand(node, graph, 0)
    shape = x.shape or (1,)  # a scalar has no axis
    permutation = tuple(node.attrs.get("perm") or range(len(shape) - 1, -1, -1))
    kernel, splits = transpose_kernel(shape, permutation, dtype_of(x))
    return Lowered(node, kernel, {"X": x.name}, {"Y": node.outputs[0]}, splits=splits)
