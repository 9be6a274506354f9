"""The names that users of the commercial SDK import."""

from __future__ import annotations

import subprocess
import sys

import epu

IMPORTS = """
import epu
from tvm.contrib.epu.chimera_job.chimera_job import ChimeraJob
from tvm.contrib.epu.chimera_job.hw_config import HWConfig
from tvm.contrib.epu.chimera_job.quantize import quadric_quantize
from tvm.contrib.epu.onnx_util import cut_onnx
import tvm.contrib.epu
assert (ChimeraJob, HWConfig) == (epu.ChimeraJob, epu.HWConfig)
assert (quadric_quantize, cut_onnx) == (epu.quadric_quantize, epu.cut_onnx)
assert tvm.contrib.epu.ChimeraJob is ChimeraJob
assert 'chimera_job' in dir(tvm.contrib.epu)
"""


def test_names_of_the_sdk_are_ours_in_a_fresh_process() -> None:
    subprocess.run([sys.executable, "-c", IMPORTS], check=True)


def test_a_missing_name_is_an_attribute_error() -> None:
    missing = "import epu, tvm.contrib.epu.onnx_util as m\ntry: m.nothing\nexcept AttributeError as e: print(e)"
    found = subprocess.run([sys.executable, "-c", missing], check=True, capture_output=True, text=True).stdout
    assert "nothing" in found


def test_installing_twice_adds_one_finder() -> None:
    before = len(sys.meta_path)
    epu.tvm_names.install()
    assert len(sys.meta_path) == before
