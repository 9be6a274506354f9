"""Package mapping: the four top-level folders install under ``epu.`` only, with every sub-package they hold."""

from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

FOLDERS = {
    "epu": "python/epu",
    "epu.simulator": "simulator",
    "epu.tir_schedules": "tir_schedules",
    "epu.relay_passes": "relay_passes",
}


def packages() -> dict[str, str]:
    """Each package's name → its folder."""
    found = dict(FOLDERS)
    for package, folder in FOLDERS.items():
        for name in find_packages(folder):
            found[f"{package}.{name}"] = f"{folder}/{name.replace('.', '/')}"
    return found


def requirements(name: str) -> list[str]:
    """The lines of a requirements input file."""
    lines = Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


class BuildWithFilesBeside(build_py):
    """Adds what lies outside the packages: the notebooks, and the line that lets TVM's command line, ``tvmc``, know the EPU."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for source, copy in files_beside().items():
                target = Path(self.build_lib) / copy
                self.mkpath(str(target.parent))
                self.copy_file(str(source), str(target))


def files_beside() -> dict[Path, str]:
    """File of the checkout → its place in site-packages."""
    root = Path(__file__).resolve().parent
    notebooks = {path: f"epu/notebooks/{path.name}" for path in sorted((root / "notebooks").glob("*.ipynb"))}
    return {root / "python" / "epu_tvmc.pth": "epu_tvmc.pth", **notebooks}


setup(
    name="epu",
    version="0.1.0",
    description="Compiler and instruction-set simulator for a fixed-point GPNPU",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.10",
    packages=list(packages()),
    package_dir=packages(),
    package_data={"": ["py.typed", "*.j2", "*.json", "*.npz"], "epu": ["templates/*"], "epu.models": ["data/*"]},
    cmdclass={"build_py": BuildWithFilesBeside},
    include_package_data=False,
    install_requires=requirements("requirements.in"),
    extras_require={
        "relay": requirements("requirements-relay.in"),
        "notebooks": requirements("requirements-notebooks.in"),
        "dev": requirements("requirements-dev.in"),
    },
    entry_points={"console_scripts": ["epu = epu.cli:main"]},
    zip_safe=False,
)
