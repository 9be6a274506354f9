"""Op → lowering. Views share their input's bytes and have no kernel."""

from __future__ import annotations

from collections.abc import Callable

from epu.errors import UnsupportedNode
from epu.graph import Graph, Node
from epu.lowering import (
    arg_extreme,
    custom,
    element_functions,
    folds,
    functions,
    layer_norm_parts,
    linear,
    masks,
    moves,
    pointwise,
    pools,
    products,
    rows,
    wide_conv,
    wide_matmul,
)
from epu.lowering.lowered import Lowered
from epu.operators.smooth_functions import FUNCTIONS as SMOOTH
from epu.passes.drop_empty import is_empty

Lowering = Callable[[Node, Graph, str], Lowered]

VIEWS = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout"})

EXPANDED = frozenset({"ConvTranspose", "QLinearConvTranspose"})  # by passes into operators that have kernels

LOWERINGS: dict[str, Lowering] = {
    "QLinearMatMul": products.lower_matmul,
    "MatMulInteger": products.lower_matmul,
    "QGemm": products.lower_gemm,
    "QLinearConv": linear.lower_conv,
    "ConvInteger": linear.lower_conv,
    "Conv": wide_conv.lower_wide_conv,
    "MatMul": wide_matmul.lower_wide_matmul,
    "Gemm": wide_matmul.lower_wide_gemm,
    "QLinearAdd": pointwise.lower_qlinear_add,
    "QLinearMul": pointwise.lower_qlinear_mul,
    "QuantizedUnary": pointwise.lower_quantized_unary,
    "QLinearSigmoid": pointwise.lower_table,
    "QLinearLeakyRelu": pointwise.lower_table,
    "QuantizeLinear": pointwise.lower_quantize,
    "DequantizeLinear": pointwise.lower_dequantize,
    "Add": pointwise.lower_sum,
    "Sub": pointwise.lower_sum,
    "Mul": pointwise.lower_product,
    **element_functions.LOWERINGS,
    **masks.LOWERINGS,
    "Relu": pointwise.lower_relu,
    "Clip": pointwise.lower_clip,
    "HardSigmoid": pointwise.lower_hard_sigmoid,
    **dict.fromkeys(SMOOTH, functions.lower_smooth),
    "SoftmaxInt8": rows.lower_softmax_int8,
    "Softmax": rows.lower_softmax,
    "ReduceMax": folds.lower_extreme,
    "ReduceMin": folds.lower_extreme,
    "ArgMax": arg_extreme.lower_arg_extreme,
    "ArgMin": arg_extreme.lower_arg_extreme,
    "ReduceSum": folds.lower_reduce_sum,
    "ReduceL2": folds.lower_norm,
    "SoftmaxExp": folds.lower_softmax_exp,
    "SoftmaxBits": folds.lower_softmax_bits,
    "SoftmaxFactor": folds.lower_softmax_factor,
    "SoftmaxShare": folds.lower_softmax_share,
    "LayerNormMean": layer_norm_parts.lower_norm_mean,
    "LayerNormBits": layer_norm_parts.lower_norm_spread,
    "LayerNormRoot": layer_norm_parts.lower_norm_spread,
    "LayerNormScale": layer_norm_parts.lower_norm_scale,
    "LayerNormalization": rows.lower_layer_norm,
    "LayerNormDecomposed": rows.lower_layer_norm,
    "ReduceMean": rows.lower_mean,
    "GlobalAveragePool": rows.lower_mean,
    "QLinearGlobalAveragePool": rows.lower_mean,
    "AveragePool": pools.lower_average_pool,
    "QLinearAveragePool": pools.lower_qlinear_average_pool,
    "MaxPool": pools.lower_max_pool,
    "Transpose": rows.lower_transpose,
    "Rescale": pointwise.lower_rescale,
    "Concat": moves.lower_concat,
    "QLinearConcat": moves.lower_concat,
    "Slice": moves.lower_slice,
    "Gather": moves.lower_gather,
    "Expand": moves.lower_expand,
    "Tile": moves.lower_tile,
    "Pad": moves.lower_pad,
    "DepthToSpace": moves.lower_depth_to_space,
    "SpaceToDepth": moves.lower_space_to_depth,
    "ZeroStuff": moves.lower_zero_stuff,
    "Blend": pointwise.lower_blend,
    "Resize": moves.lower_resize,
    "QuadricCustomOp": custom.lower_custom,
}


def lower(node: Node, graph: Graph, rounding: str) -> Lowered:
    """The kernel and operands of a node. Raises UnsupportedNode where no kernel fits it."""
    if node.op not in LOWERINGS:
        known = ", ".join(sorted(LOWERINGS))
        raise UnsupportedNode(
            f"ONNX node '{node.name}' ({node.op}): the EPU has no kernel for this operator yet. Kernels: {known}. "
            "Leave the node on the host (relay.build) or cut the model before it (epu cut)."
        )
    empty = [name for name in (*node.inputs, *node.outputs) if name and is_empty(graph, name)]
    if empty:
        raise UnsupportedNode(
            f"ONNX node '{node.name}' ({node.op}): every tensor of a kernel must have elements, found none in "
            f"'{empty[0]}'. Remove the node from the model, or leave it on the host."
        )
    return LOWERINGS[node.op](node, graph, rounding)
