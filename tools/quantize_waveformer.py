"""Writes python/epu/models/data/waveformer_int8.onnx and its .tranges from waveformer_weights.npz, without PyTorch.

Run it after tools/train_waveformer.py. The ranges come from ONNX Runtime, so another release may move a scale's last bit.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from epu.models.semg import waveformer_windows
from epu.models.waveformer import INT8_FILE, attention_exclusions, float_waveformer
from epu.models.waveformer_weights import WEIGHTS_FILE, load_weights
from epu.quantize import quadric_quantize

WINDOWS = 48  # eight of each gesture


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path, default=WEIGHTS_FILE)
    parser.add_argument("--output", type=Path, default=INT8_FILE)
    arguments = parser.parse_args()
    model = float_waveformer(load_weights(arguments.weights))
    windows, _ = waveformer_windows("calibration", WINDOWS)
    samples = [{"input": window[None]} for window in windows]
    with tempfile.TemporaryDirectory() as folder:
        result = quadric_quantize(
            model, output_folder=folder, calibration_data=samples, exclude=attention_exclusions(model)
        )
        shutil.copyfile(result.qmodel_path, arguments.output)
        shutil.copyfile(result.tranges_path, f"{arguments.output}.tranges")
    print(f"{arguments.output}: {arguments.output.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
