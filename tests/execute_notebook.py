"""Executes a notebook in a kernel of this interpreter: ``execute_notebook.py SOURCE TARGET``, in the folder of TARGET.

A process of its own, so that the sockets of Jupyter's client are nobody else's.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

CELL_SECONDS = 300


def kernel_here(sockets: str) -> AsyncKernelManager:
    """The kernel of this environment, not one that the user has installed; on sockets that no other test can take."""
    specs = KernelSpecManager(kernel_dirs=[str(Path(sys.prefix, "share", "jupyter", "kernels"))])
    place = str(Path(sockets, "kernel"))
    return AsyncKernelManager(kernel_name="python3", kernel_spec_manager=specs, transport="ipc", ip=place)


def main(source: Path, target: Path) -> None:
    notebook = nbformat.read(source, as_version=4)
    resources = {"metadata": {"path": str(target.parent)}}
    with tempfile.TemporaryDirectory() as sockets:  # a socket's path must be short
        NotebookClient(notebook, km=kernel_here(sockets), timeout=CELL_SECONDS, resources=resources).execute()
    nbformat.write(notebook, target)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
