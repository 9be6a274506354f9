"""Makes ``.venv``: finds or fetches CPython 3.10, installs the pinned requirements and the project.

Runs under any Python >= 3.8, standard library only. A second run finds the stamp and does nothing.
``bootstrap.py uv ARGUMENT...`` runs the private uv instead.
"""

from __future__ import annotations

import ast
import fcntl
import glob
import hashlib
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Dict, Iterator, List, Optional

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "ready"
UV_VENV = ROOT / "build" / "uv"
INPUTS = ["requirements.txt", "setup.py", "tools/bootstrap.py"]

# The TVM wheel that holds Relay exists for CPython 3.8 and 3.10 on Linux x86-64 only.
PROBE = """
import platform, sys
found = "%s %d.%d on %s" % (platform.python_implementation(), *sys.version_info[:2], platform.machine())
if found != "CPython 3.10 on x86_64":
    sys.exit("is " + found)
import bz2, ctypes, ensurepip, ssl, venv, zlib
"""

# Settings that say where packages come from are the user's; every other pip setting would change what is installed.
PIP_SOURCES = (
    "cache-dir cert client-cert default-timeout extra-index-url find-links index-url keyring-provider no-cache-dir "
    "no-index proxy retries timeout trusted-host"
).split()

NO_INTERPRETER = """
EPU needs CPython 3.10 (the last TVM release with Relay has no build for newer ones), and none was found or fetched:
{reasons}
Do one of these, then run make again:
  - install it: `uv python install 3.10`, `pyenv install 3.10`, `conda create -n epu python=3.10`, or the package
    python3.10 with python3.10-venv of your distribution;
  - point to one: EPU_PYTHON=/path/to/python3.10 make test
"""


def log(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def environment() -> Dict[str, str]:
    """The environment without what redirects Python, uv or pip."""
    redirects = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "UV_PYTHON", "__PYVENV_LAUNCHER__")
    return {name: value for name, value in os.environ.items() if name not in redirects}


def run(*command: str, **variables: str) -> None:
    subprocess.run(command, check=True, cwd=str(ROOT), env={**environment(), **variables}, stdout=sys.stderr)


def pip_settings(python: str) -> Dict[str, str]:
    """As variables: the user's package sources (from files and environment), and no other setting of theirs."""
    command = [python, "-I", "-m", "pip", "config", "list"]
    all_files = {**environment(), "PIP_USER": "0"}  # a `user = true` of theirs would limit the list to one file
    listed = subprocess.run(command, check=True, env=all_files, stdout=subprocess.PIPE).stdout.decode()
    kept = {}
    for section in ("global.", "install.", ":env:."):  # the later one wins
        for line in listed.splitlines():
            name, _, value = line.partition("=")
            if name.startswith(section) and name[len(section) :] in PIP_SOURCES:
                kept["PIP_" + name[len(section) :].replace("-", "_").upper()] = str(ast.literal_eval(value))
    return {**kept, "PIP_CONFIG_FILE": os.devnull}


def pip_install(python: str, *arguments: str) -> None:
    settings = pip_settings(python)
    cleared = {name: "" for name in os.environ if name.startswith("PIP_")}  # pip passes over an empty variable
    run(python, "-I", "-m", "pip", "install", "-qq", "--no-input", *arguments, **{**cleared, **settings})


def problem(python: str) -> Optional[str]:
    """Why ``python`` cannot carry the project, None if it can. Only running it tells: shims and half installs exist."""
    try:
        probe = subprocess.run(
            [python, "-I", "-c", PROBE], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), timeout=60
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    lines = probe.stderr.decode(errors="replace").strip().splitlines()
    return None if probe.returncode == 0 else (lines or ["fails"])[-1]


def candidates() -> Iterator[str]:
    """Interpreters worth a try, the user's choice first."""
    if os.environ.get("EPU_PYTHON"):
        yield os.environ["EPU_PYTHON"]
    for folder in os.get_exec_path():
        yield os.path.join(folder, "python3.10")
    home = str(Path.home())
    pyenv = os.environ.get("PYENV_ROOT", home + "/.pyenv")
    uv = os.environ.get("UV_PYTHON_INSTALL_DIR", home + "/.local/share/uv/python")
    for pattern in (
        pyenv + "/versions/3.10*/bin/python3.10",
        uv + "/cpython-3.10*/bin/python3.10",
        "/usr/bin/python3.10",
        "/usr/local/bin/python3.10",
        "/opt/*/bin/python3.10",
        *(base + "/bin/python3.10" for base in conda_bases(home)),
        *(base + "/envs/*/bin/python3.10" for base in conda_bases(home)),
    ):
        yield from sorted(glob.glob(pattern), reverse=True)


def conda_bases(home: str) -> List[str]:
    names = ["miniconda3", "anaconda3", "miniforge3", "mambaforge", "micromamba", ".conda"]
    return [os.environ.get("CONDA_PREFIX", home + "/miniconda3"), *(home + "/" + name for name in names), "/opt/*"]


def find_interpreter(reasons: List[str]) -> Optional[str]:
    tried = set()
    for python in candidates():
        if python in tried or not shutil.which(python):
            continue
        tried.add(python)
        reason = problem(python)
        if reason is None:
            return python
        reasons.append("  - {}: {}".format(python, reason))
    return None


def uv() -> str:
    """The path of uv: the user's, or a pinned one in a private folder."""
    private = UV_VENV / "bin" / "uv"
    on_path = shutil.which("uv")
    if private.exists() or on_path:
        return str(private) if private.exists() else str(on_path)
    pinned = ["--require-hashes", "--only-binary=:all:", "-r", "tools/uv.txt"]
    try:
        run(sys.executable, "-I", "-m", "venv", "--clear", str(UV_VENV))
        pip_install(str(UV_VENV / "bin" / "python"), *pinned)
    except subprocess.CalledProcessError:  # Debian's python3 without python3-venv may still have pip
        shutil.rmtree(str(UV_VENV), ignore_errors=True)
        pip_install(sys.executable, *pinned, "--target", str(UV_VENV))
    return str(private)


def fetch_interpreter(reasons: List[str]) -> Optional[str]:
    log("No CPython 3.10 on this machine: fetching one with uv ...")
    try:
        run(uv(), "python", "install", "3.10")
        found = subprocess.run(
            [uv(), "python", "find", "--python-preference", "only-managed", "3.10"],
            check=True,
            cwd="/",
            env=environment(),
            stdout=subprocess.PIPE,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        reasons.append("  - fetching one with uv failed: {}".format(error))
        return None
    python = found.stdout.decode().strip()
    reason = problem(python)
    if reason is not None:
        reasons.append("  - {} (from uv): {}".format(python, reason))
    return python if reason is None else None


def fingerprint() -> str:
    """Changes when the environment must be made anew: other inputs, or the folder moved (scripts hold its path)."""
    digest = hashlib.sha256(str(ROOT).encode())
    for name in INPUTS:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def is_ready() -> bool:
    try:
        return STAMP.read_text() == fingerprint() and problem(str(VENV / "bin" / "python")) is None
    except OSError:
        return False


def make_environment(python: str) -> None:
    log("Setting up .venv with {} (once, about a minute) ...".format(python))
    run(python, "-I", "-m", "venv", "--clear", str(VENV))
    pip_install(str(VENV / "bin" / "python"), "--require-hashes", "--only-binary=:all:", "-r", "requirements.txt")
    pip_install(str(VENV / "bin" / "python"), "--no-deps", "--no-build-isolation", "-e", ".")
    (packages,) = glob.glob(str(VENV / "lib" / "python*" / "site-packages"))
    shutil.copy(str(ROOT / "python" / "epu_tvmc.pth"), packages)  # an editable install leaves it out
    STAMP.write_text(fingerprint())  # last: without it the next run starts afresh


def set_up() -> None:
    if is_ready():
        return
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        sys.exit(
            "EPU needs Linux on x86-64 (the TVM wheel with Relay exists for it only), found {} on {}.".format(
                sys.platform, platform.machine()
            )
        )
    reasons: List[str] = []
    python = find_interpreter(reasons) or fetch_interpreter(reasons)
    if python is None:
        sys.exit(NO_INTERPRETER.format(reasons="\n".join(reasons) or "  - no candidate"))
    make_environment(python)


def main(arguments: List[str]) -> int:
    (ROOT / "build").mkdir(exist_ok=True)
    with open(str(ROOT / "build" / "bootstrap.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # `make demo` beside `make test`
        try:
            if arguments[:1] == ["uv"]:
                run(uv(), *arguments[1:])
            else:
                set_up()
        except subprocess.CalledProcessError as error:
            log("Set-up failed: {}".format(error))
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
