"""``tvmc compile --target="epu -product=QC-N"``: the EPU among the targets of TVM's command line.

tvmc lets code generators stand before a TVM target, each with a function that partitions the module. The EPU is such a
code generator; where the user names no TVM target behind it, the machine we are on is added.
"""

from __future__ import annotations

import inspect
from typing import Any

from epu.relay_passes.build_hooks import wrap
from epu.relay_passes.tvm_target import HOST, host_target
from epu.simulator.errors import ConfigError, EpuError

CODEGEN = "epu"
BUILD_OPTIONS = ("rounding", "exclude")  # beside those of HWConfig


def register(composite_target: Any) -> None:
    """Add the EPU to the code generators that tvmc knows."""
    composite_target.REGISTERED_CODEGEN[CODEGEN] = {"config_key": None, "pass_pipeline": partition}


def hook_targets(target: Any) -> None:
    """Let ``--target=epu`` do without a TVM target behind it, and ``llvm`` mean the machine we are on."""
    wrap(target, "parse_target", _with_host)


def _with_host(parse_target: Any) -> Any:
    def wrapped(text: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = parse_target(text)
        if not any(each["name"] == CODEGEN for each in found):
            return found
        if found[-1]["name"] == CODEGEN:
            found.append({"name": HOST["kind"], "opts": {}, "raw": HOST["kind"], "is_tvm_target": True})
        for each in found:
            if each["name"] == HOST["kind"] and "mtriple" in HOST:
                each["opts"].setdefault("mtriple", HOST["mtriple"])
        return found

    return wrapped


def partition(module: Any, params: Any = None, mod_name: str = "default", **options: str) -> Any:
    """The partitioned module; ``options`` of the target hold for the rest of the process, which builds one model.

    Raises tvmc's own exception, which it prints without a traceback.
    """
    from tvm.driver.tvmc import TVMCException

    from epu.build_options import use
    from epu.relay_passes.partition import partition_for_epu

    try:
        chosen = use(*_build_options({name.replace("-", "_"): value for name, value in options.items()}))
        with host_target():
            return partition_for_epu(module, params, chosen.exclude)
    except EpuError as error:
        raise TVMCException(str(error)) from error


def _build_options(options: dict[str, str]) -> tuple[Any, str, tuple[str, ...]]:
    """Hardware, rounding and exclusions from the options of the target's text."""
    from epu.hw_config import HWConfig

    hardware = tuple(inspect.signature(HWConfig).parameters)
    unknown = [name for name in options if name not in (*hardware, *BUILD_OPTIONS)]
    if unknown:
        known = ", ".join((*hardware, *BUILD_OPTIONS))
        raise ConfigError(f"target epu: its options are {known}; found '{unknown[0]}'. Correct the --target text.")
    exclude = tuple(filter(None, options.get("exclude", "").split(";")))
    numbers = {name: _typed(name, value) for name, value in options.items() if name in hardware}
    return HWConfig(**numbers), options.get("rounding", "exact"), exclude


def _typed(name: str, value: str) -> Any:
    """Plain numbers as numbers, everything else (names, sizes, bandwidths) as text."""
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value
