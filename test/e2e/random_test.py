#!/usr/bin/env python3
"""Random models of all operators and types (random_wide.py) against ONNX Runtime, many of them in one program, in all policies and both executions.

    random_test.py TAMP                        a fixed few, as CI does
    random_test.py TAMP --random COUNT [SEED]  more of them, by hand; the seed of a model that fails is named"""
import collections
import dataclasses
import itertools
import pathlib
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import conformance
import many
import random_wide

PER_PROGRAM = 8  # about as many as have the ports of one program
FIXED = 48
POLICIES = ["wavefront", "sequential", "list", "ios", "greedy", "wavefront-launches", "wavefront-fastest", "best", "ios-merge", "ios-parallel"]


def setting(seed):
    """Of a program, which holds seeds side by side: every policy with every execution, on two vDevices."""
    number = seed // PER_PROGRAM
    return many.Options(policy=POLICIES[number % len(POLICIES)], execution=["persistent", "graph"][number // 2 % 2], vdevice=["cpu", "h200"][number // 4 % 2])


@dataclasses.dataclass
class Outcome:
    seed: int
    kind: str
    text: str
    options: many.Options


def refused(tamp, part, options):
    """The reason, or nothing. A crash is thrown."""
    with tempfile.TemporaryDirectory(prefix="tamp-random-") as folder:
        try:
            many.compile_model(tamp, part.model, pathlib.Path(folder), options)
        except many.Failure as failure:
            return failure
    return None


def run_program(tamp, seeds, operators):
    options, outcomes, parts, expected = setting(seeds[0]), [], [], []
    for seed in seeds:
        part, values = random_wide.make(seed, operators)
        failure = refused(tamp, part, options)
        if failure:
            outcomes.append(Outcome(seed, failure.kind, failure.text, options))
        else:
            parts.append((seed, part))
            expected.append(values)
    results = many.run(tamp, [part for _, part in parts], options) if parts else []
    for (seed, _), found, values in zip(parts, results, expected):
        if isinstance(found, many.Failure):
            outcomes.append(Outcome(seed, "crash", found.text, options))
            continue
        wrong = random_wide.difference(found, values)
        outcomes.append(Outcome(seed, "wrong" if wrong else "pass", wrong, options))
    return outcomes


def main():
    tamp = str(pathlib.Path(sys.argv[1]).resolve())
    by_hand = sys.argv[2:3] == ["--random"]
    count, first = (int(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else 1) if by_hand else (FIXED, 0)
    operators = set(conformance.versions_of(tamp))
    groups = [list(group) for _, group in itertools.groupby(range(first, first + count), lambda seed: seed // PER_PROGRAM)]
    with ThreadPoolExecutor(many.jobs()) as pool:
        outcomes = [one for group in pool.map(lambda seeds: run_program(tamp, seeds, operators), groups) for one in group]
    counts = collections.Counter(one.kind for one in outcomes)
    for one in outcomes:
        if one.kind in ("wrong", "crash"):
            print(f"FAILED seed {one.seed} ({' '.join(one.options.words())}): {one.kind}: {one.text}")
    for reason, times in collections.Counter(one.text for one in outcomes if one.kind == "refused").most_common(20 if by_hand else 0):
        print(f"refused {times}: {reason}")
    failed = counts["wrong"] + counts["crash"]
    if counts["refused"] * 3 > len(outcomes):  # a generator that tests nothing
        print(f"FAILED: {counts['refused']} of {len(outcomes)} models are refused")
        failed += 1
    print("  ".join(f"{kind} {counts[kind]}" for kind in ("pass", "wrong", "refused", "crash")))
    print(f"{counts['pass']} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
