#!/usr/bin/env python3
"""Breaks generated source on purpose and asserts that it shows: a lost signal ends with an error that names who waited for
what (and does not hang), a dropped Wait and a wrong offset give other answers. Runs on the stand-in.

    mutants_test.py TAMP [WORD...]
"""
import json
import re
import subprocess
import sys

import numpy as np

import harness
import recurrent_test


def compiled(tamp):
    """mnist_mlp compiled for the stand-in: two matrix products, the second waits for the first."""
    subprocess.run([sys.executable, harness.ROOT / "examples/make_weights.py", harness.ROOT / "examples/models/mnist_mlp.onnx", "--into", tamp.folder], check=True,
                   capture_output=True)
    tamp("compile", "mnist_mlp.onnx", "-o", "mnist_mlp", "--vdevice", "cpu", "-q")
    return tamp.folder / "mnist_mlp" / "mnist_mlp.cu"


def answers(tamp, folder, seed=1):
    tamp("run", folder, "--device", "cpu", "--output-dir", "out", "-q", env={"TAMP_SEED": str(seed)})
    return [np.load(tamp.folder / "out" / file) for file in json.loads((tamp.folder / "out" / "outputs.json").read_text()).values()]


def answer(tamp, seed=1):
    return answers(tamp, "mnist_mlp", seed)[0]


def mutate(source, pattern, replacement, count):
    text, changed = re.subn(pattern, replacement, source.read_text(), count=count)
    assert changed > 0, f"nothing in {source} looks like {pattern}"
    source.write_text(text)


def test_a_lost_signal_ends_with_the_name_of_the_wait(tamp):
    mutate(compiled(tamp), r" run\((r_\w+), ([^,]+), e_\w+", r" run(\1, \2, kNo", 1)
    done = tamp("run", "mnist_mlp", "--device", "cpu", code=3, says="waited in vain for event")
    assert re.search(r"vEU \d+, rTask \d+ of '.*': waited in vain for event '.*', seen \d+, wanted \d+", done.stderr), done.stderr


def test_a_dropped_wait_gives_a_wrong_answer_within_a_few_seeds(tamp):
    source = compiled(tamp)
    right = answer(tamp)
    assert all(np.array_equal(right, answer(tamp, seed)) for seed in (2, 3)), "the order of vEUs changes the right program's answer"
    mutate(source, r"( run\(r_\w+, [^,]+, \w+), e_\w+\)", r"\1)", 0)
    assert any(not np.array_equal(right, answer(tamp, seed), equal_nan=False) for seed in range(1, 6))


def test_a_wrong_offset_gives_a_wrong_answer(tamp):
    source = compiled(tamp)
    right = answer(tamp)
    mutate(source, r"\.inputs = \{arena\((\d+)\)", lambda match: f".inputs = {{arena({int(match[1]) + 16})", 1)
    assert not np.array_equal(right, answer(tamp))


def compiled_gang(tamp):
    """One LSTM of 128 units, spread over more than one vEU."""
    made = recurrent_test.one("LSTM", (6, 1, 128), 128)
    (tamp.folder / "gang.onnx").write_bytes(made.SerializeToString())
    tamp("compile", "gang.onnx", "-o", "gang", "--vdevice", "cpu", "-q")
    plan = json.loads((tamp.folder / "gang" / "gang.rprogram.json").read_text())
    assert any("recurrent_gang" in rop["rkernel"] and rop["rtasks"] > 1 for rop in plan["rops"]), plan["rops"]
    return tamp.folder / "gang" / "gang.cu"


def test_a_word_that_is_never_published_ends_with_the_name_of_who_waits(tamp):
    mutate(compiled_gang(tamp), r"(RK_INLINE void publish\(uint64_t\* word, float value, uint32_t epoch\) \{\n)", r"\1  if (blockIdx.x == 1) return;\n", 1)
    done = tamp("run", "gang", "--device", "cpu", code=3, says="waited in vain for the others of its gang")
    assert re.search(r"vEU \d+, rTask \d+ of '.*': waited in vain for the others of its gang, seen \d+, wanted \d+", done.stderr), done.stderr


def test_boxes_that_come_before_a_body_over_inputs_has_ended_give_a_wrong_answer(tamp):
    (tamp.folder / "both.onnx").write_bytes(recurrent_test.lstm_beside_convs().SerializeToString())
    tamp("compile", "both.onnx", "-o", "both", "--vdevice", "cpu", "--precision", "tf32", "-q")
    source = tamp.folder / "both" / "both.cu"
    assert ".over_inputs = 1" in source.read_text() and "rk::staged_conv<" in source.read_text()
    right = answers(tamp, "both")
    equal = lambda seed: all(map(np.array_equal, right, answers(tamp, "both", seed)))
    assert all(map(equal, (2, 3))), "the order of vEUs changes the right program's answer"
    mutate(source, r"if \(slot - over < kSlots\) wait\(control.free\[over % kSlots\], [^;]*;", "(void)control, (void)over, (void)slot;", 1)
    assert not all(map(equal, range(1, 6)))


if __name__ == "__main__":
    sys.exit(harness.main(harness.tests_of(globals())))
