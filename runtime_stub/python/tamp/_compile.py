"""From a model, in whatever form, to a folder in the cache: tamp.compile."""
from __future__ import annotations

import hashlib
import json
import os
import pathlib
import re
import shutil
import tempfile
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from . import _program
from ._cache import Entry, cache_folder, hash_file, keep_by_content, work_folder
from ._errors import CompileError
from ._library import build_library, compiler_identity, opened
from ._model import LIBRARY, VDEVICE_FILE, Model, program_files
from ._progress import Progress


def compile(
    model: Any,
    *inputs: Any,
    precision: Literal["fp32", "tf32", "fp16", "bf16"] | None = None,
    vdevice: str | os.PathLike[str] = "auto",
    device: Literal["auto", "cuda", "cpu"] = "auto",
    batch: int | str | None = None,
    dims: Mapping[str, int | str] | None = None,
    freeze: Mapping[str, Any] | None = None,
    activations: Literal["auto", "fp32"] | None = None,
    policy: Literal[
        "best", "wavefront", "wavefront-fastest", "wavefront-launches", "greedy", "sequential", "list", "ios", "ios-merge", "ios-parallel"
    ]
    | None = None,
    execution: Literal["persistent", "graph"] | None = None,
    generate: bool | Mapping[str, Any] = False,
    name: str | None = None,
    verbose: bool | None = None,
) -> Model:
    """Compiles a model, builds it, and loads it, or takes it from the cache if all that has been done before.

    model: the path of an ONNX file, an onnx.ModelProto, or a torch.nn.Module, which torch.onnx.export makes ONNX of, in eval mode.
    inputs: for a module, arguments to export it with; their shapes become the model's. For ONNX models, arrays whose extents become the
        values of symbolic dimensions (this needs the package onnx).
    precision: "fp32", "tf32", "fp16" or "bf16"; by default that of a model of f16 or bf16, fp16 of one whose activations are quantised to 8 bits, else the vDevice's own. In fp16 and bf16 weights, products and most activations have
        16 bits, inputs and outputs keep their types. In tf32 those activations have that fp16 is proven to hold.
    vdevice: the GPU to compile for, a name that `tamp devices` lists or a .json file; "auto": what `device` is, this machine's GPU or the
        stand-in.
    device: what runs it: "cuda", "cpu" (the stand-in for CUDA), or "auto": a GPU if there is one, and nvcc; else the stand-in, with a
        RuntimeWarning, or a CompileError if vdevice names a GPU.
    batch: makes this the first extent of all inputs, in elements; "1:8": each call gives it.
    dims: values of symbolic dimensions by name, in elements; "1:512": each call gives it, by the shapes of its inputs; "16,64,512": the same of
        1 to 512, with a program up to each of these; "32:640:32": multiples of 32.
    freeze: arrays by the names of inputs that become constants.
    activations: "auto" or "fp32", policy, execution: as `tamp compile --help` says.
    generate: the model is a decoder, and `Model.generate` makes text with it (with dims={"seq": "1,64"} or the like prompts go in by parts); a mapping is what the file of `tamp compile --generate` holds.
    name: of the generated files and functions; by default that of the model's file.
    verbose: True: say on stderr what is done, how long it takes and what the compiler says. None: where stderr is a terminal, one line while
        it takes long. False: nothing.

    Raises CompileError, whose `unsupported` lists what tamp does not support; FileNotFoundError if there is no such file; TypeError if
    `model` is none of the above; RunError if the GPU cannot hold the program.
    """
    machine = _machine_for(device, os.fspath(vdevice))
    if vdevice == "auto" and not machine.vdevice:
        raise CompileError(machine.problem)
    vdevice = machine.vdevice if vdevice == "auto" else os.fspath(vdevice)
    progress = Progress(verbose)
    if vdevice.endswith(".json"):
        vdevice = os.path.abspath(vdevice)
    options = {"--name": name, "--precision": precision, "--vdevice": vdevice, "--batch": batch, "--activations": activations,
               "--policy": policy, "--execution": execution}  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="tamp-") as scratch:
        file = _file_of(model, inputs, pathlib.Path(scratch))
        sizes = {**({} if _is_module(model) else _sizes_from(file, inputs)), **(dims or {})}
        arguments = [f"{flag}={value}" for flag, value in options.items() if value is not None]
        arguments += [f"--dim={symbol}={extent}" for symbol, extent in sorted(sizes.items())]
        if generate is not False:
            arguments.append(f"--generate={json.dumps({} if generate is True else dict(generate), sort_keys=True)}")
        frozen = {input_name: np.asarray(value) for input_name, value in sorted((freeze or {}).items())}
        return opened(lambda: _find_or_make(file, arguments, frozen, machine, progress), lambda folder: Model(folder, folder / LIBRARY))


def _machine_for(device: str, vdevice: str) -> _program.Machine:
    """Warns of the stand-in where nobody asked for it; CompileError if a GPU was named that it would stand for."""
    machine = _program.machine("cpu" if device == "auto" and vdevice == "cpu" else device)
    if device != "auto" or vdevice == "cpu" or machine.device == "cuda":
        return machine
    missing = "nvcc is not found" if machine.has_gpu else "no GPU is found"
    if vdevice != "auto":
        raise CompileError(
            f'{missing}, so the program for vdevice="{vdevice}" cannot run as it is meant; device="cpu" runs it on the stand-in for CUDA '
            "(tamp compile and tamp.build make it for another machine)"
        )
    says = f'{missing}: the model runs on the CPU, on a stand-in for CUDA, which is slow and meant for trying and testing; device="cpu" asks for that'
    warnings.warn(says, RuntimeWarning, stacklevel=3)
    return machine


def _find_or_make(
    file: pathlib.Path, arguments: list[str], frozen: dict[str, np.ndarray], machine: _program.Machine, progress: Progress
) -> pathlib.Path:
    values = [[name, value.dtype.str, value.shape, hashlib.sha256(value.tobytes()).hexdigest()] for name, value in frozen.items()]
    vdevices = [hash_file(path) for path in _files_in(arguments)]
    entry = Entry(file, [_program.identity(), compiler_identity(machine), file.name, arguments, vdevices, values])
    if found := entry.find():
        progress.log(f"tamp: {found} is in the cache\n")
        return found
    with entry.locked():
        if found := entry.find():
            return found
        with work_folder() as work:
            folder = work / "model"
            with progress.stage(f"compiles {file.name}"):
                external = _compile_to(folder, file, arguments + _frozen_in(work, frozen), work, progress)
            build_library(folder, folder / LIBRARY, machine, work, progress)
            for path in _files_in(arguments):
                shutil.copyfile(path, folder / VDEVICE_FILE)
            return entry.keep(folder, external)


def replace_weights(folder: pathlib.Path, model: Any, inputs: tuple[Any, ...], freeze: Mapping[str, Any] | None) -> pathlib.Path:
    """A folder in the cache with the same program and the weights of another model; CompileError if they do not fit."""
    frozen = {name: np.asarray(value) for name, value in sorted((freeze or {}).items())}
    with work_folder() as work:
        file = _file_of(model, inputs, work)
        made = work / "new" / "model"
        made.mkdir(parents=True)
        # All but the weights and NAME.rprogram.json is the same, and is the same file on disk: what the compiler replaces, it writes beside and
        # renames. Files that are not in the cache are copied.
        copy: Callable[[str, str], object] = _link if folder.is_relative_to(cache_folder()) else shutil.copyfile
        for path in program_files(folder):
            copy(str(path), str(made / path.name))
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
        shutil.copyfile(source, target)


def _frozen_in(work: pathlib.Path, frozen: dict[str, np.ndarray]) -> list[str]:
    """Arguments of the compiler; writes the files that they name."""
    for i, value in enumerate(frozen.values()):
        np.save(work / f"{i}.npy", np.ascontiguousarray(value))
    return [f"--freeze={name}={work / f'{i}.npy'}" for i, name in enumerate(frozen)]


def _files_in(arguments: list[str]) -> list[pathlib.Path]:
    files = [pathlib.Path(word.partition("=")[2]) for word in arguments if word.startswith("--vdevice=") and word.endswith(".json")]
    return [path for path in files if path.is_file()]  # else the compiler says that there is none


# --- compiling ---------------------------------------------------------------------------------------------------------


def _compile_to(folder: pathlib.Path, file: pathlib.Path, arguments: list[str], work: pathlib.Path, progress: Progress) -> list[str]:
    """Returns the files of external weights, relative to the model's folder."""
    refusals, depfile = work / "refusals.json", work / "depfile"
    # Run in the model's folder, so that messages, the source's head and the list of files contain the model's name, not its path.
    done = _program.call("compile", "-o", folder, *arguments, "--refusals", refusals, "--depfile", depfile, "--", file.name, folder=file.parent)
    progress.log(done.stderr)
    for line in done.stderr.splitlines():
        if line.startswith("warning: "):
            warnings.warn(line.removeprefix("warning: "), RuntimeWarning, stacklevel=4)
    if done.returncode != 0:
        raise CompileError(_program.error_of(done), json.loads(refusals.read_text()) if refusals.exists() else None)
    _, *files = depfile.read_text().removesuffix("\n").split(" \\\n  ")  # a rule for make, one file a line
    plain = [re.sub(r"\\([ #:])", r"\1", name).replace("$$", "$") for name in files]
    return [name for name in plain if not os.path.isabs(name) and name != file.name]


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
