"""A compiled model: what it takes and gives, and running it."""
from __future__ import annotations

import html
import json
import os
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from . import _arrays, _native, _program
from ._errors import CompileError, NativeRunError, RunError

LIBRARY = "library.so"  # in a model's folder, beside what the compiler wrote
VDEVICE_FILE = "vdevice.json"  # there, where `vdevice` was a file: NAME.rprogram.json has only its name


class Axis(NamedTuple):
    """A dimension of an input or output that depends on a length: (times * value + plus) // over elements."""

    dim: int
    """Which dimension."""
    length: str
    """The length's name."""
    times: int = 1
    plus: int = 0
    over: int = 1

    def at(self, value: int) -> int:
        """The elements at this value of the length."""
        return (self.times * value + self.plus) // self.over

    def __str__(self) -> str:
        text = f"{'' if self.times == 1 else f'{self.times}*'}{self.length}{f'{self.plus:+}' if self.plus else ''}"
        return text if self.over == 1 else f"({text})/{self.over}"


@dataclass(frozen=True)
class Length:
    """A number that each call gives, by the shapes of its inputs."""

    name: str
    """The symbolic dimension of the ONNX model; "batch" of `batch="1:8"`."""
    smallest: int
    largest: int
    buckets: tuple[int, ...]
    """Up to which values there is a program; the smallest that holds a call's value runs it."""


@dataclass(frozen=True)
class Port:
    """One input or output of a model."""

    name: str
    """As in the ONNX model."""
    dtype: str
    """The element type: "f32", "f16", "bf16", "f64", "i8" to "i64", "u8" to "u64", "bool"."""
    shape: tuple[int, ...]
    """The extents, in elements, in the model's order of dimensions; at the largest lengths."""
    axes: tuple[Axis, ...] = ()
    """The dimensions that each call gives. All others are fixed."""

    def shape_at(self, values: Mapping[str, int]) -> tuple[int, ...]:
        """The extents at these values of the lengths, by their names."""
        shape = list(self.shape)
        for axis in self.axes:
            shape[axis.dim] = 1
        for axis in self.axes:  # a dimension with several has their product
            shape[axis.dim] *= axis.at(values[axis.length])
        return tuple(shape)

    def __str__(self) -> str:
        extents = list(map(str, self.shape))
        for dim in {axis.dim for axis in self.axes}:
            extents[dim] = "*".join(str(axis) for axis in self.axes if axis.dim == dim)
        return f"'{self.name}' {self.dtype}[{','.join(extents)}]"


@dataclass(frozen=True)
class Info:
    """What a model was compiled for, and what it takes; as the C function NAME_info() says it."""

    tamp: str
    """The version of tamp that compiled it, as "0.1.0"."""
    name: str
    """What the generated files and functions are called."""
    vdevice: str
    """The GPU that it was compiled for, as "h200"; "cpu" for the stand-in."""
    precision: str
    """"fp32", "tf32", "fp16" or "bf16"."""
    batch: int | None
    """The first extent of all inputs, in elements; None if they do not share one."""
    structure: str
    """A fingerprint of the code, 16 hexadecimal digits: weights of models of the same structure fit."""
    inputs: tuple[Port, ...]
    """What it takes, in the order of a call's arguments."""
    outputs: tuple[Port, ...]
    """What it gives."""
    lengths: tuple[Length, ...] = ()
    """The numbers that each call gives by the shapes of its inputs."""


class Model:
    """A model that was compiled and built; `tamp.compile` and `tamp.load` make them.

    Calling it runs it: `y = model(x)`. Calls from several threads run one after another.
    """

    def __init__(self, folder: pathlib.Path, library: pathlib.Path) -> None:
        self.folder = folder
        """Where the generated files lie. That of `tamp.compile` belongs to the cache: `save` what you want to keep."""
        try:
            self._library = _native.Library(str(library))
        except NativeRunError as failure:
            raise RunError(str(failure)) from None
        self._library_path = library
        self.device = "cpu" if self._library.is_stand_in else "cuda"
        """"cuda", or "cpu": the stand-in for CUDA."""
        tamp, name, vdevice, precision, batch, structure = self._library.info()
        lengths = tuple(Length(*length) for length in self._library.lengths())
        inputs, outputs = [_ports(self._library, are_outputs, lengths) for are_outputs in (False, True)]
        self.info = Info(tamp, name, vdevice, precision, batch or None, f"{structure:016x}", inputs, outputs, lengths)
        """What it was compiled for, and what it takes."""
        self.name: str = name
        """What the generated files and functions are called."""
        self.inputs: tuple[Port, ...] = inputs
        """What the model takes, in the order of a call's arguments."""
        self.outputs: tuple[Port, ...] = outputs
        """What it gives."""
        self.lengths: tuple[Length, ...] = lengths
        """The numbers that each call gives by the shapes of its inputs; none if all shapes are fixed."""
        self.schedule: dict[str, Any] = schedule_of(folder) if (folder / f"{name}.rprogram.json").exists() else {}
        """The rProgram, as NAME.rprogram.json has it: "rops", "lanes" and so on. Times are in microseconds, sizes in bytes. Empty if that file is
        not beside a library that was loaded."""
        if self.schedule.get("structure", self.info.structure) != self.info.structure:
            raise CompileError(f"{library}: was built from another program than {folder} holds now; tamp.build(folder) builds it again")
        self._programs: dict[int, _native.Program] = {}
        self._loaded(_current_device() if self.device == "cuda" else 0)

    @property
    def source(self) -> str:
        """The generated CUDA source."""
        return (self.folder / f"{self.name}.cu").read_text()

    def __call__(self, *inputs: Any, **named_inputs: Any) -> Any:
        """Runs the model.

        Inputs are arrays in the model's order, or by name; all of exactly the element types and shapes that `inputs` lists. Where these name
        a length, any of its values will do, the same in all inputs; results have the shapes that follow. They may be
        numpy arrays, torch tensors, or other arrays with `__dlpack__`, and are only read. An array that is not dense and row-major is
        copied first.

        Returns one array of the kind of the first input (the first on a GPU, if any is), or a tuple of them if the model has several outputs. On a GPU, tensors that lie
        there are not copied, and the call returns before the results are there: it runs in torch's current stream (for arrays of other
        libraries in the default stream). Inputs in host memory are copied to the GPU and results are copied back; with all inputs in
        host memory the results are there when the call returns.

        Raises TypeError for what is no array or has another element type, ValueError for another number or shape, RunError if the run
        (or, on a GPU, an earlier one) failed.
        """
        arrays = self._in_order(inputs, named_inputs)
        kinds = [self._about(port, _arrays.kind_of, array) for port, array in zip(self.inputs, arrays)]
        given = [self._about(port, kind.where, array) for port, kind, array in zip(self.inputs, kinds, arrays)]
        values = _values(self.lengths, self.inputs, given)
        for port, where in zip(self.inputs, given):
            _check(port, where, port.shape_at(values))
        device = self._device_of(given)
        lead = next((i for i, where in enumerate(given) if where.device is not None), 0)
        kind = kinds[lead] if kinds else _arrays.Numpy()
        is_on_gpu = bool(given) and given[lead].device is not None
        made = [kind.empty(self._library, port.dtype, port.shape_at(values), device if is_on_gpu else None) for port in self.outputs]
        program = self._loaded(device)
        try:
            program.run([where.address for where in given], [where.device is None for where in given], [address for _, address in made],
                        [not is_on_gpu] * len(made), kind.stream(device) if self.device == "cuda" and is_on_gpu else 0,
                        [values[length.name] for length in self.lengths])  # fmt: skip
        except NativeRunError as failure:
            raise RunError(str(failure)) from None
        results = tuple(kind.finish(array) for array, _ in made)
        return results[0] if len(results) == 1 else results

    def generate(
        self,
        prompt: Sequence[int],
        max_tokens: int = 16,
        *,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 0.0,
        repetition_penalty: float = 1.0,
        seed: int = 0,
        stops: Sequence[int] | None = None,
        position: int = 0,
        inputs: Mapping[str, Any] | None = None,
        on_token: Callable[[int], object] | None = None,
    ) -> list[int]:
        """Makes a text: the tokens that follow the prompt, all in one launch, behind one for each part of the prompt where the tokens' dimension has buckets. For models that were compiled with `generate`.

        prompt: numbers of tokens, at least one.
        max_tokens: how many are made at most.
        temperature: 0 takes the word of the largest score each time; else words are drawn, by their scores divided by this.
        top_k, top_p: draw among so many of the best words, or the best that have so much of the probability; 0: among all.
        repetition_penalty: scores of tokens of this call are divided by it if they are positive, else multiplied.
        seed: the same one makes the same text.
        stops: tokens that end the text, and belong to it; None: those of the compilation.
        position: of the prompt's first token; not 0 to go on with the text of earlier calls (docs/howto/generate.md).
        inputs: arrays by name, of those inputs that each call gives ("held"); their shapes say their lengths.
        on_token: called with each token while the rest is made; ends the text if it returns something true, or raises.

        Raises ValueError for what the model has no room for, RunError if the run failed.
        """
        if not self._library.makes_tokens:
            raise ValueError(f"{self.name} makes no tokens: compile it with generate=True")
        given, held = dict(inputs or {}), {self.inputs[i].name: i for i in self._library.held()}
        if set(given) != set(held):
            raise ValueError(f"inputs are {sorted(given)}, expected {sorted(held)}")
        addresses, on_host = [0] * len(self.inputs), [1] * len(self.inputs)
        kept, streams = [], {0}
        for name, i in held.items():
            kind = self._about(self.inputs[i], _arrays.kind_of, given[name])
            kept.append(self._about(self.inputs[i], kind.where, given[name]))
        values = _values(self.lengths, tuple(self.inputs[i] for i in held.values()), kept)
        for where, i in zip(kept, held.values()):
            _check(self.inputs[i], where, self.inputs[i].shape_at(values))
            addresses[i], on_host[i] = where.address, int(where.device is None)
        device = self._device_of(kept)
        for name, i in held.items():
            if not on_host[i] and self.device == "cuda":
                streams.add(_arrays.kind_of(given[name]).stream(device))
        program = self._loaded(device)
        try:
            return program.generate(list(prompt), max_tokens, temperature, top_k, top_p, repetition_penalty, seed, None if stops is None else list(stops),
                                    position, addresses, on_host, max(streams), [values[length.name] for length in self.lengths], on_token)  # fmt: skip
        except NativeRunError as failure:
            wrong = ": generate: " in str(failure)
            raise (ValueError if wrong else RunError)(str(failure)) from None

    def with_weights(self, model: Any, *inputs: Any, freeze: Mapping[str, Any] | None = None) -> Model:
        """The same program with the weights of another model, as one that was trained again. Nothing is built: it takes as long as
        `tamp weights`, seconds for most models. This model stays as it is, and each of the two has its weights in the GPU's memory. The result
        is in the cache, too.

        model: the path of an ONNX file, an onnx.ModelProto, or a torch.nn.Module. It must have the names, shapes and operators of the
            model that this one was compiled from. Options are those that this one was compiled with.
        inputs: for a module, arguments to export it with, of the same shapes as before.
        freeze: as it was compiled with, if it was.

        Raises CompileError, which says what differs, if its program would be another one: then `tamp.compile` it. FileNotFoundError and
        TypeError are as with `tamp.compile`.
        """
        from ._compile import replace_weights

        return Model(replace_weights(self.folder, model, inputs, freeze), self._library_path)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Copies what `tamp.load(folder)` takes: the generated files, and the library. Where that is loaded no compiler is needed, for a GPU only
        its driver. (The stand-in's library is for CPUs like this one; `tamp.build` makes one for all.)

        folder: a new one, or an empty one; else FileExistsError.
        """
        target = pathlib.Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        if any(target.iterdir()):
            raise FileExistsError(f"{target}: is not empty")
        for path in program_files(self.folder) if self.schedule else self.folder.glob(f"{self.name}.weights"):
            shutil.copyfile(path, target / path.name)
        shutil.copyfile(self._library_path, target / LIBRARY)

    def check(self) -> None:
        """RunError if a run failed on the GPU. Calls do not wait for their results there: synchronize first."""
        for program in self._programs.values():
            try:
                program.check()
            except NativeRunError as failure:
                raise RunError(str(failure)) from None

    def page(self) -> str:
        """The page of `tamp inspect --html` for this model: lanes over time, memory, the graph, all rOperators."""
        with tempfile.TemporaryDirectory(prefix="tamp-") as work:
            page = pathlib.Path(work) / "page.html"
            done = _program.call("inspect", "-q", self.folder, "--html", page)
            if done.returncode != 0:
                raise CompileError(_program.error_of(done))
            return page.read_text()

    def _repr_html_(self) -> str:
        """What a notebook shows: `page()`, in a frame of its own."""
        return (f'<iframe srcdoc="{html.escape(self.page())}" style="width: 100%; height: 640px; border: 0" '
                f'title="{html.escape(self.name)}"></iframe>')  # fmt: skip

    def __repr__(self) -> str:
        ports = ", ".join(map(str, self.inputs)) + " -> " + ", ".join(map(str, self.outputs))
        on = "the stand-in for CUDA" if self.device == "cpu" else "the GPU"
        return f"<tamp.Model {self.name}: {ports}; {self.info.vdevice}, {self.info.precision}, on {on}>"

    def _loaded(self, device: int) -> _native.Program:
        if device not in self._programs:
            weights = "" if self.schedule.get("embedded_weights") else str(self.folder / f"{self.name}.weights")
            try:
                self._programs[device] = _native.Program(self._library, device, weights)
            except NativeRunError as failure:
                raise RunError(str(failure)) from None
        return self._programs[device]

    def _in_order(self, inputs: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
        ports = ", ".join(map(str, self.inputs)) or "none"
        if len(inputs) > len(self.inputs):
            raise ValueError(f"{len(inputs)} inputs, expected {len(self.inputs)}: {ports}")
        values = dict(zip([port.name for port in self.inputs], inputs))
        for name, value in named.items():
            if name in values:
                raise ValueError(f"input '{name}' is given twice")
            if all(port.name != name for port in self.inputs):
                raise ValueError(f"no input is called '{name}'; expected: {ports}")
            values[name] = value
        missing = [str(port) for port in self.inputs if port.name not in values]
        if missing:
            raise ValueError(f"input {', '.join(missing)} is missing")
        return [values[port.name] for port in self.inputs]

    def _about(self, port: Port, function: Any, array: Any) -> Any:
        try:
            return function(array)
        except (TypeError, ValueError) as wrong:
            raise type(wrong)(f"input {port}: {wrong}") from None

    def _device_of(self, given: list[_arrays.Where]) -> int:
        devices = sorted({where.device for where in given if where.device is not None})
        if self.device == "cpu":
            if devices:
                raise ValueError("an input lies on a GPU, and the model was built for the stand-in on the CPU")
            return 0
        if len(devices) > 1:
            raise ValueError(f"inputs lie on several GPUs: {devices}")
        return devices[0] if devices else next(iter(self._programs))


def schedule_of(folder: pathlib.Path) -> dict[str, Any]:
    """What the folder's NAME.rprogram.json says."""
    found = list(folder.glob("*.rprogram.json"))
    try:
        schedule: dict[str, Any] = json.loads(found[0].read_text()) if len(found) == 1 else {}
        if isinstance(schedule["files"], dict) and isinstance(schedule["vdevice"]["arch"], str):
            return schedule
    except (ValueError, TypeError, KeyError):
        pass
    raise CompileError(f"{folder}: holds no NAME.rprogram.json, or not one as tamp writes it, so it is not a folder that tamp compile wrote")


def program_files(folder: pathlib.Path) -> list[pathlib.Path]:
    """What tamp has put into a model's folder; there may be files of others."""
    schedule = schedule_of(folder)
    names = [*schedule["files"], f"{schedule['name']}.rprogram.json", LIBRARY, VDEVICE_FILE]
    return [folder / name for name in names if (folder / name).is_file()]


def _ports(library: _native.Library, are_outputs: bool, lengths: tuple[Length, ...]) -> tuple[Port, ...]:
    ports = [Port(*port) for port in library.ports(are_outputs)]
    axes: list[list[Axis]] = [[] for _ in ports]
    for port, dim, length, *extent in library.axes(are_outputs):
        axes[port].append(Axis(dim, lengths[length].name, *extent))
    return tuple(Port(port.name, port.dtype, port.shape, tuple(own)) for port, own in zip(ports, axes))


def _values(lengths: tuple[Length, ...], ports: tuple[Port, ...], given: list[_arrays.Where]) -> dict[str, int]:
    """The lengths as the shapes of the inputs have them, which must agree; of one that no input has, the largest value."""
    values: dict[str, int] = {}
    first: dict[str, Port] = {}
    limits = {length.name: length for length in lengths}
    for port, where in zip(ports, given):
        for axis in port.axes if len(where.shape) == len(port.shape) else ():
            length, found = limits[axis.length], where.shape[axis.dim]
            value = values.get(axis.length, -((axis.plus - found * axis.over) // axis.times))
            if length.smallest <= value <= length.largest and axis.at(value) == found:
                values[axis.length] = value
                first.setdefault(axis.length, port)
            elif axis.length in values:
                raise ValueError(f"input {port}: dimension {axis.dim} is {found}, allowed is {axis.at(value)}, as "
                                 f"'{first[axis.length].name}' has it ({axis.length} {value})")  # fmt: skip
            else:
                raise ValueError(f"input {port}: dimension {axis.dim} is {found}, allowed are {axis.at(length.smallest)} to "
                                 f"{axis.at(length.largest)} ({axis.length})")  # fmt: skip
    return {**{length.name: length.largest for length in lengths}, **values}


def _check(port: Port, where: _arrays.Where, shape: tuple[int, ...]) -> None:
    if where.dtype != port.dtype:
        raise TypeError(f"input {port}: found elements of type {where.dtype}")
    if where.shape != shape:
        raise ValueError(f"input {port}: found shape [{','.join(map(str, where.shape))}]")


def _current_device() -> int:
    torch = sys.modules.get("torch")
    return torch.cuda.current_device() if torch is not None and torch.cuda.is_initialized() else 0
