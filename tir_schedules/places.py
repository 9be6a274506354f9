"""Where each buffer element of a nest lies: PE grid, LRM byte, OCM byte."""

from __future__ import annotations

from collections.abc import Mapping

from epu.simulator.operands import SIZES, Grid, Lrm

from . import nest as tree
from .kernel_code import SCRATCH, LrmValue, ParamOcm
from .layout import Digit, Layout, box_of, layout_of, loop_dims, row_major
from .nest import Access, Affine, Code, Key, Loop, Nest

Shapes = Mapping[str, tuple[int, ...]]


class Places:
    """Addresses of a kernel's buffers at one point of its execution.

    ``env`` holds the sequencer's loop variables, ``address`` the start of each allocated buffer, ``base`` the index of the
    first element that a buffer's writer wrote last. A parameter in ``whole`` is a slice of an array of that shape.
    """

    def __init__(self, code: Code, whole: Shapes | None = None) -> None:
        self.buffers, self.whole = code.buffers, whole or {}
        self.params = {key: name for name, key in code.params if key is not None}
        self.nests = list(tree.nests(code.tree))
        self.writer = {nest.target.buffer: nest for nest in reversed(self.nests)}
        self.address: dict[Key, int] = {}
        self.base: dict[Key, tuple[int, ...]] = {}
        self.env: dict[Key, int] = {}
        self._layouts: dict[Key, Layout] = {}
        self._grids: dict[int, Grid] = {}

    def is_lrm(self, key: Key) -> bool:
        """Whether a buffer lies in LRM; all others lie in OCM."""
        return self.buffers[key].scope.startswith("local")

    def layout(self, key: Key) -> Layout:
        """Distribution of an LRM buffer, from the nest that writes it first."""
        if key not in self._layouts:
            self._layouts[key] = layout_of(self.buffers[key], self.writer[key])
        return self._layouts[key]

    def constants(self, indices: tuple[Affine, ...]) -> tuple[int, ...]:
        """Value of each index with all loops of the nest at zero."""
        return tuple(c + sum(k * self.env.get(var, 0) for var, k in parts) for c, parts in indices)

    def grid(self, nest: Nest) -> Grid:
        """Active PEs of a nest: its own array digits, and for LRM results all PEs that will read them."""
        if id(nest) not in self._grids:
            self._grids[id(nest)] = self._find_grid(nest)
        return self._grids[id(nest)]

    def _find_grid(self, nest: Nest) -> Grid:
        found = {loop.kind: loop.extent for loop in nest.array_loops}
        target = nest.target.buffer
        readers = [
            each
            for each in self.nests
            if each is not nest and self.is_lrm(target) and any(a.buffer == target for a in tree.loads(each.value))
        ]
        for reader in readers:
            other = self.grid(reader)
            for part, counts in (("row", other.rows), ("col", other.cols)):
                for position, extent in enumerate(counts):
                    found.setdefault(f"{part}{position}", extent)
        return Grid(_digits(found, "row"), _digits(found, "col"))

    def lrm_value(self, access: Access, nest: Nest) -> LrmValue:
        """An LRM buffer element seen from a nest's loops. Raises ValueError where another PE holds it."""
        layout, base = self.layout(access.buffer), self.base[access.buffer]
        address, strides = self.address[access.buffer], {}  # type: int, dict[Key, int]
        followed: list[Digit] = []
        for loop in nest.loops:
            for dim, coefficient in loop_dims(access.indices, loop):
                if loop.extent == 1:
                    continue
                digit = self._digit(layout, access, dim, coefficient, loop)
                followed.append(digit)
                if loop.kind == "local":
                    strides[loop.var] = strides.get(loop.var, 0) + digit.stride * coefficient // digit.coefficient
        self._require_followed(layout, access, followed)
        for dim, (value, start) in enumerate(zip(self.constants(access.indices), base)):
            address += _offset(layout, dim, value - start)
        return LrmValue(Lrm(address, layout.dtype, ()), strides)

    def _require_followed(self, layout: Layout, access: Access, followed: list[Digit]) -> None:
        """What is spread over the array must be read along it: a constant index means an element of one PE."""
        for digit in layout.digits:
            if digit.kind[:3] in ("row", "col") and digit.extent > 1 and digit not in followed:
                raise ValueError(
                    f"buffer {self.buffers[access.buffer].name} is not where a reader expects it: dimension {digit.dim} is "
                    f"spread over {digit.kind}, and the reader does not follow it"
                )

    def _digit(self, layout: Layout, access: Access, dim: int, coefficient: int, loop: Loop) -> Digit:
        try:
            return layout.find(dim, coefficient, loop.extent, loop.kind)
        except ValueError as error:
            name = self.buffers[access.buffer].name
            raise ValueError(f"buffer {name} is not where a reader expects it: {error}") from None

    def flat(self, access: Access) -> tuple[str, int, dict[Key, int]]:
        """(parameter, byte offset, byte stride per variable) of an element in OCM."""
        info = self.buffers[access.buffer]
        if access.buffer in self.params:
            name, start = self.params[access.buffer], (0,) * len(info.shape)
            shape, address = self.whole.get(name, info.shape), 0
        else:
            name, shape = SCRATCH, box_of(self.writer[access.buffer])
            start, address = self.base[access.buffer], self.address[access.buffer]
        steps = row_major(shape, SIZES[info.dtype])
        values = self.constants(access.indices)
        address += sum((v - s) * step for v, s, step in zip(values, start, steps))
        return name, address, weighted(access.indices, steps)

    def ocm(self, access: Access, nest: Nest, grid: Grid, loops: tuple[Loop, ...]) -> ParamOcm:
        """An OCM operand over a grid and the instruction's loops."""
        name, address, strides = self.flat(access)
        row, col = (array_strides(nest, strides, part, len(n)) for part, n in (("row", grid.rows), ("col", grid.cols)))
        local = tuple(strides.get(loop.var, 0) for loop in loops)
        return ParamOcm(address, self.buffers[access.buffer].dtype, row, col, local, name)


def weighted(indices: tuple[Affine, ...], steps: tuple[int, ...]) -> dict[Key, int]:
    """Total step of each variable over all dimensions."""
    strides: dict[Key, int] = {}
    for (_, parts), step in zip(indices, steps):
        for var, coefficient in parts:
            strides[var] = strides.get(var, 0) + coefficient * step
    return strides


def variables(access: Access) -> set[Key]:
    """Loop variables that an access depends on."""
    return {var for _, parts in access.indices for var, _ in parts}


def array_strides(nest: Nest, strides: dict[Key, int], part: str, count: int) -> tuple[int, ...]:
    """Stride of each row or column digit."""
    found = {loop.kind: strides.get(loop.var, 0) for loop in nest.array_loops}
    return tuple(found.get(f"{part}{k}", 0) for k in range(count))


def own_grid(nest: Nest) -> Grid:
    """The PEs of a nest's own array digits."""
    found = {loop.kind: loop.extent for loop in nest.array_loops}
    return Grid(_digits(found, "row"), _digits(found, "col"))


def _digits(found: dict[str, int], part: str) -> tuple[int, ...]:
    positions = sorted(int(kind[3:]) for kind in found if kind.startswith(part))
    return tuple(found.get(f"{part}{k}", 1) for k in range(positions[-1] + 1)) if positions else (1,)


def _offset(layout: Layout, dim: int, value: int) -> int:
    """LRM byte offset of a constant index within the tile; only local digits can be stepped by a constant."""
    offset = 0
    for digit in sorted((d for d in layout.digits if d.dim == dim), key=lambda d: -d.coefficient):
        count, value = divmod(value, digit.coefficient) if digit.kind == "local" else (0, value)
        offset += count * digit.stride
    if value:
        raise ValueError(f"constant offset {value} of dimension {dim} leaves the tile")
    return offset
