"""Element-wise nodes: quantised arithmetic, tables, fixed point."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epu.constants import fixed_constant, inverse, multiplier
from epu.errors import UnsupportedNode
from epu.fixed_formats import MASK
from epu.graph import Graph, Node, Quantized, Tensor
from epu.lanes import rshr as shift_even
from epu.lowering.float32_path import lower_float32_path
from epu.lowering.lowered import Lowered, bind_arrays, dtype_of, operand, result, zero_of
from epu.lowering.observe import covered_result, observe_sum, product_scales
from epu.lowering.requantisation import requantisation
from epu.lowering.split import elementwise_kernel
from epu.operators.activation import bounds, raw_bound, slope
from epu.operators.float32_path import float32_path
from epu.operators.qlinear_add import add_constants
from epu.operators.qlinear_matmul import combined_scale
from epu.operators.qlinear_tables import TABLES
from epu.operators.quantize import dequantize_multiplier, quantize_multiplier
from epu.operators.quantized_unary import inner_table, table_of
from epu.operators.row import frac, quantized

Array = NDArray[Any]
Body = Callable[[dict[str, Any]], Any]


def build(
    node: Node,
    graph: Graph,
    name: str,
    operands: dict[str, Tensor],
    body: Body,
    scalars: dict[str, int],
    seen: Body | None = None,
) -> Lowered:
    """A kernel over the operands' broadcast shape; constants among them become constant parameters.

    ``seen``: what ``body`` gets under that name, a stage of its own to be observed.
    """
    out = result(node, graph)
    described = {
        param: ("input" if tensor.data is None else "constant", tensor.shape, dtype_of(tensor))
        for param, tensor in operands.items()
    }
    names = tuple(scalars)
    kernel, splits = elementwise_kernel(name, out.shape, dtype_of(out), described, body, names, seen=seen)
    inputs, constants = bind_arrays(graph, {param: tensor.name for param, tensor in operands.items()})
    return Lowered(node, kernel, inputs, {"Y": node.outputs[0]}, constants, scalars, splits=splits)


def rounded_sum(
    node: Node, graph: Graph, name: str, total: Body, body: Body, scalars: dict[str, int], kind: Quantized
) -> Lowered:
    """``body`` rounds what ``total`` computes (its "seen"), which a folded group shows as a tensor of type ``kind``."""
    if not covered_result(node):
        whole = lambda v: body({**v, "seen": total(v)})  # noqa: E731
        return build(node, graph, name, two(node, graph), whole, scalars)
    lowered = build(node, graph, name, two(node, graph), body, scalars, total)
    observe_sum(lowered, graph, "seen", kind.scale[0], dtype=kind.dtype, zero=kind.zero_point[0])
    return lowered


def two(node: Node, graph: Graph) -> dict[str, Tensor]:
    return {"A": operand(node, graph, 0), "B": operand(node, graph, 1)}


def wide(values: dict[str, Any], name: str) -> Any:
    return values[name].astype("int64")


def lower_qlinear_add(node: Node, graph: Graph, rounding: str) -> Lowered:
    from epu.tir_schedules.intrinsics import round24, rshr, sat

    path = float32_path(node, graph) if rounding == "ort" else None
    if path is not None:
        return lower_float32_path(node, graph, path)
    k = add_constants(node, graph)
    dtype = dtype_of(result(node, graph))
    unit = (quantized(result(node, graph)).scale[0] * 2.0**-k.shift,)
    if rounding == "ort":
        scalars = {"ma": k.a, "mb": k.b, "fixed": k.fixed_part, "shift": k.shift}

        def fused(v: dict[str, Any]) -> Any:
            return round24(wide(v, "A") * v["ma"] + round24(wide(v, "B") * v["mb"] + v["fixed"]))

        near = lambda v: sat(rshr(v["seen"], v["shift"]), dtype)  # noqa: E731
        kind = Quantized("int64", unit, (k.zero_y << k.shift,))
        return rounded_sum(node, graph, f"qlinear_add_ort_{dtype}", fused, near, scalars, kind)
    offset = -(k.zero_a * k.a + k.zero_b * k.b)
    scalars = {"ma": k.a, "mb": k.b, "shift": k.shift}
    scalars.update({"offset": offset} if offset else {})
    scalars.update({"zero": k.zero_y} if k.zero_y else {})

    def exact(v: dict[str, Any]) -> Any:
        total = wide(v, "A") * v["ma"] + wide(v, "B") * v["mb"]
        return total + v["offset"] if offset else total

    def once(v: dict[str, Any]) -> Any:
        rounded = rshr(v["seen"], v["shift"])
        return sat(rounded + v["zero"] if k.zero_y else rounded, dtype)

    name = f"qlinear_add_{dtype}_{bool(offset)}_{bool(k.zero_y)}"
    return rounded_sum(node, graph, name, exact, once, scalars, Quantized("int64", unit, (0,)))


def lower_qlinear_mul(node: Node, graph: Graph, rounding: str) -> Lowered:
    from epu.tir_schedules.requantise import requantise

    path = float32_path(node, graph) if rounding == "ort" else None
    if path is not None:
        return lower_float32_path(node, graph, path)
    a, b = operand(node, graph, 0), operand(node, graph, 1)
    scales = np.ravel(combined_scale(node, graph))
    _, scalars = requantisation(scales, zero_of(result(node, graph)))
    dtype, zeros = dtype_of(result(node, graph)), (zero_of(a), zero_of(b))
    scalars.update({name: zero for name, zero in zip(("za", "zb"), zeros) if zero})

    def product(v: dict[str, Any]) -> Any:
        left, right = (
            v[p].astype("int32") - v[z].astype("int32") if zero else v[p].astype("int32")
            for p, z, zero in zip("AB", ("za", "zb"), zeros)
        )
        return left * right

    def once(v: dict[str, Any]) -> Any:
        return requantise(v["seen"], v["factor"], v["shift"], v["zero_point"], rounding, dtype)

    name = f"qlinear_mul_{rounding}_{dtype}_{bool(zeros[0])}_{bool(zeros[1])}"
    kind = Quantized("int32", (float(product_scales(node, graph)),), (0,))
    return rounded_sum(node, graph, name, product, once, scalars, kind)


def table_kernel(node: Node, graph: Graph, table: Array) -> Lowered:
    """Y = table[code of X]; the table in the order of the code's bits as an unsigned byte."""
    x, y = operand(node, graph, 0), result(node, graph)
    ordered = np.roll(table, 128) if dtype_of(x) == "int8" else table
    described = {"X": ("input", x.shape, dtype_of(x))}
    body = lambda v: v["T"][v["X"].astype("int32") & 255]  # noqa: E731
    kernel, splits = elementwise_kernel(
        "table", y.shape, dtype_of(y), described, body, tables={"T": (256, dtype_of(y))}
    )
    inputs, constants = bind_arrays(graph, {"X": x.name})
    constants["T"] = ordered.astype(dtype_of(y))
    return Lowered(node, kernel, inputs, {"Y": node.outputs[0]}, constants, splits=splits)


def lower_table(node: Node, graph: Graph, rounding: str) -> Lowered:
    """QLinearSigmoid, QLinearLeakyRelu."""
    return table_kernel(node, graph, TABLES[node.op](node, graph, rounding))


def lower_quantized_unary(node: Node, graph: Graph, rounding: str) -> Lowered:
    lowered = table_kernel(node, graph, table_of(node, rounding))
    for name in node.attrs["inner"]:
        lowered.derived[name] = (node.inputs[0], inner_table(node, graph, name))
    return lowered


def lower_dequantize(node: Node, graph: Graph, rounding: str) -> Lowered:
    """One scale: a table of 256 entries. One per channel: a product."""
    from epu.tir_schedules.requantise import requantise

    x, y = operand(node, graph, 0), result(node, graph)
    kind = quantized(x)
    if kind.axis is None and kind.dtype in ("int8", "uint8"):
        return table_kernel(node, graph, code_table(node, graph, rounding))
    factor, shift = zip(*(dequantize_multiplier(scale, frac(y)) for scale in kind.scale))
    zero = kind.zero_point[0]
    if any(each != zero for each in kind.zero_point):
        raise UnsupportedNode(
            f"ONNX node '{node.name}' (DequantizeLinear): all channels must share one zero point, "
            f"found {sorted(set(kind.zero_point))}. "
            "Quantise symmetrically."
        )

    def body(v: dict[str, Any]) -> Any:
        centred = v["X"].astype("int64") - v["zero"]
        return requantise(centred, v["factor"], v["shift"], 0, rounding, "int32")

    return _per_channel(node, graph, f"dequantize_{rounding}", kind.axis, factor, shift, body, {"zero": zero})


def _per_channel(
    node: Node,
    graph: Graph,
    name: str,
    axis: int | None,
    factor: Sequence[int],
    shift: Sequence[int],
    body: Body,
    scalars: dict[str, int],
) -> Lowered:
    x, y = operand(node, graph, 0), result(node, graph)
    described = {"X": ("input", x.shape, dtype_of(x))}
    constants: dict[str, Array] = {}
    if axis is None:
        scalars = {**scalars, "factor": factor[0], "shift": shift[0]}
    else:
        along = tuple(len(factor) if k == axis % len(x.shape) else 1 for k in range(len(x.shape)))
        wide = "int64" if max(factor) >= 2**31 else "int32"
        described |= {"factor": ("constant", along, wide), "shift": ("constant", along, "int32")}
        constants = {"factor": np.array(factor, wide), "shift": np.array(shift, np.int32)}
    kernel, splits = elementwise_kernel(name, y.shape, dtype_of(y), described, body, scalars=tuple(scalars))
    return Lowered(node, kernel, {"X": x.name}, {"Y": node.outputs[0]}, constants, scalars, splits=splits)


def code_table(node: Node, graph: Graph, rounding: str) -> Array:
    """Raw outputs of a DequantizeLinear for each code from the lowest."""
    from epu.operators.quantize import dequantize_reference

    kind = quantized(operand(node, graph, 0))
    codes = np.arange(256, dtype=np.int64) - (128 if kind.dtype == "int8" else 0)
    return dequantize_reference(node, graph, {node.inputs[0]: codes}, rounding)[0]


def lower_quantize(node: Node, graph: Graph, rounding: str) -> Lowered:
    from epu.tir_schedules.requantise import requantise

    x, y = operand(node, graph, 0), result(node, graph)
    kind = quantized(y)
    factor, shift = zip(*(quantize_multiplier(scale, frac(x)) for scale in kind.scale))
    zero = kind.zero_point[0]
    if any(each != zero for each in kind.zero_point):
        raise UnsupportedNode(
            f"ONNX node '{node.name}' (QuantizeLinear): all channels must share one zero point, "
            f"found {sorted(set(kind.zero_point))}. "
            "Quantise symmetrically."
        )

    def body(v: dict[str, Any]) -> Any:
        return requantise(v["X"], v["factor"], v["shift"], v["zero_point"], rounding, kind.dtype)

    return _per_channel(node, graph, f"quantize_{rounding}", kind.axis, factor, shift, body, {"zero_point": zero})


def lower_sum(node: Node, graph: Graph, rounding: str) -> Lowered:
    """Fixed Add and Sub; constants are brought to the output's format at compile time, but for a mask beyond it."""
    from epu.tir_schedules.intrinsics import rshr, sat

    a, b, y = operand(node, graph, 0), operand(node, graph, 1), result(node, graph)
    out = frac(y)
    moved = {p: t for p, t in (("A", a), ("B", b)) if t.data is not None and t.range_source != MASK}
    scalars = {f"s{p.lower()}": frac(t) - out for p, t in (("A", a), ("B", b)) if p not in moved and frac(t) != out}
    constants = {param: shifted_constant(node, tensor, frac(tensor) - out) for param, tensor in moved.items()}
    sign = -1 if node.op == "Sub" else 1

    def body(v: dict[str, Any]) -> Any:
        left, right = (
            rshr(v[p], v[s]) if s in scalars else v[p].astype("int64") for p, s in (("A", "sa"), ("B", "sb"))
        )
        return sat(left + right if sign > 0 else left - right, "int32")

    lowered = build(node, graph, f"{node.op}_{'_'.join(scalars)}", two(node, graph), body, scalars)
    lowered.constants.update(constants)
    return lowered


def lower_rescale(node: Node, graph: Graph, rounding: str) -> Lowered:
    """Fixed point with other fraction bits."""
    from epu.tir_schedules.intrinsics import rshr, sat

    x = operand(node, graph, 0)
    scalars = {"shift": frac(x) - frac(result(node, graph))}
    return build(node, graph, "Rescale", {"A": x}, lambda v: sat(rshr(v["A"], v["shift"]), "int32"), scalars)


def lower_blend(node: Node, graph: Graph, rounding: str) -> Lowered:
    """A sum of products with constant weights, rounded once."""
    from epu.tir_schedules.intrinsics import rshr, sat

    dtype, count = dtype_of(result(node, graph)), len(node.inputs) // 2
    operands = {f"{'XW'[k // count]}{k % count}": operand(node, graph, k) for k in range(2 * count)}

    def body(v: dict[str, Any]) -> Any:
        total = v["X0"].astype("int64") * v["W0"].astype("int64")
        for k in range(1, count):
            total = total + v[f"X{k}"].astype("int64") * v[f"W{k}"].astype("int64")
        return sat(rshr(total, v["shift"]), dtype)

    return build(node, graph, f"Blend_{count}_{dtype}", operands, body, {"shift": node.attrs["shift"]})


def shifted_constant(node: Node, tensor: Tensor, amount: int) -> Array:
    """A constant at the output's fraction bits, ``amount`` fewer than its own."""
    moved = shift_even(np.asarray(tensor.data, np.int64), np.int64(amount))
    if np.abs(moved).max(initial=0) >= 2**31:
        raise UnsupportedNode(
            f"ONNX node '{node.name}' ({node.op}): constant '{tensor.name}' must fit the output's format, found "
            f"{np.abs(np.asarray(tensor.data)).max()} shifted by {-amount} bits. Calibrate the output's range with it."
        )
    return np.asarray(moved, np.int32)


def lower_product(node: Node, graph: Graph, rounding: str) -> Lowered:
    from epu.tir_schedules.intrinsics import mulr, sat

    a, b, y = operand(node, graph, 0), operand(node, graph, 1), result(node, graph)
    scalars = {"shift": frac(a) + frac(b) - frac(y)}
    body = lambda v: sat(mulr(v["A"], v["B"], v["shift"]), "int32")  # noqa: E731
    return build(node, graph, "Mul", two(node, graph), body, scalars)


def lower_divide(node: Node, graph: Graph, rounding: str) -> Lowered:
    """By one constant: a product with its inverse."""
    from epu.tir_schedules.intrinsics import mulr, sat

    a, b, y = operand(node, graph, 0), operand(node, graph, 1), result(node, graph)
    if b.data is None or np.size(b.data) != 1 or not np.any(b.data):
        raise UnsupportedNode(
            f"ONNX node '{node.name}' (Div): the divisor must be one constant other than 0, found shape {b.shape}. "
            "Leave the node on the host or multiply by the inverse."
        )
    raw = int(np.ravel(b.data)[0])
    factor, k = inverse(abs(raw))
    scalars = {"factor": factor, "shift": k + frac(a) - frac(b) - frac(y)}
    negative = raw < 0

    def body(v: dict[str, Any]) -> Any:
        value = v["A"].astype("int64")
        return sat(mulr(-value if negative else value, v["factor"], v["shift"]), "int32")

    return build(node, graph, f"Div_{negative}", {"A": a}, body, scalars)


def lower_square(node: Node, graph: Graph, rounding: str) -> Lowered:
    from epu.tir_schedules.intrinsics import mulr, sat

    a, exponent, y = operand(node, graph, 0), operand(node, graph, 1), result(node, graph)
    power = float(np.ravel(np.asarray(exponent.data))[0]) * 2.0 ** -frac(exponent)
    if power != 2.0:
        raise UnsupportedNode(
            f"ONNX node '{node.name}' (Pow): the exponent must be 2, found {power}. Rewrite the power."
        )
    scalars = {"shift": 2 * frac(a) - frac(y)}
    return build(node, graph, "square", {"A": a}, lambda v: sat(mulr(v["A"], v["A"], v["shift"]), "int32"), scalars)


def lower_relu(node: Node, graph: Graph, rounding: str) -> Lowered:
    from epu.tir_schedules.tvm_api import tir

    x = operand(node, graph, 0)
    body = lambda v: tir.max(v["A"], tir.const(0, dtype_of(x)))  # noqa: E731
    return build(node, graph, f"Relu_{dtype_of(x)}", {"A": x}, body, {})


def lower_clip(node: Node, graph: Graph, rounding: str) -> Lowered:
    from epu.tir_schedules.tvm_api import tir

    x = operand(node, graph, 0)
    low, high = (raw_bound(each, frac(x)) for each in bounds(node, graph))

    def body(v: dict[str, Any]) -> Any:
        return tir.min(tir.max(v["A"].astype("int64"), v["low"]), v["high"]).astype("int32")

    return build(node, graph, "Clip", {"A": x}, body, {"low": low, "high": high})


def lower_hard_sigmoid(node: Node, graph: Graph, rounding: str) -> Lowered:
    from epu.tir_schedules.intrinsics import mulr
    from epu.tir_schedules.tvm_api import tir

    x, out = operand(node, graph, 0), frac(result(node, graph))
    alpha, beta = slope(node)
    m, shift = multiplier(alpha)
    offset = fixed_constant(float(np.float32(beta)), out)
    scalars = {"m": m, "shift": shift + frac(x) - out, "beta": offset, "one": fixed_constant(1.0, out)}

    def body(v: dict[str, Any]) -> Any:
        line = mulr(v["A"], v["m"], v["shift"]) + v["beta"]
        return tir.min(tir.max(line, tir.const(0, "int64")), v["one"]).astype("int32")

    return build(node, graph, "HardSigmoid", {"A": x}, body, scalars)


__all__ = [name for name in dir() if name.startswith("lower_")] + ["code_table", "multiplier", "shifted_constant"]
