"""Every number of the hardware, each marked as a public fact or as our assumption."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from fractions import Fraction
from math import ceil
from typing import Any

from epu.simulator.errors import ConfigError

KIB, MIB = 1024, 1024 * 1024

# Cycles per element and PE: ALU operation -> (all operands within 32 bits, any operand of 64 bits).
# Assumption: one 32-bit operation per cycle; 64-bit values take two passes; products take two passes per 32x32 bits.
_SIMPLE = ("mov", "add", "sub", "and", "or", "xor", "min", "max", "lt", "le", "eq", "ne", "sel", "shl", "shr", "clz")
ALU_COST: dict[str, tuple[int, int]] = {
    **dict.fromkeys(_SIMPLE, (1, 2)),
    "mul": (2, 6),
    "mulr": (2, 6),
    "mulrf": (6, 10),
    "rshr": (2, 3),
    "round24": (4, 4),
}
ALU_COST_ADDEND = 1  # operand d of mulr/mulrf is present
ALU_COST_SATURATE = 2  # clip to the destination's range
LUT_COST = 2  # one look-up in the PE's own LRM


def _number(text: str, kind: str, **default: Any) -> Any:
    return field(metadata={"text": text, "kind": kind}, **default)


def fact(text: str, **default: Any) -> Any:
    """Field of a number the maker has published."""
    return _number(text, "fact", **default)


def assumption(text: str, **default: Any) -> Any:
    """Field of a number we chose; it bounds what the compiler may claim."""
    return _number(text, "assumption", **default)


@dataclass(frozen=True)
class Machine:
    """One EPU: array, memories, clock, external bandwidth."""

    product: str = fact("Product name: QC-N, QC-P or QC-U")
    rows: int = fact("Rows of the PE array (QC-P: assumption)")
    cols: int = fact("Columns of the PE array (QC-P: assumption)")
    macs_per_pe: int = fact("int8 multiply-accumulates per PE and cycle, 8 or 16")
    ocm_bytes: int = fact("On-chip memory (L2M), bytes")
    lrm_bytes: int = fact("Local register memory of one PE, bytes", default=4 * KIB)
    clock_ghz: float = fact("Clock, GHz", default=1.0)
    ext_rd_gbps: float = fact("External read bandwidth, 10^9 bytes per second, shared by the cores", default=8.0)
    ext_wr_gbps: float = fact("External write bandwidth, 10^9 bytes per second, shared by the cores", default=8.0)
    num_cores: int = fact("Cores, each with its own array, LRM and OCM", default=1)
    ext_latency: int = assumption("Cycles before the first byte of an external burst", default=200)
    port_bytes: int = assumption("Bytes per cycle and column between OCM and array, and per neighbour hop", default=4)
    pj_mac: float = assumption("Energy of one int8 multiply-accumulate with an operand from LRM, pJ", default=1.5)
    pj_operation: float = assumption("Energy of one ALU operation with two LRM reads and a write, pJ", default=15.0)
    pj_port_byte: float = assumption("Energy of one byte between OCM and array, pJ", default=12.5)
    pj_ext_byte: float = assumption("Energy of one byte to or from external memory, pJ", default=160.0)

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name not in ("product", "ext_latency") and not value > 0:
                raise ConfigError(f"Machine.{each.name} must be positive, found {value!r}. {each.metadata['text']}.")
        for name, limit in LARGEST.items():
            if getattr(self, name) > limit:
                raise ConfigError(
                    f"Machine.{name} must be at most {limit}, found {getattr(self, name)}. Make it smaller."
                )
        if self.macs_per_pe not in (8, 16):
            raise ConfigError(f"Machine.macs_per_pe must be 8 or 16, found {self.macs_per_pe}. Choose one of the two.")
        if self.lrm_bytes % 8 or self.ocm_bytes % 8:
            found = f"{self.lrm_bytes} and {self.ocm_bytes}"
            raise ConfigError(f"Machine.lrm_bytes and ocm_bytes must be multiples of 8, found {found}. Round them up.")

    @staticmethod
    def for_product(product: str, **overrides: Any) -> Machine:
        """The default machine of a product; ``overrides`` are fields as plain numbers."""
        if product not in PRODUCTS:
            raise ConfigError(f"product must be one of {', '.join(PRODUCTS)}, found {product!r}. Choose one of these.")
        known = {each.name for each in fields(Machine)}
        unknown = sorted(set(overrides) - known)
        if unknown:
            raise ConfigError(f"Machine has no field {unknown[0]!r}. Fields: {', '.join(sorted(known))}.")
        return Machine(product=product, **{**PRODUCTS[product], **overrides})

    @property
    def pes(self) -> int:
        """PEs of the array."""
        return self.rows * self.cols

    def ext_cycles(self, direction: str, count: int) -> int:
        """Cycles of one external burst of ``count`` bytes (``direction`` "in" reads, "out" writes)."""
        gbps = self.ext_rd_gbps if direction == "in" else self.ext_wr_gbps
        per_cycle = Fraction(gbps) / Fraction(self.clock_ghz) / self.num_cores
        return self.ext_latency + ceil(count / per_cycle)


LARGEST = {"rows": 256, "cols": 256, "lrm_bytes": MIB, "ocm_bytes": 1024 * MIB}  # what the simulator will allocate

PRODUCTS: dict[str, dict[str, Any]] = {
    "QC-N": {
        "rows": 8,
        "cols": 8,
        "macs_per_pe": 8,
        "ocm_bytes": 4 * MIB,
        "clock_ghz": 0.5,
        "ext_rd_gbps": 8.0,
        "ext_wr_gbps": 8.0,
    },
    "QC-P": {
        "rows": 16,
        "cols": 16,
        "macs_per_pe": 8,
        "ocm_bytes": 4 * MIB,
        "clock_ghz": 1.0,
        "ext_rd_gbps": 16.0,
        "ext_wr_gbps": 16.0,
    },
    "QC-U": {
        "rows": 32,
        "cols": 32,
        "macs_per_pe": 16,
        "ocm_bytes": 8 * MIB,
        "clock_ghz": 1.56,
        "ext_rd_gbps": 64.0,
        "ext_wr_gbps": 64.0,
    },
}
