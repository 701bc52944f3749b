"""The compiler as a program: where it lies in the package, and calling it."""
from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
from typing import NamedTuple

from ._errors import CompileError

PREFIX = pathlib.Path(__file__).resolve().parent
PROGRAM = PREFIX / "bin" / "tamp"
STAND_IN = PREFIX / "share" / "tamp" / "cuda_on_cpu"
LIBRARY_SOURCES = PREFIX / "share" / "tamp" / "python"


def version() -> str:
    return importlib.metadata.version("tamp")


def main() -> None:
    """The command `tamp`, as `pip install` puts it into PATH."""
    os.execv(PROGRAM, ["tamp", *sys.argv[1:]])


def call(*arguments: object, folder: pathlib.Path | None = None) -> subprocess.CompletedProcess[str]:
    """Runs it in that folder, or where this process is."""
    return subprocess.run([str(PROGRAM), *map(str, arguments)], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")


def error_of(done: subprocess.CompletedProcess[str]) -> str:
    """What the program says after "error: ", which is the end of its stderr."""
    before, found, message = done.stderr.partition("error: ")
    return message.strip() if found else f"tamp ended with code {done.returncode}: {before.strip()[-2000:]}"


class Machine(NamedTuple):
    """What models are built and run with."""

    device: str
    """"cuda", or "cpu": the stand-in."""
    compiler: str
    """Path of nvcc or g++; empty if there is none."""
    vdevice: str
    """What vdevice="auto" means; empty if `problem` says why nothing does."""
    problem: str
    has_gpu: bool
    nvcc: str
    """Path of nvcc, whatever the device is; empty if there is none."""


@functools.lru_cache(maxsize=None)
def machine(device: str) -> Machine:
    """For "auto", "cuda" or "cpu"."""
    done = call("devices", "-q", "--here", *([] if device == "auto" else [device]))
    if done.returncode != 0:
        raise CompileError(error_of(done))
    return Machine(**json.loads(done.stdout))


@functools.lru_cache(maxsize=None)
def identity() -> str:
    """A hash of all that the package puts into a compiled model: the compiler, the stand-in, library.cpp."""
    digest = hashlib.sha256()
    for path in [PROGRAM, *sorted(STAND_IN.iterdir()), *sorted(LIBRARY_SOURCES.iterdir())]:
        digest.update(f"{path.name} {path.stat().st_size}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
