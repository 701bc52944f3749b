#!/usr/bin/env python3
"""Loops and branches of run time on a GPU, beside PyTorch and ONNX Runtime, in one run.

    python3 test/gpu/loops.py --tamp build/release/bin/tamp

The models are those of test/e2e/loops_test.py, with states of 512 and 8192 words. Prints, for each: tamp in fp32, ONNX Runtime on the CPU, PyTorch
as one would write it (the loop in Python, a decision by `.item()`), and PyTorch with the body as a CUDA graph over fixed places. Median of 50 calls
by the clock, each with a synchronisation behind it, inputs and outputs on the GPU (ONNX Runtime's on the host); nothing is timed before its answer
was found to be ONNX Runtime's. Needs numpy, onnx, onnxruntime, torch and nvcc."""
import argparse
import ctypes
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
import onnxruntime
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import loops_test as loops
import models as m

LIMIT = 1e-3  # relative L2 error


class Options(ctypes.Structure):  # tamp_options
    _fields_ = [("weights_path", ctypes.c_char_p), ("weights", ctypes.c_void_p), ("bytes", ctypes.c_size_t), ("wait_budget_seconds", ctypes.c_double)]


def weight(model, name):
    """An initializer of the model or of a body in it, on the GPU."""
    graphs = [model.graph, *[a.g for n in model.graph.node for a in n.attribute if a.HasField("g")]]
    found = next(w for g in graphs for w in g.initializer if w.name == name)
    return torch.from_numpy(np.array(onnx.numpy_helper.to_array(found))).cuda()


def halvings():
    """A body of one multiplication: what an iteration takes besides."""
    body = loops.body([loops.node("Mul", ["v", "half"], ["w"]), loops.node("Identity", ["c"], ["go"])], [m.value("v", [64])], [m.value("w", [64])], [m.constant("half", 0.5)])
    return m.model([loops.node("Loop", ["n", "", "x"], ["y"], body=body)], [m.value("n", [], loops.I64), m.value("x", [64])], [m.value("y", [64])])


# --- PyTorch -----------------------------------------------------------------------------------------------------------


class Body:
    """A step as a CUDA graph, over places that hold its state."""

    def __init__(self, step, *state):
        self.state = [x.clone() for x in state]
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(3):
                step(*self.state)
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            for place, value in zip(self.state, step(*self.state)):
                place.copy_(value)

    def begin(self, *state):
        for place, value in zip(self.state, state):
            place.copy_(value)
        return self.state


def newton(_, a):
    def step(x, _):
        following = (x + a / x) * 0.5
        return following, (following - x).abs().max()

    zero, body = torch.zeros([], device="cuda"), Body(step, a, torch.zeros([], device="cuda"))

    def plain():
        x, most = step(a, zero)
        while (most > 1e-4).item():
            x, most = step(x, zero)
        return [x]

    def graph():
        x, most = body.begin(a, zero)
        body.graph.replay()
        while (most > 1e-4).item():
            body.graph.replay()
        return [x]

    return plain, graph


def greedy(model, token, h):
    words, u, o = (weight(model, name) for name in ("words", "u", "o"))

    def step(t, state):
        state = torch.tanh(words[t] + state @ u)
        return torch.argmax(state @ o, 1), state

    def collect(states):
        made = []
        for t, state in states:
            made.append(t.clone())
            if len(made) == MOST_TOKENS or t.item() == loops.END:
                return [t, state, torch.stack(made)]

    def one_by_one():
        t, state = token, h
        while True:
            t, state = step(t, state)
            yield t, state

    body = Body(step, token, h)

    def replays():
        t, state = body.begin(token, h)
        while True:
            body.graph.replay()
            yield t, state

    return lambda: collect(one_by_one()), lambda: collect(replays())


def recurrent(model, x, length, h):
    w, u, v = (weight(model, name) for name in ("w", "u", "v"))
    body, count = Body(lambda state, xi: (torch.tanh(xi @ w + state @ u), xi), h, x[0]), int(length)

    def plain():
        state = h
        for i in range(count):
            state = torch.tanh(x[i] @ w + state @ u)
        return [state @ v]

    def graph():
        state, xi = body.begin(h, x[0])
        for i in range(count):
            xi.copy_(x[i])
            body.graph.replay()
        return [state @ v]

    return plain, graph


def skipped(model, c, x):
    w, v = weight(model, "w"), weight(model, "v")
    return (lambda: [torch.tanh(torch.relu(x @ w) @ v + x if c.item() else x)],)


MOST_TOKENS = 64


def cases():
    loops.WIDTH, loops.WORDS, loops.END = 512, 8192, 7
    random = np.random.default_rng(1)
    floats = lambda *shape: random.standard_normal(shape).astype(np.float32)
    search, network, block, halved = loops.greedy(random, MOST_TOKENS), loops.recurrent(random), loops.skipped(random), halvings()
    yield "Newton's method, 64 numbers", loops.newton(), {"a": np.linspace(0.5, 900, 64).astype(np.float32)}, newton
    yield "greedy search, 64 tokens", search, {"t0": np.array([1]), "h0": floats(1, 512)}, greedy
    yield "RNN of 512, 30 steps of run time", network, {"x": floats(30, 1, 512), "length": np.array(30), "h0": floats(1, 512)}, recurrent
    yield "If, block taken", block, {"c": np.array(True), "x": floats(4, 512)}, skipped
    yield "If, block skipped", block, {"c": np.array(False), "x": floats(4, 512)}, skipped
    yield "1 halving", halved, {"n": np.array(1), "x": floats(64)}, None
    yield "1001 halvings", halved, {"n": np.array(1001), "x": floats(64)}, None


# --- tamp --------------------------------------------------------------------------------------------------------------


class Program:
    def __init__(self, tamp, model, name, folder):
        (folder / "model.onnx").write_bytes(model.SerializeToString())
        subprocess.run([tamp, "compile", folder / "model.onnx", "-o", folder, "--name", name, "--vdevice", "h200", "--precision", "fp32", "-q"], check=True)
        subprocess.run(["nvcc", "-std=c++20", "-O3", "-arch=sm_90a", "-shared", "-Xcompiler", "-fPIC", f"-I{folder}", "-o", folder / "program.so", folder / f"{name}.cu"], check=True)
        self.loaded, self.name, self.context = ctypes.CDLL(str(folder / "program.so")), name, ctypes.c_void_p()
        weights = folder / f"{name}.weights"
        options = Options(str(weights).encode() if weights.exists() else None, None, 0, 2.0)
        self.call("create", ctypes.byref(options), ctypes.byref(self.context))

    def call(self, function, *arguments):
        status = getattr(self.loaded, f"{self.name}_{function}")(*arguments)
        if status:
            raise RuntimeError(f"{self.name}_{function}: status {status}")

    def run_on(self, inputs, outputs):
        """A call that runs the program on these tensors."""
        pointers = [(ctypes.c_void_p * len(tensors))(*[t.data_ptr() for t in tensors]) for tensors in (inputs, outputs)]
        run, stream = getattr(self.loaded, f"{self.name}_run"), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        return lambda: run(self.context, *pointers, stream)


def timed(call, count=50):
    call()
    torch.cuda.synchronize()
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) * 1e6)
    return statistics.median(times)


def require_alike(what, made, wanted):
    for got, want in zip(made, wanted):
        got = got.cpu().numpy().ravel()[:want.size].reshape(want.shape).astype(float)
        error = np.linalg.norm(got - want) / max(1e-9, np.linalg.norm(want.astype(float)))
        if not error < LIMIT:
            raise RuntimeError(f"{what}: relative L2 error {error:.1e}, limit {LIMIT:.0e}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tamp", required=True, type=pathlib.Path)
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, onnxruntime {onnxruntime.__version__}; us")
    print("| | tamp | ONNX Runtime, CPU | PyTorch | PyTorch, body in a CUDA graph |\n|---|---|---|---|---|")
    programs = {}
    for title, model, inputs, peers in cases():
        key = id(model)
        if key not in programs:
            programs[key] = (Program(args.tamp.resolve(), model, f"loop{len(programs)}", pathlib.Path(tempfile.mkdtemp())), model)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        wanted = session.run(None, inputs)
        given = [torch.from_numpy(np.ascontiguousarray(inputs[port.name])).cuda() for port in model.graph.input]
        made = [torch.zeros(1 << 16, dtype=torch.from_numpy(w).dtype, device="cuda") for w in wanted] + [torch.zeros(16, dtype=torch.int64, device="cuda")] * 2  # counts
        run = programs[key][0].run_on(given, made)
        run()
        torch.cuda.synchronize()
        programs[key][0].call("status", programs[key][0].context)
        require_alike(f"{title}: tamp", made, wanted)
        row = [timed(run), timed(lambda: session.run(None, inputs))]
        for peer in peers(model, *given) if peers else ():
            require_alike(f"{title}: PyTorch", peer(), wanted)
            row.append(timed(peer))
        print(f"| {title} | " + " | ".join(f"{t:.1f}" for t in row) + " |" * (5 - len(row)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
