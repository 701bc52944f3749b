#!/usr/bin/env python3
"""How recurrent networks scale: LSTM stacks of many sizes, tamp beside cuDNN (torch.nn.LSTM in a CUDA graph), in one run on a GPU.

    python3 test/gpu/recurrent_scaling.py --tamp build/release/bin/tamp --out scaling.json [--precisions fp32,fp16] [--sweeps hidden,layers]

One dimension at a time around hidden 256, 4 layers, 100 steps, batch 1. Weights and inputs are seeded; each answer is compared with PyTorch's on
the CPU in float32 (bar 1e-5 relative L2; fp16: 2e-3) before anything is timed. Times: mean of back-to-back CUDA-graph replays, median over rounds.
plot_scaling.py draws the result."""
import argparse, concurrent.futures, json, pathlib, statistics, subprocess, sys, tempfile

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import peers

BASE = {"hidden": 256, "layers": 4, "steps": 100, "batch": 1}
SWEEPS = {"hidden": [64, 128, 256, 512, 1024, 2048], "layers": [1, 2, 4, 8, 16], "steps": [10, 30, 100, 300, 1000], "batch": [1, 2, 4, 8, 16]}
BARS = {"fp32": 1e-5, "fp16": 2e-3, "bf16": 2e-2}


def configurations(sweeps):
    seen = []
    for dimension in sweeps:
        for value in SWEEPS[dimension]:
            config = {**BASE, dimension: value}
            if config not in seen:
                seen.append(config)
    return seen


def name_of(config):
    return "lstm_h{hidden}_l{layers}_t{steps}_b{batch}".format(**config)


def module_of(config):
    torch.manual_seed(0)
    return torch.nn.LSTM(config["hidden"], config["hidden"], config["layers"]).eval()


def onnx_order(rows):
    """PyTorch's gates i, f, g, o as ONNX's i, o, f, c."""
    i, f, g, o = np.split(rows, 4)
    return np.concatenate([i, o, f, g])[None]


def write_model(config, module, path):
    hidden, steps, batch = config["hidden"], config["steps"], config["batch"]
    nodes, weights, at = [], [], "x"
    for layer in range(config["layers"]):
        own = {key: getattr(module, f"{key}_l{layer}").detach().numpy() for key in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
        weights += [numpy_helper.from_array(onnx_order(own["weight_ih"]), f"W{layer}"), numpy_helper.from_array(onnx_order(own["weight_hh"]), f"R{layer}"),
                    numpy_helper.from_array(np.concatenate([onnx_order(own["bias_ih"]), onnx_order(own["bias_hh"])], 1), f"B{layer}")]
        nodes += [helper.make_node("LSTM", [at, f"W{layer}", f"R{layer}", f"B{layer}"], [f"Y{layer}"], hidden_size=hidden, name=f"lstm{layer}"),
                  helper.make_node("Squeeze", [f"Y{layer}", "one"], [f"y{layer}"])]
        at = f"y{layer}"
    weights.append(numpy_helper.from_array(np.array([1], np.int64), "one"))
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [steps, batch, hidden]) for n in ("x", at)]
    model = helper.make_model(helper.make_graph(nodes, path.stem, ends[:1], ends[1:], weights), opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save_model(model, str(path), save_as_external_data=True, location=path.stem + ".bin", size_threshold=1024)


def run(command, seconds=300):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=seconds)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stderr[-1500:]}")
    return done.stdout


def build(args, config, work):
    """-> expected output; the runners of all precisions lie in work."""
    name = name_of(config)
    module = module_of(config)
    write_model(config, module, work / f"{name}.onnx")
    torch.manual_seed(1)
    x = torch.randn(config["steps"], config["batch"], config["hidden"])
    x.numpy().tofile(work / f"{name}.in")
    with torch.no_grad():
        expected = module(x)[0].numpy()
    repository = pathlib.Path(__file__).resolve().parents[2]
    plans = {}
    for precision in args.precisions.split(","):
        out = work / f"{name}-{precision}"
        run([args.tamp, "compile", work / f"{name}.onnx", "-o", out, "--vdevice", args.vdevice, "--precision", precision, "-q"])
        run(["nvcc", "-std=c++20", "-O3", f"-arch={args.arch}", "-I", out, "-I", repository, f'-DTAMP_MODEL_HEADER="{name}.h"', f"-DTAMP_MODEL={name}",
             f'-DTAMP_WEIGHTS_FOLDER="{out}/"', out / f"{name}.cu", repository / "runtime_stub/host/runner.cpp", "-o", out / "runner"])
        plan = json.loads((out / f"{name}.rprogram.json").read_text())
        plans[precision] = {"estimated_us": plan["estimated_us"], "rkernels": sorted({r["rkernel"] for r in plan["rops"]})}
    return expected, plans


def measure(config, precision, expected, work):
    name = name_of(config)
    out = work / f"{name}-{precision}"
    text = run(["timeout", "60", out / "runner", "--input", work / f"{name}.in", "--output", out / "out.bin", "--repeat", "50", "--graph", "--train", "20"])
    got = np.fromfile(out / "out.bin", np.float32).reshape(expected.shape)
    error = float(np.linalg.norm(got.astype(np.float64) - expected) / np.linalg.norm(expected.astype(np.float64)))
    train = [float(line.split()[1]) for line in text.splitlines() if line.startswith("train ")]
    return {"error": error, "good": error <= BARS[precision], "tamp_us": statistics.median(train)}


def cudnn_us(config, precision):
    peers.set_precision(precision)
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(precision, torch.float32)
    module = module_of(config).cuda().to(dtype)
    x = torch.randn(config["steps"], config["batch"], config["hidden"], device="cuda", dtype=dtype)
    return peers.microseconds(peers.captured(module, [x]), runs=10, rounds=5)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tamp", required=True, type=pathlib.Path)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--precisions", default="fp32")
    parser.add_argument("--sweeps", default=",".join(SWEEPS))
    parser.add_argument("--vdevice", default="h200")
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--jobs", type=int, default=8)
    args = parser.parse_args()
    work = pathlib.Path(tempfile.mkdtemp())
    rows, failed = [], 0
    configs = configurations(args.sweeps.split(","))
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        jobs = [pool.submit(build, args, config, work) for config in configs]
    for config, job in zip(configs, jobs):
        for precision in args.precisions.split(","):
            row = {**config, "precision": precision}
            try:
                expected, plans = job.result()
                row.update(plans[precision])
                row.update(measure(config, precision, expected, work))
                row["cudnn_us"] = cudnn_us(config, precision)
            except Exception as problem:  # one size's failure must not hide the others' results
                row["failure"] = str(problem)[-800:]
            failed += not row.get("good", False)
            rows.append(row)
            print(json.dumps(row), flush=True)
            args.out.write_text(json.dumps({"device": torch.cuda.get_device_name(), "torch": torch.__version__, "cudnn": torch.backends.cudnn.version(), "rows": rows}, indent=1))
    print(f"{len(rows) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
