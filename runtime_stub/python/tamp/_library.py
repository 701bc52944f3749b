"""The shared library of a compiled model, in which the model runs: building it, and tamp.build and tamp.load."""
from __future__ import annotations

import functools
import os
import pathlib
import shlex
import struct
import subprocess
import tempfile
from collections.abc import Callable
from typing import Any, Literal

from . import _native, _program
from ._cache import hash_file, keep_once
from ._errors import CompileError, Error, RunError
from ._model import LIBRARY, Model, schedule_of
from ._progress import Progress


def build(folder: str | os.PathLike[str], device: Literal["auto", "cuda", "cpu"] = "auto", *, verbose: bool | None = None) -> pathlib.Path:
    """Builds the library of a folder that `tamp compile` wrote, and puts it there as library.so. Then `tamp.load(folder)` needs no compiler, on
    this machine or another one: take the whole folder along. Returns the library's path.

    folder: what `tamp compile` wrote.
    device: "cuda": by nvcc, for the GPU that the folder was compiled for; no GPU is needed. "cpu": by g++, with the stand-in for CUDA. "auto":
        "cpu" if it was compiled for that, else "cuda".
    verbose: as of tamp.compile.

    Raises CompileError if the folder is none that `tamp compile` wrote, or cannot be built.
    """
    path = pathlib.Path(folder).absolute()
    unfinished = path / f"{LIBRARY}.{os.getpid()}.new"
    with tempfile.TemporaryDirectory(prefix="tamp-") as work:
        try:
            build_library(path, unfinished, _builder(path, device, runs=False), pathlib.Path(work), Progress(verbose), portable=True)
            return unfinished.replace(path / LIBRARY)
        finally:
            unfinished.unlink(missing_ok=True)


def load(path: str | os.PathLike[str], device: Literal["auto", "cuda", "cpu"] = "auto", *, verbose: bool | None = None) -> Model:
    """A model from a folder that `tamp compile`, `tamp.build` or `Model.save` wrote.

    If the folder has a library.so, that is run, and no compiler is needed. Otherwise the library is built first, and kept in the cache; the
    folder stays as it is.

    path: the folder, or the library in it. What lies there is run: load nothing that you would not run as a program.
    device: what runs it: "cuda", "cpu" (the stand-in for CUDA), or "auto": what it was compiled or built for.
    verbose: as of tamp.compile.

    Raises FileNotFoundError if there is nothing, ValueError if it is a file of another kind, CompileError if the folder is none of these or
    cannot be built here, RunError if the GPU cannot hold the program.
    """
    place = pathlib.Path(path).absolute()
    if place.is_file():
        if place.suffix != ".so":
            takes = "tamp.compile takes models" if place.suffix == ".onnx" else "a static library is for programs in C and C++" if place.suffix == ".a" else ""
            raise ValueError(f"{place}: found a file, expected a folder that tamp compile wrote, or its {LIBRARY}{takes and '; '}{takes}")
        expect_whole(place)
        return Model(place.parent, place)
    if not place.is_dir():
        raise FileNotFoundError(f"{place}: no such folder or library")
    library = place / LIBRARY
    if library.is_file():
        expect_whole(library)
    if library.is_file() and (device == "auto" or _native.Library(str(library)).is_stand_in == (device == "cpu")):
        return Model(place, library)
    builder, progress = _builder(place, device, runs=True), Progress(verbose)
    sources = [hash_file(file) for file in sorted(place.iterdir()) if file.suffix in {".cu", ".h"}]

    def make(made: pathlib.Path, work: pathlib.Path) -> None:
        build_library(place, made / LIBRARY, builder, work, progress)

    return opened(lambda: keep_once([_program.identity(), compiler_identity(builder), sources], make), lambda kept: Model(place, kept / LIBRARY))


def expect_whole(library: pathlib.Path) -> None:
    """RunError if the file ends before its sections do: the loader would read behind its end, which kills the process."""
    with library.open("rb") as file:
        head = file.read(64)
    if len(head) == 64 and head[:6] == b"\x7fELF\x02\x01":
        (begin,), (size, count) = struct.unpack_from("<Q", head, 40), struct.unpack_from("<HH", head, 58)  # of the table of sections
        if library.stat().st_size >= begin + size * count:
            return
    raise RunError(f"{library}: is no whole library; tamp.build(folder) makes it anew")


def opened(find: Callable[[], pathlib.Path], open_it: Callable[[pathlib.Path], Model]) -> Model:
    """The model of a folder in the cache. Another process may remove the folder when this one has just found it; then it is made again."""
    for _ in range(3):
        found = find()
        try:
            return open_it(found)
        except (OSError, Error):
            if found.is_dir():
                raise
    return open_it(find())


def _builder(folder: pathlib.Path, device: str, runs: bool) -> _program.Machine:
    """What builds that folder's library for the device; `runs`: which is to be run here."""
    vdevice = schedule_of(folder)["vdevice"]
    is_for_cpu = vdevice["arch"] == "cpu"
    if device == "cpu" or (device == "auto" and is_for_cpu):
        return _program.machine("cpu")
    if is_for_cpu:
        raise CompileError(f"{folder}: was compiled for the stand-in; tamp compile --vdevice names a GPU")
    here = _program.machine("auto")
    if runs and not here.has_gpu:
        raise CompileError(f'{folder}: was compiled for {vdevice["name"]}, and there is no GPU; device="cpu" runs it on the stand-in for CUDA')
    return here._replace(device="cuda", compiler=here.nvcc)


def build_library(
    folder: pathlib.Path, library: pathlib.Path, machine: _program.Machine, work: pathlib.Path, progress: Progress, portable: bool = False
) -> None:
    """From one translation unit. `portable`: for other CPUs than this one, too."""
    schedule = schedule_of(folder)
    name, arch = schedule["name"], schedule["vdevice"]["arch"]
    source = work / "library.cu"
    parts = "".join(f"#define TAMP_{part.upper()}\n" for part, field in [("lengths", "lengths"), ("tokens", "generation")] if schedule.get(field))
    source.write_text(f'{parts}#define TAMP_MODEL {name}\n#include "{name}.cu"\n#include "library.cpp"\n')
    if not machine.compiler:
        wanted = "g++ 11 or newer and libboost-context-dev" if machine.device == "cpu" else "nvcc of the CUDA Toolkit"
        raise CompileError(f"models are built with {wanted}, which is not found in PATH; where it is, tamp.build(folder) builds what tamp.load(folder) takes")
    # Only tamp_library is visible from outside: one process may load two programs of the same name (two batches of a model), and torch
    # makes the symbols of CUDA's runtime visible to every library.
    command = [machine.compiler, "-std=c++20", "-I", str(folder), "-I", str(_program.LIBRARY_SOURCES), "-shared", "-o", str(library)]
    if machine.device == "cuda":
        command += ["-O3", f"-arch={arch}", "-Xcompiler", "-fPIC,-fvisibility=hidden", "-Xlinker", "--exclude-libs=ALL", str(source)]
    else:
        command += ["-O1", *([] if portable else ["-march=native"]), "-fPIC", "-fvisibility=hidden", "-Wno-unknown-pragmas", "-DTAMP_CUDA_ON_CPU",
                    "-I", str(_program.STAND_IN), "-x", "c++", str(source), "-x", "none", "-lboost_context"]  # fmt: skip
    compiler = pathlib.Path(machine.compiler).name
    progress.log(f"tamp: {shlex.join(command)}\n")
    with progress.stage(f"builds {name} with {compiler}"):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        missing = "; install libboost-context-dev" if "boost" in done.stderr else ""
        raise CompileError(f"{compiler} cannot build the generated source{missing}: {done.stderr.strip()[-2000:]}")


@functools.lru_cache(maxsize=None)
def compiler_identity(machine: _program.Machine) -> list[Any]:
    """What the library that a compiler makes depends on, beside the source; as ccache has it by default. On the CPU it is for this very one."""
    if not machine.compiler:
        return []
    path = pathlib.Path(machine.compiler).resolve()
    identity: list[Any] = [machine.device, str(path), path.stat().st_size, path.stat().st_mtime_ns]
    if machine.device == "cpu":
        lines = pathlib.Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
        identity += sorted(line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part")))
    return identity
