#!/usr/bin/env python3
"""Random networks of patterns (random_patterns.py) against ONNX Runtime, on the stand-in: programs for several vDevices, all precisions, both executions. What an
answer may differ by is what rounding alone changes in ONNX Runtime. Ten networks of a kind are one program, since g++ is what costs.

    pattern_test.py TAMP                                   200 networks, of numbers that the last commit says
    pattern_test.py TAMP --seed N [--count N]              of numbers from N on; each failure names its number
    pattern_test.py TAMP --seed N --vdevice V --precision P --execution E      that one in a program of its own, with these options

A network that fails is made smaller while it fails, by blocks, outputs, options and nodes; what is left is saved below build/patterns, with the command that
shows it. A refusal is a failure, too: tamp takes all of these networks."""
import argparse
import collections
import dataclasses
import itertools
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
from onnx import helper, numpy_helper

import many
import random_patterns as patterns

PER_PROGRAM = 10
COUNT = 200
PRECISIONS = ["fp32", "tf32", "fp16", "bf16"]
MINIMISE_SECONDS = 120  # of one failure
MINIMISED = 4           # failures; further ones are but named
SAVED = many.ROOT / "build" / "patterns"
alone = threading.Lock()  # one failure at a time is made smaller


@dataclasses.dataclass
class Failed:
    seed: int
    options: many.Options
    text: str


def first_seed():
    """Moves with each commit, so that all of them together try many networks; the same for all runs of one."""
    done = subprocess.run(["git", "-C", many.ROOT, "rev-parse", "HEAD"], capture_output=True, text=True)
    number = int(done.stdout[:7], 16) if done.returncode == 0 else int(time.time() // 86400)
    return number * COUNT


def setting(number):
    """Of a program: what its networks are made of, and what tamp is asked for. Twenty neighbours have all themes in all precisions."""
    random = np.random.default_rng([number, 2])
    options = many.Options(vdevice=str(random.choice(["h200", "h200", "h200", "h100", "l4", "cpu"])), precision=PRECISIONS[number % len(PRECISIONS)],
                           execution="graph" if random.random() < 0.3 else "persistent")
    return (patterns.THEMES[number % len(patterns.THEMES)], int(random.choice(patterns.OPSETS)), bool(random.random() < 0.5)), options


def spec_of(seed):
    return patterns.spec_of(seed, *setting(seed // PER_PROGRAM)[0])


# --- what goes wrong ---------------------------------------------------------------------------------------------------

def kind_of(text):
    """What stays of a sentence if the network is another one that fails in the same way."""
    if "relative L2" in text:
        return "wrong"
    return re.sub(r"'[^']*'|[\d.e+-]*\d|\[[^\]]*\]", "_", text)[:80]


def failures(tamp, cases, options):
    """Per case a sentence, empty where all is right."""
    found = many.run(tamp, [case.part(str(i)) for i, case in enumerate(cases)], options)
    return [f"{got.kind}: {got.text}" if isinstance(got, many.Failure) else case.difference(got) for case, got in zip(cases, found)]


def compile_failure(tamp, case, options):
    """As failures, without a run."""
    with tempfile.TemporaryDirectory(prefix="tamp-pattern-") as folder:
        try:
            many.compile_model(tamp, many.merge([case.part("0")]), pathlib.Path(folder), options)
        except many.Failure as failure:
            return f"{failure.kind}: {failure.text}"
    return ""


def run_program(tamp, seeds, options=None):
    options = options or setting(seeds[0] // PER_PROGRAM)[1]
    cases = [patterns.make(spec_of(seed), options.precision) for seed in seeds]
    failed = [Failed(seed, options, text) for seed, text in zip(seeds, failures(tamp, cases, options)) if text]
    for one in failed:
        print(f"FAILED seed {one.seed} ({' '.join(options.words())}): {one.text}", flush=True)
    return failed


# --- smaller networks that fail ----------------------------------------------------------------------------------------

class Smaller:
    """Of a network that fails alone: tries others until the time is over, and keeps the last that fails in the same way."""

    def __init__(self, tamp, options, text):
        self.tamp, self.options, self.kind, self.text = tamp, options, kind_of(text), text
        self.in_compiler = text.startswith(("refused", "crash: exit code"))
        self.end = time.monotonic() + MINIMISE_SECONDS
        self.case, self.spec = None, None

    def fails(self, case, options=None):
        if time.monotonic() > self.end:
            return False
        options = options or self.options
        text = compile_failure(self.tamp, case, options) if self.in_compiler else failures(self.tamp, [case], options)[0]
        if not text or kind_of(text) != self.kind:
            return False
        self.case, self.options, self.text = case, options, text
        return True

    def try_spec(self, **changes):
        spec = dataclasses.replace(self.spec, **changes)
        try:
            case = patterns.make(spec, self.options.precision)
        except Exception:  # a list without some of its blocks is no network, where a block wants what another one made
            return False
        if not self.fails(case):
            return False
        self.spec = spec
        return True

    def without_blocks(self):
        for block in reversed(self.spec.blocks):
            self.try_spec(blocks=tuple(each for each in self.spec.blocks if each != block))

    def with_one_output(self):
        names = [port.name for port in self.case.model.graph.output]
        if len(names) > 1:
            any(self.try_spec(outputs=(name,)) for name in names)

    def with_simpler_options(self):
        for change in ({"execution": "graph"}, {"vdevice": "cpu"}, {"precision": "fp32"}):
            if all(getattr(self.options, key) == value for key, value in change.items()):
                continue
            options = dataclasses.replace(self.options, **change)
            self.fails(patterns.case_of(self.case.model, self.case.inputs, self.case.exact, options.precision), options)

    def without_nodes(self):
        """First from the end, then from the beginning: half of the nodes, a quarter, and so on."""
        for from_end in (True, False):
            step = len(self.case.model.graph.node)
            while (step := step // 2) > 0:
                while len(self.case.model.graph.node) > step and self.try_part(step, from_end):
                    pass

    def try_part(self, count, from_end):
        made = without(self.case, count, from_end)
        return made is not None and self.fails(patterns.case_of(made.model, made.inputs, made.exact, self.options.precision))

    def run(self, spec):
        self.spec = spec
        if not self.fails(patterns.make(spec, self.options.precision)):
            return False
        self.without_blocks()
        self.with_one_output()
        self.with_simpler_options()
        self.without_nodes()
        return True


def without(case, count, from_end):
    """Without the last nodes, where what the last of the others makes is the output; or without the first, where what they make are inputs. None where that is no network."""
    graph, values = case.model.graph, {**case.inputs, **patterns.values_of(case.model, case.inputs)}
    nodes = list(graph.node[:-count] if from_end else graph.node[count:])
    made = {name for node in nodes for name in node.output}
    constants = {tensor.name for tensor in graph.initializer}
    inputs = {name: values[name] for node in nodes for name in node.input if name and name not in made and name not in constants}
    outputs = [name for name in nodes[-1].output if name] if from_end else [port.name for port in graph.output if port.name in made]
    if not inputs or not outputs or len(inputs) > 12:
        return None
    port = lambda name: helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(values[name].dtype), values[name].shape)
    whole = helper.make_graph(nodes, "g", [port(name) for name in inputs], [port(name) for name in outputs], graph.initializer)
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    model.graph.CopyFrom(patterns.without_dead(whole))
    return dataclasses.replace(case, model=model, inputs=inputs)


def save(case, options, name):
    """The command that shows it."""
    folder = SAVED / name
    data = folder / "test_data_set_0"
    data.mkdir(parents=True, exist_ok=True)
    for old in data.iterdir():
        old.unlink()
    (folder / "model.onnx").write_bytes(case.model.SerializeToString())
    for kind, tensors in (("input", case.inputs.values()), ("output", case.expected)):
        for i, values in enumerate(tensors):
            (data / f"{kind}_{i}.pb").write_bytes(numpy_helper.from_array(np.asarray(values), "").SerializeToString())
    words = [word for word in options.words() if word not in ("--policy", "wavefront")]
    atol = max(limit[1] * max(1e-3, float(np.sqrt(np.mean(np.square(values[np.isfinite(values)], dtype=np.float64))))) for limit, values in zip(case.limits, case.expected) if values.size)
    where = folder.relative_to(many.ROOT)
    return f"build/release/bin/tamp run {where}/model.onnx --device cpu {' '.join(words)} --check --against {where}/test_data_set_0 --rtol 0 --atol {atol:.1g}"


def minimise(tamp, failed):
    with alone:
        smaller = Smaller(tamp, failed.options, failed.text)
        if not smaller.run(spec_of(failed.seed)):
            print(f"seed {failed.seed} does not fail alone, but in a program with the other networks of its ten: --seed {failed.seed // PER_PROGRAM * PER_PROGRAM} --count {PER_PROGRAM}", flush=True)
            return
        command = save(smaller.case, smaller.options, f"seed_{failed.seed}")
        operators = ", ".join(node.op_type for node in smaller.case.model.graph.node)
        print(f"seed {failed.seed}, as small as it became: {operators}; {smaller.text}\n  {command}", flush=True)


def arguments_of():
    parser = argparse.ArgumentParser()
    parser.add_argument("tamp")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--count", type=int)
    for word in ("vdevice", "precision", "execution"):
        parser.add_argument(f"--{word}")
    parser.add_argument("--theme", choices=patterns.THEMES, help="programs of others are left out")
    parser.add_argument("--minimise", type=int, default=MINIMISED, help="how many of the failures are made smaller")
    return parser.parse_args()


def main():
    arguments = arguments_of()
    tamp = str(pathlib.Path(arguments.tamp).resolve())
    given = {word: getattr(arguments, word) for word in ("vdevice", "precision", "execution") if getattr(arguments, word)}
    first = first_seed() if arguments.seed is None else arguments.seed
    count = arguments.count or (COUNT if arguments.seed is None else 1 if given else PER_PROGRAM)
    print(f"networks {first} to {first + count - 1}", flush=True)
    groups = [list(group) for _, group in itertools.groupby(range(first, first + count), lambda seed: seed // PER_PROGRAM)]
    groups = [group for group in groups if arguments.theme in (None, setting(group[0] // PER_PROGRAM)[0][0])]
    options = [dataclasses.replace(setting(group[0] // PER_PROGRAM)[1], **given) for group in groups]
    with ThreadPoolExecutor(many.jobs()) as pool:
        failed = [one for some in pool.map(lambda group, wanted: run_program(tamp, group, wanted), groups, options) for one in some]
    for _, alike in itertools.groupby(sorted(failed, key=lambda one: kind_of(one.text)), key=lambda one: kind_of(one.text)):
        alike = list(alike)
        print(f"{len(alike)} x {kind_of(alike[0].text)}: {' '.join(str(one.seed) for one in alike)}")
    # Of each kind one before a second one of a kind.
    seen = collections.Counter()
    order = sorted(failed, key=lambda one: (seen.update([kind_of(one.text)]), seen[kind_of(one.text)])[1])
    for one in order[:arguments.minimise]:
        minimise(tamp, one)
    total = sum(map(len, groups))
    print(f"{total - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
