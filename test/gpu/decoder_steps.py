#!/usr/bin/env python3
"""One token of a decoder of real size on a GPU, beside its two best peers, in one run.

    python3 test/gpu/decoder_steps.py --tamp build/release/bin/tamp | NAME=TAMP,NAME=TAMP [--precision fp16|bf16] [--peers kernels,compile,max-autotune] [--out FILE.json] [MODEL[@BITS]:BEFORE[/PLACES]...]

MODEL is llama-3.2-1b, qwen3-0.6b, smollm-135m or llama-3.1-8b: their shapes, with random weights of 16 bits, made on the device from a seed. BEFORE tokens
lie before the new one. Without PLACES the caches are that long, and the token's own keys and values are outputs; with PLACES caches have constant size
(TensorScatter and nonpad_kv_seqlen of ONNX 24), and stay in place. BITS, 4 or 8: all matrices are quantised (MatMulNBits of ONNX Runtime, symmetric, a scale of
16 bits for each 32 inputs of an output); sides other than tamp get the numbers that these stand for. Sides:

  tamp           the ONNX file, compiled and built with nvcc; of several builds of tamp each is a side, by its NAME
  kernels        decoder_peer.cu: kernels by hand, q, k, v and gate, up as one product each, programmatic launches; the best of a few settings
  compile        torch.compile of a plain step with caches of constant size
  max-autotune   the same with mode="max-autotune-no-cudagraphs"

Nothing is timed before its scores, keys and values were compared with PyTorch's in fp32. All are replays of a CUDA graph of one step, back to back:
three rounds in turns, of each the median of 9 means of 50 replays; the table has the median of the rounds, their smallest and largest in brackets, and the share of 4.3 TB/s
that weights and valid places make. --device cpu checks a tiny model on the stand-in, and times nothing. Needs numpy, onnx, torch and nvcc."""
import argparse
import concurrent.futures
import ctypes
import dataclasses
import functools
import itertools
import json
import pathlib
import shutil
import statistics
import sys
import tempfile
import time

import onnx
import torch
from onnx import TensorProto, helper
from torch.nn import functional as F

import programs

BANDWIDTH = 4.3e12  # bytes a second, as a copy on an H200 has them
ROUNDS, MEANS, REPLAYS = 3, 9, 50
LIMITS = {"fp16": 5e-3, "bf16": 4e-2}  # relative L2 error, as of tamp run --check
TYPES = {"fp16": (torch.float16, TensorProto.FLOAT16), "bf16": (torch.bfloat16, TensorProto.BFLOAT16), "fp32": (torch.float32, TensorProto.FLOAT)}


@dataclasses.dataclass
class Sizes:
    layers: int
    width: int
    heads: int
    kv: int
    head: int
    inner: int
    words: int
    head_norms: bool = False
    epsilon: float = 1e-5
    before: int = 127
    places: int = 0  # 0: as many as there are tokens before
    bits: int = 16   # of weights

    @property
    def rows(self):
        """Places that a cache has for PyTorch and the kernels, which put the new row into it."""
        return self.places or self.before + 1


MODELS = {"llama-3.2-1b": Sizes(16, 2048, 32, 8, 64, 8192, 128256), "qwen3-0.6b": Sizes(28, 1024, 16, 8, 128, 3072, 151936, True, 1e-6), "smollm-135m": Sizes(30, 576, 9, 3, 64, 1536, 49152),
          "llama-3.1-8b": Sizes(32, 4096, 32, 8, 128, 14336, 128256), "tiny": Sizes(2, 64, 4, 2, 16, 96, 50, True)}  # fmt: skip


def sizes_of(text):
    name, _, lengths = text.partition(":")
    name, _, bits = name.partition("@")
    before, _, places = (lengths or "127").partition("/")
    return dataclasses.replace(MODELS[name], before=int(before), places=int(places or 0), bits=int(bits or 16))


# --- what a step has ---------------------------------------------------------------------------------------------------


BLOCK = 32  # inputs of an output that share a scale


def quantised(matrix, bits, dtype):
    """The numbers that round a matrix to so many bits. What they stand for; with attributes `numbers`, packed along rows, and `scales`."""
    rows, columns = matrix.shape
    blocks, middle = matrix.view(rows, columns // BLOCK, BLOCK), 1 << (bits - 1)
    largest = blocks.gather(2, blocks.abs().argmax(2, keepdim=True))
    scales = (largest / -middle).to(dtype)
    numbers = (blocks / scales.to(matrix.dtype)).round().nan_to_num().clamp(-middle, middle - 1)
    made = (numbers * scales.to(matrix.dtype)).to(dtype).view(rows, columns)
    bytes_of = (numbers + middle).to(torch.uint8)
    made.numbers, made.scales = bytes_of[:, :, ::2] | bytes_of[:, :, 1::2] << 4 if bits == 4 else bytes_of, scales.squeeze(2)
    return made


def drawn_weights(s, dtype, device):
    """-> tensors by name; matrices are [outputs, inputs], as PyTorch has them."""
    random = torch.Generator(device).manual_seed(1)

    def matrix(rows, columns):
        drawn = torch.randn(rows, columns, generator=random, device=device) * columns**-0.5
        return drawn.to(dtype) if s.bits == 16 else quantised(drawn, s.bits, dtype)

    factors = lambda count: (1 + 0.1 * torch.randn(count, generator=random, device=device)).to(dtype)
    made = {}
    for layer in range(s.layers):
        made |= {f"{layer}.norm1": factors(s.width), f"{layer}.q": matrix(s.heads * s.head, s.width), f"{layer}.k": matrix(s.kv * s.head, s.width), f"{layer}.v": matrix(s.kv * s.head, s.width),
                 f"{layer}.o": matrix(s.width, s.heads * s.head), f"{layer}.norm2": factors(s.width), f"{layer}.gate": matrix(s.inner, s.width), f"{layer}.up": matrix(s.inner, s.width),
                 f"{layer}.down": matrix(s.width, s.inner)}  # fmt: skip
        if s.head_norms:
            made |= {f"{layer}.q_norm": factors(s.head), f"{layer}.k_norm": factors(s.head)}
    return made | {"norm": factors(s.width), "words": matrix(s.words, s.width)}


def drawn_inputs(s, dtype, device):
    """The token's embedding, cosines and sines of its position, and keys and values of the tokens before it."""
    random = torch.Generator(device).manual_seed(2)
    normal = lambda *shape: torch.randn(*shape, generator=random, device=device).to(dtype)
    angles = s.before * 500000.0 ** -(torch.arange(s.head // 2, device=device) / (s.head // 2))
    past = {f"past_{w}{layer}": normal(1, s.kv, s.places or s.before, s.head) for layer in range(s.layers) for w in "kv"}
    return {"x": normal(1, 1, s.width), "cos": torch.cos(angles).to(dtype).view(1, 1, -1), "sin": torch.sin(angles).to(dtype).view(1, 1, -1), **past}


def bytes_read(s, weights):
    """Of weights and of keys and values of the tokens before."""
    parts = [part for w in weights.values() for part in ((w.numbers, w.scales) if hasattr(w, "numbers") else (w,))]
    return sum(part.numel() * part.element_size() for part in parts) + 2 * s.layers * s.kv * s.before * s.head * 2


def norm(x, factors, epsilon):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + epsilon) * factors


def turned(x, cos, sin):
    low, high = x.chunk(2, -1)
    return torch.cat([low * cos - high * sin, high * cos + low * sin], -1)


def expected(s, weights, given):
    """Scores, and the new rows of each layer's keys and values, in fp32."""
    w, f = lambda name: weights[name].float(), {name: value.float() for name, value in given.items()}
    x, made = f["x"].view(1, -1), []
    for layer in range(s.layers):
        y = norm(x, w(f"{layer}.norm1"), s.epsilon)
        q, k, v = ((y @ w(f"{layer}.{part}").T).view(1, -1, 1, s.head) for part in "qkv")
        if s.head_norms:
            q, k = norm(q, w(f"{layer}.q_norm"), s.epsilon), norm(k, w(f"{layer}.k_norm"), s.epsilon)
        q, k = turned(q, f["cos"], f["sin"]), turned(k, f["cos"], f["sin"])
        made += [k, v]
        keys, values = (torch.cat([f[f"past_{part}{layer}"][:, :, :s.before], new], 2).repeat_interleave(s.heads // s.kv, 1) for part, new in (("k", k), ("v", v)))
        mixed = torch.softmax(q @ keys.transpose(2, 3) * s.head**-0.5, -1) @ values
        x = x + mixed.reshape(1, -1) @ w(f"{layer}.o").T
        y = norm(x, w(f"{layer}.norm2"), s.epsilon)
        x = x + (F.silu(y @ w(f"{layer}.gate").T) * (y @ w(f"{layer}.up").T)) @ w(f"{layer}.down").T
    return [norm(x, w("norm"), s.epsilon) @ w("words").T, *made]


def require_right(side, made, wanted, limit):
    """-> the relative error of the scores."""
    errors = [float((got.float().reshape(want.shape) - want).norm() / want.norm()) for got, want in zip(made, wanted, strict=True)]
    if not max(errors) < limit:
        raise RuntimeError(f"{side}: relative L2 error {errors[0]:.1e} of scores, {max(errors[1:]):.1e} of keys and values, limit {limit:.0e}")
    return errors[0]


# --- the ONNX file -----------------------------------------------------------------------------------------------------


class Writer:
    """Nodes, and weights as they are drawn, into a file beside the model."""

    def __init__(self, path, weights, kind):
        self.path, self.weights, self.kind = path, weights, kind
        self.nodes, self.constants, self.inputs, self.outputs = [], [], [], []
        self.data = open(f"{path}.data", "wb")

    def __call__(self, op, *operands, name=None, **attributes):
        made = name or f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(operands), [made], name=made, **attributes))
        return made

    def ints(self, *values):
        name = "ints_" + "_".join(map(str, values))
        if all(c.name != name for c in self.constants):
            self.constants.append(helper.make_tensor(name, TensorProto.INT64, [len(values)], values))
        return name

    def weight(self, name):
        """Matrices become [inputs, outputs], as MatMul takes them."""
        return self.constant(name, self.weights[name].t().contiguous().to(TYPES[self.kind][0]), TYPES[self.kind][1])

    def linear(self, x, of, name=None):
        weight = self.weights[of]
        if not hasattr(weight, "numbers"):
            return self("MatMul", x, self.weight(of), name=name)
        bits = 8 if weight.numbers.shape[2] == BLOCK else 4
        operands = self.constant(f"{of}.numbers", weight.numbers.contiguous(), TensorProto.UINT8), self.constant(f"{of}.scales", weight.scales.contiguous().to(TYPES[self.kind][0]), TYPES[self.kind][1])
        return self("MatMulNBits", x, *operands, domain="com.microsoft", K=weight.shape[1], N=weight.shape[0], bits=bits, block_size=BLOCK, name=name)

    def constant(self, name, values, data_type):
        entry = TensorProto(name=name, data_type=data_type, dims=values.shape, data_location=TensorProto.EXTERNAL)
        for key, value in (("location", f"{self.path.name}.data"), ("offset", self.data.tell()), ("length", values.numel() * values.element_size())):
            entry.external_data.add(key=key, value=str(value))
        values.view(torch.uint8).cpu().numpy().tofile(self.data)
        self.constants.append(entry)
        return name

    def port(self, ports, name, shape, kind=None):
        ports.append(helper.make_tensor_value_info(name, kind or TYPES[self.kind][1], shape))
        return name

    def save(self):
        self.data.close()
        graph = helper.make_graph(self.nodes, "step", self.inputs, self.outputs, self.constants)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24), helper.make_opsetid("com.microsoft", 1)], ir_version=11), self.path)


def write_model(path, s, weights, kind):
    add = Writer(path, weights, kind)
    linear = add.linear
    norm_of = lambda x, name: add("RMSNormalization", x, add.weight(name), axis=-1, epsilon=s.epsilon)
    split = lambda x, heads: add("Transpose", add("Reshape", x, add.ints(1, 1, heads, s.head)), perm=[0, 2, 1, 3])
    x = add.port(add.inputs, "x", [1, 1, s.width])
    cos, sin = (add.port(add.inputs, name, [1, 1, s.head // 2]) for name in ("cos", "sin"))
    if s.places:
        place, length = (add.port(add.inputs, name, [1], TensorProto.INT64) for name in ("write_indices", "nonpad_kv_seqlen"))
    add.port(add.outputs, "scores", [1, 1, s.words])
    for layer in range(s.layers):
        y = norm_of(x, f"{layer}.norm1")
        parts = {part: split(linear(y, f"{layer}.{part}"), s.heads if part == "q" else s.kv) for part in "qkv"}
        for part in "qk":
            if s.head_norms:
                parts[part] = norm_of(parts[part], f"{layer}.{part}_norm")
            parts[part] = add("RotaryEmbedding", parts[part], cos, sin)
        caches = []
        for part in "kv":
            past = add.port(add.inputs, f"past_{part}{layer}", [1, s.kv, s.places or s.before, s.head])
            if s.places:
                caches.append(add("TensorScatter", past, parts[part], place, name=f"present_{part}{layer}", axis=2))
                add.port(add.outputs, f"present_{part}{layer}", [1, s.kv, s.places, s.head])
            else:
                caches.append(add("Concat", past, add("Identity", parts[part], name=f"new_{part}{layer}"), axis=2))
                add.port(add.outputs, f"new_{part}{layer}", [1, s.kv, 1, s.head])
        mixed = add("Attention", parts["q"], *caches, *(["", "", "", length] if s.places else []))
        x = add("Add", x, linear(add("Reshape", add("Transpose", mixed, perm=[0, 2, 1, 3]), add.ints(1, 1, s.heads * s.head)), f"{layer}.o"))
        y = norm_of(x, f"{layer}.norm2")
        gate = linear(y, f"{layer}.gate")
        x = add("Add", x, linear(add("Mul", add("Mul", gate, add("Sigmoid", gate)), linear(y, f"{layer}.up")), f"{layer}.down"))
    linear(norm_of(x, "norm"), "words", name="scores")
    add.save()


# --- tamp --------------------------------------------------------------------------------------------------------------


def build(tamp, path, folder, precision, device):
    """-> what that took."""
    folder.mkdir(exist_ok=True)
    took = programs.compile_and_build(tamp, path, folder, device, "--precision", precision)
    plan = json.loads((folder / "step.rprogram.json").read_text())
    return took | {"estimated_us": plan["estimated_us"], "rops": len(plan["rops"])}


def stream_of(device):
    return torch.cuda.current_stream().cuda_stream if device == "cuda" else None


class Tamp:
    def __init__(self, s, folder, given, device, kind):
        self.device, self.program = device, programs.Program(folder)
        tensors = {name: value.to(TYPES[kind][0], copy=True).contiguous() for name, value in given.items()}
        past = [value for name, value in tensors.items() if name.startswith("past")]
        nothing = lambda *shape: torch.full(shape, 7.0, dtype=tensors["x"].dtype, device=device)
        caches = past if s.places else [nothing(1, s.kv, 1, s.head) for _ in past]
        self.rows = [cache[:, :, s.before:s.before + 1] for cache in caches] if s.places else caches
        self.scores = nothing(1, 1, s.words)
        counts = [torch.tensor([at], device=device) for at in (s.before, s.before + 1)] if s.places else []
        self.inputs, self.outputs = [tensors[name] for name in ("x", "cos", "sin")] + counts + past, [self.scores, *caches]

    def step(self):
        self.program.run([t.data_ptr() for t in self.inputs], [t.data_ptr() for t in self.outputs], stream_of(self.device))

    def made(self):
        if self.device == "cuda":
            torch.cuda.synchronize()
        self.program.require_good()
        return [self.scores, *self.rows]


# --- PyTorch -----------------------------------------------------------------------------------------------------------


class Step(torch.nn.Module):
    """As one writes it for inference: caches of constant size, the new row put in its place."""

    def __init__(self, s, weights):
        super().__init__()
        self.s, self.names = s, {name: "w_" + name.replace(".", "_") for name in weights}
        for name, value in weights.items():
            self.register_buffer(self.names[name], value)

    def weight(self, name):
        return getattr(self, self.names[name])

    def norm(self, x, name):
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.s.epsilon)).to(x.dtype) * self.weight(name)

    def forward(self, x, cos, sin, place, *caches):
        s, linear = self.s, lambda x, name: F.linear(x, self.weight(name))
        for layer in range(s.layers):
            keys, values = caches[2 * layer:2 * layer + 2]
            y = self.norm(x, f"{layer}.norm1")
            q, k, v = (linear(y, f"{layer}.{part}").view(1, 1, -1, s.head).transpose(1, 2) for part in "qkv")
            if s.head_norms:
                q, k = self.norm(q, f"{layer}.q_norm"), self.norm(k, f"{layer}.k_norm")
            keys.index_copy_(2, place, turned(k, cos, sin))
            values.index_copy_(2, place, v)
            scores = turned(q, cos, sin).view(1, s.kv, -1, s.head) @ keys.transpose(2, 3) * s.head**-0.5
            if s.places:
                scores = scores.masked_fill(torch.arange(s.places, device=x.device) > place, float("-inf"))
            mixed = torch.softmax(scores.float(), -1).to(x.dtype) @ values
            x = x + linear(mixed.reshape(1, 1, -1), f"{layer}.o")
            y = self.norm(x, f"{layer}.norm2")
            x = x + linear(F.silu(linear(y, f"{layer}.gate")) * linear(y, f"{layer}.up"), f"{layer}.down")
        return linear(self.norm(x, "norm"), "words")


def caches_of(s, given):
    """Copies with a place for the new row."""
    wide = lambda past: past.clone() if s.places else F.pad(past, (0, 0, 0, 1))
    return [wide(given[f"past_{w}{layer}"]).contiguous() for layer in range(s.layers) for w in "kv"]


class PyTorch:
    def __init__(self, s, weights, given, mode):
        self.s, self.caches = s, caches_of(s, given)
        self.arguments = [given["x"], given["cos"], given["sin"], torch.tensor([s.before], device=given["x"].device), *self.caches]
        module = Step(s, weights).eval()
        torch._dynamo.reset()
        self.module = torch.compile(module, mode=mode, fullgraph=True, dynamic=False) if mode else module

    def step(self):
        self.scores = self.module(*self.arguments)

    def made(self):
        return [self.scores, *[cache[:, :, self.s.before:self.s.before + 1] for cache in self.caches]]


# --- kernels by hand ---------------------------------------------------------------------------------------------------


class PeerLayer(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("norm1", "qkv", "q_factors", "k_factors", "o", "norm2", "gate_up", "down", "keys", "values")]


class PeerStep(ctypes.Structure):
    _fields_ = [*[(name, ctypes.c_int) for name in ("layers", "width", "heads", "kv", "size", "inner", "words", "places", "is_bf16")], ("epsilon", ctypes.c_float),
                ("each", ctypes.POINTER(PeerLayer)), *[(name, ctypes.c_void_p) for name in ("x", "cos", "sin", "norm", "head", "position", "residual", "row", "mixed", "gated", "scores")]]  # fmt: skip


@functools.cache
def peer_library(folder):
    made = folder / "decoder_peer.so"
    programs.run(["nvcc", "-std=c++20", "-O3", "-arch=sm_90a", "-shared", "-Xcompiler", "-fPIC", "-o", made, pathlib.Path(__file__).with_name("decoder_peer.cu")])
    return ctypes.CDLL(str(made))


class Kernels:
    # Thread blocks a multiprocessor, the same for the scores, KB of weights that a block asks for ahead, programmatic launches.
    SETTINGS = [*itertools.product((1, 2), (1, 2), (0, 32, 96), (1,)), (1, 2, 0, 0), (2, 2, 0, 0)]

    def __init__(self, s, weights, given, library):
        self.s, self.functions, self.setting = s, library, self.SETTINGS[0]
        device, dtype = given["x"].device, given["x"].dtype
        self.caches = caches_of(s, given)
        self.scores = torch.zeros(1, 1, s.words, device=device)
        zeros = lambda count, of=torch.float32: torch.zeros(count, dtype=of, device=device)
        self.kept = [weights, given, torch.tensor([s.before], dtype=torch.int32, device=device), zeros(s.width), zeros((s.heads + 2 * s.kv) * s.head), zeros(s.heads * s.head, dtype), zeros(s.inner, dtype)]
        at = lambda tensor: self.kept.append(tensor) or tensor.data_ptr()
        each = (PeerLayer * s.layers)()
        for i in range(s.layers):
            w = lambda name: weights[f"{i}.{name}"]
            each[i] = PeerLayer(at(w("norm1")), at(torch.cat([w("q"), w("k"), w("v")])), at(w("q_norm")) if s.head_norms else None, at(w("k_norm")) if s.head_norms else None, at(w("o")), at(w("norm2")),
                                at(torch.stack([w("gate"), w("up")], 1).view(-1, s.width)), at(w("down")), at(self.caches[2 * i]), at(self.caches[2 * i + 1]))  # fmt: skip
        pointers = [t.data_ptr() for t in (given["x"], given["cos"], given["sin"], weights["norm"], weights["words"], *self.kept[2:7], self.scores)]
        self.each = each
        self.description = PeerStep(s.layers, s.width, s.heads, s.kv, s.head, s.inner, s.words, s.rows, dtype == torch.bfloat16, s.epsilon, each, *pointers)

    def step(self):
        error = self.functions.decoder_peer_step(ctypes.byref(self.description), *self.setting, ctypes.c_void_p(stream_of(self.scores.device.type)))
        if error:
            raise RuntimeError(f"kernels: CUDA error {error}")

    def made(self):
        return [self.scores, *[cache[:, :, self.s.before:self.s.before + 1] for cache in self.caches]]

    def best(self, wanted, limit):
        """Takes the fastest setting of those that are right. -> its replay."""
        found = []
        for self.setting in self.SETTINGS:
            self.scores.zero_()
            replay = captured(self.step)
            replay()
            require_right(f"kernels {self.setting}", self.made(), wanted, limit)
            found.append((microseconds(replay, means=3), self.setting, replay))
        _, self.setting, replay = min(found, key=lambda entry: entry[0])
        return replay


# --- measured ----------------------------------------------------------------------------------------------------------


def captured(step):
    """A step as the replay of a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def microseconds(replay, means=MEANS):
    replay()
    times = []
    for _ in range(means):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(REPLAYS):
            replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / REPLAYS)
    return statistics.median(times)


MODES = {"compile": "default", "max-autotune": "max-autotune-no-cudagraphs", "eager": None}


def make_ready(name, s, weights, given, wanted, limit, folder):
    """-> a peer, its replay"""
    if name == "kernels":
        peer = Kernels(s, weights, given, peer_library(folder))
        return peer, peer.best(wanted, limit)
    peer = PyTorch(s, weights, given, MODES[name])
    return peer, captured(peer.step)


def measured(args, spec, folder, building):
    """One model: all sides checked, then timed in turns."""
    s, dtype, limit = sizes_of(spec), TYPES[args.precision][0], LIMITS[args.precision]
    weights, given = drawn_weights(s, dtype, args.device), drawn_inputs(s, dtype, args.device)
    wanted, sides, errors, failures, seconds = expected(s, weights, given), {}, {}, {}, {}
    for name in args.peers:
        begin = time.monotonic()
        try:
            peer, replay = make_ready(name, s, weights, given, wanted, limit, folder.parent)
            replay()
            errors[name], sides[name] = require_right(name, peer.made(), wanted, limit), (peer, replay)
        except Exception as problem:  # the others may work
            failures[name] = f"{type(problem).__name__}: {str(problem)[-600:]}"
        seconds[name] = round(time.monotonic() - begin, 1)
    row, builds = {"spec": spec, "bytes": bytes_read(s, weights), "prepare_s": seconds, "failures": failures, "builds": {}}, {}
    for name, made in building.items():
        try:
            row["builds"][name] = made.result()
            tamp = Tamp(s, folder / name, given, args.device, args.graph or args.precision)
            tamp.step()
            errors[name], builds[name] = require_right(name, tamp.made(), wanted, limit), (tamp, captured(tamp.step), [t.clone() for t in tamp.made()])
        except Exception as problem:
            failures[name] = f"{type(problem).__name__}: {str(problem)[-600:]}"
    sides = {name: (tamp, replay) for name, (tamp, replay, _) in builds.items()} | sides
    times = {name: [] for name in sides}
    for _ in range(ROUNDS):
        for name, (_, replay) in sides.items():
            times[name].append(microseconds(replay))
    for name, (tamp, _, first) in builds.items():
        if not all(torch.equal(a, b) for a, b in zip(first, tamp.made())):
            failures[name] = "runs differ"
        tamp.program.close()
    if "kernels" in sides:
        row["kernels_setting"] = sides["kernels"][0].setting
    return row | {"us": times, "errors": errors}


def line_of(row, names, build):
    cell = lambda t: f"{statistics.median(t):.1f} ({min(t):.1f}-{max(t):.1f}), {row['bytes'] / BANDWIDTH / statistics.median(t) * 1e8:.0f} %" if t else "failed"
    best = min((statistics.median(t) for name, t in row["us"].items() if name not in row["builds"]), default=None)
    ratio = f"{best / statistics.median(row['us'][build]):.2f}" if best and row["us"].get(build) else ""
    return f"| {row['spec']} | " + " | ".join(cell(row["us"].get(name)) for name in names) + f" | {ratio} |"


def check_on_stand_in(args, folder):
    """The whole way of a tiny model but for the times."""
    for spec in args.models or ["tiny:7", "tiny:9/24"]:
        s, dtype, limit = sizes_of(spec), TYPES[args.precision][0], LIMITS[args.precision]
        weights, given = drawn_weights(s, dtype, "cpu"), drawn_inputs(s, dtype, "cpu")
        wanted, own, kind = expected(s, weights, given), folder / spec.replace("/", "_").replace(":", "_"), args.graph or args.precision
        own.mkdir()
        write_model(own / "step.onnx", s, weights, kind)
        build(next(iter(args.tamp.values())), own / "step.onnx", own, args.precision, "cpu")
        for name, side in (("tamp", Tamp(s, own, given, "cpu", kind)), ("PyTorch", PyTorch(s, weights, given, None))):
            side.step()
            print(f"{spec} {name}: relative L2 error {require_right(name, side.made(), wanted, limit):.1e}")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tamp", required=True)
    parser.add_argument("--precision", default="fp16", choices=("fp16", "bf16"))
    parser.add_argument("--graph", choices=tuple(TYPES), help="types of the ONNX file; default: those of the precision")
    parser.add_argument("--peers", default="kernels,compile,max-autotune", help="kernels, compile, max-autotune, eager; none: tamp alone")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--folder", type=pathlib.Path, help="for files, twice as large as the weights of all models; default: a temporary one")
    parser.add_argument("--jobs", type=int, default=4, help="models that are compiled at the same time")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("models", nargs="*")
    args = parser.parse_args()
    given = [(name, path) if path else ("tamp", name) for name, _, path in (entry.partition("=") for entry in args.tamp.split(","))]
    args.tamp, args.peers = {name: pathlib.Path(path).resolve() for name, path in given}, [name for name in args.peers.split(",") if name != "none"]
    torch.set_grad_enabled(False)
    torch.backends.cuda.matmul.allow_tf32 = False
    with tempfile.TemporaryDirectory(dir=args.folder) as temporary:
        folder = pathlib.Path(temporary)
        if args.device == "cpu":
            return check_on_stand_in(args, folder)
        names, rows = [*args.tamp, *args.peers], []
        args.models = args.models or ["llama-3.2-1b:127", "llama-3.2-1b:1023/4096", "qwen3-0.6b:127", "smollm-135m:127", "llama-3.1-8b:127"]
        print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; us, share of 4.3 TB/s")
        print("| model | " + " | ".join(names) + f" | best peer / {names[0]} |\n" + "|---" * (len(names) + 2) + "|", flush=True)
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            building = []
            for i, spec in enumerate(args.models):
                s, own = sizes_of(spec), folder / f"model{i}"
                own.mkdir()
                write_model(own / "step.onnx", s, drawn_weights(s, TYPES[args.precision][0], "cuda"), args.graph or args.precision)
                building.append({name: pool.submit(build, tamp, own / "step.onnx", own / name, args.precision, "cuda") for name, tamp in args.tamp.items()})
            for i, spec in enumerate(args.models):
                rows.append(measured(args, spec, folder / f"model{i}", building[i]))
                print(line_of(rows[-1], names, names[0]), flush=True)
                print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
                shutil.rmtree(folder / f"model{i}")
                torch.cuda.empty_cache()
                if args.out:
                    args.out.write_text(json.dumps({"device": torch.cuda.get_device_name(), "torch": torch.__version__, "precision": args.precision, "rows": rows}, indent=1))
    return 1 if any(row["failures"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
