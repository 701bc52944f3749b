#!/usr/bin/env python3
"""The Python package on a GPU, beside PyTorch: answers of tamp.compile and torch.compile(backend="tamp") against eager, and their times beside
eager and torch.compile's own backend, of resnet50 in fp16, a layer of BERT and an LSTM.

    python3 test/gpu/python_torch.py [--out FILE.json]

needs tamp, torch and torchvision installed. Times are the median of 7 rounds of 50 replays of a CUDA graph, per run, and of 50 calls without one.
An answer is right if its relative L2 distance from eager's in fp32 is within `bar`. The second compilation of a model must come from the cache."""
import argparse, json, statistics, sys, time, warnings

import torch

import tamp

ROUNDS, RUNS = 7, 50


def resnet50():
    import torchvision
    return torchvision.models.resnet50(weights=None).eval().cuda(), [torch.randn(1, 3, 224, 224, device="cuda")]


def bert_layer():
    class Layer(torch.nn.Module):
        """As in BERT base: 768 channels, 12 heads, post-normalised, gelu."""

        def __init__(self):
            super().__init__()
            self.q, self.k, self.v, self.o = (torch.nn.Linear(768, 768) for _ in range(4))
            self.up, self.down = torch.nn.Linear(768, 3072), torch.nn.Linear(3072, 768)
            self.first, self.second = torch.nn.LayerNorm(768, eps=1e-12), torch.nn.LayerNorm(768, eps=1e-12)

        def forward(self, x):
            heads = [product(x).view(1, 128, 12, 64).transpose(1, 2) for product in (self.q, self.k, self.v)]
            scores = torch.softmax(heads[0] @ heads[1].transpose(-1, -2) / 8.0, dim=-1)
            x = self.first(x + self.o((scores @ heads[2]).transpose(1, 2).reshape(1, 128, 768)))
            return self.second(x + self.down(torch.nn.functional.gelu(self.up(x))))

    return Layer().eval().cuda(), [torch.randn(1, 128, 768, device="cuda")]


def lstm():
    class Last(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = torch.nn.LSTM(128, 256, num_layers=2)

        def forward(self, x):
            return self.lstm(x)[0]

    return Last().eval().cuda(), [torch.randn(50, 1, 128, device="cuda")]


# name, what makes it, precision, bar
CASES = [("resnet50", resnet50, "fp16", 5e-3), ("bert_layer", bert_layer, "fp16", 5e-3), ("bert_layer", bert_layer, "tf32", 5e-3),
         ("lstm", lstm, "fp32", 1e-4)]  # fmt: skip


def distance(found, expected):
    return float((found.float() - expected.float()).norm() / expected.float().norm())


def graph_us(call):
    """Times per run: replays of a CUDA graph, and plain calls."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(5):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return rounds_us(graph.replay), rounds_us(call)


def rounds_us(call):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = []
    for _ in range(ROUNDS):
        begin.record()
        for _ in range(RUNS):
            call()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / RUNS)
    return statistics.median(times)


def measure(name, make, precision, bar):
    torch.manual_seed(1)
    module, inputs = make()
    row = {"name": name, "precision": precision, "bar": bar}
    with torch.no_grad():
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        expected = module(*inputs)
        for what in ("compile", "again"):
            start = time.perf_counter()
            model = tamp.compile(module, *inputs, precision=precision)
            row[f"{what}_s"] = time.perf_counter() - start
        row["error"] = distance(model(*inputs), expected)
        torch._dynamo.reset()
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)  # a fallback to eager warns
            backend = torch.compile(module, backend="tamp", options={"precision": precision})
            row["backend_error"] = distance(backend(*inputs), expected)
        if max(row["error"], row["backend_error"]) > bar:
            raise SystemExit(f"{name} in {precision}: wrong, {row}")
        row["tamp_us"], row["tamp_call_us"] = graph_us(lambda: model(*inputs))
        row["backend_us"], row["backend_call_us"] = graph_us(lambda: backend(*inputs))
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
        torch.backends.cudnn.benchmark = True
        if precision == "fp16":
            module, inputs = module.half(), [x.half() for x in inputs]
        row["eager_us"], row["eager_call_us"] = graph_us(lambda: module(*inputs))
        torch._dynamo.reset()
        inductor = torch.compile(module)
        row["inductor_us"], row["inductor_call_us"] = graph_us(lambda: inductor(*inputs))
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out")
    args = parser.parse_args()
    rows = []
    for case in CASES:
        rows.append(row := measure(*case))
        print(f"{row['name']} {row['precision']}: errors {row['error']:.1e} and {row['backend_error']:.1e} (bar {row['bar']:.0e}); in a CUDA graph, us: tamp "
              f"{row['tamp_us']:.1f}, backend=\"tamp\" {row['backend_us']:.1f}, eager {row['eager_us']:.1f}, inductor {row['inductor_us']:.1f}; calls, us: "
              f"{row['tamp_call_us']:.1f}, {row['backend_call_us']:.1f}, {row['eager_call_us']:.1f}, {row['inductor_call_us']:.1f}; compiled in "
              f"{row['compile_s']:.1f} s, again in {row['again_s']:.2f} s", flush=True)
    if args.out:
        with open(args.out, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
