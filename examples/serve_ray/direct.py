#!/usr/bin/env python3
"""Calls a model directly, without HTTP and Ray: what service.py could reach at best.

    direct.py MODEL.onnx [--batches 1,2,4,8,16] [--seconds 2] [--precision fp16] [--device cuda]

Two lines for each batch: a call with arrays that are there already (`arrays`), and one that first makes them of requests' bodies and then takes
the answers apart, as the service does (`bodies`). One call at a time.
"""
import argparse
import os
import time

import numpy as np

from load import percentile, random_body
from service import Batches, Bodies, cut


def measure(call, seconds):
    """Milliseconds of each call."""
    call()
    times, begin = [], time.perf_counter()
    while time.perf_counter() - begin < seconds:
        started = time.perf_counter()
        call()
        times.append((time.perf_counter() - started) * 1e3)
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="an ONNX file")
    parser.add_argument("--batches", default="1,2,4,8,16", help="(default %(default)s)")
    parser.add_argument("--seconds", type=float, default=2, help="of each measurement (default %(default)s)")
    parser.add_argument("--precision", help="fp32, tf32, fp16 or bf16; default: the GPU's own")
    parser.add_argument("--device", help="cuda or cpu; default: cuda if there is a GPU")
    arguments = parser.parse_args()
    sizes = sorted(int(size) for size in arguments.batches.split(","))
    options = {name: value for name, value in (("precision", arguments.precision), ("device", arguments.device)) if value}
    batches = Batches(os.path.abspath(arguments.model), sizes, options)
    memory = Bodies(batches.inputs, sizes)
    described = [one.described() for one in batches.inputs]
    print(f"{'batch':>8}{'from':>10}{'calls/s':>10}{'requests/s':>12}{'p50 ms':>9}{'p99 ms':>9}")
    for size in sizes:
        bodies = [random_body(described, np.random.default_rng(seed)) for seed in range(size)]
        arrays = memory.stack(bodies)

        def from_bodies():
            results = batches(memory.stack(bodies))
            return [cut(results, row) for row in range(size)]

        for name, call in (("arrays", lambda: batches(arrays)), ("bodies", from_bodies)):
            times = measure(call, arguments.seconds)
            rate = 1e3 * len(times) / sum(times)
            print(f"{size:>8}{name:>10}{rate:>10.0f}{rate * size:>12.0f}{percentile(times, 50):>9.3f}{percentile(times, 99):>9.3f}", flush=True)


if __name__ == "__main__":
    main()
