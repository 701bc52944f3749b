"""Many small ONNX models in one program. Starting g++ is what a small model costs; so the models become parts of one model that
share nothing, tamp compiles that, and one program runs them all. What is tested is the generated source, with its bodies, its
order and its memory; a part that fails is found by halving.

    models = [Part("add", model, [x, y]), ...]           # inputs as numpy arrays
    results = run(tamp, models, Options(...))            # per part: a list of arrays, or Failure
"""
import dataclasses
import os
import pathlib
import subprocess
import tempfile

import numpy as np
import onnx
from onnx import helper

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMPILE_SECONDS = 1800  # it takes 10 where nothing else runs
RUN_SECONDS = 600
MOST_PORTS = 64  # inputs and outputs of one program here; tamp takes 400


@dataclasses.dataclass
class Part:
    name: str
    model: onnx.ModelProto  # one graph without functions; inputs have shapes
    inputs: list            # an array for each input that is no initializer, in their order


@dataclasses.dataclass
class Options:
    device: str = "cpu"      # or cuda
    vdevice: str = "cpu"
    precision: str = "fp32"
    policy: str = "wavefront"
    execution: str = "persistent"
    is_heavy: bool = False   # so much to compute that optimised code is worth its compilation

    def words(self):
        return ["--vdevice", self.vdevice, "--precision", self.precision, "--policy", self.policy, "--execution", self.execution]


class Failure(Exception):
    """What went wrong, and where: 'refused' (exit code 1 or 2), 'crash' (anything else)."""

    def __init__(self, kind, text):
        super().__init__(text)
        self.kind, self.text = kind, text


def ports(model):
    constants = {tensor.name for tensor in model.graph.initializer}
    return [entry for entry in model.graph.input if entry.name not in constants]


def port_count(model):
    return len(ports(model)) + len(model.graph.output)


def opset_of(model):
    versions = {entry.domain: entry.version for entry in model.opset_import}
    return versions.get("", versions.get("ai.onnx"))


# --- one model of many -----------------------------------------------------------------------------------------------

def rename(graph, prefix):
    """Puts a prefix before every name of a graph, those of the graphs in it included."""
    def named(names):
        return [prefix + name if name else "" for name in names]

    for node in graph.node:
        node.input[:], node.output[:] = named(node.input), named(node.output)
        node.name = prefix + (node.name or node.op_type)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                rename(attribute.g, prefix)
            for inner in attribute.graphs:
                rename(inner, prefix)
    for entry in [*graph.input, *graph.output, *graph.value_info, *graph.initializer]:
        entry.name = prefix + entry.name
    for entry in [*graph.input, *graph.output, *graph.value_info]:
        for dim in entry.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = prefix + dim.dim_param


def merge(parts):
    """Parts of one opset; what other domains they name is of one version."""
    whole = onnx.GraphProto(name="many")
    for i, part in enumerate(parts):
        graph = onnx.GraphProto()
        graph.CopyFrom(part.model.graph)
        rename(graph, f"p{i}/")
        for field in ("node", "input", "output", "value_info", "initializer"):
            getattr(whole, field).extend(getattr(graph, field))
    others = sorted({(entry.domain, entry.version) for part in parts for entry in part.model.opset_import if entry.domain not in ("", "ai.onnx")})
    model = helper.make_model(whole, opset_imports=[helper.make_opsetid("", opset_of(parts[0].model)), *(helper.make_opsetid(*other) for other in others)])
    model.ir_version = 8
    return model


# --- compiling and running it ----------------------------------------------------------------------------------------

def call(words, folder, seconds):
    try:
        return subprocess.run(list(map(str, words)), cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=seconds)
    except subprocess.TimeoutExpired:
        raise Failure("crash", f"{words[0]} did not end after {seconds} s") from None


def last_lines(text, count=3):
    return " | ".join(text.strip().splitlines()[-count:])


def compile_model(tamp, model, folder, options, name="many"):
    """tamp compile; raises Failure."""
    (folder / f"{name}.onnx").write_bytes(model.SerializeToString())
    done = call([tamp, "compile", f"{name}.onnx", "-o", "made", "--name", name, "-q", *options.words()], folder, COMPILE_SECONDS)
    if done.returncode == 0:
        return
    lines = [line.removeprefix("error: ").removeprefix(f"{name}.onnx: ") for line in done.stderr.splitlines() if line.strip()]
    raise Failure("refused" if done.returncode in (1, 2) else "crash", " | ".join(lines[:3]) or f"exit code {done.returncode}")


def build(folder, options, name="many"):
    """The runner and the generated source in one translation unit, which is what costs least."""
    (folder / "main.cu").write_text(f'#define TAMP_MODEL_HEADER "{name}.h"\n#define TAMP_MODEL {name}\n#include "made/{name}.cu"\n'
                                    f'#include "{ROOT}/runtime_stub/host/runner.cpp"\n')
    if options.device == "cuda":
        arch = [line for line in (folder / "made" / f"{name}.rprogram.json").read_text().splitlines() if '"arch"' in line][0].split('"')[3]
        words = ["nvcc", "-std=c++20", "-O1", f"-arch={arch}", "-I", "made", "-o", "runner", "main.cu"]
    else:
        effort = "-O2" if options.is_heavy else "-Og"
        words = ["g++", "-std=c++20", effort, "-march=native", "-Wno-unknown-pragmas", "-DTAMP_CUDA_ON_CPU", "-I", ROOT / "runtime_stub/cuda_on_cpu", "-I", "made", "-o", "runner",
                 "-x", "c++", "main.cu", "-x", "none", "-lboost_context"]
    done = call(words, folder, COMPILE_SECONDS)
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if "error" in line]
        raise Failure("crash", f"{words[0]} failed: {errors[0] if errors else last_lines(done.stderr)}")


def execute(folder, inputs, types, options, name="many"):
    """`types`: dtype and shape of each output."""
    words = ["./runner", "--weights", f"made/{name}.weights"]
    if options.device == "cpu":
        words += ["--wait-budget", "3600"]
    for i, values in enumerate(inputs):
        (folder / f"in{i}").write_bytes(np.ascontiguousarray(values).tobytes())
        words += ["--input", f"in{i}"]
    for i in range(len(types)):
        words += ["--output", f"out{i}"]
    done = call(words, folder, RUN_SECONDS)
    if done.returncode != 0:
        raise Failure("crash", f"the program ended with {done.returncode}: {last_lines(done.stderr)}")
    return [(folder / f"out{i}").read_bytes() for i in range(len(types))]


def output_types(folder, name="many"):
    """What the program says its outputs are: dtype as tamp names it, shape; and of those that are padded by number: the number of the output that
    counts what is valid, and the axis."""
    import json
    made = json.loads((folder / "made" / f"{name}.rprogram.json").read_text())
    return [(port["dtype"], port["shape"]) for port in made["outputs"]], {i: (port["count"], port["count_axis"]) for i, port in enumerate(made["outputs"]) if "count" in port}


TYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "u8": np.uint8,
         "u16": np.uint16, "u32": np.uint32, "u64": np.uint64, "bool": np.bool_}


def array(raw, dtype, shape):
    if dtype == "bf16":
        import ml_dtypes
        return np.frombuffer(raw, ml_dtypes.bfloat16).reshape(shape)
    return np.frombuffer(raw, TYPES[dtype]).reshape(shape)


def run_whole(tamp, parts, options):
    with tempfile.TemporaryDirectory(prefix="tamp-many-") as name:
        folder = pathlib.Path(name)
        compile_model(tamp, merge(parts), folder, options)
        build(folder, options)
        types, padded = output_types(folder)
        raw = execute(folder, [values for part in parts for values in part.inputs], types, options)
        outputs = [array(bytes_, *type_) for bytes_, type_ in zip(raw, types)]
        for i, (count, axis) in padded.items():
            outputs[i] = outputs[i].take(range(int(outputs[count][0])), axis)
        values = iter(outputs)
        return [[next(values) for _ in part.model.graph.output] for part in parts]


def run(tamp, parts, options):
    """Per part its outputs, or the Failure of the smallest program that holds it and fails."""
    try:
        if len(parts) == 1 or sum(port_count(part.model) for part in parts) <= MOST_PORTS:
            return run_whole(tamp, parts, options)
    except Failure as failure:
        if len(parts) == 1:
            return [failure]
    middle = len(parts) // 2
    return run(tamp, parts[:middle], options) + run(tamp, parts[middle:], options)


def jobs():
    return int(os.environ.get("TAMP_TEST_JOBS", os.cpu_count() or 1))
