"""ONNX operators that no program of the EPU can run, and why: what an error and the manual say of them."""

from __future__ import annotations

_SHAPE = "found one whose result has a shape that depends on the data"
_CONTROL = "found control flow, and a program has no branches"
_RANDOM = "found one that draws random numbers"
_SORT = "found one that sorts, which no kernel does"
_INTEGER = "found integer arithmetic, which runs at compile time or on the host alone"
_FUNCTION = "found a function that no kernel computes"
_SEQUENCE = "found one that works on sequences or text"

HOST_REASONS: dict[str, str] = {
    "DynamicQuantizeLinear": "found one whose scale depends on the data of each run, where formats are fixed at compile time",
    "DynamicQuantizeMatMul": "found one whose scale depends on the data of each run, where formats are fixed at compile time",
    **dict.fromkeys(("NonZero", "NonMaxSuppression", "Unique", "StringNormalizer"), _SHAPE),
    **dict.fromkeys(("If", "Loop", "Scan"), _CONTROL),
    **dict.fromkeys(("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"), _RANDOM),
    **dict.fromkeys(("Bernoulli", "Multinomial"), _RANDOM),
    "TopK": _SORT,
    **dict.fromkeys(("BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Mod", "Range"), _INTEGER),
    "OneHot": "found one that reads plain integers",
    **dict.fromkeys(
        ("Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh"), _FUNCTION
    ),
    **dict.fromkeys(("Floor", "Ceil", "Round", "Sign", "IsNaN", "IsInf", "Det", "ReduceProd", "CumProd"), _FUNCTION),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), "found a recurrence; ONNX spells it with a Loop"),
    **dict.fromkeys(("SequenceAt", "SequenceConstruct", "SplitToSequence", "ConcatFromSequence"), _SEQUENCE),
}
