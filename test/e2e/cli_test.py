#!/usr/bin/env python3
"""The command line: exit codes, help, inputs and outputs, determinism, and what is left behind when something fails.

    cli_test.py TAMP [WORD...]
"""
import ctypes
import fcntl
import hashlib
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import time

import numpy as np
from onnx import helper, numpy_helper

import harness
import models as m

COMMANDS = ["compile", "run", "compare", "tune", "weights", "inspect", "ops", "devices"]


def relu(tamp, name="relu.onnx"):
    path = tamp.folder / name
    path.write_bytes(m.relu().SerializeToString())
    return path


def digests(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(pathlib.Path(folder).iterdir())}


# --- usage -----------------------------------------------------------------------------------------------------------

def test_every_command_has_help_with_examples(tamp):
    assert all(command in tamp("--help").stdout for command in COMMANDS)
    for command in COMMANDS:
        text = tamp(command, "--help").stdout
        for part in ["Examples:", f"  tamp {command}", "--quiet", "--verbose"]:
            assert part in text, f"'tamp {command} --help' lacks {part!r}"
    assert tamp("--version").stdout.startswith("tamp ")


def test_wrong_usage_is_bad_input(tamp):
    relu(tamp)
    compiling = ["compile", "relu.onnx", "-o", "out"]
    for args, says in [
        ([], "no command is given, known: compile, run, "),
        (["destroy"], "no command 'destroy'; see 'tamp --help'"),
        (["Compile", "relu.onnx"], "no command 'Compile'; did you mean 'compile'?"),
        (["--verison"], "no option '--verison' of 'tamp'; did you mean '--version'?"),
        (["compile", "relu.onnx", "--ouput", "out"], "no option '--ouput' of 'tamp compile'; did you mean '--output'?"),
        (["compile", "relu.onnx", "relu.onnx", "-o", "out"], "'tamp compile' does not expect 'relu.onnx'"),
        (["compile", "relu.onnx", "-o"], "--output: its value is missing, expected --output DIR"),
        (["compile", "relu.onnx", "-o", "a", "-o", "b"], "--output is given twice"),
        (["compile", "relu.onnx", "-o", "a", "--ios-pruning", "3"], "--ios-pruning: one value is missing, expected --ios-pruning R,S"),
        (["compile", "relu.onnx", "-o", "a", "--check"], "no option '--check' of 'tamp compile'; 'tamp run' has it"),
        (["-q", "run", "relu.onnx"], "no option '-q' of 'tamp'; it comes behind the command"),
        (["run", "relu.onnx", "--check", "--rtol", "nan"], "--rtol: nan is no number from 0 on"),
        (["compile", "relu.onnx", "-o", "out", "--search-plans", "-1"], "--search-plans"),
        (["compile", "relu.onnx", "-o", "out", "--depfile", "none/d"], "--depfile none/d: there is no folder"),
        (["compile", "relu.onnx", "--output", "--name", "x"], "--output: its value is missing, found the option --name"),
        (["compile", "relu.onnx", "--output", "--dry-run"], "--output: its value is missing, found the option --dry-run"),
        ([*compiling, "--vdevice", "H200"], "did you mean 'h200'?"),
        ([*compiling, "--policy", "lst"], "did you mean 'list'?"),
        (["inspect", "relu.onnx", "--vdevice", "h20O"], "did you mean 'h200'?"),
        (["run", "relu.onnx", "--rtol", "0.1"], "--rtol and --atol are of --check and --against"),
        (["run", "relu.onnx", "--device", "cpu", "--input", "y=x.npy"], "an input of the model: 'x'"),
        (["run", "relu.onnx", "--device", "cpu", "--input", "x=none.npy"], "none.npy"),
        (["compile"], "model is required"),
        (["compile", "relu.onnx"], "--output is required"),
        ([*compiling, "--frobnicate"], "--frobnicate"),
        ([*compiling, "--vdevice", "abacus"], "vDevice 'abacus' is not known"),
        ([*compiling, "--vdevice", "none.json"], "none.json: cannot be opened"),
        ([*compiling, "--precision", "fp12"], "precision 'fp12' is not known"),
        ([*compiling, "--policy", "chaos"], "chaos"),
        ([*compiling, "--policy", "ios", "--ios", "some"], "--ios 'some' is not known, supported: merge, parallel, both"),
        ([*compiling, "--ios", "merge"], "--ios merge: for policy ios, found 'best'"),
        ([*compiling, "--execution", "eager"], "execution 'eager' is not known"),
        ([*compiling, "--name", "3 x"], "near it: m_3_x"),
        ([*compiling, "--dim", "N"], "--dim"),
        ([*compiling, "--dim", "N=0"], "--dim"),
        (["compile", "none.onnx", "-o", "out"], "none.onnx"),
        (["compile", "relu.onnx", "-o", "relu.onnx"], "not a folder"),
        ([*compiling, "--records", "none.jsonl"], "none.jsonl: cannot be read"),
        ([*compiling, "--records", "relu.onnx"], "relu.onnx:1: is not a JSON object"),
        (["tune", "relu.onnx", "-o", "out", "--rounds", "0"], "--rounds"),
        (["tune", "relu.onnx", "-o", "out", "--device", "cpu", "--execution", "graph"], "tune needs the persistent kernel"),
        (["tune", "relu.onnx", "-o", "out", "--device", "cpu", "--records", "relu.onnx"], "relu.onnx:1: is not a JSON object"),
        (["inspect", "none.onnx"], "none.onnx"),
        (["inspect", "."], "rprogram.json"),
        (["run", "."], "rprogram.json"),
        (["run", "relu.onnx", "--device", "abacus"], "--device 'abacus'"),
        (["run", "relu.onnx", "--repeat", "0"], "--repeat"),
        (["run", "relu.onnx", "--device", "cpu", "--input", "y=a.npy"], "an input of the model: 'x'"),
        (["run", "relu.onnx", "--device", "cpu", "--input", "x=none.npy"], "none.npy"),
        (["run", "relu.onnx", "--device", "cpu", "--graph"], "need a GPU"),
        (["run", "none.onnx", "--output-dir", "relu.onnx"], "--output-dir relu.onnx: cannot be written"),
        (["inspect", "relu.onnx", "--html", "relu.onnx/page.html"], "--html relu.onnx/page.html: cannot be written"),
    ]:
        tamp(*args, code=1, says=says)
    assert not (tamp.folder / "out").exists()


def test_what_is_not_supported_has_its_own_exit_code(tamp):
    relu(tamp)
    tamp("compile", "relu.onnx", "-o", "out", "--vdevice", "t4", "--precision", "bf16", code=2, says="bf16: vDevice 't4'")
    tamp("compile", "relu.onnx", "-o", "out", "--vdevice", "t4", "--precision", "tf32", code=2, says="tf32: vDevice 't4'")
    tamp("ops", "matmul", code=2, says="operator 'matmul' is not supported; did you mean 'MatMul'?")
    assert "com.microsoft.Gelu" in tamp("ops", "Gelu").stdout
    odd = m.model([m.node("Relu", ["x"], ["a"]), m.node("Frobnicate", ["a"], ["b"], "f"), m.node("Untangle", ["b"], ["y"], "u")])
    (tamp.folder / "odd.onnx").write_bytes(odd.SerializeToString())
    for args in [("compile", "odd.onnx", "-o", "out"), ("run", "odd.onnx", "--device", "cpu")]:
        done = tamp(*args, code=2, says="Frobnicate")
        assert "Untangle" in done.stderr, "only the first unsupported operator is listed"
    shown = tamp("inspect", "odd.onnx", code=2, error=False).stdout  # a result like any other: on stdout, no error line
    assert "Frobnicate" in shown and "Untangle" in shown, shown
    assert not (tamp.folder / "out").exists()


def test_what_is_not_supported_as_data(tamp):
    """Nodes by name and operator, in the order of the file, those in the body of an If among them; what is not about a node has a reason only."""
    branch = lambda op: helper.make_graph([m.node(op, ["x"], ["b"], f"in {op}")], op, [], [m.value("b", [1, 4])])
    nodes = [m.node("Frobnicate", ["x"], ["a"], "first", domain="com.example"), m.node("Relu", ["x"], ["r"]),
             m.node("If", ["c"], ["d"], "choice", then_branch=branch("Untangle"), else_branch=branch("Relu")),
             m.node("Resize", ["x", "", "s"], ["y"], "last", mode="nearest", nearest_mode="wrong")]
    made = m.model(nodes, initializers=[m.constant("c", True, bool), m.constant("s", [1, 2])])
    made.opset_import.append(helper.make_opsetid("com.example", 1))
    (tamp.folder / "odd.onnx").write_bytes(made.SerializeToString())
    said = json.loads(tamp("compile", "odd.onnx", "-o", "out", "--refusals", "odd.json", "--json", code=2, error=False).stdout)
    found = json.loads((tamp.folder / "odd.json").read_text())
    assert said["refusals"] == found and said["exit_code"] == 2 and "'first' (com.example.Frobnicate" in said["error"], said
    assert [(one["node"], one["operator"]) for one in found[:2]] == [("first", "com.example.Frobnicate"), ("in Untangle", "Untangle")], found
    assert all(one["reason"] and "odd.onnx" not in one["reason"] and "node #" not in one["reason"] for one in found), found
    relu(tamp)
    tamp("compile", "relu.onnx", "-o", "out", "--precision", "tf32", "--vdevice", "t4", "--refusals", "t4.json", code=2)
    found = json.loads((tamp.folder / "t4.json").read_text())
    assert len(found) == 1 and found[0]["node"] == found[0]["operator"] == "" and "vDevice 't4' has no tf32" in found[0]["reason"], found
    tamp("compile", "relu.onnx", "-o", "out", "--refusals", "none.json")
    said = json.loads(tamp("compile", "missing.onnx", "-o", "nothing", "--refusals", "none.json", "--json", code=1, error=False).stdout)
    assert said["refusals"] == [] and said["exit_code"] == 1 and "missing.onnx: cannot open" in said["error"], said
    assert not (tamp.folder / "none.json").exists()


# --- tables ----------------------------------------------------------------------------------------------------------

def test_tables_list_operators_and_devices(tamp):
    ops = tamp("ops").stdout
    assert all(f"\n{op} " in ops for op in ["Conv", "MatMul", "Relu", "Softmax"]), ops
    devices = tamp("devices").stdout
    assert all(f"\n{name} " in devices for name in ["h200", "a100", "t4", "cpu"]), devices
    ops_data, devices_data = json.loads(tamp("ops", "--json").stdout), json.loads(tamp("devices", "--json").stdout)
    assert ops.endswith(f"{len(ops_data)} operators\n") and {"domain": "ai.onnx", "name": "Relu", "versions": [1, 6, 13, 14], "limits": ""} in ops_data, ops_data
    assert [device["name"] for device in devices_data if device["default_precision"] == "tf32" and device["veus"] == 132][0] == "h200", devices_data


def test_what_this_machine_runs_models_on(tamp):
    found = json.loads(tamp("devices", "--here", "cpu").stdout)
    nvcc = found.pop("nvcc")
    assert found == {"device": "cpu", "compiler": shutil.which("g++"), "vdevice": "cpu", "problem": "", "has_gpu": harness.has_gpu()}, found
    assert nvcc == "" or pathlib.Path(nvcc).name == "nvcc", nvcc
    assert json.loads(tamp("devices", "--here").stdout)["device"] == "cpu" or harness.has_gpu()
    tamp("devices", "--here", "abacus", code=1, says="'abacus' is not known")


def test_a_model_is_planned_for_the_gpu_that_is_there(tamp):
    """The same files as with its name, which stands in them."""
    relu(tamp)
    usual = ": planning for h200 (--vdevice names another)"
    for number, (lines, product, vdevice) in enumerate([("exit 9", None, "h200"), ("echo 'Tesla T4'", "Tesla T4", "t4"), ("echo 'NVIDIA Abacus'", "NVIDIA Abacus", None)]):
        env = harness.with_nvidia_smi(tamp, lines)
        tamp("compile", "relu.onnx", "-o", f"named{number}", "--vdevice", vdevice or "h200")
        says = usual if product is None else f"GPU is {product}: planning for {vdevice} (" if vdevice else f"GPU, {product}, has no built-in vDevice{usual}"
        for words in ([], ["--vdevice", "auto"]) if vdevice else ([],):
            done = tamp("compile", "relu.onnx", "-o", "out", *words, env=env, says=says)
            assert done.stderr.count("planning for") == 1 and digests(tamp.folder / "out") == digests(tamp.folder / f"named{number}")
            assert f"--vdevice {vdevice or 'h200'}" in json.loads((tamp.folder / "out" / "relu.rprogram.json").read_text())["options"]
        for command in (["compare", "relu.onnx", "--device", "none", "--policies", "best", "--executions", "persistent"], ["inspect", "relu.onnx"]):
            tamp(*command, env=env, says=says)
    for command in (["compile", "relu.onnx", "-o", "other"], ["inspect", "relu.onnx"]):
        tamp(*command, "--vdevice", "auto", code=1, env=env, says="GPU, NVIDIA Abacus, has no built-in vDevice; give --vdevice NAME or FILE.json; built in: h200, ")
    assert not (tamp.folder / "other").exists()
    for words in ([], ["--vdevice", "auto"]):  # the stand-in has its own
        assert "vDevice cpu," in tamp("run", "relu.onnx", "--device", "cpu", *words, env=env).stdout


def test_what_cannot_be_measured_is_refused(tamp):
    (tamp.folder / "mine.json").write_text("{}")
    tamp("devices", "--measure", "mine.txt", code=1, says="--measure mine.txt: expected the name of a file that ends in .json")
    tamp("devices", "--measure", "mine.json", code=1, says="--measure mine.json: is there already")
    tamp("devices", "--measure", "mine.json/gpu.json", code=1, says="--measure mine.json/gpu.json: cannot be written")
    if not harness.has_gpu():  # where there is one, gpu_test.py measures it
        tamp("devices", "--measure", "gpu.json", code=1, says="--measure: this machine has no NVIDIA GPU")
    assert sorted(path.name for path in tamp.folder.iterdir()) == ["mine.json"] and (tamp.folder / "mine.json").read_text() == "{}"


def test_names_without_ascii_are_names(tamp):
    names = ["\u5c42", "_", "/", "*/ //", "\u65e5\u672c\u8a9e/\u30ec\u30a4\u30e4", "rop"]
    nodes = [m.node("Softmax", ["x" if i == 0 else f"t{i}"], ["y" if i + 1 == len(names) else f"t{i + 1}"], name, axis=-1) for i, name in enumerate(names)]
    (tamp.folder / "odd.onnx").write_bytes(m.model(nodes).SerializeToString())
    assert "good" in tamp("run", "odd.onnx", "--device", "cpu", "--check").stdout


def test_help_and_version_are_commands_too(tamp):
    assert tamp("help").stdout == tamp("--help").stdout and tamp("version").stdout == tamp("--version").stdout
    assert all(tamp("help", command).stdout == tamp(command, "--help").stdout for command in COMMANDS)
    tamp("help", "frobnicate", code=1, says="no command 'frobnicate'; see 'tamp help'")


def test_inspect_shows_models_and_compiled_folders(tamp):
    path = harness.ROOT / "examples" / "models" / "squeezenet1_0.onnx"
    model = tamp("inspect", path).stdout  # its weights need not be there to be counted
    assert "'input' f32[1,3,224,224]" in model and "1,246,280" in model and "supported   every node" in model, model
    relu(tamp)
    tamp("compile", "relu.onnx", "-o", "out", "--vdevice", "h200")
    folder = tamp("inspect", "out").stdout
    for part in ["vDevice     h200", "persistent execution", "longest chain", "ROPERATOR", "RKERNEL", "VEU", "'x' f32[1,4]"]:
        assert part in folder, f"lacks {part!r}: {folder}"


def test_a_saved_schedule_compiles_to_the_same_source(tamp):
    relu(tamp)
    for policy, execution in [("list", "persistent"), ("ios", "graph")]:
        options = ["relu.onnx", "--precision", "fp32", "--execution", execution, "--vdevice", "h200"]
        tamp("compile", *options, "-o", "first", "--policy", policy, "--save-schedule", "s.json")
        tamp("compile", *options, "-o", "second", "--schedule", "s.json")
        for name in ["relu.cu", "relu.h", "relu.rprogram.json"]:
            assert (tamp.folder / "first" / name).read_bytes() == (tamp.folder / "second" / name).read_bytes(), name
    text = (tamp.folder / "s.json").read_text()
    assert list(json.loads(text)) == sorted(json.loads(text))
    compiling = ["compile", "relu.onnx", "-o", "third", "--schedule", "s.json", "--execution", "graph", "--vdevice", "h200"]
    tamp(*compiling, "--precision", "tf32", code=1, says="s.json: a schedule for model")
    tamp(*compiling[:-1], "t4", "--precision", "fp32", code=1, says="this is model")
    (tamp.folder / "s.json").write_text(text.replace("0.0.0", "0.0.0 0.0.0", 1))
    tamp(*compiling, "--precision", "fp32", code=1, says="runs 2 times")
    (tamp.folder / "s.json").write_text(text[:-20])
    tamp(*compiling, "--precision", "fp32", code=1, says="not a schedule")
    tamp("compile", "relu.onnx", "-o", "third", "--schedule", "none.json", "--vdevice", "h200", code=1, says="none.json: cannot be read")
    assert not (tamp.folder / "third").exists()


def test_a_saved_schedule_merges_what_its_policy_merged(tamp):
    """A 1x1 beside a 3x3, launched one after the other: as one convolution that is one launch less."""
    nodes = [m.node("Conv", ["x", "v"], ["a"], "one"), m.node("Conv", ["x", "w"], ["b"], "three", pads=[1] * 4), m.node("Concat", ["a", "b"], ["y"], "join", axis=1)]
    weights = [m.constant("v", np.full((8, 16, 1, 1), 0.1)), m.constant("w", np.full((8, 16, 3, 3), -0.1))]
    made = m.model(nodes, [m.value("x", [1, 16, 9, 9])], [m.value("y", [1, 16, 9, 9])], weights)
    (tamp.folder / "m.onnx").write_bytes(made.SerializeToString())
    compiling = ["compile", "m.onnx", "--execution", "graph", "--precision", "fp32", "-o"]
    tamp(*compiling, "first", "--policy", "ios", "--ios", "merge", "--save-schedule", "s.json")
    text = (tamp.folder / "s.json").read_text()
    assert json.loads(text)["policy"] == "ios-merge" and json.loads(text)["merges"] == [["one", "three"]], text[:500]
    assert list(json.loads(text)) == sorted(json.loads(text))
    tamp(*compiling, "second", "--schedule", "s.json")
    for name in ["m.cu", "m.h", "m.rprogram.json", "m.weights"]:
        assert (tamp.folder / "first" / name).read_bytes() == (tamp.folder / "second" / name).read_bytes(), name
    tamp("weights", "m.onnx", "--like", "first", "-o", "again.weights")
    assert (tamp.folder / "again.weights").read_bytes() == (tamp.folder / "first" / "m.weights").read_bytes()
    (tamp.folder / "s.json").write_text(text.replace('["one", "three"]', '["one", "four"]', 1))
    tamp(*compiling, "third", "--schedule", "s.json", code=1, says="s.json: 'one', 'four' cannot be one convolution: the model has no rOperator 'four'")
    tamp("run", "m.onnx", "--device", "cpu", "--check", "--policy", "ios-merge", "--execution", "graph", "--precision", "fp32")


def test_inspect_and_compile_say_the_same(tamp):
    """The complete list, whatever it is that is not supported; and no more and no less in one than in the other."""
    versions = m.model([m.node("Frobnicate", ["x"], ["a"], "f"), m.node("Conv", ["v", "w"], ["c"], "deep"), m.node("Relu", ["i"], ["r"])],
                       [m.value("x", [1, 4]), m.value("v", [1, 1, 2, 2, 2, 2]), m.value("i", ["batch", 4])], [m.value("a", [1, 4])],
                       [m.constant("w", np.ones((1, 1, 1, 1, 1, 1)))], opset=9999, ir=99)
    cases = {
        "versions": (versions, 2, ["IR version 99", "opset 9999", "'f' (Frobnicate", "'deep' (Conv", "--dim batch=value"]),
        "attribute": (m.model([m.node("Conv", ["x", "w"], ["y"], "deep")], [m.value("x", [1, 1, 2, 2, 2, 2])], [m.value("y", [1, 1, 2, 2, 2, 2])],
                              [m.constant("w", np.ones((1, 1, 1, 1, 1, 1)))]), 2, ["'deep' (Conv, opset 17): 4-D convolution"]),
        "operand": (m.model([m.node("Reshape", ["x", "s"], ["y"], "r")], [m.value("x", [1, 4]), m.value("s", [2], m.TensorProto.INT64)], [m.value("y", [2, 2])]),
                    2, ["input 1 (shape, tensor 's') is known only at run time"]),
        "type": (m.model([m.node("Relu", ["x"], ["y"])], [m.value("x", [4], m.TensorProto.COMPLEX64)], [m.value("y", [4], m.TensorProto.COMPLEX64)]), 2, ["COMPLEX64"]),
        "symbol": (m.model([m.node("Relu", ["x"], ["y"])], [m.value("x", ["batch", 4])], [m.value("y", ["batch", 4])]), 1, ["--dim batch=value"]),
        "good": (m.relu(), 0, []),
    }
    for name, (model, code, parts) in cases.items():
        (tamp.folder / f"{name}.onnx").write_bytes(model.SerializeToString())
        compiled = tamp("compile", f"{name}.onnx", "-o", name, code=code)
        shown = tamp("inspect", f"{name}.onnx", code=code, error=code == 1)
        refusals = [line.removeprefix("error: ").removeprefix(f"{name}.onnx: ") for line in compiled.stderr.splitlines() if not line.startswith("info")]
        listed = shown.stdout.split("\nnot supported (")[1].splitlines()[1:] if code == 2 else [line.removeprefix("error: ").removeprefix(f"{name}.onnx: ") for line in shown.stderr.splitlines() if line.startswith("error: ")]
        assert [line.strip() for line in listed] == refusals, (listed, refusals)
        assert all(any(part in line for line in refusals) for part in parts) and all("; " in line or "supported" in line for line in refusals), refusals
        assert code == 1 or ("supported   every node" in shown.stdout) == (code == 0), shown.stdout
    assert "supported   every node" in tamp("inspect", "symbol.onnx", "--dim", "batch=2").stdout


def test_inspect_shows_the_work_of_a_gang(tamp):
    steps, size, hidden = 5, 32, 64
    weights = [m.constant("w", np.ones((1, 4 * hidden, size)) / 64), m.constant("r", np.ones((1, 4 * hidden, hidden)) / 64)]
    lstm = m.model([m.node("LSTM", ["x", "w", "r"], ["y"], hidden_size=hidden)], [m.value("x", [steps, 1, size])], [m.value("y", [steps, 1, 1, hidden])], weights)
    (tamp.folder / "lstm.onnx").write_bytes(lstm.SerializeToString())
    tamp("compile", "lstm.onnx", "-o", "out", "--precision", "fp32")
    gangs = [rop for rop in json.loads((tamp.folder / "out" / "lstm.rprogram.json").read_text())["rops"] if rop["rkernel"].startswith("recurrent_gang")]
    assert len(gangs) == 1 and gangs[0]["flops"] in (2 * steps * 4 * hidden * (size + hidden), 2 * steps * 4 * hidden * hidden), gangs
    assert gangs[0]["bytes"] > 0 and gangs[0]["weight_bytes"] >= 4 * 4 * hidden * hidden, gangs
    assert "work        0 FLOP" not in tamp("inspect", "out").stdout


# --- compile ---------------------------------------------------------------------------------------------------------

def test_the_same_model_gives_the_same_bytes(tamp):
    relu(tamp)
    (tamp.folder / "conv.onnx").write_bytes(m.conv().SerializeToString())
    (tamp.folder / "elsewhere").mkdir()
    for name in ["relu", "conv"]:
        for options in [[], ["--embed-weights"], ["--policy", "sequential"], ["--execution", "graph"], ["--vdevice", "cpu"], ["--precision", "fp32"]]:
            first, second = tamp.folder / f"{name}_a", tamp.folder / "elsewhere" / f"{name}_b"
            tamp("compile", f"{name}.onnx", "-o", first, *options)
            tamp("compile", tamp.folder / f"{name}.onnx", "-o", second, *options)
            assert digests(first) == digests(second), f"{name} with {options} differs"
            expected = {"CMakeLists.txt", f"{name}.cu", f"{name}.h", f"{name}.rprogram.json", f"{name}.weights"}
            expected -= {f"{name}.weights"} if "--embed-weights" in options else set()
            assert expected <= set(digests(first)), sorted(digests(first))
            for folder in (first, second):
                for path in folder.iterdir():
                    path.unlink()
                folder.rmdir()


def with_weights_in(tamp, name):
    """conv.onnx with its weights in a file of that name."""
    model = m.conv()
    weights = model.graph.initializer[0]
    (tamp.folder / name).write_bytes(weights.raw_data)
    weights.ClearField("raw_data")
    weights.data_location = m.TensorProto.EXTERNAL
    weights.external_data.add(key="location", value=name)
    (tamp.folder / "conv.onnx").write_bytes(model.SerializeToString())


def test_names_of_weights_write_no_rules(tamp):
    """A rule holds the names that the model gives to its files, whatever they are; what no escape hides is refused before anything is written."""
    words = ["compile", "conv.onnx", "-o", "out", "--vdevice", "h200", "--depfile", "d"]
    for name, escaped in [("a b.bin", "a\\ b.bin"), ("$(shell touch x)", "$$(shell\\ touch\\ x)"), ("#1", "\\#1"), ("onnx::MatMul_1", "onnx\\:\\:MatMul_1"), ("ä=%[1]", "ä=%[1]")]:
        with_weights_in(tamp, name)
        tamp(*words)
        assert (tamp.folder / "d").read_text() == f"out/conv.cu: \\\n  conv.onnx \\\n  {escaped}\n", name
    for path in [tamp.folder / "d", *(tamp.folder / "out").iterdir()]:
        path.unlink()
    (tamp.folder / "out").rmdir()
    for name, shown in [("w\nall:\n\ttouch pwned", "w\\x0aall"), ("w\tx", "w\\x09x"), ("w\rx", "w\\x0dx"), ("w;touch pwned", ";"), ("w\x7f", "x7f"), ("*", "*"), ("a|b", "|")]:
        with_weights_in(tamp, name)
        tamp(*words, code=1, says="--depfile: the name")
        assert shown in tamp(*words, code=1).stderr and not (tamp.folder / "d").exists() and not (tamp.folder / "out").exists(), name
        tamp("compile", "conv.onnx", "-o", "without", "--vdevice", "h200")


def piped(tamp, data, *args):
    """`tamp compile - ARGS` with these bytes in a pipe: its exit code and stderr."""
    done = subprocess.run([tamp.program, "compile", "-", "--vdevice", "h200", *args], cwd=tamp.folder, input=data, capture_output=True, timeout=harness.RUN_SECONDS)
    return done.returncode, done.stderr.decode()


def test_a_model_from_standard_input_is_like_one_in_a_file(tamp):
    model = m.conv()
    data = model.SerializeToString()
    (tamp.folder / "conv.onnx").write_bytes(data)
    tamp("compile", "conv.onnx", "-o", "file", "--vdevice", "h200")
    assert piped(tamp, data, "--name", "conv", "-o", "pipe", "--depfile", "pipe.d")[0] == 0
    assert digests(tamp.folder / "file") == digests(tamp.folder / "pipe") and (tamp.folder / "pipe.d").read_text() == "pipe/conv.cu:\n"
    with open(tamp.folder / "conv.onnx", "rb") as file:
        subprocess.run([tamp.program, "compile", "-", "--vdevice", "h200", "--name", "conv", "-o", "redirected"], cwd=tamp.folder, stdin=file, check=True)
    assert digests(tamp.folder / "file") == digests(tamp.folder / "redirected")
    tamp("run", "pipe", "--device", "cpu", "--check")  # finds conv.onnx beside it
    outside = m.conv()
    outside.graph.initializer[0].ClearField("raw_data")
    outside.graph.initializer[0].data_location = m.TensorProto.EXTERNAL
    outside.graph.initializer[0].external_data.add(key="location", value="weights.bin")
    for bytes_, words, code, says in [
        (data, [], 1, "-: a model from standard input has no name; give --name NAME"),
        (b"", ["--name", "net"], 1, "/dev/stdin: not an ONNX model: the file is empty"),
        (data[:100], ["--name", "net"], 1, "/dev/stdin: not an ONNX model: the file is damaged"),
        (outside.SerializeToString(), ["--name", "net"], 1, "/dev/stdin: keeps data in other files, 'weights.bin' the first"),
        (m.model([m.node("Frobnicate", ["x"], ["y"])]).SerializeToString(), ["--name", "net"], 2, "/dev/stdin: node"),
    ]:
        found = piped(tamp, bytes_, "-o", "out", *words)
        assert found[0] == code and says in found[1] and found[1].count("error: ") == 1, found
    assert not (tamp.folder / "out").exists()


def test_a_dry_run_says_what_it_would_write_and_writes_nothing(tamp):
    relu(tamp)
    before = sorted(tamp.folder.iterdir())
    words = ["compile", "relu.onnx", "-o", "out", "--vdevice", "h200", "--save-schedule", "s.json"]
    listed = tamp(*words, "--dry-run", "--dump", "stages", "--depfile", "d").stdout.splitlines()
    planned = json.loads(tamp(*words, "--dry-run", "--json").stdout)
    assert sorted(tamp.folder.iterdir()) == before, "something was written"
    made = json.loads(tamp(*words, "--json").stdout)
    assert made == {**planned, "dry_run": False} and made["inputs"] == [{"name": "x", "dtype": "f32", "shape": [1, 4]}], (made, planned)
    assert {file["path"]: file["bytes"] for file in made["files"]} == {f"out/{path.name}": path.stat().st_size for path in (tamp.folder / "out").iterdir()}
    sizes = {line.split()[0]: line.split()[1:] for line in listed[1:]}
    for path in (tamp.folder / "out").iterdir():
        assert sizes.pop(f"out/{path.name}") == [f"{path.stat().st_size:,}", "new"], listed
    assert sizes == {"s.json": ["new"], "stages": ["new"], "d": ["new"]}, listed
    assert "replaces it" in tamp(*words, "--dry-run").stdout
    (tamp.folder / "out" / "relu.cu").write_text("mine")
    tamp(*words, "--dry-run", code=1, says="holds a relu.cu that tamp did not write")
    (tamp.folder / "odd.onnx").write_bytes(m.model([m.node("Frobnicate", ["x"], ["y"])]).SerializeToString())
    tamp("compile", "odd.onnx", "-o", "odd", "--dry-run", "--refusals", "odd.json", code=2, says="Frobnicate")
    assert not (tamp.folder / "odd.json").exists()


def test_dumps_show_every_stage(tamp):
    relu(tamp)
    tamp("compile", "relu.onnx", "-o", "out", "--dump", "stages")
    names = sorted(path.name for path in (tamp.folder / "stages").iterdir())
    assert names[0] == "00_read.txt" and names[-1].endswith("_rprogram.txt") and len(names) > 3, names
    assert "Relu" in (tamp.folder / "stages" / "00_read.txt").read_text() or "relu" in (tamp.folder / "stages" / "00_read.txt").read_text()


def test_quiet_is_quiet_and_stdout_holds_results_only(tamp):
    relu(tamp)
    quiet = tamp("compile", "relu.onnx", "-o", "out", "-q")
    assert (quiet.stdout, quiet.stderr) == ("", "")
    normal = tamp("compile", "relu.onnx", "-o", "out")
    assert normal.stdout == "" and "info: " in normal.stderr and "debug" not in normal.stderr
    assert "debug: " in tamp("compile", "relu.onnx", "-o", "out", "-v").stderr


def test_a_full_disk_leaves_nothing_half_written(tamp):
    relu(tamp)

    def small_files():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # writing fails instead
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))

    before = sorted(tamp.folder.iterdir())
    tamp("compile", "relu.onnx", "-o", "out", code=1, says="out.tamp-", preexec_fn=small_files)
    assert sorted(tamp.folder.iterdir()) == before, "something was left behind"


def drop_override():
    """The rights of a folder count for root, too, from the next program on."""
    ctypes.CDLL(None, use_errno=True).prctl(24, 1)  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE


def test_a_folder_whose_parent_is_read_only_is_written_into(tamp):
    relu(tamp)
    out = tamp.folder / "parent" / "out"
    out.mkdir(parents=True)
    out.parent.chmod(0o555)
    try:
        for _ in range(2):  # a mount point is like this, and a second compilation is not like the first
            tamp("compile", "relu.onnx", "-o", out, "--vdevice", "cpu", preexec_fn=drop_override)
            assert set(digests(out)) == {"CMakeLists.txt", "relu.cu", "relu.h", "relu.rprogram.json", "relu.weights"}
        # What cannot be written to is found out before any work: the model is not even looked at.
        tamp("compile", "none.onnx", "-o", out.parent / "other", code=1, says="cannot be written", preexec_fn=drop_override)
        out.chmod(0o555)
        tamp("compile", "none.onnx", "-o", out, code=1, says="cannot be written", preexec_fn=drop_override)
    finally:
        out.parent.chmod(0o755)


def test_files_of_the_user_are_not_overwritten(tamp):
    relu(tamp)
    for name in ["relu.cu", "relu.h", "relu.weights", "relu.rprogram.json", "CMakeLists.txt"]:
        folder = tamp.folder / f"with_{name}"
        folder.mkdir()
        (folder / name).write_text("mine")
        for command in (["compile", "none.onnx", "-o", folder, "--name", "relu"], ["run", "relu.onnx", "--device", "cpu", "--keep", folder]):
            tamp(*command, code=1, says=f"{name} that tamp did not write")
        assert [path.name for path in folder.iterdir()] == [name] and (folder / name).read_text() == "mine"
    tamp("compile", "relu.onnx", "-o", "out", "--vdevice", "cpu")
    (tamp.folder / "out" / "build").mkdir()
    tamp("compile", "relu.onnx", "-o", "out", "--vdevice", "a100")
    (tamp.folder / "out" / "relu.cu").write_text("my own work")
    tamp("compile", "none.onnx", "-o", "out", "--name", "relu", code=1, says="relu.cu that tamp did not write, or that was changed since")
    assert (tamp.folder / "out" / "relu.cu").read_text() == "my own work"


def test_a_planted_link_is_not_followed(tamp):
    """Where the name of the scratch folder could be guessed, somebody else could make it a link to a place of the victim's."""
    relu(tamp)
    (tamp.folder / "victim").mkdir()
    plant = f"import os, sys; os.symlink('victim', f'out.tamp-{{os.getpid()}}'); os.execv({tamp.program!r}, ['tamp', 'compile', 'relu.onnx', '-o', 'out'])"
    subprocess.run([sys.executable, "-c", plant], cwd=tamp.folder, check=True, capture_output=True)
    assert not list((tamp.folder / "victim").iterdir()) and (tamp.folder / "out" / "relu.cu").is_file() and not (tamp.folder / "out").is_symlink()


def test_folders_of_others_are_not_overwritten(tamp):
    relu(tamp)
    (tamp.folder / "mine").mkdir()
    (tamp.folder / "mine" / "CMakeLists.txt").write_text("project(mine)\n")
    tamp("compile", "relu.onnx", "-o", "mine", code=1, says="CMakeLists.txt that tamp did not write")
    assert (tamp.folder / "mine" / "CMakeLists.txt").read_text() == "project(mine)\n"
    tamp("compile", "relu.onnx", "-o", "out")
    tamp("compile", "relu.onnx", "-o", "out", "--vdevice", "a100")
    assert '"a100"' in (tamp.folder / "out" / "relu.rprogram.json").read_text()
    (tamp.folder / "other.onnx").write_bytes(m.relu().SerializeToString())
    tamp("compile", "other.onnx", "-o", "out", code=1, says="another compiled model")


# --- signals ---------------------------------------------------------------------------------------------------------

def running(mark):
    """Command lines of processes that have `mark` in their environment."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes() and b"State:\tZ" not in (folder / "status").read_bytes():
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            pass
    return found


def default_signals():
    """In a child: what starts in the background of a script, or by nohup, inherits signals that are ignored, and tamp leaves those alone."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def test_a_signal_leaves_no_folder_and_no_process(tamp):
    """The compiler is a script that starts one more, ignores what asks it to end, and says where it is."""
    relu(tamp)
    env = fake_gxx(tamp, "trap '' INT TERM HUP\nsleep 300 &\ntouch \"$STARTED\"\necho half > \"$(mktemp)\"\nwait\nsleep 300\n")
    for number, command in [
        (signal.SIGINT, ["run", "relu.onnx", "--device", "cpu", "--keep", "kept"]),
        (signal.SIGTERM, ["run", "relu.onnx", "--device", "cpu"]),
        (signal.SIGHUP, ["tune", "relu.onnx", "-o", "out", "--device", "cpu", "--jobs", "2", "--rounds", "1"]),
    ]:
        started, mark = tamp.folder / f"started{number}", f"TAMP_TEST_MARK={tamp.folder}/{number}"
        environment = {**os.environ, **env, "STARTED": str(started), "TAMP_TEST_MARK": f"{tamp.folder}/{number}"}
        process = subprocess.Popen([tamp.program, *command], cwd=tamp.folder, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True,
                                   preexec_fn=default_signals)
        deadline = time.monotonic() + 60
        while not started.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        assert started.exists(), process.stderr.read()
        process.send_signal(number)
        _, said = process.communicate(timeout=30)
        assert process.returncode == 128 + number and f"ended by signal {int(number)}" in said, (process.returncode, said)
        assert "failed" not in said, said
        assert not running(mark), running(mark)
        assert not list((tamp.folder / "temporary").iterdir()), "a temporary folder was left behind"
        assert not (tamp.folder / "out").exists()


def test_a_signal_leaves_no_half_of_an_output(tamp):
    """Sent at moments all over a compilation that writes megabytes: either all files are there, or nothing is."""
    (tamp.folder / "big.onnx").write_bytes(m.model([m.node("MatMul", ["x", "w"], ["y"])], [m.value("x", [1, 1024])], [m.value("y", [1, 1024])], [m.constant("w", np.ones((1024, 1024)))]).SerializeToString())
    compiling = [tamp.program, "compile", "big.onnx", "-o", "new/out", "--precision", "fp32"]
    begin = time.monotonic()
    subprocess.run(compiling, cwd=tamp.folder, check=True, capture_output=True)
    whole, files = time.monotonic() - begin, digests(tamp.folder / "new" / "out")
    shutil.rmtree(tamp.folder / "new")
    before = sorted(tamp.folder.iterdir())
    for part in np.linspace(0.2, 1.0, 6):
        process = subprocess.Popen(compiling, cwd=tamp.folder, stderr=subprocess.DEVNULL, preexec_fn=default_signals)
        time.sleep(whole * part)
        process.send_signal(signal.SIGTERM)
        code = process.wait(30)
        assert code in (0, 128 + signal.SIGTERM), code
        if (tamp.folder / "new").exists():
            assert digests(tamp.folder / "new" / "out") == files and [path.name for path in (tamp.folder / "new").iterdir()] == ["out"]
            shutil.rmtree(tamp.folder / "new")
        assert sorted(tamp.folder.iterdir()) == before, sorted(tamp.folder.iterdir())


def test_a_signal_that_is_ignored_stays_ignored(tamp):
    relu(tamp)
    ignoring = lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    process = subprocess.Popen([tamp.program, "compile", "relu.onnx", "-o", "out", "-q"], cwd=tamp.folder, preexec_fn=ignoring)
    while process.poll() is None:
        process.send_signal(signal.SIGHUP)
        time.sleep(0.01)
    assert process.returncode == 0 and (tamp.folder / "out" / "relu.cu").exists()


# --- weights ---------------------------------------------------------------------------------------------------------

def trained(seed, kernel=3, bias=True, slope=0.1, second="v", values=None):
    """Convolutions, small constants, a bound that becomes an argument."""
    random = np.random.default_rng(seed)
    shapes = {"w": (8, 4, kernel, kernel), "v": (8, 8, 1, 1), "b": (8,), "k": (1, 8, 1, 1), "l": (1, 8, 1, 1)}
    weights = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()} | (values or {})
    nodes = [m.node("Conv", ["x", "w", "b"] if bias else ["x", "w"], ["a"], "first"), m.node("LeakyRelu", ["a"], ["r"], "act", alpha=slope),
             m.node("Conv", ["r", second], ["c"], "second"), m.node("Sin", ["c"], ["s"], "sin"), m.node("Mul", ["s", "k"], ["n"], "mul"),
             m.node("Cos", ["n"], ["o"], "cos"), m.node("Mul", ["o", "l"], ["y"], "last")]
    return m.model(nodes, [m.value("x", ["N", 4, 8, 8])], [m.value("y", ["N", 8, 9 - kernel, 9 - kernel])], [m.constant(name, data) for name, data in weights.items()])


def save_trained(tamp, name, *args, **kwargs):
    (tamp.folder / f"{name}.onnx").write_bytes(trained(*args, **kwargs).SerializeToString())


def write_ones(tamp):
    np.save(tamp.folder / "ones.npy", np.ones((1, 4, 8, 8), np.float32))
    return "ones.npy"


def test_weights_for_a_program_are_those_of_a_compilation(tamp):
    """Whatever made the program. The code of both compilations is the same, but for the model's name in its head."""
    save_trained(tamp, "old", 1)
    save_trained(tamp, "new", 2)
    np.save(tamp.folder / "x.npy", np.ones((2, 4, 8, 8), np.float32))
    for options in [["--vdevice", "cpu", "--dim", "N=1"], ["--precision", "fp16", "--batch", "3", "--policy", "list"], ["--execution", "graph", "--policy", "ios", "--batch", "1"],
                    ["--precision", "bf16", "--activations", "fp32", "--freeze", "x=x.npy"], ["--embed-weights", "--batch", "2"]]:
        tamp("compile", "old.onnx", "-o", "old", "--name", "net", "-q", *options)
        tamp("compile", "new.onnx", "-o", "new", "--name", "net", "-q", *[option for option in options if option != "--embed-weights"])
        freeze = options[-2:] if "--freeze" in options else []
        tamp("weights", "new.onnx", "--like", "old", "-o", "net.weights", *freeze)
        assert (tamp.folder / "net.weights").read_bytes() == (tamp.folder / "new" / "net.weights").read_bytes(), options
        if "--embed-weights" not in options:
            sources = [(tamp.folder / folder / "net.cu").read_text().splitlines()[1:] for folder in ["old", "new"]]
            assert sources[0] == sources[1], options
            tamp("weights", "old.onnx", "--like", "new", "-o", "net.weights", *freeze)  # which it may replace
            assert (tamp.folder / "net.weights").read_bytes() == (tamp.folder / "old" / "net.weights").read_bytes(), options
        for name in ["net.weights", "old", "new"]:
            path = tamp.folder / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def test_weights_that_do_not_fit_a_program_are_refused(tamp):
    save_trained(tamp, "old", 1)
    tamp("compile", "old.onnx", "-o", "out", "--precision", "fp16", "--batch", "1", "-q")
    large = np.full((8, 8, 1, 1), 70000, np.float32)
    k = np.random.default_rng(5).standard_normal((1, 8, 1, 1)).astype(np.float32)
    for name, kwargs, says in [
        ("shape", {"kernel": 1}, "shape.onnx: does not fit out: output 0 is 'y' f32[1,8,8,8], the program has 'y' f32[1,8,6,6]"),
        ("bias", {"bias": False}, "does not fit out: rOperator 0 is 'first', Conv("),
        ("scalar", {"slope": 0.2}, "leaky_relu(0.2, 0)"),
        ("range", {"values": {"v": large}}, "does not fit out: rOperator 0 is 'first', Conv("),  # fp16 cannot hold them: other element types
        ("equal", {"values": {"k": k, "l": k}}, "does not fit out: its code would have the line '"),  # one place in memory instead of two
        ("renamed", {"second": "u", "values": {"u": k.reshape(8, 1, 1, 1) * k}}, "its rOperators are the same, but their tensors have other names"),
    ]:
        save_trained(tamp, name, 2, **kwargs)
        tamp("weights", f"{name}.onnx", "--like", "out", "-o", "new.weights", code=1, says=says)
    source = (tamp.folder / "out" / "old.rprogram.json").read_text()
    before = digests(tamp.folder / "out")
    for text, says in [(source.replace('"tamp": "', '"tamp": "9.', 1), "written by another tamp"), (source.replace('"schedule"', '"other"', 1), "lacks its structure"),
                       (source.replace('"structure": "', '"structure": "f', 1), "does not fit out"), (source[:-9], "is not JSON")]:
        (tamp.folder / "out" / "old.rprogram.json").write_text(text)
        tamp("weights", "old.onnx", "--like", "out", "-o", "new.weights", code=1, says=says)
    (tamp.folder / "out" / "old.rprogram.json").write_text(source)
    (tamp.folder / "mine.txt").write_text("mine")
    for place, says in [("mine.txt", "mine.txt: is there and holds no weights for out"), ("out", "is there and holds no weights"), ("mine.txt/w", "is not a folder")]:
        tamp("weights", "old.onnx", "--like", "out", "-o", place, code=1, says=says)
    tamp("weights", "absent.onnx", "--like", "out", "-o", "new.weights", code=1, says="absent.onnx")
    tamp("weights", "old.onnx", "--like", "absent", "-o", "new.weights", code=1, says="absent")
    mine = (harness.ROOT / "compiler" / "ir" / "vdevices" / "cpu.json").read_text().replace('"name": "cpu"', '"name": "mine"')
    (tamp.folder / "mine.json").write_text(mine)
    tamp("compile", "old.onnx", "-o", "of_mine", "--vdevice", "mine.json", "--batch", "1", "--freeze", f"x={write_ones(tamp)}", "-q")
    tamp("weights", "old.onnx", "--like", "of_mine", "-o", "mine.weights", "--freeze", "x=ones.npy", code=1, says="vDevice 'mine' of a file; give it with --vdevice")
    tamp("weights", "old.onnx", "--like", "of_mine", "-o", "mine.weights", "--vdevice", "mine.json", code=1, says="of_mine was compiled with --freeze x=FILE")
    tamp("weights", "old.onnx", "--like", "of_mine", "-o", "mine.weights", "--vdevice", "mine.json", "--freeze", "x=ones.npy")
    assert (tamp.folder / "mine.weights").read_bytes() == (tamp.folder / "of_mine" / "old.weights").read_bytes()
    assert not (tamp.folder / "new.weights").exists() and (tamp.folder / "mine.txt").read_text() == "mine" and digests(tamp.folder / "out") == before


def test_weights_in_the_place_of_a_folders_own(tamp):
    """The folder then is that of the new model: it can be checked, and compiled into again."""
    save_trained(tamp, "old", 1)
    save_trained(tamp, "new", 2)
    tamp("compile", "old.onnx", "-o", "out", "--vdevice", "cpu", "--batch", "1", "-q")
    before = digests(tamp.folder / "out")
    tamp("weights", "new.onnx", "--like", "out", "-o", "out/old.weights")
    after = digests(tamp.folder / "out")
    assert {name for name in before if before[name] != after[name]} == {"old.weights", "old.rprogram.json"} and list(before) == list(after)
    tamp("run", "out", "--check")
    tamp("run", "out", "--check", "--model", "old.onnx", code=1, says="is not the model that out was compiled from")
    tamp("weights", "old.onnx", "--like", "out", "-o", "out/old.weights")
    assert digests(tamp.folder / "out") == before
    with open(tamp.folder / "out" / "old.cu", "a") as source:
        source.write("// mine\n")
    tamp("weights", "new.onnx", "--like", "out", "-o", "out/old.weights", code=1, says="old.cu that tamp did not write, or that was changed")


# --- tune ------------------------------------------------------------------------------------------------------------

def test_tune_measures_writes_records_and_compile_takes_them(tamp):
    (tamp.folder / "conv.onnx").write_bytes(m.conv(pads=[1, 1, 1, 1], y=(1, 6, 8, 8)).SerializeToString())
    tuning = ["tune", "conv.onnx", "-o", "out", "--device", "cpu", "--precision", "tf32", "--rounds", "1", "--variants", "2", "--jobs", "2"]
    done = tamp(*tuning)
    for part in ["untuned  ", "tuned    ", "rKernels are others", "records  "]:
        assert part in done.stdout, f"lacks {part!r}: {done.stdout}"
    records = tamp.folder / "out" / "conv.records.jsonl"
    if records.exists():  # not where the model's own choice was the fastest this time
        lines = [json.loads(line) for line in records.read_text().splitlines()]
        assert lines and all(line["vdevice"] == "cpu" and line["precision"] == "tf32" and line["us"] > 0 for line in lines)
    tamp("weights", "conv.onnx", "--like", "out", "-o", "again.weights")
    assert (tamp.folder / "again.weights").read_bytes() == (tamp.folder / "out" / "conv.weights").read_bytes()
    # The tuned network gives the right answer, as any other.
    again = tamp("run", "out", "--output-dir", "of_tuned")
    assert "on stand-in" in again.stdout
    tamp("run", "conv.onnx", "--device", "cpu", "--precision", "tf32", "--check", "--output-dir", "of_model")
    tuned, model = (np.load(tamp.folder / folder / "y.npy") for folder in ("of_tuned", "of_model"))
    assert np.linalg.norm(tuned - model) <= 5e-3 * np.linalg.norm(model)


def test_nobody_else_can_hold_the_lock_of_measurements(tamp):
    relu(tamp)
    (tamp.folder / "records.jsonl").write_text("no record\n")
    (tamp.folder / "temporary").mkdir()
    with open(tamp.folder / "temporary" / "tamp-measure.lock", "w") as planted:
        fcntl.flock(planted, fcntl.LOCK_EX)
        env = {"TMPDIR": str(tamp.folder / "temporary"), "XDG_RUNTIME_DIR": ""}
        tamp("tune", "relu.onnx", "-o", "out", "--device", "cpu", "--records", "records.jsonl", code=1, says="records.jsonl:1", env=env)


def test_a_record_decides_what_is_compiled(tamp):
    """Made-up records of two candidates (as `tamp tune` writes them): whichever is said to be fast is taken."""
    (tamp.folder / "conv.onnx").write_bytes(m.conv().SerializeToString())
    compiling = ["compile", "conv.onnx", "--vdevice", "cpu", "--precision", "tf32"]
    key = {"vdevice": "cpu", "precision": "tf32", "execution": "persistent", "rop": "Conv(input f32[1,4,8,8], const f32[6,4,3,3]) {kernel=[3,3]} -> output f32[1,6,6,6]", "family": "implicit_gemm"}
    sizes = {"128x64": "block_m=128 block_n=64 k_groups=1 splits=1 steps_per_split=2", "64x32": "block_m=64 block_n=32 k_groups=2 splits=1 steps_per_split=1"}

    def records(fast):
        lines = [{**key, "rkernel": f"implicit_gemm_tf32<{size}>", "config": f"tf32=1 {config} gather=1 sum_rows=16", "veus": 1, "beside": 0, "weights_in_l2": True, "us": 50 if size == fast else 100000, "runs": 1}
                 for size, config in sizes.items()]
        return "".join(json.dumps(line) + "\n" for line in lines)

    def chosen(folder):
        rop = json.loads((tamp.folder / folder / "conv.rprogram.json").read_text())["rops"][0]
        return rop["rkernel"], rop["chosen_by"]

    tamp(*compiling, "-o", "model", "--records", "none")
    assert chosen("model")[1] == "model"
    for fast in sizes:
        (tamp.folder / "made_up.jsonl").write_text(records(fast))
        tamp(*compiling, "-o", "by_record", "--records", "made_up.jsonl")
        assert chosen("by_record") == (f"implicit_gemm_tf32<{fast}>", "record"), f"{chosen('by_record')}, fastest is {fast}"
    assert " record " in tamp("inspect", "by_record").stdout
    (tamp.folder / "made_up.jsonl").write_text(records("64x32") + records("64x32")[:40] + "\n")
    tamp(*compiling, "-o", "by_record", "--records", "made_up.jsonl", code=1, says="made_up.jsonl:3: is not a JSON object")


# --- run -------------------------------------------------------------------------------------------------------------

def test_run_takes_npy_and_pb_and_writes_npy(tamp):
    relu(tamp)
    x = np.array([[-1, 2, -3, 4]], np.float32)
    np.save(tamp.folder / "x.npy", x)
    (tamp.folder / "x.pb").write_bytes(numpy_helper.from_array(x, "x").SerializeToString())
    for source in ["x.npy", "x.pb"]:
        done = tamp("run", "relu.onnx", "--device", "cpu", "--input", f"x={source}", "--output-dir", "out", "--check", "--keep", "kept")
        names = json.loads((tamp.folder / "out" / "outputs.json").read_text())
        y = np.load(tamp.folder / "out" / names["y"])
        assert y.dtype == np.float32 and y.shape == (1, 4) and (y == np.maximum(x, 0)).all(), y
        assert "output  'y' f32[1,4]" in done.stdout and "check   'y': good" in done.stdout, done.stdout
    again = tamp("run", "kept", "--input", "x=x.npy", "--repeat", "3")  # the compiled folder, which is the stand-in's
    assert "of 3 runs, all bitwise equal" in again.stdout and "first 0 2 0 4" in again.stdout, again.stdout


def test_inputs_of_the_wrong_type_or_shape_are_refused(tamp):
    relu(tamp)
    tamp("compile", "relu.onnx", "-o", "out", "--vdevice", "cpu")
    for x, says in [
        (np.zeros((1, 4), np.float64), "holds f64[1,4], input 'x' is f32[1,4]"),
        (np.zeros((4,), np.float32), "holds f32[4], input 'x' is f32[1,4]"),
        (np.asfortranarray(np.zeros((2, 2), np.float32)), "Fortran order"),
        (np.zeros((1, 4), ">f4"), "element type '>f4'"),
    ]:
        np.save(tamp.folder / "x.npy", x)
        tamp("run", "out", "--input", "x=x.npy", code=1, says=says)
    (tamp.folder / "x.pb").write_bytes(b"\xff\xff\xff")
    tamp("run", "out", "--input", "x=x.pb", code=1, says="x.pb")


def test_seeds_choose_the_random_inputs(tamp):
    relu(tamp)
    tamp("compile", "relu.onnx", "-o", "out", "--vdevice", "cpu")

    def output(seed):
        return [line for line in tamp("run", "out", "--seed", seed).stdout.splitlines() if line.startswith("output")]

    assert output(1) == output(1) != output(2)


def test_options_that_need_the_model_are_refused_for_a_folder(tamp):
    relu(tamp)
    tamp("compile", "relu.onnx", "-o", "out", "--vdevice", "cpu")
    tamp("run", "out", "--precision", "fp32", code=1, says="compiled already")
    tamp("run", "out", "--vdevice", "cpu", code=1, says="compiled already")
    tamp("run", "out", "--execution", "graph", code=1, says="compiled already")


def test_boxes_that_fill_no_whole_kilobyte_run_in_both_executions(tamp):
    """A chunk of two boxes of 9 x 9 pixels is one copy of 20736 bytes; stages of phase kernels are rounded up for it."""
    weights = [m.constant("v", np.sin(np.arange(128 * 3 * 9)).reshape(128, 3, 3, 3)), m.constant("w", np.cos(np.arange(256 * 128 * 9)).reshape(256, 128, 3, 3) / 30)]
    nodes = [m.node("Conv", ["x", "v"], ["c"], "first", pads=[1, 1, 1, 1]), m.node("Relu", ["c"], ["r"]), m.node("Conv", ["r", "w"], ["y"], "second", pads=[1, 1, 1, 1])]
    (tamp.folder / "odd.onnx").write_bytes(m.model(nodes, [m.value("x", [1, 3, 7, 7])], [m.value("y", [1, 256, 7, 7])], weights).SerializeToString())
    few = {**json.loads((harness.ROOT / "compiler/ir/vdevices/h200.json").read_text()), "name": "few", "sms": 8}
    (tamp.folder / "few.json").write_text(json.dumps(few))
    for execution in ("persistent", "graph"):
        made = tamp("run", "odd.onnx", "--device", "cpu", "--vdevice", "few.json", "--precision", "tf32", "--execution", execution, "--check", "--keep", execution)
        assert ".boxes_per_copy = 2, .box_bytes = 10368" in (tamp.folder / execution / "odd.cu").read_text(), "this is not the case that the test is about"
        assert "'y': good" in made.stdout, made.stdout


def test_weights_that_are_embedded_now_do_not_stay_behind(tamp):
    model = tamp.folder / "odd.onnx"
    model.write_bytes(m.conv().SerializeToString())
    for flags, has_weights in (([], True), (["--embed-weights"], False), ([], True)):
        tamp("compile", model, "-o", "out", *flags)
        assert (tamp.folder / "out" / "odd.weights").exists() == has_weights, flags
    (tamp.folder / "out" / "odd.weights").write_bytes(b"mine")  # not what tamp wrote: stays
    tamp("compile", model, "-o", "out", "--embed-weights")
    assert (tamp.folder / "out" / "odd.weights").read_bytes() == b"mine"


def test_a_missing_gpu_is_said_before_anything_is_built(tamp):
    if harness.has_gpu():
        return
    relu(tamp)
    tamp("run", "relu.onnx", "--device", "cuda", code=1, says="no NVIDIA GPU")
    assert "no GPU: runs on the CPU" in tamp("run", "relu.onnx").stderr


def test_a_trace_that_cannot_be_is_refused_before_anything_is_written(tamp):
    relu(tamp)
    tamp("compile", "relu.onnx", "-o", "out", "--vdevice", "cpu")
    tamp("compile", "relu.onnx", "-o", "phases", "--vdevice", "cpu", "--execution", "graph")
    for args, says in [
        (["relu.onnx", "--device", "cpu", "--keep", "kept"], "--trace needs a GPU"),
        (["out"], "--trace needs a GPU"),
        (["relu.onnx", "--device", "cpu", "--keep", "kept", "--execution", "graph"], "--trace needs the persistent kernel"),
        (["phases"], "--trace needs the persistent kernel"),
    ]:
        tamp("run", *args, "--trace", "trace.json", code=1, says=says)
    assert not (tamp.folder / "trace.json").exists() and not (tamp.folder / "kept").exists()


# --- run: what a user sees when the child processes fail; a fake g++ first in PATH makes them fail ---------------------

def fake_gxx(tamp, script):
    folder = tamp.folder / "fake"
    folder.mkdir(exist_ok=True)
    path = folder / "g++"
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    temporary = tamp.folder / "temporary"
    temporary.mkdir(exist_ok=True)
    return {"PATH": f"{folder}:{os.environ['PATH']}", "TMPDIR": str(temporary)}


def real_gxx():
    for folder in os.environ["PATH"].split(":"):
        if os.access(f"{folder}/g++", os.X_OK):
            return f"{folder}/g++"
    raise AssertionError("g++ is not in PATH")


def test_a_wrong_output_fails_the_check(tamp):
    relu(tamp)
    env = fake_gxx(tamp, f"sed -i 's/  write_outputs(job, first);/  first[0][3] ^= 0x40; write_outputs(job, first);/' runner.cpp\nexec {real_gxx()} \"$@\"\n")
    done = tamp("run", "relu.onnx", "--device", "cpu", "--check", code=4, says="outputs differ from the reference", env=env)
    assert "check   'y': FAILED" in done.stdout and "worst element [0,0]" in done.stdout, done.stdout
    as_json = json.loads(tamp("run", "relu.onnx", "--device", "cpu", "--check", "--json", code=4, says="outputs differ", env=env).stdout)
    assert as_json["checks"][0]["good"] is False and as_json["checks"][0]["relative_l2"] > as_json["checks"][0]["limit"], as_json
    assert not list((tamp.folder / "temporary").iterdir()), "a temporary folder was left behind"


def test_a_run_as_json(tamp):
    relu(tamp)
    np.save(tamp.folder / "x.npy", np.array([[-1, 2, 3, np.nan]], np.float32))
    done = tamp("run", "relu.onnx", "--device", "cpu", "--input", "x=x.npy", "--check", "--repeat", "2", "--races", "--json")
    found = json.loads(done.stdout)
    expected = {"model": "relu", "vdevice": "cpu", "precision": "fp32", "execution": "persistent", "device": "cpu", "traced": False}
    assert {key: found[key] for key in expected} == expected and found["races"]["bytes_written"] >= 16, found
    assert len(found["time_us"]["runs"]) == 2 and 0 < found["time_us"]["min"] <= found["time_us"]["median"] <= found["time_us"]["max"], found
    output = {"name": "y", "dtype": "f32", "shape": [1, 4], "min": 0, "max": 3, "mean": 5 / 3, "nans": 1}
    assert found["outputs"] == [output] and found["checks"] == [{"output": "y", "good": True, "relative_l2": 0, "limit": 1e-4}], found


def test_repeats_that_differ_fail(tamp):
    relu(tamp)
    env = fake_gxx(tamp, f"sed -i 's/      require_same(first, outputs, run);/      if (run == 1) first[0][0] ^= 1;\\n&/' runner.cpp\nexec {real_gxx()} \"$@\"\n")
    tamp("run", "relu.onnx", "--device", "cpu", "--repeat", "2", code=4, says="output 'y' of run 1 is not bitwise that of the first run", env=env)


def test_a_failed_build_names_its_log(tamp):
    relu(tamp)
    env = fake_gxx(tamp, "echo 'the sky is falling' >&2\nexit 1\n")
    done = tamp("run", "relu.onnx", "--device", "cpu", "-v", code=3, says="g++ failed", env=env)
    log = pathlib.Path(done.stderr.split("log: ")[-1].strip())
    assert log.read_text() == "the sky is falling\n"
    assert "the sky is falling" in done.stderr


def test_a_model_that_crashes_is_reported_with_its_signal(tamp):
    relu(tamp)
    env = fake_gxx(tamp, "printf '#!/bin/sh\\nsleep 1.2\\nkill -SEGV $$\\n' > runner\nchmod +x runner\n")
    done = tamp("run", "relu.onnx", "--device", "cpu", code=3, says="signal 11", env=env)
    assert "info: runs relu on the stand-in ...\n" in done.stderr and "info: reads" not in done.stderr  # the one step that took over a second


def test_no_compiler_is_said(tamp):
    relu(tamp)
    tamp("run", "relu.onnx", "--device", "cpu", code=1, says="g++ is not found", env={"PATH": str(tamp.folder)})


# --- vDevices --------------------------------------------------------------------------------------------------------


H200 = harness.ROOT / "compiler/ir/vdevices/h200.json"


def test_wrong_costs_of_a_vdevice_name_the_file_and_the_field(tamp):
    relu(tamp)
    device = json.loads(H200.read_text())
    for costs, says in [
        ({"pool": {"efficiency": 2}}, "mine.json: field 'costs.pool.efficiency' is 2, expected at most 1"),
        ({"pool": {"strip_turn_us": -1}}, "mine.json: field 'costs.pool.strip_turn_us' is -1, expected"),
        ({"pool": {"strip_turn": 1}}, "mine.json: unknown field 'costs.pool.strip_turn'"),
        ({"staged_conv": {"64x32": 5}}, "mine.json: field 'costs.staged_conv.64x32' has the wrong type: 5; expected an object of costs"),
        ([1], "mine.json: field 'costs' has the wrong type: array; expected an object of costs"),
    ]:
        (tamp.folder / "mine.json").write_text(json.dumps({**device, "costs": costs}))
        tamp("compile", "relu.onnx", "-o", "out", "--vdevice", "mine.json", code=1, says=says)
        assert not (tamp.folder / "out").exists()


def test_costs_that_a_vdevice_leaves_out_are_the_h200s_and_others_change_the_estimate(tamp):
    (tamp.folder / "conv.onnx").write_bytes(m.conv().SerializeToString())
    device = json.loads(H200.read_text())

    def estimate(name, costs):
        (tamp.folder / "h200_again.json").write_text(json.dumps({key: value for key, value in {**device, "costs": costs}.items() if value is not None}))
        tamp("compile", "conv.onnx", "-o", name, "--vdevice", "h200_again.json", "--precision", "tf32", "--records", "none")
        return digests(tamp.folder / name), json.loads((tamp.folder / name / "conv.rprogram.json").read_text())["estimated_us"]

    whole, without = estimate("whole", device["costs"]), estimate("without", None)
    assert whole == without
    fixed = lambda family: {tile: {**values, "fixed_cycles": 1e6} for tile, values in device["costs"][family].items() if isinstance(values, dict) and "fixed_cycles" in values}
    slow = {"implicit_gemm": fixed("implicit_gemm"), "staged_conv": fixed("staged_conv"),
            "patch_conv": {"start_us": 1e3}, "direct": {tile: {"efficiency": 1e-6} for tile in device["costs"]["direct"]}}
    assert estimate("slow", slow)[1] > whole[1] + 10


def test_every_cost_is_in_the_documentation(tamp):
    def names(group, prefix=""):
        for key, value in group.items():
            name = prefix + ("TILE" if re.fullmatch(r"\d+(x\d+)+", key) else key)
            yield from names(value, name + ".") if isinstance(value, dict) else [name]

    documented = re.findall(r"^\| `([a-zA-Z0-9_.]+)` \|", (harness.ROOT / "docs/vdevices.md").read_text(), re.M)
    assert sorted(documented) == sorted(set(names(json.loads(H200.read_text())["costs"])))


def test_every_vdevice_takes_a_model(tamp):
    """The verifier accepts what is planned; those made from data sheets are as the program makes them that holds the data."""
    (tamp.folder / "conv.onnx").write_bytes(m.conv().SerializeToString())
    for device in json.loads(tamp("devices", "--json").stdout):
        for precision in device["precisions"]:
            tamp("compile", "conv.onnx", "-o", f"{device['name']}_{precision}", "--vdevice", device["name"], "--precision", precision)
    subprocess.run([sys.executable, harness.ROOT / "test" / "bench" / "data_sheets.py", "--check"], check=True)


# --- compare ---------------------------------------------------------------------------------------------------------

def test_compare_simulates_without_a_gpu_and_says_so(tamp):
    done = tamp("compare", relu(tamp), "--device", "none", "--vdevice", "h200", "--policies", "wavefront,sequential", "--plot", "bars.svg")
    lines = done.stdout.splitlines()
    assert lines[0] == "relu on vDevice h200, simulated" and lines[2].split()[:4] == ["POLICY", "EXECUTION", "PRECISION", "BATCH"], done.stdout
    assert [line.split()[:3] for line in lines[3:5]] == [["wavefront", "persistent", "tf32"], ["sequential", "persistent", "tf32"]], done.stdout
    assert "MEASURED" not in done.stdout and (tamp.folder / "bars.svg").read_text().startswith("<svg "), done.stdout
    tamp("compare", relu(tamp), "--device", "cpu", code=1, says="times are simulated")
    tamp("compare", relu(tamp), "--policies", "best,worst", code=1, says="'")
    tamp("compare", relu(tamp), "--device", "none", "--plot", "relu.onnx/bars.svg", code=1, says="--plot")


def test_compare_takes_lists_and_prints_json(tamp):
    words = ["--device", "none", "--vdevice", "h200", "--policies", "sequential", "--precisions", "fp32,tf32", "--batches", "1,3", "--json"]
    rows = json.loads(tamp("compare", relu(tamp), *words).stdout)
    assert [(row["batch"], row["precision"], row["execution"]) for row in rows] == [(b, p, e) for b in (1, 3) for p in ("fp32", "tf32") for e in ("persistent", "graph")]
    assert all(row["simulated_us"] > 0 and row["launches"] == 1 and "measured_us" not in row for row in rows), rows


def test_files_of_options_replace_nothing(tamp):
    """Neither the model, nor a file of the program, nor each other's."""
    text = m.model([m.node("Neg", ["x"], ["y"])], [m.value("x", [2, 3])], [m.value("y", [2, 3])]).SerializeToString()
    (tamp.folder / "neg.onnx").write_bytes(text)
    for options, says in [(["--depfile", "neg.onnx"], "--depfile neg.onnx: would replace neg.onnx; give another file"), (["--save-schedule", "./neg.onnx"], "would replace neg.onnx"),
                          (["--depfile", "out/neg.cu"], "would replace out/neg.cu"), (["--depfile", "z", "--save-schedule", "z"], "--save-schedule z: is the file of --depfile, too")]:
        tamp("compile", "neg.onnx", "-o", "out", *options, code=1, says=says)
        assert not (tamp.folder / "out").exists(), options
    tamp("compile", "neg.onnx", "-o", "", code=1, says="--output: is empty")
    tamp("compile", "neg.onnx", "-o", "out")
    source = (tamp.folder / "out" / "neg.cu").read_text()
    tamp("inspect", "out", "--html", "out/neg.cu", code=1, says="would replace out/neg.cu")
    tamp("inspect", "neg.onnx", "--perfetto", "neg.onnx", code=1, says="would replace neg.onnx")
    assert (tamp.folder / "neg.onnx").read_bytes() == text and (tamp.folder / "out" / "neg.cu").read_text() == source


if __name__ == "__main__":
    sys.exit(harness.main(harness.tests_of(globals())))
