"""The first node that diverges, cut out of the model with its inputs into a folder that shows it by itself."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from numpy.typing import NDArray

from epu.divergence import Divergence, edges, first_divergence, parts_around
from epu.errors import EpuError, UserError
from epu.files import require_writable
from epu.job import ChimeraJob
from epu.log import get_logger
from epu.metrics import END_TO_END
from epu.onnx_cut import cut_onnx
from epu.onnx_load import save_model
from epu.ort_reference import OrtReference
from epu.ranges import load_ranges, save_ranges
from epu.raw_tensors import save_arrays
from epu.reasons_names import unexplained
from epu.stages import Chain
from epu.validate import Progress, run_mode
from epu.validation_result import ValidationResult

Tensors = Mapping[str, NDArray[Any]]

MODEL, INPUTS, SCRIPT, CUSTOM = "cut.onnx", "inputs.npz", "reproduce.py", "custom_ops.py"
RANGES = f"{MODEL}.tranges"

REPRODUCER = '''\
"""Shows that node {label} ({op}) differs from ONNX Runtime: {why}."""
from pathlib import Path

from epu import ChimeraJob, HWConfig

here = Path(__file__).parent
job = ChimeraJob(here / "{model}", {hw}, {ranges}, rounding="{rounding}"{custom})
job.compile()
result = job.validate_ort_iss(here / "{inputs}")
rows = [row for row in result if row["Name"] == "{label}" and row["mode"] == "isolated"]
print(result.summary_table(), *rows, sep="\\n")
'''

log = get_logger("bisect")


@dataclass(frozen=True)
class Found:
    """The divergence, and the folder that reproduces it with its number of nodes. ``folder`` is None where no part of the
    model shows it alone, not even the whole."""

    divergence: Divergence
    folder: Path | None
    nodes: int


def bisect(
    job: ChimeraJob,
    inputs: Tensors | str | os.PathLike[str] | None,
    folder: str | os.PathLike[str],
    progress: Progress | None = None,
) -> Found | None:
    """Validate the compiled ``job``, find the first node that diverges in the free run, and write its reproducer.

    ``folder`` gets cut.onnx, its .tranges, inputs.npz and reproduce.py, all at once; it must not exist yet. The part is the
    kernel of the node alone where that shows the divergence with ONNX Runtime's tensors or those of the free run as inputs,
    else with as many of the kernels before it as are needed. None where nothing diverges.
    Raises UserError for a folder that is there already.
    """
    target = Path(folder)
    require_absent(target)
    arrays = job._inputs(inputs)
    result = job.validate_ort_iss(arrays, progress=progress)
    divergence = first_divergence(result)
    if divergence is None:
        return None
    for nodes, sources in _candidates(job, arrays, divergence):
        if _written(job, divergence, nodes, sources, target):
            return Found(divergence, target, len(nodes))
    return Found(divergence, None, len(job.chain.model.graph.node))


def require_absent(folder: Path) -> None:
    """Raise UserError for a folder that is there already, or cannot be made."""
    if folder.exists():
        raise UserError(f"'{folder}' must not exist yet, found something there. Choose another folder.")
    require_writable(folder, folder=True)


def _candidates(
    job: ChimeraJob, inputs: Tensors, divergence: Divergence
) -> Iterator[tuple[list[onnx.NodeProto], Tensors]]:
    """Parts from small to large, each with ONNX Runtime's tensors and then with those of the free run."""
    chain = job.chain
    reference = OrtReference(chain.model, job.module_name)
    typed = reference.typed(inputs)
    ort = reference.run(typed)
    free: Tensors | None = None
    for nodes in parts_around(chain, divergence.node):
        yield nodes, ort
        free = free if free is not None else _free_run(chain, typed, ort)
        yield nodes, free


def _free_run(chain: Chain, inputs: Tensors, ort: Tensors) -> Tensors:
    """The tensors of the ISS as ONNX Runtime would hold them, where the ISS shows them in that form."""
    from epu.observed import TensorMap
    from epu.stages import EpuStage

    values = dict(ort)
    for stage, seen in zip(chain.stages, run_mode(chain, inputs, ort, END_TO_END), strict=True):
        shown = seen.tensors
        if isinstance(stage, EpuStage):
            shown = _real(TensorMap(stage.model, stage.compiled), seen.tensors, ort)
        values.update({name: array.astype(ort[name].dtype) for name, array in shown.items() if name in ort})
    return {**values, **inputs}


def _real(places: Any, raw: Tensors, ort: Tensors) -> dict[str, NDArray[Any]]:
    from epu.metrics import decoded

    found = {}
    for name, array in ort.items():
        value = places.value_of(name, raw, array.shape)
        if value is not None:
            found[name] = value if array.dtype.kind in "iub" else decoded(value, places.type_of(name))
    return found


def _written(
    job: ChimeraJob, divergence: Divergence, nodes: Sequence[onnx.NodeProto], values: Tensors, target: Path
) -> bool:
    """Write the reproducer of this part and run it; keep it under the target's name only where it shows the divergence."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        _write(job, divergence, nodes, values, draft)
        if not _shows(_reproduced(job, draft), divergence):
            return False
        draft.rename(target)
        return True
    except EpuError as error:  # a part that cannot be cut out, or compiled by itself: a larger one may be
        log.info("A part of %d nodes does not stand alone: %s", len(nodes), error)
        return False
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _write(
    job: ChimeraJob, divergence: Divergence, nodes: Sequence[onnx.NodeProto], values: Tensors, folder: Path
) -> None:
    starts, ends = edges(job.chain.model, nodes, divergence.tensor)
    part = cut_onnx(job.chain.model, cut_before=starts, cut_after=ends)
    save_model(part, folder / MODEL)
    save_arrays(folder / INPUTS, {value.name: values[value.name] for value in part.graph.input})
    if job.trange_file is not None:
        tensors = {value.name for value in part.graph.input} | {
            name for node in part.graph.node for name in node.output
        }
        ranges = load_ranges(job.trange_file)
        save_ranges({name: pair for name, pair in ranges.items() if name in tensors}, folder / RANGES)
    if job.custom_ops.endswith(".py"):
        shutil.copy(job.custom_ops, folder / CUSTOM)
    (folder / SCRIPT).write_text(_script(job, divergence))


def _script(job: ChimeraJob, divergence: Divergence) -> str:
    custom = repr(job.custom_ops)
    if job.custom_ops.endswith(".py"):
        custom = f'here / "{CUSTOM}"'
    return REPRODUCER.format(
        label=divergence.label,
        op=divergence.op,
        why=divergence.why,
        model=MODEL,
        hw=repr(job.hw_config),
        ranges="None" if job.trange_file is None else f'here / "{RANGES}"',
        rounding=job.rounding,
        custom=f", custom_ops={custom}" if job.custom_ops else "",
        inputs=INPUTS,
    )


def _reproduced(job: ChimeraJob, folder: Path) -> ValidationResult:
    """What the script of the folder does, in this process."""
    again = ChimeraJob(
        folder / MODEL,
        job.hw_config,
        folder / RANGES if job.trange_file is not None else None,
        rounding=job.rounding,
        custom_ops=(folder / CUSTOM if job.custom_ops.endswith(".py") else job.custom_ops) if job.custom_ops else None,
        run_directory=folder / "run",
    )
    again.compile()
    result = again.validate_ort_iss(folder / INPUTS)
    shutil.rmtree(folder / "run")
    return result


def _shows(result: ValidationResult, divergence: Divergence) -> bool:
    """Whether the part has the same divergence at the same place."""
    rows = [each.row for each in result.evidence.comparisons if each.output.tensor == divergence.tensor]
    if divergence.tensor in result.evidence.golden_differs:
        return divergence.is_wrong
    if divergence.is_wrong:
        return any(unexplained(row["reasons"]) for row in rows)
    return any(row["Bitwise Mismatches"] for row in rows)
