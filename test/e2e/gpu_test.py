#!/usr/bin/env python3
"""The example models on a GPU: right, repeatable, replayed as a CUDA graph, and as two instances at once.

    gpu_test.py TAMP [WORD...]
"""
import subprocess
import sys

import harness


def example(tamp, name):
    subprocess.run([sys.executable, harness.ROOT / "examples" / "make_weights.py", harness.ROOT / "examples" / "models" / f"{name}.onnx", "--into", tamp.folder],
                   check=True, stdout=subprocess.DEVNULL)
    return tamp.folder / f"{name}.onnx"


def gpu_test(name, precision, options):
    def test(tamp):
        done = tamp("run", example(tamp, name), "--device", "cuda", "--precision", precision, "--check", "--repeat", 200, *options)
        assert "of 200 runs, all bitwise equal" in done.stdout, done.stdout
    test.__name__ = "_".join(["test", name, precision, *(option.strip("-") for option in options)])
    return test


TESTS = [gpu_test(name, precision, options)
         for name in ("mnist_mlp", "squeezenet1_0", "resnet18") for precision in ("fp32", "tf32")
         for options in ((), ("--graph",), ("--instances", "2"), ("--policy", "sequential"))]


if __name__ == "__main__":
    sys.exit(harness.main(TESTS))
