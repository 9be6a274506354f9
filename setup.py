"""Package mapping: the four top-level folders install under ``epu.`` only."""

from setuptools import setup

FOLDERS = {
    "epu": "python/epu",
    "epu.simulator": "simulator",
    "epu.tir_schedules": "tir_schedules",
    "epu.relay_passes": "relay_passes",
}

setup(
    name="epu",
    version="0.1.0",
    packages=[*FOLDERS, "epu.operators"],
    package_dir={**FOLDERS, "epu.operators": "python/epu/operators"},
    python_requires=">=3.10",
)
