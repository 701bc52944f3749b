#!/usr/bin/env python3
"""Breaks generated source on purpose and asserts that it shows: a lost signal ends with an error that names who waited for
what (and does not hang), a dropped Wait and a wrong offset give other answers, and so do words of an earlier run. Runs on the stand-in.

    mutants_test.py TAMP [WORD...]
"""
import json
import re
import subprocess
import sys

import numpy as np

import onnxruntime

import harness
import quantised_models
import recurrent_test
import transformers_test


def compiled(tamp):
    """mnist_mlp compiled for the stand-in: two matrix products, the second waits for the first. Of 16 images, since rows of few are words, which need no Wait."""
    subprocess.run([sys.executable, harness.ROOT / "examples/make_weights.py", harness.ROOT / "examples/models/mnist_mlp.onnx", "--into", tamp.folder], check=True,
                   capture_output=True)
    tamp("compile", "mnist_mlp.onnx", "-o", "mnist_mlp", "--vdevice", "cpu", "--batch", 16, "-q")
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
    mutate(source, r"\.in = arena\((\d+)\)", lambda match: f".in = arena({int(match[1]) + 16})", 1)
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
    done = tamp("run", "gang", "--device", "cpu", code=3, says="waited in vain for values that other rTasks make")
    assert re.search(r"vEU \d+, rTask \d+ of '.*': waited in vain for values that other rTasks make, seen \d+, wanted \d+", done.stderr), done.stderr


def compiled_decoder(tamp):
    """Layers of a decoder that make one token, whose products and attention await each other by words."""
    made = transformers_test.one_token()
    (tamp.folder / "step.onnx").write_bytes(made.SerializeToString())
    tamp("compile", "step.onnx", "-o", "step", "--vdevice", "h200", "--precision", "fp16", "-q")
    assert re.search(r"kWordsBytes = [1-9]", (tamp.folder / "step" / "step.cu").read_text())
    return tamp.folder / "step" / "step.cu", made


def test_a_value_that_is_never_published_ends_with_the_name_of_who_waits(tamp):
    """Who reports first is open: whoever waits for the word, or for the event of one that does."""
    source, _ = compiled_decoder(tamp)
    text = source.read_text()
    for instead in ("(void)value;", "if (blockIdx.x != 1) cuda_on_cpu::publish(word, word_of(value));"):
        source.write_text(text)
        mutate(source, r"cuda_on_cpu::publish\(word, word_of\(value\)\);", instead, 1)
        done = tamp("run", "step", "--device", "cpu", code=3, says="waited in vain for")
        assert re.search(r"vEU \d+, rTask \d+ of '.*': waited in vain for .*, seen \d+, wanted \d+", done.stderr), done.stderr


RUNS = 5
SEVERAL_RUNS = """#include <cuda_runtime.h>
#include <fstream>
#include <vector>
#include "step/step.h"
int main() {
  step_context* context = nullptr;
  if (step_create(nullptr, &context) != TAMP_OK) return 1;
  std::ifstream given("inputs.bin", std::ios::binary);
  std::ofstream made("outputs.bin", std::ios::binary);
  const auto memory = [](const tamp_port* ports, int32_t count) {
    std::vector<void*> pointers(static_cast<size_t>(count));
    for (size_t i = 0; i < pointers.size(); ++i) cudaMalloc(&pointers[i], ports[i].bytes);
    return pointers;
  };
  const tamp_info* const info = step_info();
  const std::vector<void*> inputs = memory(info->inputs, info->input_count), outputs = memory(info->outputs, info->output_count);
  for (int run = 0; run < RUNS; ++run) {  // the stand-in's device memory is the host's
    for (size_t i = 0; i < inputs.size(); ++i) given.read(static_cast<char*>(inputs[i]), static_cast<std::streamsize>(info->inputs[i].bytes));
    if (step_run(context, inputs.data(), outputs.data(), nullptr) != TAMP_OK) return 1;
    if (cudaDeviceSynchronize() != cudaSuccess || step_status(context) != TAMP_OK) return 1;
    for (size_t i = 0; i < outputs.size(); ++i) made.write(static_cast<const char*>(outputs[i]), static_cast<std::streamsize>(info->outputs[i].bytes));
  }
}
"""


def distances(tamp, made):
    """Of the answers of several runs of one context, each with inputs of its own, from ONNX Runtime's."""
    (tamp.folder / "main.cpp").write_text(SEVERAL_RUNS.replace("RUNS", str(RUNS)))
    stand_in = harness.ROOT / "runtime_stub" / "cuda_on_cpu"
    subprocess.run(["g++", "-std=c++20", "-Og", "-march=native", "-DTAMP_CUDA_ON_CPU", "-I", stand_in, "-o", "main", "-x", "c++", "main.cpp", "step/step.cu", "-x", "none", "-lboost_context"],
                   cwd=tamp.folder, check=True, capture_output=True)
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    drawn = np.random.default_rng(3)
    inputs = [{port.name: drawn.standard_normal(port.shape).astype(np.float32) for port in session.get_inputs()} for _ in range(RUNS)]
    (tamp.folder / "inputs.bin").write_bytes(b"".join(values.tobytes() for run in inputs for values in run.values()))
    subprocess.run([tamp.folder / "main"], cwd=tamp.folder, check=True, capture_output=True, timeout=harness.RUN_SECONDS)
    got = np.fromfile(tamp.folder / "outputs.bin", np.float32).reshape(RUNS, -1)
    expected = [np.concatenate([values.ravel() for values in session.run(None, run)]) for run in inputs]
    return [float(np.linalg.norm(one - other) / np.linalg.norm(other)) for one, other in zip(got, expected)]


def test_runs_one_after_another_read_their_own_words(tamp):
    """The third run finds the words of the first one if nobody clears them."""
    limit = 5e-3
    source, made = compiled_decoder(tamp)
    right = distances(tamp, made)
    assert max(right) < limit, right
    mutate(source, r"cuda_on_cpu::publish\(other, 0u\);", "(void)other;", 1)
    wrong = distances(tamp, made)
    assert max(wrong[:2]) < limit < max(wrong[2:]), wrong


def test_boxes_that_come_before_a_body_over_inputs_has_ended_give_a_wrong_answer(tamp):
    (tamp.folder / "both.onnx").write_bytes(recurrent_test.lstm_beside_convs().SerializeToString())
    tamp("compile", "both.onnx", "-o", "both", "--vdevice", "cpu", "--precision", "tf32", "-q")
    source = tamp.folder / "both" / "both.cu"
    assert ".over_inputs = 1" in source.read_text() and "  staged_conv<Veu" in source.read_text()
    right = answers(tamp, "both")
    equal = lambda seed: all(map(np.array_equal, right, answers(tamp, "both", seed)))
    assert all(map(equal, (2, 3))), "the order of vEUs changes the right program's answer"
    mutate(source, r"if \(slot - over < kSlots\) wait\(control.free\[over % kSlots\], [^;]*;", "(void)control, (void)over, (void)slot;", 1)
    assert not all(map(equal, range(1, 6)))


def test_roundings_of_attention_that_go_wrong_show(tamp):
    """Weights are rounded behind the division by the sum of all keys of a query, which eight warps have parts of; scores and the sums of a residual are rounded, too."""
    net, floats = quantised_models.transformer(40)
    made, x = quantised_models.quantised(net, floats, "qdq s8 s8 channel"), net.inputs()[0]
    (tamp.folder / "net.onnx").write_bytes(made.SerializeToString())
    np.save(tamp.folder / "x.npy", x)
    tamp("compile", "net.onnx", "-o", "net", "--vdevice", "h200", "--precision", "fp16")
    source = tamp.folder / "net" / "net.cu"
    right, expected = source.read_text(), quantised_models.answers(made, {"x": x})

    def share():
        """Of elements that differ from ONNX Runtime's by a step."""
        tamp("run", "net", "--device", "cpu", "--input", "x=x.npy", "--output-dir", "out", "-q")
        return quantised_models.nearest(made, [np.load(tamp.folder / "out" / "y.npy")], expected).share
    assert "attention_rounded_once" in right and "normalize_rows_summed" in right
    assert share() < 0.02
    for pattern, wrong in [(r"w < first \+ warps; \+\+w\) \{", "w < first + 1; ++w) {"), (r"score = rounded\(score, args\.product_low", "score = rounded(score, 0.25f * args.product_low"),
                           (r"\(static_step<kSteps, 1>\(all, values\), \.\.\.\);", r"\g<0> values.acc[0].x += 3.0f;")]:
        source.write_text(right)
        mutate(source, pattern, wrong, 1)
        assert share() > 0.04, wrong


if __name__ == "__main__":
    sys.exit(harness.main(harness.tests_of(globals())))
