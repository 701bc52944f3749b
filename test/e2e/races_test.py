#!/usr/bin/env python3
"""`tamp run --races`: what bodies touch is what they declare. Clean on small networks of every rKernel family, persistent and as
graphs; a body that reads or writes what it does not declare is caught.

    races.py TAMP [WORD...]
    races.py TAMP --random COUNT [SEED]     (by hand: random networks, half of them as graphs)
"""
import os
import re
import sys

import harness
import models as m
import models_test as nets
import random_model
import recurrent_test as recurrent


def check_races(tamp, made, *options, code=0, says="", env=None):
    path = tamp.folder / "model.onnx"
    path.write_bytes(made.SerializeToString())
    done = tamp("run", path, "--device", "cpu", "--races", "--check", *options, code=code, says=says, env=env)
    if code == 0:
        assert re.search(r"^races   none: [1-9]\d* rTasks read", done.stdout, re.M), done.stdout
    return done


def conv(x, w, **attributes):
    pads = w[2] // 2
    return m.model([m.node("Conv", ["x", "w"], ["a"], "c", pads=[pads] * 4, **attributes), m.node("Relu", ["a"], ["y"], "r")], [nets.port("x", *x)],
                   [nets.port("y", *[None] * 4)], [nets.weight("w", *w)])


# --- families --------------------------------------------------------------------------------------------------------

CLEAN = [  # name, model, options; together they run every family of kernels/catalogue.cpp
    ("boxes", nets.boxed, ["--vdevice", "h200"]),  # staged_conv, implicit_gemm, split_k_sum
    ("stem", lambda: conv((1, 3, 33, 31), (32, 3, 3, 3), strides=[2, 2]), ["--vdevice", "h200"]),  # patch_conv
    ("mobile", nets.mobile, ["--vdevice", "h200"]),  # depthwise, separable_conv
    ("conv_odd", nets.conv_odd, []),
    ("inception", nets.inception, ["--precision", "tf32"]),  # pool, concat as views
    ("batch_norm", nets.batch_norm, ["--precision", "fp16"]),  # gemv
    ("attention", nets.attention, []),  # matmul_direct, softmax
    ("reductions", nets.reductions, []),  # reduce, lrn, indexed_copy
    ("gang", lambda: recurrent.one("LSTM", (3, 1, 64), 64, results=("Y", "Yc")), ["--vdevice", "h200"]),
    ("recurrent_direct", lambda: recurrent.one("GRU", (2, 2, 5), 3), ["--vdevice", "t4"]),
    ("boxes_graph", nets.boxed, ["--vdevice", "h200", "--execution", "graph"]),
    ("mobile_graph", nets.mobile, ["--execution", "graph"]),
    ("reductions_graph", nets.reductions, ["--execution", "graph"]),
]


def clean_test(name, make, options):
    def test(tamp):
        check_races(tamp, make(), *options)
    test.__name__ = f"test_{name}_is_clean"
    return test


# --- wrong bodies ----------------------------------------------------------------------------------------------------

def with_wrong_body(tamp, before, after):
    """An environment whose g++ first changes the text of the generated source, as if the body had been written so."""
    wrapper = tamp.folder / "bin" / "g++"
    wrapper.parent.mkdir()
    wrapper.write_text(f"""#!{sys.executable}
import os, pathlib, sys
source, = pathlib.Path(".").glob("*.cu")
text = source.read_text()
if {after!r} not in text:
    assert text.count({before!r}) == 1, text.count({before!r})
    source.write_text(text.replace({before!r}, {after!r}))
os.environ["PATH"] = {os.environ["PATH"]!r}
os.execvp("g++", ["g++", *sys.argv[1:]])  # by its own name: it finds its parts from it
""")
    wrapper.chmod(0o755)
    return {"PATH": f"{wrapper.parent}:{os.environ['PATH']}"}


def wide_relu():
    """So many elements that several rTasks share them."""
    return m.model([m.node("Relu", ["x"], ["y"], "wide")], [nets.port("x", 256, 1024)], [nets.port("y", 256, 1024)])


def test_an_undeclared_read_is_caught(tamp):
    """Every rTask reads 16 bytes of what the next one works on; the answer is right all the same."""
    before = "values.inputs[i][g] = load4(from + (start + column[g] * 4));"
    after = before + " if (task.index == 0) values.inputs[i][g].x += 0.0f * load1(from + (start + column[g] * 4 + args.groups_per_rtask * 4));"
    says = r"'wide' rTask 0 \(vEU \d+\), rKernel [^,]*<.*>, reads byte \d+ of port 0, element \d+ of buffer \d+ \('x'\), which it does not declare; it declares"
    done = check_races(tamp, wide_relu(), code=4, env=with_wrong_body(tamp, before, after))
    assert re.search(says, done.stderr), done.stderr


def test_an_undeclared_write_is_caught(tamp):
    """The first rTask stores what another one stores, too: the same values, so that the answer may well be right."""
    before = "store4(to, values.acc[g]);"
    after = before + " if (task.index == 0) store4(to + 4 * args.groups_per_rtask, values.acc[g]);"
    says = r"'wide' rTask 0 \(vEU \d+\), rKernel [^,]*<.*>, writes byte \d+ of port 1, element \d+ of buffer \d+ \('y'\), which it does not declare"
    done = check_races(tamp, wide_relu(), code=4, env=with_wrong_body(tamp, before, after))
    assert re.search(says, done.stderr), done.stderr


def test_races_are_looked_for_on_the_stand_in_and_in_models_only(tamp):
    (tamp.folder / "relu.onnx").write_bytes(m.relu().SerializeToString())
    tamp("compile", "relu.onnx", "-o", "relu")
    tamp("run", "relu", "--device", "cpu", "--races", code=1, says="--races needs the model")


# --- by hand ---------------------------------------------------------------------------------------------------------

def random_test(seed):
    def test(tamp):
        made = random_model.make(seed)
        options = ["--vdevice", ["cpu", "h200"][seed % 2], "--precision", ["fp32", "tf32", "fp16"][seed // 2 % 3]]
        check_races(tamp, made, *options, *(["--execution", "graph"] if seed % 4 < 2 and not random_model.is_recurrent(made) else []))
    test.__name__ = f"test_random_{seed}"
    return test


def all_tests():
    if sys.argv[2:3] == ["--random"]:
        count, first = int(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else 1
        sys.argv[2:] = []
        return [random_test(seed) for seed in range(first, first + count)]
    return [clean_test(*case) for case in CLEAN] + harness.tests_of(globals())


if __name__ == "__main__":
    sys.exit(harness.main(all_tests()))
