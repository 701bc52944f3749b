#!/usr/bin/env python3
"""`tamp tune` for many models at once: a Ray task for each model and precision, on a GPU of its own anywhere in a cluster.

    tune.py MODEL.onnx... --records all.jsonl [--precisions tf32,fp16] [--address HOST:PORT] [-- OPTIONS OF TAMP TUNE]

A task gives back the records that it made, as text. They are merged into one file for `tamp compile --records`; what the file held before
stays. A task whose node dies is run again elsewhere, and a task that fails does not stop the others.
"""
from __future__ import annotations

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

import ray

import records


def lock_folder(own: str) -> str:
    """What XDG_RUNTIME_DIR is for a task. `tamp tune` of one user take turns in measuring, by a lock in that folder. Tasks have GPUs of their own,
    so the folder is one for each GPU: whoever else tunes by this program on that GPU, of another cluster of Ray say, takes turns. On the CPU
    nothing is measured that could be disturbed."""
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES")  # Ray sets it: the number of the task's GPU on this machine
    if not gpu:
        folder = os.path.join(own, "lock")
    else:
        folder = os.path.join(tempfile.gettempdir(), f"tamp-tune-{os.getuid()}-gpu-{gpu.replace('/', '-')}")
    os.makedirs(folder, 0o700, exist_ok=True)
    return folder


def tune(model: str, precision: str | None, tamp: str, more: list[str]) -> tuple[str, str]:
    """The records of one model, and what tamp said at the end. RuntimeError: why there are none."""
    with tempfile.TemporaryDirectory(prefix="tamp-tune-") as folder:
        runtime = lock_folder(folder)
        command = [tamp, "tune", model, "-q", "-o", os.path.join(folder, "model"), "--records", os.path.join(folder, "found.jsonl")]
        command += [*(["--precision", precision] if precision else []), *more]
        done = subprocess.run(command, env={**os.environ, "XDG_RUNTIME_DIR": runtime}, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip()[-2000:] or f"tamp ended with code {done.returncode}")
        found = pathlib.Path(folder, "found.jsonl")  # not there if the cost model's own choice was the fastest
        return found.read_text() if found.exists() else "", done.stdout.strip()


def add_to(path: pathlib.Path, found: list[records.Records]) -> int:
    """Returns how many records the file holds then."""
    before = records.parse(path.read_text()) if path.exists() else {}
    merged = records.merge([before, *found])
    unfinished = path.with_name(path.name + ".unfinished")
    unfinished.write_text(records.text(merged))
    unfinished.replace(path)
    return len(merged)


def counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def main() -> int:
    words = sys.argv[1:]
    more = words[words.index("--") + 1:] if "--" in words else []
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", help="ONNX files; every node must find them, and their weights, under these paths")
    parser.add_argument("--records", type=pathlib.Path, required=True, help="file that what was measured is added to")
    parser.add_argument("--precisions", default="", help="fp32, tf32, fp16, bf16, with commas between; default: the vDevice's own")
    parser.add_argument("--tamp", default="tamp", help="the program, on every node (default %(default)s, from PATH)")
    parser.add_argument("--cpus", type=int, help="processors of a task, for building; default: 4, or as many as a machine of the cluster has")
    parser.add_argument("--address", help="of a Ray cluster, HOST:PORT or auto; default: this machine's own, which is started if there is none")
    arguments = parser.parse_args(words[:words.index("--")] if "--" in words else words)
    ray.init(address=arguments.address, log_to_driver=False)
    gpus = int(ray.cluster_resources().get("GPU", 0))
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    most = int(max(machine.get("CPU", 0) for machine in machines if not gpus or machine.get("GPU", 0) >= 1))
    if (arguments.cpus or 1) > most:  # Ray would wait for such a machine for ever
        parser.error(f"--cpus {arguments.cpus or 1}: no machine{' with a GPU' if gpus else ''} has more than {most} for tasks")
    cpus = arguments.cpus or min(4, most)
    task = ray.remote(num_gpus=1 if gpus else 0, num_cpus=cpus, max_retries=3)(tune)
    # Named, since without nvcc `tamp tune` would take the stand-in, also where a GPU is.
    more = ["--jobs", str(cpus), "--device", "cuda" if gpus else "cpu", *more]
    started = {}
    for model in arguments.models:
        for precision in arguments.precisions.split(","):
            waits_for = task.remote(os.path.abspath(model), precision, arguments.tamp, more)
            started[waits_for] = f"{model}{' ' + precision if precision else ''}"
    print(f"{counted(len(started), 'task')} on {counted(gpus, 'GPU') if gpus else 'the CPU, by the stand-in'}", flush=True)
    failed, waiting = 0, list(started)
    while waiting:
        (done, *_), waiting = ray.wait(waiting)
        try:
            text, said = ray.get(done)
            found = records.parse(text)
            print(f"{started[done]}: {counted(len(found), 'record')}; {add_to(arguments.records, [found])} in {arguments.records}", flush=True)
            print("".join(f"  {line}\n" for line in said.splitlines() if line.startswith(("untuned", "tuned"))), end="", flush=True)
        except (ray.exceptions.RayError, ValueError) as wrong:
            failed += 1
            print(f"{started[done]}: FAILED: {getattr(wrong, 'cause', wrong)}", file=sys.stderr, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
