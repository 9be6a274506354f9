"""Turns scheduled TIR into instructions. Reads loops, scopes, annotations and expressions; knows no operator."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod

from epu.simulator.control import Wait
from epu.simulator.elementwise import Alu, Lut
from epu.simulator.instruction import Instruction
from epu.simulator.machine import Machine
from epu.simulator.matrix import Mac, MacLocal
from epu.simulator.operands import SIZES, Grid, Imm, Lrm, Ocm, Source
from epu.simulator.reductions import AllReduce, Reduce
from epu.simulator.transfers import Dma, Load, Store

from . import nest as tree
from .layout import Layout, box_of, layout_of, loop_dims, row_major
from .lrm import LrmAllocator
from .nest import Access, Affine, BufferInfo, Code, Expression, Key, Loop, Nest
from .padding import Piece, split_padded
from .tiling import spread

SCRATCH = ""  # name of the kernel's OCM scratch among its parameters
SYNC_TAG = 1  # DMA tag of transfers that a kernel issues and awaits itself
FOLDS = {"add": "sum", "max": "max", "min": "min"}


@dataclass(frozen=True)
class ParamOcm(Ocm):
    """OCM operand relative to the base of a kernel parameter (or its scratch)."""

    param: str = SCRATCH


@dataclass(frozen=True)
class ParamDma(Dma):
    """DMA whose addresses are relative to kernel parameters."""

    ext_param: str = ""
    ocm_param: str = SCRATCH


@dataclass(frozen=True)
class ScalarImm(Imm):
    """Immediate whose value is a scalar parameter of the kernel."""

    param: str = ""


@dataclass(frozen=True)
class TapPoint:
    """After instruction ``pc`` the operand holds elements of stage ``stage`` (strides in elements of its tensor)."""

    stage: str
    pc: int
    grid: Grid
    loops: tuple[int, ...]
    operand: Lrm
    offset: int
    row_strides: tuple[int, ...]
    col_strides: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class KernelCode:
    """Instructions of one kernel relative to its parameters."""

    instructions: tuple[Instruction, ...]
    taps: tuple[TapPoint, ...]
    scratch_bytes: int
    peak_lrm: int


@dataclass
class Value:
    """An operand with its stride for each loop variable it depends on."""

    operand: Source
    strides: dict[Key, int] = field(default_factory=dict)
    temporary: int = 0  # bytes to give back, 0 where it is not a temporary

    def over(self, loops: tuple[Loop, ...]) -> Source:
        if isinstance(self.operand, Imm):
            return self.operand
        return replace(self.operand, strides=tuple(self.strides.get(loop.var, 0) for loop in loops))


def emit(code: Code, placement: dict[str, str], machine: Machine) -> KernelCode:
    """Instructions for scheduled TIR whose parameters lie where ``placement`` says ("ocm" or "ext").

    Raises CapacityError where a PE's LRM is too small for the schedule's tiles.
    """
    emitter = _Emitter(code, placement, machine)
    emitter.run(code.tree)
    return KernelCode(tuple(emitter.code_out), tuple(emitter.taps), emitter.scratch_peak, emitter.lrm.peak)


class _Emitter:
    def __init__(self, code: Code, placement: dict[str, str], machine: Machine) -> None:
        self.buffers, self.machine = code.buffers, machine
        self.params = {key: name for name, key in code.params if key is not None}
        self.space = {key: placement[name] for key, name in self.params.items()}
        self.nests = list(tree.nests(code.tree))
        self.writer = {nest.target.buffer: nest for nest in reversed(self.nests)}
        self.layouts: dict[Key, Layout] = {}
        self.lrm = LrmAllocator(machine.lrm_bytes)
        self.address: dict[Key, int] = {}
        self.base: dict[Key, tuple[int, ...]] = {}
        self.env: dict[Key, int] = {}
        self.scratch = self.scratch_peak = 0
        self.code_out: list[Instruction] = []
        self.taps: list[TapPoint] = []
        self.grids: dict[int, Grid] = {}

    # ---- the tree -------------------------------------------------------------------------------------------------
    def run(self, node: tree.Tree) -> None:
        if isinstance(node, Nest):
            self.nest(node)
        elif isinstance(node, tree.Sequence):
            for step in node.steps:
                self.run(step)
        elif isinstance(node, tree.Repeat):
            for index in range(node.extent):
                self.env[node.var] = index
                self.run(node.body)
        else:
            self.allocate(node)

    def allocate(self, node: tree.Allocate) -> None:
        scratch = self.scratch
        local = [key for key in node.buffers if self.is_lrm(key)]
        for key in node.buffers:
            if key in local:
                self.address[key] = self.lrm.take(self.layout(key).bytes_per_pe)
            else:
                self.address[key] = self.scratch
                size = prod(box_of(self.writer[key])) * SIZES[self.buffers[key].dtype]
                self.scratch += -(-size // 64) * 64
        self.scratch_peak = max(self.scratch_peak, self.scratch)
        self.run(node.body)
        for key in local:
            self.lrm.give(self.address[key], self.layout(key).bytes_per_pe)
        self.scratch = scratch

    def nest(self, nest: Nest) -> None:
        target = nest.target.buffer
        self.base[target] = self.constants(nest.target.indices)
        sources = list(tree.loads(nest.value))
        spaces = {self.space_of(access.buffer) for access in sources}
        if nest.of_kind("pad"):
            self.padded(nest)
        elif not self.is_lrm(target) or (nest.value[0] == "load" and "lrm" not in spaces):
            self.transfer(nest, sources[0])
        elif self.is_product(nest):
            self.mac_local(nest) if spaces == {"lrm"} else self.mac(nest)
        elif nest.fold:
            self.reduce(nest)
        else:
            self.compute(nest)
        if nest.tap:
            self.tap(nest)

    # ---- places ---------------------------------------------------------------------------------------------------
    def is_lrm(self, key: Key) -> bool:
        return self.buffers[key].scope.startswith("local")

    def space_of(self, key: Key) -> str:
        return "lrm" if self.is_lrm(key) else self.space.get(key, "ocm")

    def layout(self, key: Key) -> Layout:
        if key not in self.layouts:
            self.layouts[key] = layout_of(self.buffers[key], self.writer[key])
        return self.layouts[key]

    def constants(self, indices: tuple[Affine, ...]) -> tuple[int, ...]:
        """Value of each index with all loops of the nest at zero."""
        return tuple(c + sum(k * self.env.get(var, 0) for var, k in parts) for c, parts in indices)

    def grid(self, nest: Nest) -> Grid:
        """Active PEs of a nest: its own array digits, and for LRM results all PEs that will read them."""
        if id(nest) not in self.grids:
            self.grids[id(nest)] = self.find_grid(nest)
        return self.grids[id(nest)]

    def find_grid(self, nest: Nest) -> Grid:
        extents = {loop.kind: loop.extent for loop in nest.array_loops}
        if self.is_lrm(nest.target.buffer):
            for reader in self.nests:
                if reader is nest or not any(a.buffer == nest.target.buffer for a in tree.loads(reader.value)):
                    continue
                other = self.grid(reader) if not reader.of_kind("ring") or nest.array_loops else self.grid(reader)
                for part, counts in (("row", other.rows), ("col", other.cols)):
                    for position, extent in enumerate(counts):
                        extents.setdefault(f"{part}{position}", extent)
        return Grid(_digits(extents, "row"), _digits(extents, "col"))

    def lrm_value(self, access: Access, nest: Nest) -> Value:
        """An LRM buffer element seen from a nest's loops."""
        layout, base = self.layout(access.buffer), self.base[access.buffer]
        address, strides = self.address[access.buffer], {}
        for loop in nest.loops:
            for dim, coefficient in loop_dims(access.indices, loop):
                if loop.extent == 1:
                    continue
                digit = self.digit(layout, access, dim, coefficient, loop)
                if loop.kind == "local":
                    strides[loop.var] = strides.get(loop.var, 0) + digit.stride * coefficient // digit.coefficient
        for dim, (value, start) in enumerate(zip(self.constants(access.indices), base)):
            address += _offset(layout, dim, value - start)
        return Value(Lrm(address, layout.dtype, ()), strides)

    def digit(self, layout: Layout, access: Access, dim: int, coefficient: int, loop: Loop):  # type: ignore[no-untyped-def]
        try:
            return layout.find(dim, coefficient, loop.extent, loop.kind)
        except ValueError as error:
            name = self.buffers[access.buffer].name
            raise ValueError(f"buffer {name} is not where a reader expects it: {error}") from None

    def flat(self, access: Access) -> tuple[str, int, dict[Key, int]]:
        """(parameter, byte offset, byte stride per variable) of an element outside the array."""
        info = self.buffers[access.buffer]
        size = SIZES[info.dtype]
        if access.buffer in self.params:
            name, shape, start = self.params[access.buffer], info.shape, (0,) * len(info.shape)
            address = 0
        else:
            name, shape = SCRATCH, box_of(self.writer[access.buffer])
            start, address = self.base[access.buffer], self.address[access.buffer]
        steps = row_major(shape, size)
        values = self.constants(access.indices)
        address += sum((v - s) * step for v, s, step in zip(values, start, steps))
        strides: dict[Key, int] = {}
        for (_, parts), step in zip(access.indices, steps):
            for var, coefficient in parts:
                strides[var] = strides.get(var, 0) + coefficient * step
        return name, address, strides

    def ocm_operand(
        self, access: Access, nest: Nest, grid: Grid, loops: tuple[Loop, ...], cols: tuple[int, ...] = ()
    ) -> Ocm:
        name, address, strides = self.flat(access)
        row = _array_strides(nest, strides, "row", len(grid.rows))
        col = cols or _array_strides(nest, strides, "col", len(grid.cols))
        local = tuple(strides.get(loop.var, 0) for loop in loops)
        return ParamOcm(address, self.buffers[access.buffer].dtype, row, col, local, name)

    # ---- movement -------------------------------------------------------------------------------------------------
    def transfer(self, nest: Nest, source: Access) -> None:
        spaces = (self.space_of(source.buffer), self.space_of(nest.target.buffer))
        if "ext" in spaces:
            self.dma(nest, source, spaces)
        elif spaces == ("ocm", "lrm"):
            self.load(nest, source)
        elif spaces == ("lrm", "ocm"):
            grid, loops = Grid(*(_own(nest, part) for part in ("row", "col"))), nest.of_kind("local")
            dst = self.ocm_operand(nest.target, nest, grid, loops)
            src = self.lrm_value(source, nest).over(loops)
            self.code_out.append(Store(grid, _extents(loops), dst, src))
        else:
            raise ValueError(f"no instruction moves data from {spaces[0]} to {spaces[1]}")

    def load(self, nest: Nest, source: Access) -> None:
        grid, loops, ring = self.grid(nest), nest.of_kind("local"), nest.of_kind("ring")
        target = self.lrm_value(nest.target, nest).over(loops)
        cols: tuple[int, ...] = ()
        if ring:
            count = ring[0].extent
            _, _, strides = self.flat(source)
            grid, cols = Grid(grid.rows, (grid.width // count, count)), (0, strides.get(ring[0].var, 0))
        src = self.ocm_operand(source, nest, grid, loops, cols)
        self.code_out.append(Load(grid, _extents(loops), target, src))

    def dma(self, nest: Nest, source: Access, spaces: tuple[str, str]) -> None:
        if "lrm" in spaces or spaces == ("ext", "ext"):
            raise ValueError(f"no instruction moves data from {spaces[0]} to {spaces[1]}; stage it in OCM")
        inward = spaces[0] == "ext"
        ext, ocm = (source, nest.target) if inward else (nest.target, source)
        ext_name, ext_address, ext_strides = self.flat(ext)
        ocm_name, ocm_address, ocm_strides = self.flat(ocm)
        order = lambda strides: tuple(strides.get(loop.var, 0) for loop in nest.loops)  # noqa: E731
        size = SIZES[self.buffers[ext.buffer].dtype]
        shape = _extents(nest.loops)
        direction = "in" if inward else "out"
        where = (ext_address, ocm_address, shape, order(ext_strides), order(ocm_strides), size, SYNC_TAG)
        self.code_out += [ParamDma(direction, *where, ext_name, ocm_name), Wait(SYNC_TAG)]

    # ---- padded copies, through the array --------------------------------------------------------------------------
    def padded(self, nest: Nest) -> None:
        for piece in split_padded(nest, self.env):
            self.copy_piece(nest, piece)

    def copy_piece(self, nest: Nest, piece: Piece) -> None:
        """Copy a box (or fill it) from OCM to OCM: each PE holds a few elements at a time."""
        sizes = {str(k): extent for k, extent in enumerate(piece.shape)}
        cuts = spread(sizes, self.machine, budget=64)
        size = SIZES[self.buffers[nest.target.buffer].dtype]
        address = self.lrm.take(64 * size)
        name, start, strides = self.flat(nest.target)
        dst = _Box(name, start + _dot(piece.low, strides, nest), [strides.get(loop.var, 0) for loop in nest.loops])
        src = None
        if piece.source is not None:
            name, start, strides = self.flat(piece.source)
            src = _Box(name, start + _dot(piece.low, strides, nest), [strides.get(loop.var, 0) for loop in nest.loops])
        for instruction in _box_copy(
            list(cuts.values()), dst, src, piece.fill, address, self.buffers[nest.target.buffer]
        ):
            self.code_out.append(instruction)
        self.lrm.give(address, 64 * size)

    # ---- matrix products ------------------------------------------------------------------------------------------
    def factors(self, nest: Nest) -> tuple[Access, Access]:
        left, right = nest.value[3], nest.value[4]
        return Access(left[1], left[2]), Access(right[1], right[2])

    def is_product(self, nest: Nest) -> bool:
        value = nest.value
        if nest.fold != "add" or value[0] != "op" or value[1] != "mul":
            return False
        parts = value[3:5]
        bytes_only = all(p[0] == "load" and self.buffers[p[1]].dtype in ("i8", "u8") for p in parts)
        return bytes_only and self.buffers[nest.target.buffer].dtype == "i32"

    def mac(self, nest: Nest) -> None:
        left, right = self.factors(nest)
        if not self.is_lrm(left.buffer):
            left, right = right, left
        grid = self.grid(nest)
        ring = next(iter(nest.of_kind("ring")), Loop(0, 1, "ring"))
        in_acc, in_a = _variables(nest.target), _variables(left)
        local = nest.of_kind("local")
        m = tuple(loop for loop in local if loop.var in in_acc and loop.var in in_a)
        n = tuple(loop for loop in local if loop.var in in_acc and loop.var not in in_a)
        k = tuple(loop for loop in local if loop.var not in in_acc)
        a_value, acc_value = self.lrm_value(left, nest), self.lrm_value(nest.target, nest)
        name, address, strides = self.flat(right)
        depth, a_step, b_step = _collapse(k, a_value.strides, strides)
        a = replace(a_value.over(m), strides=(*a_value.over(m).strides, a_step))  # type: ignore[union-attr, type-var]
        col = _array_strides(nest, strides, "col", len(grid.cols))
        steps = (*(strides.get(loop.var, 0) for loop in n), strides.get(ring.var, 0), b_step)
        b = ParamOcm(address, self.buffers[right.buffer].dtype, (), col, steps, name)
        acc = acc_value.over((*m, *n))
        self.code_out.append(Mac(grid, _extents(m), _extents(n), ring.extent, depth, acc, a, b))  # type: ignore[arg-type]

    def mac_local(self, nest: Nest) -> None:
        left, right = self.factors(nest)
        kept = _variables(nest.target)
        local = nest.of_kind("local")
        leading = tuple(loop for loop in local if loop.var in kept)
        reduced = tuple(loop for loop in local if loop.var not in kept)
        loops = (*leading, *reduced)
        acc = self.lrm_value(nest.target, nest).over(leading)
        a, b = (self.lrm_value(part, nest).over(loops) for part in (left, right))
        self.code_out.append(MacLocal(self.grid(nest), _extents(loops), len(reduced), acc, a, b))  # type: ignore[arg-type]

    # ---- element-wise ---------------------------------------------------------------------------------------------
    def compute(self, nest: Nest) -> None:
        self.into(nest, self.lrm_value(nest.target, nest), nest.value, nest.of_kind("local"))

    def into(self, nest: Nest, target: Value, value: Expression, loops: tuple[Loop, ...]) -> None:
        _Selector(self, nest).store(target, value, loops)

    def reduce(self, nest: Nest) -> None:
        kept = _variables(nest.target)
        local = nest.of_kind("local")
        leading = tuple(loop for loop in local if loop.var in kept)
        reduced = tuple(loop for loop in local if loop.var not in kept)
        target = self.lrm_value(nest.target, nest)
        selector = _Selector(self, nest)
        value = selector.operand(nest.value)
        grid, dst = self.grid(nest), target.over(leading)
        if reduced:
            loops = (*leading, *reduced)
            src = value.over(loops)
            self.code_out.append(Reduce(FOLDS[nest.fold], grid, _extents(loops), len(reduced), dst, src, True))  # type: ignore[arg-type]
        else:
            self.code_out.append(Alu(nest.fold, grid, _extents(leading), dst, dst, value.over(leading)))  # type: ignore[arg-type]
        selector.release(nest.value)
        across = [loop for loop in nest.of_kind("col") if loop.var not in kept and loop.extent > 1]
        if across:
            group = prod(loop.extent for loop in across)
            self.code_out.append(AllReduce(FOLDS[nest.fold], grid, _extents(leading), dst, dst, group))  # type: ignore[arg-type]

    def tap(self, nest: Nest) -> None:
        """Record where the elements just written belong in the stage's tensor."""
        info = self.buffers[nest.target.buffer]
        steps = row_major(info.shape, 1)
        strides: dict[Key, int] = {}
        for (_, parts), step in zip(nest.target.indices, steps):
            for var, coefficient in parts:
                strides[var] = strides.get(var, 0) + coefficient * step
        kept = _variables(nest.target)
        loops = tuple(loop for loop in nest.of_kind("local") if loop.var in kept)
        grid = self.grid(nest)
        offset = sum(v * step for v, step in zip(self.constants(nest.target.indices), steps))
        rows, cols = (
            _array_strides(nest, strides, part, len(n)) for part, n in (("row", grid.rows), ("col", grid.cols))
        )
        operand = self.lrm_value(nest.target, nest).over(loops)
        local = tuple(strides.get(loop.var, 0) for loop in loops)
        point = TapPoint(nest.tap, len(self.code_out) - 1, grid, _extents(loops), operand, offset, rows, cols, local)  # type: ignore[arg-type]
        self.taps.append(point)


class _Selector:
    """Instruction selection for the expression of one nest: common parts once, temporaries in LRM."""

    def __init__(self, emitter: _Emitter, nest: Nest) -> None:
        self.emitter, self.nest, self.grid = emitter, nest, emitter.grid(nest)
        self.values: dict[Expression, Value] = {}
        self.uses: dict[Expression, int] = {}
        self.count(nest.value)

    def count(self, value: Expression) -> None:
        self.uses[value] = self.uses.get(value, 0) + 1
        if self.uses[value] == 1:
            for part in _parts(value):
                self.count(part)

    def release(self, value: Expression) -> None:
        """One use of ``value`` is over; its LRM is free after the last."""
        self.uses[value] -= 1
        if self.uses[value] == 0 and value in self.values:
            done = self.values.pop(value)
            if done.temporary:
                self.emitter.lrm.give(done.operand.addr, done.temporary)  # type: ignore[union-attr]

    def operand(self, value: Expression) -> Value:
        if value not in self.values:
            self.values[value] = self.make(value)
        return self.values[value]

    def make(self, value: Expression) -> Value:
        if value[0] == "imm":
            return Value(Imm(value[1]))
        if value[0] == "scalar":
            return Value(ScalarImm(0, value[1]))
        if value[0] == "load":
            return self.emitter.lrm_value(Access(value[1], value[2]), self.nest)
        return self.temporary(value)

    def temporary(self, value: Expression) -> Value:
        """Compute into a new LRM vector over just the loops that the value depends on."""
        dtype = self.emitter.buffers[value[1]].dtype if value[0] == "lut" else value[2]
        used = self.variables(value)
        loops = tuple(loop for loop in self.nest.of_kind("local") if loop.var in used and loop.extent > 1)
        size = SIZES[dtype]
        total = prod(_extents(loops)) * size
        strides, step = {}, size
        for loop in reversed(loops):
            strides[loop.var], step = step, step * loop.extent
        for part in _parts(value):  # operands first, so that their LRM can be reused afterwards
            self.operand(part)
        target = Value(Lrm(self.emitter.lrm.take(total), dtype, ()), strides, total)
        self.store(target, value, loops)
        return target

    def variables(self, value: Expression) -> set[Key]:
        found: set[Key] = set()
        for access in tree.loads(value):
            found |= _variables(access)
        return found

    def store(self, target: Value, value: Expression, loops: tuple[Loop, ...]) -> None:
        dst, counts = target.over(loops), _extents(loops)
        if value[0] == "lut":
            self.lut(dst, value, loops)
            return
        saturate, operation = False, value
        if value[0] == "op" and value[1] in ("sat", "mov"):
            saturate, inner = value[1] == "sat", value[3]
            fusible = inner[0] == "op" and inner[1] not in ("sat", "mov") and self.uses[inner] == 1
            operation = inner if fusible and inner not in self.values else ("op", "mov", value[2], inner)
        elif value[0] != "op":
            operation = ("op", "mov", "", value)
        arguments = [self.operand(part).over(loops) for part in operation[3:]]
        if operation[1] in ("mulr", "mulrf") and arguments[3] == Imm(0):
            arguments = arguments[:3]
        self.emitter.code_out.append(Alu(operation[1], self.grid, counts, dst, *arguments, saturate=saturate))  # type: ignore[arg-type]
        for part in operation[3:]:
            self.release(part)

    def lut(self, dst: Source, value: Expression, loops: tuple[Loop, ...]) -> None:
        info: BufferInfo = self.emitter.buffers[value[1]]
        base = Lrm(self.emitter.address[value[1]], info.dtype, ())
        index = value[2]
        unsigned = index[0] == "op" and index[1] == "and" and index[4] == ("imm", 255) and self.is_byte(index[3])
        source = self.operand(index[3] if unsigned else index).over(loops)
        if unsigned:
            source = replace(source, dtype="u8")  # type: ignore[type-var]
        self.emitter.code_out.append(Lut(self.grid, _extents(loops), dst, base, source, prod(info.shape)))  # type: ignore[arg-type]
        self.release(index)

    def is_byte(self, value: Expression) -> bool:
        return value[0] == "load" and self.emitter.buffers[value[1]].dtype in ("i8", "u8")


@dataclass(frozen=True)
class _Box:
    param: str
    address: int
    strides: list[int]


def _box_copy(cuts, dst: _Box, src, fill: int, address: int, info: BufferInfo):  # type: ignore[no-untyped-def]
    """Load + Store (or fill + Store) per sequencer step of a box."""
    grid = Grid(tuple(cut.row for cut in cuts), tuple(cut.col for cut in cuts))
    loops = tuple(cut.local for cut in cuts)
    size = SIZES[info.dtype]
    lrm = Lrm(address, info.dtype, row_major(loops, size))
    if src is None:
        yield Alu("mov", grid, loops, lrm, Imm(fill))
    for step in _steps([cut.step for cut in cuts]):
        if src is not None:
            yield Load(grid, loops, lrm, _box_operand(cuts, src, step, info.dtype))
        yield Store(grid, loops, _box_operand(cuts, dst, step, info.dtype), lrm)


def _box_operand(cuts, box: _Box, step: tuple[int, ...], dtype: str) -> ParamOcm:  # type: ignore[no-untyped-def]
    address = box.address + sum(i * cut.inner * s for i, cut, s in zip(step, cuts, box.strides))
    row = tuple(cut.col * cut.local * s for cut, s in zip(cuts, box.strides))
    col = tuple(cut.local * s for cut, s in zip(cuts, box.strides))
    return ParamOcm(address, dtype, row, col, tuple(box.strides), box.param)


def _steps(counts: list[int]):  # type: ignore[no-untyped-def]
    from itertools import product

    return product(*(range(count) for count in counts))


def _dot(low: tuple[int, ...], strides: dict[Key, int], nest: Nest) -> int:
    return sum(start * strides.get(loop.var, 0) for start, loop in zip(low, nest.loops))


def _parts(value: Expression) -> tuple[Expression, ...]:
    if value[0] == "op":
        return tuple(value[3:])
    return (value[2],) if value[0] == "lut" else ()


def _variables(access: Access) -> set[Key]:
    return {var for _, parts in access.indices for var, _ in parts}


def _extents(loops: tuple[Loop, ...]) -> tuple[int, ...]:
    return tuple(loop.extent for loop in loops)


def _digits(extents: dict[str, int], part: str) -> tuple[int, ...]:
    positions = sorted(int(kind[3:]) for kind in extents if kind.startswith(part))
    return tuple(extents.get(f"{part}{k}", 1) for k in range(positions[-1] + 1)) if positions else (1,)


def _own(nest: Nest, part: str) -> tuple[int, ...]:
    return _digits({loop.kind: loop.extent for loop in nest.array_loops}, part)


def _array_strides(nest: Nest, strides: dict[Key, int], part: str, count: int) -> tuple[int, ...]:
    found = {loop.kind: strides.get(loop.var, 0) for loop in nest.array_loops}
    return tuple(found.get(f"{part}{k}", 0) for k in range(count))


def _offset(layout: Layout, dim: int, value: int) -> int:
    """LRM byte offset of a constant index within the tile; only local digits can be stepped by a constant."""
    offset = 0
    for digit in sorted((d for d in layout.digits if d.dim == dim), key=lambda d: -d.coefficient):
        count, value = divmod(value, digit.coefficient) if digit.kind == "local" else (0, value)
        offset += count * digit.stride
    if value:
        raise ValueError(f"constant offset {value} of dimension {dim} leaves the tile")
    return offset


def _collapse(loops: tuple[Loop, ...], first: dict[Key, int], second: dict[Key, int]) -> tuple[int, int, int]:
    """(count, stride, stride) of several loops as one, where both operands walk them evenly."""
    real = [loop for loop in loops if loop.extent > 1]
    if not real:
        return 1, 1, 1
    pairs = sorted(((first.get(x.var, 0), second.get(x.var, 0), x.extent) for x in real), reverse=True)
    for (outer_a, outer_b, _), (inner_a, inner_b, extent) in zip(pairs, pairs[1:]):
        if (outer_a, outer_b) != (inner_a * extent, inner_b * extent):
            raise ValueError("the reduction of a Mac is not one even walk through both operands")
    return prod(x.extent for x in real), pairs[-1][0], pairs[-1][1]
