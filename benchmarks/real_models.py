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
from pathlib import Path
from typing import Any

import click

from benchmarks import decode_outputs
from benchmarks.real_cases import (
    BY_NAME,
    CHECKOUT,
    FORMS,
    HELD_OUT,
    MODELS,
    ROUNDINGS,
    Case,
    RealModel,
    compiled_job,
    validated,
)
from epu.files import write_bytes
from epu.reports import to_json

CACHE = CHECKOUT / "build" / "real_models"
SOURCES = ("python", "simulator", "tir_schedules", "relay_passes", "benchmarks")

APART: dict[str, Callable[[Any, Any], str]] = {
    "text": decode_outputs.texts_apart,
    "text boxes": decode_outputs.boxes_apart,
    "boxes": decode_outputs.boxes_apart,
}


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
        "to ORT": equal_text(case.model, results, "ort"),
        "to ORT int8": equal_text(case.model, results, "ort_int8"),
        "Mcycles": f"{results[0]['cycles'] / 1e6:.2f}",
        "compile s": f"{results[0]['compile_seconds']:.0f}",
        "ISS s": f"{min(each['iss'] for each in seconds):.2f}",
        "ORT s": f"{min(each['ort'] for each in seconds):.3f}",
    }


def equal_text(model: RealModel, results: list[dict[str, Any]], kernels: str) -> str:
    """Whether all answers are equal, in what those differ that are not, and the cosine of the outputs unless it is 1."""
    answers = [each["answers"] for each in results]
    lowest = min(each[f"cosine_to_{kernels}"] for each in answers)
    different = [each for each in answers if not each[f"equal_to_{kernels}"]]
    describe = APART.get(model.meaning)
    parts = ["differs" if different else "equal"]
    parts += [describe(each["iss"], each[kernels]) for each in different] if describe else []
    parts += [] if lowest > 1 - 1e-9 else [f"cosine {lowest:.6f}"]
    return ", ".join(parts)


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
