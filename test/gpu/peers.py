#!/usr/bin/env python3
"""What a user would pick instead of tamp, timed on a GPU: PyTorch eager in a CUDA graph, and torch.compile.

    python3 test/gpu/peers.py NAME --precision tf32 --peer eager|compile|compile-replay|max-autotune [--batch N] [--prepare]

Prints JSON lines: first what the peer is, then one line per layout (contiguous; channels-last if the input is an image) as soon as its time is
known, so that a caller with a time limit has what was ready. cuDNN benchmark mode is on, recurrent layers are cuDNN's, tf32 is allowed only as precision tf32.
  eager           the module, captured into a CUDA graph and replayed
  compile         torch.compile(mode="reduce-overhead"), which replays CUDA graphs of its own; called as a user calls it
  compile-replay  torch.compile(), captured into a CUDA graph here: its kernels without its calls
  max-autotune    torch.compile(mode="max-autotune")
--prepare compiles and calls, but times nothing (this fills the compiler's caches; several programs may do so at once). Choices that the compiler
made by timing are made again in the timed run."""
import argparse, json, sys, time

import torch

import networks

MODES = {"compile": "reduce-overhead", "compile-replay": "default", "max-autotune": "max-autotune"}
PEERS = ("eager", *MODES)
RUNS, ROUNDS = 50, 7  # as runtime_stub/host/runner.cpp --train 50


def microseconds(call, runs=RUNS, rounds=ROUNDS):
    """Median over rounds of the mean of `runs` calls, by CUDA events."""
    for _ in range(5):
        call()
    torch.cuda.synchronize()
    times = []
    for _ in range(rounds):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(runs):
            call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / runs)
    return sorted(times)[len(times) // 2]


def set_precision(precision):
    torch.set_grad_enabled(False)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"


def ready(name, precision, channels_last, batch=None):
    """-> (module, inputs) on the GPU, or None where the layout makes no difference."""
    module, shapes = networks.build(name)
    if channels_last and len(shapes[0]) != 4:
        return None
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(precision, torch.float32)
    first = lambda shape: (batch or shape[0], *shape[1:])
    draw = lambda shape: torch.randint(shape.words, first(shape), device="cuda") if isinstance(shape, networks.Ids) else torch.randn(*first(shape), device="cuda", dtype=dtype)
    module, inputs = module.eval().cuda().to(dtype), [draw(shape) for shape in shapes]
    if channels_last:
        module, inputs = module.to(memory_format=torch.channels_last), [x.to(memory_format=torch.channels_last) for x in inputs]
    return module, inputs


def captured(module, inputs):
    """The call as the replay of a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(4):
            module(*inputs)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        module(*inputs)
    return graph.replay


def call_of(peer, module, inputs):
    """What is called again and again to time the peer."""
    if peer == "eager":
        return captured(module, inputs)
    import torch._inductor.config as inductor

    if hasattr(inductor, "autotune_local_cache"):
        inductor.autotune_local_cache = False  # choices made beside other programs are not those of a GPU alone
    torch._dynamo.reset()
    compiled = torch.compile(module, mode=MODES[peer])
    if peer == "compile-replay":
        return captured(compiled, inputs)
    for _ in range(4):  # compiles, warms up, records
        compiled(*inputs)
    return lambda: compiled(*inputs)


def best_time(peer, name, precision, batch=None):
    """The better of contiguous and channels-last."""
    set_precision(precision)
    pairs = [ready(name, precision, channels_last, batch) for channels_last in (False, True)]
    return min(microseconds(call_of(peer, *pair)) for pair in pairs if pair)


def graph_time(name, precision, batch=None):
    return best_time("eager", name, precision, batch)


def compiled_time(name, precision, batch=None):
    return best_time("compile", name, precision, batch)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("--precision", default="tf32", choices=("fp32", "tf32", "fp16", "bf16"))
    parser.add_argument("--peer", default="eager", choices=PEERS)
    parser.add_argument("--batch", type=int, help="first extent of all inputs; default: what the network has")
    parser.add_argument("--prepare", action="store_true")
    args = parser.parse_args()
    say = lambda **line: print(json.dumps(line), flush=True)
    set_precision(args.precision)
    failed = False
    for layout in ("contiguous", "channels_last"):
        pair = ready(args.name, args.precision, layout == "channels_last", args.batch)
        if pair is None:
            continue
        if layout == "contiguous":
            say(flops=networks.flops_of(*pair), torch=torch.__version__, cuda=torch.version.cuda, cudnn=torch.backends.cudnn.version())
        begin = time.time()
        try:
            call = call_of(args.peer, *pair)
            torch.cuda.synchronize()
            if not args.prepare:
                say(layout=layout, us=microseconds(call), prepare_s=round(time.time() - begin, 1))
        except Exception as problem:  # the other layout may work
            failed = True
            say(layout=layout, failure=f"{type(problem).__name__}: {str(problem)[:300]}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
