#!/usr/bin/env python3
"""Quantised models on the stand-in, as onnxruntime.quantization makes them of float networks, and random networks with pairs of QuantizeLinear and
DequantizeLinear, against ONNX Runtime. Answers may differ where a value lies near a tie, so they are counted in steps of the output's quantisation.

    quantised_test.py TAMP [WORD...]
    quantised_test.py TAMP --random COUNT [SEED]   more random networks, by hand; the seed of one that fails is named
"""
import functools
import re
import sys

import numpy as np

import harness
import many
import quantised_models as q

# What tamp's estimate of a quantised model may be, as a multiple of that of its float model (on the h200, in tf32), by name of the case; else RATIO.
RATIO = 1.3
RATIOS = {"classifier qdq u8 s8 channel": 1.5, "classifier qdq s8 s8": 1.5, "classifier qoperator u8 s8 channel": 1.8, "classifier qoperator s8 s8": 1.9, "classifier dynamic s8": 2.8,
          "segmenter qdq u8 s8 channel": 1.7, "segmenter qdq s8 s8": 1.7, "segmenter qoperator u8 s8 channel": 1.7, "segmenter qoperator s8 s8": 1.7, "segmenter dynamic s8": 2.3,
          "excited qdq u8 s8 channel": 2.2, "excited qdq s8 s8": 2.2, "excited qoperator u8 s8 channel": 2.2, "excited qoperator s8 s8": 2.2, "excited dynamic s8": 3.5,
          "perceptron qdq u8 s8 channel": 2.1, "perceptron qdq s8 s8": 2.1, "perceptron qoperator u8 s8 channel": 2.1, "perceptron qoperator s8 s8": 2.1, "perceptron dynamic s8": 3.5,
          "transformer qdq u8 s8 channel": 2.6, "transformer qdq s8 s8": 2.6, "transformer qoperator u8 s8 channel": 2.5, "transformer qoperator s8 s8": 2.5, "transformer dynamic s8": 3,
          "gru dynamic s8": 1.2}
# The share of elements that may differ by a step, and the steps that they may differ by.
SHARES = {"fp32": 0.02, "tf32": 0.75, "fp16": 0.75}
MOST_STEPS = 2
# Operators of ONNX Runtime in quantised models that tamp refuses; a case that is refused for another reason fails.
REFUSED = {"DynamicQuantizeLSTM"}

NETWORKS = {"classifier": q.classifier, "segmenter": q.segmenter, "excited": q.excited, "perceptron": q.perceptron, "transformer": q.transformer,
            "lstm": functools.partial(q.recurrent, "LSTM"), "gru": functools.partial(q.recurrent, "GRU")}
WAYS = ["qdq u8 s8 channel", "qdq s8 s8", "qoperator u8 s8 channel", "qoperator s8 s8", "dynamic s8"]
RECURRENT = ("lstm", "gru")  # quantised dynamically alone
RANDOM = 16
PER_PROGRAM = 8


class Case:
    def __init__(self, name, floats, model, x):
        self.name, self.floats, self.model, self.x = name, floats, model, x
        self.right, self.refused = q.answers(model, {"x": x}), None

    def part(self):
        return many.Part(re.sub(r"\W", "_", self.name), self.model, [self.x])


@functools.cache
def cases():
    made = []
    for name, make in NETWORKS.items():
        for way in WAYS:
            if name not in RECURRENT or way.startswith("dynamic"):
                net, model = make()
                made.append(Case(f"{name} {way}", model, q.quantised(net, model, way), net.inputs()[0]))
    return made


def refusal(tamp, case):
    """Why tamp does not take the model; nothing if it does. That must be an operator of REFUSED."""
    if case.refused is None:
        try:
            many.compile_model(tamp.program, case.model, tamp.folder, many.Options(vdevice="h200"))
            case.refused = ""
        except many.Failure as failure:
            operators = set(re.findall(r"\(com\.microsoft\.(\w+)", str(failure)))
            assert failure.kind == "refused" and operators and operators <= REFUSED, str(failure)
            case.refused = ", ".join(sorted(operators))
    return case.refused


def check_precision(tamp, precision):
    taken = []
    for case in cases():
        why = refusal(tamp, case)
        if why:
            print(f"{precision} {case.name}: refused for {why}", flush=True)
        else:
            taken.append(case)
    failed = []
    for case, found in zip(taken, many.run(tamp.program, [case.part() for case in taken], many.Options(precision=precision, vdevice="h200"))):
        if isinstance(found, many.Failure):
            failed.append(f"{case.name}: {found.kind}: {found.text}")
            continue
        steps = q.nearest(case.model, found, case.right)
        print(f"{precision} {case.name}: {100 * steps.share:.1f} % of elements differ by a step, by {steps.most:.2f} at most", flush=True)
        if steps.share > SHARES[precision] or steps.most > MOST_STEPS + 0.1:
            failed.append(f"{case.name}: {100 * steps.share:.1f} % of elements differ by a step, by {steps.most:.2f} at most")
    assert not failed, "\n  ".join(failed)


def test_quantised_networks_in_fp32(tamp):
    check_precision(tamp, "fp32")


def test_quantised_networks_in_tf32(tamp):
    check_precision(tamp, "tf32")


def test_quantised_networks_in_fp16(tamp):
    check_precision(tamp, "fp16")


def estimate(tamp, model, precision="tf32"):
    (tamp.folder / "model.onnx").write_bytes(model.SerializeToString())
    said = tamp("inspect", "model.onnx", "--vdevice", "h200", "--precision", precision).stderr
    return float(re.search(r"schedule: .* estimated (\S+) us", said)[1])


def test_estimates_are_near_those_of_the_floats(tamp):
    floats, slow = {}, []
    for case in cases():
        if refusal(tamp, case):
            continue
        name = case.name.split()[0]
        floats[name] = floats.get(name) or estimate(tamp, case.floats)
        ratio = estimate(tamp, case.model) / floats[name]
        print(f"{case.name}: estimated {ratio:.2f} of its floats' {floats[name]:.1f} us", flush=True)
        if ratio > RATIOS.get(case.name, RATIO):
            slow.append(f"{case.name}: {ratio:.2f}")
    assert not slow, f"estimates above what RATIOS allows, as multiples of the float model's: {', '.join(slow)}"


# The same in fp16, with a network that is too large for the stand-in.
NETWORKS_IN_FP16 = NETWORKS | {"encoder": functools.partial(q.transformer, 128, 256, 4)}
RATIOS_IN_FP16 = {"classifier dynamic s8": 2.1, "segmenter dynamic s8": 1.9, "perceptron dynamic s8": 2.3, "transformer dynamic s8": 2.4, "encoder dynamic s8": 2.1, "encoder qdq s8 s8": 1.4}


def test_estimates_in_fp16_are_near_those_of_the_floats(tamp):
    slow = []
    for name, most in RATIOS_IN_FP16.items():
        network, way = name.split(maxsplit=1)
        net, model = NETWORKS_IN_FP16[network]()
        ratio = estimate(tamp, q.quantised(net, model, way), "fp16") / estimate(tamp, model, "fp16")
        print(f"{name}: estimated {ratio:.2f} of its floats' time", flush=True)
        if ratio > most:
            slow.append(f"{name}: {ratio:.2f}")
    assert not slow, f"estimates above what RATIOS_IN_FP16 allows, as multiples of the float model's: {', '.join(slow)}"


def test_rows_of_one_element(tamp):
    """What is added to them has no dimension, and as many elements as a row."""
    net = q.Net(9, [5, 1])
    x = net.add("Mul", net.add("Add", "x", net.constant(0.5)), net.constant(3))
    made = net.model(net.add("LayerNormalization", x, net.constant(np.ones(1)), net.constant(np.zeros(1)), axis=-1), [5, 1])
    model, x = q.quantised(net, made, "qdq u8 s8"), net.inputs()[0]
    found, = many.run(tamp.program, [many.Part("one", model, [x])], many.Options())
    assert not isinstance(found, many.Failure), found.text
    assert q.nearest(model, found, q.answers(model, {"x": x})).most < 1


def check_random(tamp, seeds, execution):
    """Also with graph execution, in which each rOperator is a kernel of its own."""
    made = {seed: q.random_quantised(seed) for seed in seeds}
    parts = [many.Part(f"seed{seed}", model, [x]) for seed, (model, x) in made.items()]
    options = many.Options(execution=execution, vdevice="h200" if execution == "graph" else "cpu")
    failed = []
    for (seed, (model, x)), found in zip(made.items(), many.run(tamp.program, parts, options)):
        if isinstance(found, many.Failure):
            failed.append(f"seed {seed}: {found.kind}: {found.text}")
            continue
        steps = q.nearest(model, found, q.answers(model, {"x": x}))
        if steps.share > SHARES["fp32"] or steps.most > MOST_STEPS + 0.1:
            failed.append(f"seed {seed}: {100 * steps.share:.1f} % of elements differ by a step, by {steps.most:.2f} at most")
    assert not failed, f"({' '.join(options.words())}) " + "\n  ".join(failed)


def random_tests(first, count):
    made = []
    for at in range(first, first + count, PER_PROGRAM):
        for execution in ("persistent", "graph"):
            test = harness.with_arguments(check_random, range(at, min(at + PER_PROGRAM, first + count)), execution)
            test.__name__ = f"random_networks_from_{at}_{execution}"
            made.append(test)
    return made


def main():
    if sys.argv[2:3] == ["--random"]:
        count, first = int(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else 1000
        del sys.argv[2:]
        return harness.main(random_tests(first, count))
    cases()  # once, before tests run side by side
    return harness.main(harness.tests_of(globals()) + random_tests(0, RANDOM))


if __name__ == "__main__":
    sys.exit(main())
