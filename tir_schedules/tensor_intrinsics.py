"""The multiply-accumulate unit of a PE as a TIR tensor intrinsic.

``epu.dot``: ``acc[0] += sum over k of a[k] * b[k]`` with int8 operands and an int32 accumulator, over the k values that lie
in one PE. The loops that remain around it are hardware loops: PE rows and columns, the ring, local outputs.
"""

from __future__ import annotations

from collections.abc import Sequence

from .tvm_api import dialect, script, tir

DOT = "epu.dot"
_REGISTERED: set[str] = set()

_SOURCE = """
# from tvm.script import tir as T
@T.prim_func
def dot(a: T.handle, b: T.handle, c: T.handle):
    A = T.match_buffer(a, {a_shape}, "{a_dtype}", offset_factor=1, scope="{a_scope}")
    B = T.match_buffer(b, {b_shape}, "{b_dtype}", offset_factor=1, scope="{b_scope}")
    C = T.match_buffer(c, (1,), "int32", offset_factor=1, scope="local.lrm")
    with T.block("root"):
        T.reads(C[0:1], A[{a_region}], B[{b_region}])
        T.writes(C[0:1])
{body}
"""

_MEANING = """        for {loops} in T.grid({extents}):
            with T.block("dot"):
                {binds} = T.axis.remap("{kinds}", [{loops}])
                C[0] = C[0] + T.cast(A[{a_index}], "int32") * T.cast(B[{b_index}], "int32")"""

_INSTRUCTION = """        T.evaluate(
            T.call_extern("int32", "{name}", C.access_ptr("rw"), A.access_ptr("r"), B.access_ptr("r"))
        )"""


def dot_intrinsic(
    a_shape: Sequence[int], b_shape: Sequence[int], dtypes: tuple[str, str], scopes: tuple[str, str]
) -> str:
    """Name of the registered intrinsic for operand tiles of these shapes; axes longer than 1 are summed, in order."""
    shapes = "_".join("x".join(map(str, shape)) for shape in (a_shape, b_shape))
    name = f"{DOT}_{shapes}_{'_'.join(dtypes)}_{'_'.join(scopes)}"
    if name not in _REGISTERED:
        meaning, instruction = (_function(a_shape, b_shape, dtypes, scopes, body) for body in (_MEANING, _INSTRUCTION))
        tir.TensorIntrin.register(name, meaning, instruction, override=True)
        _REGISTERED.add(name)
    return name


def _function(  # type: ignore[no-untyped-def]
    a_shape: Sequence[int], b_shape: Sequence[int], dtypes: tuple[str, str], scopes: tuple[str, str], body: str
):
    extents = [extent for extent in a_shape if extent > 1]
    loops = [f"k{index}" for index in range(len(extents))]
    filled = body.format(
        name=DOT,
        loops=", ".join(loops),
        extents=", ".join(map(str, extents)),
        binds=", ".join("v" + loop for loop in loops),
        kinds="R" * len(loops),
        a_index=_indices(a_shape),
        b_index=_indices(b_shape),
    )
    source = _SOURCE.format(
        a_shape=_tuple(a_shape),
        b_shape=_tuple(b_shape),
        a_dtype=dtypes[0],
        b_dtype=dtypes[1],
        a_scope=scopes[0],
        b_scope=scopes[1],
        a_region=_region(a_shape),
        b_region=_region(b_shape),
        body=filled,
    )
    return script.from_source(source, {"T": dialect})  # without names TVM would import all its dialects, for seconds


def _tuple(shape: Sequence[int]) -> str:
    return "(" + ", ".join(map(str, shape)) + ",)"


def _region(shape: Sequence[int]) -> str:
    return ", ".join(f"0:{extent}" for extent in shape)


def _indices(shape: Sequence[int]) -> str:
    """Loop variables at the axes longer than 1, in order."""
    summed = iter(range(len(shape)))
    return ", ".join(f"vk{next(summed)}" if extent > 1 else "0" for extent in shape)
