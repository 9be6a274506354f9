"""The hardware as users write it: ``HWConfig(product="QC-U", ocm_size="8MB", ext_rd_bw="64GBps")``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from epu.simulator.errors import ConfigError
from epu.simulator.machine import KIB, MIB, PRODUCTS, Machine

Size = str | int
Rate = str | float

SIZE_UNITS = {"b": 1, "kb": KIB, "mb": MIB}
RATE_UNITS = {"gbps": 1.0, "mbps": 1e-3}
OCM_LIMITS = (KIB, 64 * MIB)
LRM_LIMITS = (64, 64 * KIB)
CLOCK_LIMITS = (0.05, 4.0)
BANDWIDTH_LIMITS = (0.1, 1024.0)
MACS_PER_PE = (8, 16)
BYTES_MULTIPLE = 8

_NUMBER = re.compile(r"\s*\d+(\.\d+)?\s*")
_QUANTITY = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([A-Za-z/]+)\s*")


@dataclass(frozen=True)
class HWConfig:
    """A product with its memory sizes, clock and external bandwidth; what is not given is the product's default.

    Sizes are text ("8MB", "4kB"; 1 MB = 2^20 bytes) or bytes, bandwidths text ("64GBps") or numbers in 10^9 bytes
    per second. After construction every field holds its canonical form and ``machine`` the parsed numbers.

    Raises ConfigError with the field, the value found and the values allowed.
    """

    product: str = "QC-U"
    ocm_size: Size | None = None
    lrm_size: Size | None = None
    macs_per_pe: int | None = None
    clock_freq_ghz: float | None = None
    ext_rd_bw: Rate | None = None
    ext_wr_bw: Rate | None = None
    num_cores: int = 1

    def __post_init__(self) -> None:
        base = _product_defaults(self.product)
        _set(self, "ocm_size", _size_text(_size("ocm_size", self.ocm_size, base.ocm_bytes, OCM_LIMITS)))
        _set(self, "lrm_size", _size_text(_size("lrm_size", self.lrm_size, base.lrm_bytes, LRM_LIMITS)))
        _set(self, "macs_per_pe", _macs(base.macs_per_pe if self.macs_per_pe is None else self.macs_per_pe))
        _set(self, "clock_freq_ghz", _clock(base.clock_ghz if self.clock_freq_ghz is None else self.clock_freq_ghz))
        _set(self, "ext_rd_bw", _rate_text(_rate("ext_rd_bw", self.ext_rd_bw, base.ext_rd_gbps)))
        _set(self, "ext_wr_bw", _rate_text(_rate("ext_wr_bw", self.ext_wr_bw, base.ext_wr_gbps)))
        _require_one_core(self.num_cores)

    @property
    def machine(self) -> Machine:
        """The numbers, as the compiler and the simulator want them."""
        assert self.clock_freq_ghz is not None
        return Machine.for_product(
            self.product,
            ocm_bytes=_size("ocm_size", self.ocm_size, 0, OCM_LIMITS),
            lrm_bytes=_size("lrm_size", self.lrm_size, 0, LRM_LIMITS),
            macs_per_pe=self.macs_per_pe,
            clock_ghz=self.clock_freq_ghz,
            ext_rd_gbps=_rate("ext_rd_bw", self.ext_rd_bw, 0.0),
            ext_wr_gbps=_rate("ext_wr_bw", self.ext_wr_bw, 0.0),
            num_cores=self.num_cores,
        )

    def __str__(self) -> str:
        clock = str(self.clock_freq_ghz).replace(".", "d")
        parts = [self.product, clock, self.ocm_size, self.lrm_size, self.ext_rd_bw, self.ext_wr_bw, self.macs_per_pe]
        return "_".join([*map(str, parts), "OFF", f"x{self.num_cores}", "x1"])

    def module_name(self, stem: str) -> str:
        """Name of a model compiled for this hardware: ``<stem>_QC_U_1d56_8MB_…``."""
        return f"{stem}_{str(self).replace('-', '_')}"


def _set(config: HWConfig, name: str, value: object) -> None:
    object.__setattr__(config, name, value)


def _product_defaults(product: object) -> Machine:
    if product not in PRODUCTS:
        raise ConfigError(f"HWConfig: product must be one of {', '.join(PRODUCTS)}; found {product!r}.")
    return Machine.for_product(str(product))


def _size(field: str, value: Size | None, default: int, limits: tuple[int, int]) -> int:
    if value is None:
        return default
    count = _quantity(field, value, SIZE_UNITS, '"8MB" or "4kB", or a number of bytes')
    low, high = limits
    if not low <= count <= high or count % BYTES_MULTIPLE:
        allowed = f"{_size_text(low)} to {_size_text(high)} in steps of {BYTES_MULTIPLE} bytes"
        raise ConfigError(f"HWConfig: {field} must be {allowed}; found {value!r}.")
    return int(count)


def _rate(field: str, value: Rate | None, default: float) -> float:
    if value is None:
        return default
    rate = _quantity(field, value, RATE_UNITS, '"64GBps", or a number in GB per second')
    _require_within(field, rate, BANDWIDTH_LIMITS, "GBps", value)
    return rate


def _quantity(field: str, value: Any, units: dict[str, float] | dict[str, int], form: str) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and _NUMBER.fullmatch(value):  # as typed at a prompt
        return float(value)
    match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    unit = match[2].lower().replace("/s", "ps") if match else ""
    if match is None or unit not in units:
        raise ConfigError(f"HWConfig: {field} must be text such as {form}; found {value!r}.")
    return float(match[1]) * units[unit]


def _clock(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigError(f"HWConfig: clock_freq_ghz must be a number in GHz such as 1.56; found {value!r}.")
    _require_within("clock_freq_ghz", float(value), CLOCK_LIMITS, "GHz", value)
    return float(value)


def _macs(value: Any) -> int:
    if isinstance(value, bool) or value not in MACS_PER_PE:
        allowed = " or ".join(map(str, MACS_PER_PE))
        raise ConfigError(f"HWConfig: macs_per_pe must be {allowed}; found {value!r}.")
    return int(value)


def _require_within(field: str, number: float, limits: tuple[float, float], unit: str, found: object) -> None:
    low, high = limits
    if not (math.isfinite(number) and low <= number <= high):
        raise ConfigError(f"HWConfig: {field} must be {low:g} to {high:g} {unit}; found {found!r}.")


def _require_one_core(num_cores: object) -> None:
    if num_cores != 1 or isinstance(num_cores, bool):
        raise ConfigError(
            f"HWConfig: num_cores must be 1, the compiler does not split work over several cores yet; "
            f"found {num_cores!r}. Leave num_cores out."
        )


def _size_text(count: int) -> str:
    for unit, size in (("MB", MIB), ("kB", KIB)):
        if count and count % size == 0:
            return f"{count // size}{unit}"
    return f"{count}B"


def _rate_text(rate: float) -> str:
    return f"{rate:g}GBps"
