"""What several pages take for granted: the tutorial's quantised encoder in this folder, without its commands."""

import numpy as np

from epu.models import detr_encoder, detr_inputs
from epu.onnx_load import save_model
from epu.quantize import quadric_quantize

size = {"d_model": 64, "sequence": 40}
MODEL = "out/encoder_opt_sym_int8_q.onnx"


def make(path="encoder.onnx"):
    """encoder.onnx, input.npz and the quantised model with its ranges in out/."""
    save_model(detr_encoder(layers=1, heads=4, ffn=128, **size), path)
    np.savez("input.npz", **detr_inputs(100, **size))
    samples = [detr_inputs(seed, **size) for seed in range(8)]
    quadric_quantize(path, output_folder="out", calibration_data=samples)


def validated(folder, **options):
    """A validated job of it on QC-N, whose record is in the folder."""
    from epu import ChimeraJob, HWConfig

    job = ChimeraJob(MODEL, HWConfig(product="QC-N"), f"{MODEL}.tranges", run_directory=folder, **options)
    job.compile()
    job.validate_ort_iss("input.npz")
    job.write_record()
    return job
