#!/usr/bin/env python3
"""ONNX's own test cases, on the generated source.

    conformance.py TAMP [WORD...]                 all cases that are installed (cases.py), or those whose name holds a WORD;
                                                  results are compared with test/e2e/conformance.txt
    conformance.py TAMP --update [WORD...]        writes that file, from which docs/operators.md is made (operators_test.py); with WORDs
                                                  only the lines of these cases
    conformance.py TAMP --refusals --update       the same, but only compiles: what is refused is news, what passed stays as it was
    conformance.py TAMP --cases DIR [WORD...]     cases below another folder, compared with nothing; may be repeated
    conformance.py TAMP --device cuda --vdevice h200 ...     on a GPU
    --list: says of every case what became of it, not only of those that are news

A case passes when it has as many outputs as expected, of these types and shapes, and every value is near (integers: equal). It is refused when tamp says
that it does not do this, and crashed when tamp, the compiler or the program ended in any other way. Wrong and crashed cases fail the test; so do cases
that are refused and are not on the list."""
import collections
import dataclasses
import pathlib
import re
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import onnx

import cases
import many

RESULTS = pathlib.Path(__file__).with_name("conformance.txt")
PART_NODES = 120  # of one program


class Outcome:
    def __init__(self, case, kind, text="", proved=()):
        self.case, self.kind, self.text, self.proved = case, kind, text, proved

    def line(self):
        text = " ".join(self.proved) if self.kind == "pass" else self.text
        return f"{self.kind} {self.case.name} {text}".strip()


# --- what a case proves ----------------------------------------------------------------------------------------------

def versions_of(tamp):
    """Of `tamp ops`: operator -> versions."""
    done = many.call([tamp, "ops"], None, 60)
    return {found[1]: [int(v) for v in found[2].split(",")] for found in re.finditer(r"^(\w+) +(\d[\d,]*)(?: |$)", done.stdout, re.M)}


def element_types(model):
    """Value -> tamp's name of its element type, as far as ONNX's inference knows."""
    try:
        graph = onnx.shape_inference.infer_shapes(model).graph
    except Exception:
        graph = model.graph
    named = {onnx.TensorProto.FLOAT: "f32", onnx.TensorProto.DOUBLE: "f64", onnx.TensorProto.FLOAT16: "f16", onnx.TensorProto.BFLOAT16: "bf16",
             onnx.TensorProto.BOOL: "bool"}
    named |= {getattr(onnx.TensorProto, f"{kind}{bits}"): f"{kind[0].lower()}{bits}" for kind in ("INT", "UINT") for bits in (8, 16, 32, 64)}
    types = {entry.name: named.get(entry.type.tensor_type.elem_type, "") for entry in [*graph.input, *graph.output, *graph.value_info]}
    return types | {entry.name: named.get(entry.data_type, "") for entry in graph.initializer}


def proved_by(model, versions):
    """OPERATOR:VERSION:TYPE of its nodes; the type is the first operand's, else the first result's."""
    types, opset, found = element_types(model), many.opset_of(model), []
    for node in model.graph.node:
        since = [version for version in versions.get(node.op_type, []) if version <= opset]
        kind = next((types[name] for name in [*node.input, *node.output] if types.get(name)), "")
        if since and kind:
            found.append(f"{node.op_type}:{max(since)}:{kind}")
    return sorted(set(found))


# --- running them ----------------------------------------------------------------------------------------------------

class Ready:
    """A case that tamp takes."""

    def __init__(self, case, part, expected, proved):
        self.case, self.part, self.expected, self.proved = case, part, expected, proved


def look_at(tamp, case, options, versions):
    """Compiles it alone, which starts no other compiler: Ready or Outcome."""
    try:
        model, inputs, expected = case.load()
    except ValueError:
        return Outcome(case, "refused", "its test data hold what is no tensor")
    with tempfile.TemporaryDirectory(prefix="tamp-case-") as folder:
        try:
            many.compile_model(tamp, model, pathlib.Path(folder), options)
        except many.Failure as failure:
            return Outcome(case, failure.kind, failure.text)
    return Ready(case, many.Part(case.name, model, inputs), expected, proved_by(model, versions))


def programs(ready):
    """Cases that become one program: of one opset, alike by name, so that they share bodies."""
    by_opset, result = collections.defaultdict(list), []
    for one in ready:
        alone = one.case.name.startswith("light/") or one.part.model.functions
        by_opset[one.case.name if alone else many.opset_of(one.part.model)].append(one)
    for group in by_opset.values():
        nodes = ports = many.MOST_PORTS + PART_NODES  # no program yet that could take one more
        for one in sorted(group, key=lambda one: one.case.name.split("/")[-1]):
            nodes, ports = nodes + len(one.part.model.graph.node), ports + many.port_count(one.part.model)
            if nodes > PART_NODES or ports > many.MOST_PORTS:
                result.append([])
                nodes, ports = len(one.part.model.graph.node), many.port_count(one.part.model)
            result[-1].append(one)
    return sorted(result, key=lambda program: (program[0].case.name.startswith("light/"), len(program)), reverse=True)


def run_program(tamp, program, options):
    options, outcomes = dataclasses.replace(options, is_heavy=program[0].case.name.startswith("light/")), []
    for one, found in zip(program, many.run(tamp, [one.part for one in program], options)):
        if isinstance(found, many.Failure):  # alone tamp took it, so that a refusal is a fault, too
            outcomes.append(Outcome(one.case, "crash", found.text))
            continue
        wrong = cases.difference(found, one.expected)
        outcomes.append(Outcome(one.case, "wrong" if wrong else "pass", wrong, one.proved))
    return outcomes


def run_all(tamp, found, options, only_compile=False):
    versions, begin = versions_of(tamp), time.monotonic()
    with ThreadPoolExecutor(many.jobs()) as pool:
        looked_at = list(pool.map(lambda case: look_at(tamp, case, options, versions), found))
        ready = [one for one in looked_at if isinstance(one, Ready)]
        made = programs(ready)
        print(f"{len(found)} cases, {len(ready)} of them in {len(made)} programs ({time.monotonic() - begin:.0f} s)", flush=True)
        if only_compile:
            return [one for one in looked_at if isinstance(one, Outcome)]
        ran = [outcome for outcomes in pool.map(lambda program: run_program(tamp, program, options), made) for outcome in outcomes]
    print(f"ran ({time.monotonic() - begin:.0f} s)", flush=True)
    return sorted([one for one in looked_at if isinstance(one, Outcome)] + ran, key=lambda outcome: outcome.case.name)


# --- what is expected of them ----------------------------------------------------------------------------------------

def read_results():
    """Case -> kind and text."""
    if not RESULTS.exists():
        return {}
    lines = [line for line in RESULTS.read_text().splitlines() if line and not line.startswith("#")]
    return {name: (kind, text) for kind, name, text in ((line.split(" ", 2) + [""])[:3] for line in lines)}


def write_results(outcomes, kept):
    head = ["# Written by conformance.py --update: what becomes of each of ONNX's cases. pass CASE OPERATOR:VERSION:TYPE.. or refused CASE REASON."]
    lines = {name: f"{kind} {name} {text}".strip() for name, (kind, text) in kept.items()}
    lines |= {outcome.case.name: outcome.line() for outcome in outcomes if outcome.kind in ("pass", "refused")}
    RESULTS.write_text("\n".join(head + [lines[name] for name in sorted(lines)]) + "\n")


def judge(outcomes, known):
    """Lines about news, and how many of them are failures."""
    lines, failed = [], 0
    for outcome in outcomes:
        before = known.get(outcome.case.name, ("", ""))[0] if known is not None else outcome.kind
        is_new_refusal = outcome.kind == "refused" and before != "refused"
        if outcome.kind in ("wrong", "crash") or is_new_refusal:
            failed += 1
            lines.append(f"FAILED {outcome.line()}" + (f"  (before: {before or 'no such case'}; --update if that is meant)" if is_new_refusal else ""))
        elif outcome.kind == "pass" and before == "refused":
            lines.append(f"passes now, --update says so: {outcome.case.name}")
    return lines, failed


def main():
    tamp, words = str(pathlib.Path(sys.argv[1]).resolve()), sys.argv[2:]
    options, folders, chosen, update, listing, refusals = many.Options(), [], [], False, False, False
    while words:
        word = words.pop(0)
        if word in ("--cases", "--device", "--vdevice", "--policy", "--execution", "--precision"):
            value = words.pop(0)
            if word == "--cases":
                folders.append(value)
            else:
                setattr(options, word[2:], value)
        elif word == "--update":
            update = True
        elif word == "--list":
            listing = True
        elif word == "--refusals":
            refusals = True
        else:
            chosen.append(word)
    if options.device == "cuda" and options.vdevice == "cpu":
        options.vdevice = "h200"
    found = cases.find(folders) if folders else cases.installed()
    found = [case for case in found if not chosen or any(word in case.name for word in chosen)]
    if not found:
        print("no cases found\n0 passed, 1 failed")
        return 1
    outcomes = run_all(tamp, found, options, refusals)
    if update:
        refused = {outcome.case.name for outcome in outcomes}
        kept = {name: line for name, line in read_results().items() if line[0] == "pass" and name not in refused} if refusals else read_results() if chosen else {}
        write_results(outcomes, kept)
    lines, failed = judge(outcomes, None if folders else read_results())
    print("\n".join([outcome.line() for outcome in outcomes] if listing else lines))
    counts = collections.Counter(outcome.kind for outcome in outcomes)
    print("  ".join(f"{kind} {counts[kind]}" for kind in ("pass", "wrong", "refused", "crash")))
    print(f"{counts['pass']} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
