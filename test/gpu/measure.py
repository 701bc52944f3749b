#!/usr/bin/env python3
"""Compiles, builds, checks and times models on a GPU, beside eager PyTorch in a CUDA graph, in one run.

    python3 test/gpu/measure.py --tamp build/release/bin/tamp --models FOLDER [--precisions fp32,tf32] [--out results.json] NAME...

FOLDER holds NAME.onnx with its weights, NAME.expected.npz (input arrays are made by FOLDER/weights.py or lie in
NAME.inputs.npz) and NAME.weights.json (`inputs`, `noise`). For each model and precision:
  compile and nvcc time; relative L2 error against the expected outputs (bar: 1e-4 fp32, 1e-5 of recurrent networks, twice `noise` else);
  REPEAT runs bitwise equal; two instances on two streams; replay in a CUDA graph; the time of one inference:
  events around single runs (with the launch), and the mean of back-to-back graph replays.
Nothing is timed before its answer was checked."""
import argparse, concurrent.futures, importlib.util, json, pathlib, re, statistics, subprocess, sys, tempfile, time

import numpy as np


def load_weights_module(folder):
    spec = importlib.util.spec_from_file_location("weights", folder / "weights.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def inputs_of(folder, name, meta):
    ready = folder / f"{name}.inputs.npz"
    if ready.exists():
        data = np.load(ready)
        return [data[n] for n, _, _ in meta["inputs"]]
    with np.errstate(over="ignore"):
        return [load_weights_module(folder).model_input(*entry) for entry in meta["inputs"]]


def timed(command, cwd=None, limit_s=240):
    start = time.time()
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, cwd=cwd)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stderr[-3000:]}")
    return done, time.time() - start


def make_weights(folder, name, meta):
    """Makes NAME.bin by FOLDER/weights.py if it is missing."""
    if "location" in meta and not (folder / meta["location"]).exists():
        timed([sys.executable, (folder / "weights.py").resolve(), f"{name}.weights.json"], cwd=folder)


def build_runner(out, name, arch, flags=(), runner="runner", limit_s=240):
    """nvcc on a folder of `tamp compile` -> the finished process, seconds; the program is out/RUNNER."""
    repository = pathlib.Path(__file__).resolve().parents[2]
    return timed(["nvcc", "-std=c++20", "-O3", f"-arch={arch}", *flags, "-I", out, "-I", repository, f'-DTAMP_MODEL_HEADER="{name}.h"', f"-DTAMP_MODEL={name}",
                  f'-DTAMP_WEIGHTS_FOLDER="{out}/"', out / f"{name}.cu", repository / "runtime_stub/host/runner.cpp", "-o", out / runner], limit_s=limit_s)


def build(tamp, folder, name, precision, vdevice, arch, work, policy, more=()):
    """-> facts about compile and nvcc; the runner lies in work/NAME-PRECISION. `more`: further options of `tamp compile`."""
    out = work / f"{name}-{precision}"
    _, compile_s = timed([tamp, "compile", folder / f"{name}.onnx", "-o", out, "--vdevice", vdevice, "--precision", precision, "--policy", policy, "-q", *more])
    nvcc_run, nvcc_s = build_runner(out, name, arch, ["-Xptxas", "-v"])
    spills = sum(int(n) for n in re.findall(r"(\d+) bytes spill stores", nvcc_run.stderr))
    registers = max((int(n) for n in re.findall(r"Used (\d+) registers", nvcc_run.stderr)), default=0)
    plan = json.loads((out / f"{name}.rprogram.json").read_text())
    rops = plan["rops"]
    return {"compile_s": compile_s, "nvcc_s": nvcc_s, "registers": registers, "spill_bytes": spills, "estimated_us": plan["estimated_us"], "rops": len(rops),
            "rtasks": sum(r["rtasks"] for r in rops), "waves": plan["depth"], "flops": sum(r["flops"] for r in rops),
            "activation_bytes": sum(r["bytes"] for r in rops), "weights_in_file": plan["weight_bytes"], "arena_bytes": plan["arena_bytes"], "warnings": nvcc_run.stderr.count("warning")}


def arguments_of(out, folder, name, meta, batch=None):
    """Writes the inputs into `out` -> (arguments of the runner, output files, expected values). A batch has the same input many times."""
    expected = np.load(folder / f"{name}.expected.npz")
    repeated = lambda value: np.concatenate([value] * (batch or 1))
    arguments = []
    for i, value in enumerate(inputs_of(folder, name, meta)):
        repeated(value).tofile(out / f"in{i}.bin")
        arguments += ["--input", out / f"in{i}.bin"]
    outputs = [out / f"out{i}.bin" for i in range(len(expected.files))]
    for path in outputs:
        arguments += ["--output", path]
    return arguments, outputs, [repeated(expected[n]) for n in expected.files]


def values_of(path, count):
    """A file of so many values of f32 or f16."""
    return np.fromfile(path, np.float16 if path.stat().st_size == 2 * count else np.float32).astype(np.float64)


def once(work, folder, name, precision, meta, batch, *more):
    """One call of the runner in work/NAME-PRECISION with the options `more` -> error, bar, whether it is good, times in us."""
    out = work / f"{name}-{precision}"
    arguments, outputs, expected = arguments_of(out, folder, name, meta, batch)
    done, _ = timed([out / "runner", *arguments, *more], limit_s=60)  # a kernel that hangs does so until its barriers give up, minutes
    got = np.concatenate([values_of(path, value.size) for path, value in zip(outputs, expected)])
    want = np.concatenate([value.astype(np.float64).ravel() for value in expected])
    error = float(np.linalg.norm(got - want) / np.linalg.norm(want))
    bar = (1e-5 if is_recurrent(name) else 1e-4) if precision == "fp32" else 2 * meta["noise"][precision]
    times = [float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("run ")]
    train = [float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("train ")]
    return {"train_us": statistics.median(train) if train else None, "error": error, "bar": bar, "good": bool(error <= bar), "median_us": statistics.median(times) if times else None, "min_us": min(times) if times else None}


def run(work, folder, name, precision, meta, repeat, batch=None):
    ways = {"plain": ["--repeat", str(repeat)], "two_instances": ["--repeat", "20", "--instances", "2"], "graph": ["--repeat", str(repeat), "--graph", "--train", "50"]}
    return {way: once(work, folder, name, precision, meta, batch, *options) for way, options in ways.items()}


def is_recurrent(name):
    return name.startswith(("lstm", "seq2seq", "deepspeech2"))


def work_of(path):
    """An ONNX file's (multiply-adds times two of Conv, Gemm and MatMul by weights, elements of the weights). Where a shape cannot be
    inferred the operator counts nothing."""
    import onnx

    model = onnx.shape_inference.infer_shapes(onnx.load(path, load_external_data=False), data_prop=True)
    values = [*model.graph.value_info, *model.graph.input, *model.graph.output]
    shapes = {v.name: [d.dim_value or 1 for d in v.type.tensor_type.shape.dim] for v in values}  # of batch 1, where an extent is unknown
    weights = {w.name: list(w.dims) for w in model.graph.initializer}
    flops = 0.0
    for node in model.graph.node:
        if node.output[0] not in shapes:
            continue
        if node.op_type == "Conv":
            flops += 2.0 * np.prod(shapes[node.output[0]]) * np.prod(weights[node.input[1]][1:])
        elif node.op_type in ("Gemm", "MatMul") and node.input[1] in weights:
            transposed = any(a.name == "transB" and a.i for a in node.attribute)
            flops += 2.0 * np.prod(shapes[node.output[0]]) * weights[node.input[1]][-1 if transposed else -2]
    return float(flops), float(sum(np.prod(w) for w in weights.values()))


def floor_us(path, precision):
    """Least time by arithmetic and by weight bytes: multiply-adds at 302 (tf32, mma.sync) or 60 (fp32) TFLOP/s, weights once at 4.3 TB/s;
    -> (arithmetic, bytes)."""
    flops, elements = work_of(path)
    return flops / (302e12 if precision == "tf32" else 60e12) * 1e6, 4.0 * elements / 4.3e12 * 1e6


def write_table(path, results, folder):
    lines = ["| model | precision | error | bar | tamp us | PyTorch eager, CUDA graph us | torch.compile us | ratio to the better | floor us: arithmetic / weights | rOperators | waves | tamp compile s | nvcc s |", "|---|---|---|---|---|---|---|---|---|---|---|---|---|"]
    for key, row in results.items():
        name, precision = key.split()
        if "plain" not in row:
            lines.append(f"| {name} | {precision} | failed | | | | | | | | | | |")
            continue
        arithmetic, weight_time = floor_us(folder / f"{name}.onnx", precision)
        time = row["graph"]["train_us"]
        peers = [row.get(key) for key in ("pytorch_graph_us", "pytorch_compile_us")]
        graph, compiled = ("" if peer is None else f"{peer:.1f}" for peer in peers)
        ratio = f"{min(peer for peer in peers if peer) / time:.2f}" if any(peers) else ""
        lines.append(f"| {name} | {precision} | {row['plain']['error']:.1e} | {row['plain']['bar']:.1e} | {time:.1f} | {graph} | {compiled} | {ratio} | {arithmetic:.1f} / {weight_time:.1f} | {row['rops']} | {row['waves']} | {row['compile_s']:.1f} | {row['nvcc_s']:.1f} |")
    path.write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tamp", required=True, type=pathlib.Path)
    parser.add_argument("--models", required=True, type=pathlib.Path)
    parser.add_argument("--precisions", default="fp32,tf32")
    parser.add_argument("--vdevice", default="h200")
    parser.add_argument("--policy", default="best")
    parser.add_argument("--execution", default="persistent", choices=("persistent", "graph"), help="of tamp compile")
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--repeat", type=int, default=200)
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--compile-peers", action="store_true", help="torch.compile beside eager PyTorch; minutes for unrolled networks")
    parser.add_argument("--batch", type=int, help="first extent of all inputs; default: what the file says. For both sides")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--table", type=pathlib.Path, help="write a Markdown table")
    parser.add_argument("names", nargs="+")
    args = parser.parse_args()
    work = pathlib.Path(tempfile.mkdtemp())
    pairs = [(name, precision) for name in args.names for precision in args.precisions.split(",")]
    metas = {name: json.loads((args.models / f"{name}.weights.json").read_text()) for name in args.names}
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        jobs = {pair: pool.submit(build, args.tamp, args.models, *pair, args.vdevice, args.arch, work, args.policy, ["--execution", args.execution, *(["--batch", str(args.batch)] if args.batch else [])]) for pair in pairs}
    results, failed = {}, 0
    for name, precision in pairs:
        row = {}
        try:
            row.update(jobs[name, precision].result())
            row.update(run(work, args.models, name, precision, metas[name], args.repeat, args.batch))
            if not args.no_peers:
                sys.path.insert(0, str(pathlib.Path(__file__).parent))
                import peers
                row["pytorch_graph_us"] = peers.graph_time(name, precision, args.batch)
                if args.compile_peers:
                    row["pytorch_compile_us"] = peers.compiled_time(name, precision, args.batch)
        except Exception as problem:  # one model's failure must not hide the others' results
            row["failure"] = str(problem)[-1500:]
        good = "failure" not in row and all(row[k]["good"] for k in ("plain", "two_instances", "graph"))
        failed += not good
        results[f"{name} {precision}"] = row
        if "plain" not in row:
            print(f"{name:24} {precision:5} FAILED: {row['failure'][-700:]}", flush=True)
            continue
        peer_times = [row[key] for key in ("pytorch_graph_us", "pytorch_compile_us") if row.get(key)]
        print(f"{name:24} {precision:5} {'good' if good else 'WRONG'} error {row['plain']['error']:.2e} (bar {row['plain']['bar']:.1e}) graph {row['graph']['train_us']:8.1f} us "
              f"single {row['plain']['median_us']:8.1f} us peer {min(peer_times, default=float('nan')):8.1f} us estimate {row['estimated_us']:7.1f} rops {row['rops']:4} waves {row['waves']:4} "
              f"compile {row['compile_s']:.1f} s nvcc {row['nvcc_s']:.1f} s regs {row['registers']} spills {row['spill_bytes']} warnings {row['warnings']} {row.get('failure', '')}", flush=True)
    if args.out:
        args.out.write_text(json.dumps(results, indent=1))
    if args.table:
        write_table(args.table, results, args.models)
    print(f"{len(pairs) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
