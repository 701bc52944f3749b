#!/usr/bin/env python3
"""docs/operators.md: every operator that `tamp ops` lists, with what ONNX's own cases prove of it (test/e2e/conformance.txt).

    operators_test.py TAMP              fails if the page is not what the table and the results say
    operators_test.py TAMP --update     writes the page"""
import collections
import pathlib
import re
import subprocess
import sys

import conformance
import harness

PAGE = harness.ROOT / "docs/operators.md"
TYPES = ["f32", "f16", "bf16", "f64", "i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8", "bool"]

HEAD = """# Operators

This page is written by `test/e2e/operators_test.py TAMP --update` from the operators that `tamp ops` lists and from the results of
ONNX's own test cases (`test/e2e/conformance.py`), in which the generated source runs on the stand-in. A version is the opset in which the
meaning of the operator last changed; a model of any opset from there to the next version means it. "Proved" names the element types (of the first
operand) for which at least one case of that version gives the right answer. What is not proved may well work: versions that only add element types have
the same importer, and many types have the same body. Shapes, axes and the like must be constants, or follow from shapes, unless the limits say otherwise;
an input that holds one becomes a constant with `--freeze`.
"""


def listed(tamp):
    """Of `tamp ops`: name, versions, limits."""
    text = subprocess.run([tamp, "ops"], capture_output=True, text=True, check=True).stdout
    rows = [re.match(r"(\S+) +(\d[\d,]*) *(.*)$", line) for line in text.splitlines()]
    return [(row[1], row[2].split(","), row[3].strip()) for row in rows if row]


def proofs(results):
    """Operator -> version -> types; operator -> number of cases."""
    types, counts = collections.defaultdict(lambda: collections.defaultdict(set)), collections.Counter()
    for kind, text in results.values():
        if kind != "pass":
            continue
        tokens = [token.split(":") for token in text.split()]
        counts.update({name for name, _, _ in tokens})
        for name, version, kind_of in tokens:
            types[name][version].add(kind_of)
    return types, counts


def reason_of(text):
    """A refusal without the names of one case: what is counted."""
    text = re.sub(r"node #\d+(?: '[^']*')? \(([^)]*)\): ", r"\1: ", text.split(" | ")[0])
    return re.sub(r"\b(?:initializer|input|output|value_info) '[^']*'", "a value", text).replace("|", "/")


def page(tamp):
    results = conformance.read_results()
    types, counts = proofs(results)
    rows = listed(tamp)
    lines = [HEAD, f"{len(rows)} operators.", "", "| operator | versions | limits | proved | cases |", "|---|---|---|---|---|"]
    for name, versions, limits in rows:
        proved = [f"{version}: {' '.join(sorted(types[name][version], key=TYPES.index))}" for version in versions if types[name].get(version)]
        lines.append(f"| {name} | {', '.join(versions)} | {limits} | {'; '.join(proved) or '-'} | {counts[name] or '-'} |")
    refused = collections.Counter(reason_of(text) for kind, text in results.values() if kind == "refused")
    passed = sum(kind == "pass" for kind, _ in results.values())
    lines += ["", "## ONNX's cases", "", f"Of the {len(results)} cases in test/e2e/conformance.txt {passed} pass; the others are refused, for these reasons:", "", "| cases | reason |", "|---|---|"]
    lines += [f"| {count} | {reason} |" for reason, count in sorted(refused.items(), key=lambda item: (-item[1], item[0]))]
    return "\n".join(lines) + "\n"


def test_the_page_of_operators_is_true(tamp):
    assert PAGE.read_text() == page(tamp.program), "docs/operators.md is not what `tamp ops` and test/e2e/conformance.txt say; operators_test.py TAMP --update writes it"


def test_every_case_proves_operators_that_are_listed(tamp):
    types, _ = proofs(conformance.read_results())
    known = {name: set(versions) for name, versions, _ in listed(tamp.program)}
    for name, versions in types.items():
        assert set(versions) <= known.get(name, set()), f"{name}: proved in versions {sorted(versions)}, listed are {sorted(known.get(name, []))}"


if __name__ == "__main__":
    if "--update" in sys.argv:
        PAGE.write_text(page(sys.argv[1]))
        sys.exit(0)
    sys.exit(harness.main(harness.tests_of(globals())))
