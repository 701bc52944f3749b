"""From a model, in whatever form, to a folder in the cache: tamp.compile."""
from __future__ import annotations

import functools
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from . import _program
from ._cache import Entry, hash_file, keep_by_content, work_folder
from ._errors import CompileError
from ._model import Model

VDEVICE_FILE = "vdevice.json"  # in a model's folder, where `vdevice` was a file: NAME.rprogram.json has only its name


def compile(
    model: Any,
    *inputs: Any,
    precision: str | None = None,
    vdevice: str | os.PathLike[str] = "auto",
    device: str = "auto",
    batch: int | None = None,
    dims: Mapping[str, int] | None = None,
    freeze: Mapping[str, Any] | None = None,
    activations: str | None = None,
    policy: str | None = None,
    execution: str | None = None,
    name: str | None = None,
) -> Model:
    """Compiles a model, builds it, and loads it, or takes it from the cache if all that has been done before.

    model: the path of an ONNX file, an onnx.ModelProto, or a torch.nn.Module, which torch.onnx.export makes ONNX of, in eval mode.
    inputs: for a module, arguments to export it with; their shapes become the model's. For ONNX models, arrays whose extents become the
        values of symbolic dimensions (this needs the package onnx).
    precision: "fp32", "tf32", "fp16" or "bf16"; by default that of a model of f16 or bf16, else the vDevice's own. In fp16 and bf16 weights, products and most activations have
        16 bits, inputs and outputs keep their types. In tf32 those activations have that fp16 is proven to hold.
    vdevice: the GPU to compile for, a name that `tamp devices` lists or a .json file; "auto": what `device` is, this machine's GPU or the
        stand-in.
    device: what runs it: "cuda", "cpu" (the stand-in for CUDA), or "auto": a GPU if there is one, and nvcc.
    batch: makes this the first extent of all inputs, in elements.
    dims: values of symbolic dimensions by name, in elements.
    freeze: arrays by the names of inputs that become constants.
    activations: "auto" or "fp32", policy, execution: as `tamp compile --help` says.
    name: of the generated files and functions; by default that of the model's file.

    Raises CompileError, whose `unsupported` lists what tamp does not support; FileNotFoundError if there is no such file; TypeError if
    `model` is none of the above; RunError if the GPU cannot hold the program.
    """
    machine = _program.machine(device)
    if vdevice == "auto" and not machine.vdevice:
        raise CompileError(machine.problem)
    vdevice = machine.vdevice if vdevice == "auto" else os.fspath(vdevice)
    if vdevice.endswith(".json"):
        vdevice = os.path.abspath(vdevice)
    options = {"--name": name, "--precision": precision, "--vdevice": vdevice, "--batch": batch, "--activations": activations,
               "--policy": policy, "--execution": execution}  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="tamp-") as scratch:
        file = _file_of(model, inputs, pathlib.Path(scratch))
        sizes = {**({} if _is_module(model) else _sizes_from(file, inputs)), **(dims or {})}
        arguments = [f"{flag}={value}" for flag, value in options.items() if value is not None]
        arguments += [f"--dim={symbol}={extent}" for symbol, extent in sorted(sizes.items())]
        frozen = {input_name: np.asarray(value) for input_name, value in sorted((freeze or {}).items())}
        return Model(_find_or_make(file, arguments, frozen, machine), machine.device)


def _find_or_make(file: pathlib.Path, arguments: list[str], frozen: dict[str, np.ndarray], machine: _program.Machine) -> pathlib.Path:
    values = [[name, value.dtype.str, value.shape, hashlib.sha256(value.tobytes()).hexdigest()] for name, value in frozen.items()]
    vdevices = [hash_file(path) for path in _files_in(arguments)]
    entry = Entry(file, [_program.identity(), _compiler_identity(machine), file.name, arguments, vdevices, values])
    if found := entry.find():
        return found
    with entry.locked():
        if found := entry.find():
            return found
        with work_folder() as work:
            folder = work / "model"
            external = _compile_to(folder, file, arguments + _frozen_in(work, frozen), work)
            _build(folder, machine, work)
            for path in _files_in(arguments):
                shutil.copyfile(path, folder / VDEVICE_FILE)
            return entry.keep(folder, external)


def replace_weights(folder: pathlib.Path, model: Any, inputs: tuple[Any, ...], freeze: Mapping[str, Any] | None) -> pathlib.Path:
    """A folder in the cache with the same program and the weights of another model; CompileError if they do not fit."""
    frozen = {name: np.asarray(value) for name, value in sorted((freeze or {}).items())}
    with work_folder() as work:
        file = _file_of(model, inputs, work)
        made = work / "new" / "model"
        # All but the weights and NAME.rprogram.json is the same, and is the same file on disk: what the compiler replaces, it writes beside and renames.
        shutil.copytree(folder, made, copy_function=_link, ignore=shutil.ignore_patterns("page*.html"))
        schedule = next(made.glob("*.rprogram.json"))
        weights = made / schedule.name.replace(".rprogram.json", ".weights")
        arguments = _frozen_in(work, frozen)
        if (made / VDEVICE_FILE).exists():
            arguments.append(f"--vdevice={made / VDEVICE_FILE}")
        done = _program.call("weights", "-q", "--like", made, "-o", weights, *arguments, "--", file.name, folder=file.parent)
        if done.returncode != 0:
            raise CompileError(_program.error_of(done).replace(f"{made}/", "").replace(str(made), f"the model '{weights.stem}'"))
        now = json.loads(schedule.read_text())
        return keep_by_content(made, [folder.name, now["weights_hash"], now["model"]])


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without
        shutil.copy2(source, target)


def _frozen_in(work: pathlib.Path, frozen: dict[str, np.ndarray]) -> list[str]:
    """Arguments of the compiler; writes the files that they name."""
    for i, value in enumerate(frozen.values()):
        np.save(work / f"{i}.npy", np.ascontiguousarray(value))
    return [f"--freeze={name}={work / f'{i}.npy'}" for i, name in enumerate(frozen)]


def _files_in(arguments: list[str]) -> list[pathlib.Path]:
    files = [pathlib.Path(word.partition("=")[2]) for word in arguments if word.startswith("--vdevice=") and word.endswith(".json")]
    return [path for path in files if path.is_file()]  # else the compiler says that there is none


# --- compiling and building --------------------------------------------------------------------------------------------


def _compile_to(folder: pathlib.Path, file: pathlib.Path, arguments: list[str], work: pathlib.Path) -> list[str]:
    """Returns the files of external weights, relative to the model's folder."""
    refusals, depfile = work / "refusals.json", work / "depfile"
    # Run in the model's folder, so that messages, the source's head and the list of files contain the model's name, not its path.
    done = _program.call("compile", "-q", "-o", folder, *arguments, "--refusals", refusals, "--depfile", depfile, "--", file.name, folder=file.parent)
    if done.returncode != 0:
        raise CompileError(_program.error_of(done), json.loads(refusals.read_text()) if refusals.exists() else None)
    _, *files = depfile.read_text().removesuffix("\n").split(" \\\n  ")  # a rule for make, one file a line
    plain = [re.sub(r"\\([ #:])", r"\1", name).replace("$$", "$") for name in files]
    return [name for name in plain if not os.path.isabs(name) and name != file.name]


def _build(folder: pathlib.Path, machine: _program.Machine, work: pathlib.Path) -> None:
    """The shared library of a folder that the compiler wrote, from one translation unit."""
    schedule = json.loads(next(folder.glob("*.rprogram.json")).read_text())
    name, arch = schedule["name"], schedule["vdevice"]["arch"]
    source = work / "library.cu"
    source.write_text(f'#define TAMP_MODEL {name}\n#include "{name}.cu"\n#include "library.cpp"\n')
    if not machine.compiler:
        wanted = "g++ 11 or newer and libboost-context-dev" if machine.device == "cpu" else "nvcc of the CUDA Toolkit"
        raise CompileError(f"models are built with {wanted}, which is not found in PATH")
    # Only tamp_library is visible from outside: one process may load two programs of the same name (two batches of a model), and torch
    # makes the symbols of CUDA's runtime visible to every library.
    command = [machine.compiler, "-std=c++20", "-I", str(folder), "-I", str(_program.LIBRARY_SOURCES), "-shared", "-o", str(folder / "library.so")]
    if machine.device == "cuda":
        command += ["-O3", f"-arch={arch}", "-Xcompiler", "-fPIC,-fvisibility=hidden", "-Xlinker", "--exclude-libs=ALL", str(source)]
    else:
        command += ["-O1", "-march=native", "-fPIC", "-fvisibility=hidden", "-Wno-unknown-pragmas", "-DTAMP_CUDA_ON_CPU",
                    "-I", str(_program.STAND_IN), "-x", "c++", str(source), "-x", "none", "-lboost_context"]  # fmt: skip
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        missing = "; install libboost-context-dev" if "boost" in done.stderr else ""
        raise CompileError(f"{pathlib.Path(machine.compiler).name} cannot build the generated source{missing}: {done.stderr.strip()[-2000:]}")


@functools.lru_cache(maxsize=None)
def _compiler_identity(machine: _program.Machine) -> list[Any]:
    """What the library that a compiler makes depends on, beside the source; as ccache has it by default. On the CPU it is for this very one."""
    if not machine.compiler:
        return []
    path = pathlib.Path(machine.compiler).resolve()
    identity: list[Any] = [machine.device, str(path), path.stat().st_size, path.stat().st_mtime_ns]
    if machine.device == "cpu":
        lines = pathlib.Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
        identity += sorted(line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part")))
    return identity


# --- the model as a file -----------------------------------------------------------------------------------------------


def _is_module(model: Any) -> bool:
    return any(f"{base.__module__}.{base.__qualname__}" == "torch.nn.modules.module.Module" for base in type(model).__mro__)


def _file_of(model: Any, inputs: tuple[Any, ...], scratch: pathlib.Path) -> pathlib.Path:
    if isinstance(model, (str, os.PathLike)):
        path = pathlib.Path(model).absolute()
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such file")
        return path
    if _is_module(model):
        from ._torch import export

        return export(model, inputs, scratch / f"{type(model).__name__.lower()}.onnx")
    if hasattr(model, "SerializeToString") and hasattr(model, "graph"):
        path = scratch / "model.onnx"
        if model.ByteSize() < 1 << 31:
            path.write_bytes(model.SerializeToString())
        else:  # more than protobuf writes as one file
            import onnx

            onnx.save_model(model, str(path), save_as_external_data=True, location="model.bin")
        return path
    raise TypeError(f"found an object of type {type(model).__name__}, expected the path of an ONNX file, an onnx.ModelProto, or a torch.nn.Module")


def _sizes_from(file: pathlib.Path, inputs: tuple[Any, ...]) -> dict[str, int]:
    """The symbolic dimensions of the model's inputs as these arrays have them."""
    if not inputs:
        return {}
    try:
        import onnx
    except ImportError:
        raise CompileError("symbolic dimensions are taken from inputs by the package onnx: install it, or give dims") from None
    graph = onnx.load(str(file), load_external_data=False).graph
    initialized = {tensor.name for tensor in graph.initializer}
    sizes: dict[str, int] = {}
    for port, array in zip([port for port in graph.input if port.name not in initialized], inputs):
        for dim, extent in zip(port.type.tensor_type.shape.dim, array.shape):
            if dim.dim_param and sizes.setdefault(dim.dim_param, int(extent)) != extent:
                raise ValueError(f"input '{port.name}': dimension {dim.dim_param} is {extent}, elsewhere it is {sizes[dim.dim_param]}")
    return sizes
