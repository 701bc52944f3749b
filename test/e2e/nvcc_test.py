#!/usr/bin/env python3
"""Small networks over the bodies that differ most between GPUs, for every architecture that a vDevice has: nvcc takes the source.
Nothing runs. run.sh calls this where nvcc is; here its absence is a failure.

    nvcc_test.py TAMP [WORD...]
"""
import json
import re
import subprocess
import sys

import harness
import models as m
from models_test import port, weight
from transformers_test import Net, named, pixel_blocks
from user_project_test import mnist, nvcc

ARCHITECTURES = {"sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_90a", "sm_100a", "sm_120"}


VDEVICES = harness.ROOT / "compiler" / "ir" / "vdevices"


def vdevices():
    """A vDevice for each architecture, e.g. {"sm_80": "a100", "sm_100a": "b200"}. sm_90 without the "a" has none that is built in: the h200's is taken,
    and written down by vdevice_for."""
    found = {}
    for path in sorted(VDEVICES.glob("*.json")):
        found.setdefault(json.loads(path.read_text())["arch"], path.stem)
    return {**{arch: name for arch, name in found.items() if arch.startswith("sm_")}, "sm_90": "h200"}


def vdevice_for(tamp, arch):
    name = vdevices()[arch]
    own = json.loads((VDEVICES / f"{name}.json").read_text())
    if own["arch"] == arch:
        return name
    (tamp.folder / "own.json").write_text(json.dumps({key: value for key, value in {**own, "name": "own", "arch": arch}.items() if key != "costs"}))
    return "own.json"


def small_cnn(tamp):
    """Split products, a convolution by boxes on sm_90 and sm_100, a reduction and a matrix-vector product."""
    nodes = [m.node("Conv", ["x", "w1"], ["a"], "c1", pads=[1, 1, 1, 1]), m.node("Relu", ["a"], ["b"], "r1"), m.node("Conv", ["b", "w2"], ["c"], "c2", pads=[1, 1, 1, 1]),
             m.node("GlobalAveragePool", ["c"], ["d"], "p"), m.node("Flatten", ["d"], ["e"], "f"), m.node("Gemm", ["e", "w3"], ["y"], "g", transB=1)]
    made = m.model(nodes, [port("x", 1, 32, 14, 14)], [port("y", 1, 10)], [weight("w1", 32, 32, 3, 3), weight("w2", 64, 32, 3, 3), weight("w3", 10, 64)])
    path = tamp.folder / "cnn.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def small_lstm(tamp):
    """A gang: vEUs that exchange words."""
    nodes = [m.node("LSTM", ["x", "w", "r"], ["h"], "lstm", hidden_size=64), m.node("Relu", ["h"], ["y"], "r")]
    made = m.model(nodes, [port("x", 4, 1, 64)], [port("y", 4, 1, 1, 64)], [weight("w", 1, 256, 64), weight("r", 1, 256, 64)])
    path = tamp.folder / "lstm.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def compiled(tamp, path, arch, *options):
    """The plan of `tamp compile`, when nvcc has made machine code of all of its source without a warning."""
    name, folder = path.stem, tamp.folder / "out"
    tamp("compile", path, "-o", folder, "--vdevice", vdevice_for(tamp, arch), *options)
    program = folder / f"{name}.cubin"
    command = [nvcc(), "-std=c++20", f"-arch={arch}", "-Werror", "all-warnings", "-Xptxas", "-v", "-cubin", "-o", program, folder / f"{name}.cu"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    assert "(C75" not in done.stderr, f"ptxas makes products by wgmma wait for each other: {done.stderr[:2000]}"
    spilled = sum(int(count) for count in re.findall(r"(\d+) bytes spill stores", done.stderr))
    if spilled:
        print(f"{name} on {arch}: {spilled} bytes spilled")
    assert re.search(rf"Compiling entry function .* for '{arch}'", done.stderr) and program.stat().st_size > 0, done.stderr[-2000:]
    return json.loads((folder / f"{name}.rprogram.json").read_text())


def ptx_without_warnings(tamp, name, arch):
    """PTX of a source that nvcc has made an object of, host code and all, without a warning."""
    (tamp.folder / "steps").mkdir()
    command = [nvcc(), "-std=c++20", f"-arch={arch}", "-Xcompiler", "-Wall,-Wextra,-Werror", "-Werror", "all-warnings", "--keep", "--keep-dir", tamp.folder / "steps", "-c", "-o", tamp.folder / "out" / f"{name}.o",
               tamp.folder / "out" / f"{name}.cu"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    return sorted((tamp.folder / "steps").glob(f"{name}*.ptx"))[-1].read_text()  # of sm_90a there is name.compute_90a.ptx, behind others


def bodies(plan):
    return {phase["body"]: phase["input_bytes"] for rop in plan["rops"] for phase in rop["phases"]}


def arch_tests(arch):
    def cnn(tamp):
        found = bodies(compiled(tamp, small_cnn(tamp), arch))
        if arch.startswith(("sm_90", "sm_100")):
            assert any(found.values()), f"no body takes boxes: {found}"

    def lstm(tamp):
        found = bodies(compiled(tamp, small_lstm(tamp), arch))
        assert any("recurrent" in body for body in found), found

    def phases(tamp):
        plan = compiled(tamp, mnist(tamp), arch, "--execution", "graph")
        waits = "griddepcontrol.wait" in ptx_without_warnings(tamp, "mnist_mlp", arch)
        assert any(launch["dependent"] for launch in plan["launches"]) == waits == (int(arch.removeprefix("sm_").rstrip("af")) >= 90), (waits, plan["launches"])

    for test in (cnn, lstm, phases):
        test.__name__ = f"test_{test.__name__}_{arch}"
    return [cnn, lstm, phases]


def object_without_warnings(tamp, source, arch, *options):
    command = [nvcc(), "-std=c++20", f"-arch={arch}", "-Xcompiler", "-Wall,-Wextra,-Werror", "-Werror", "all-warnings", *options, "-c", "-o", tamp.folder / "program.o", harness.ROOT / source]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert done.returncode == 0, f"{source} for {arch}: {done.stdout[-2000:]}\n{done.stderr[-3000:]}"


def test_the_program_that_measures_a_vdevice(tamp):
    """For the oldest GPUs, which have other mma instructions, and the newest, without a warning."""
    for arch in ("sm_75", "sm_120"):
        object_without_warnings(tamp, "runtime_stub/host/measure_vdevice.cu", arch)


def test_the_programs_that_measure_steps_and_copies(tamp):
    for program in ("wgmma_steps", "box_copies", "copy_orders", "level_edges", "cluster_exchange"):
        object_without_warnings(tamp, f"test/gpu/{program}.cu", "sm_90a", "-I", harness.ROOT)


def test_products_of_a_transformer(tamp):
    """Products by wgmma for stages of two and of three steps, none of which ptxas makes wait for the one before (its remarks C7510 to
    C7520 are no warnings, so `compiled` looks for them)."""
    net = Net(768)
    x = net.linear("x", 768, 768)
    hidden = net.add("Gelu", net.linear(x, 768, 3072))
    named(net, net.norm(net.add("Add", net.linear(hidden, 3072, 768), x)))
    path = tamp.folder / "transformer.onnx"
    path.write_bytes(net.model([port("x", 1, 128, 768)], [port("y", 1, 128, 768)], opset=20, ir=9).SerializeToString())
    plan = compiled(tamp, path, "sm_90a", "--precision", "fp16")
    steps = {int(phase["template"].get("STAGE_STEPS", 0)) for rop in plan["rops"] for phase in rop["phases"]}
    assert steps & {2, 3}, [rop["rkernel"] for rop in plan["rops"]]


def test_a_ring_of_one_stage(tamp):
    """In graph execution a product whose rTasks have one chunk has one stage of inputs, and loops by wgmma take that."""
    path = tamp.folder / "pixels.onnx"
    path.write_bytes(pixel_blocks(256, 7, 9).SerializeToString())
    plan = compiled(tamp, path, "sm_90a", "--precision", "tf32", "--execution", "graph")
    assert any(rop["op"] == "depthwise convolution with moments" for rop in plan["rops"]), [rop["rkernel"] for rop in plan["rops"]]
    assert "kInputStages = 1," in (tamp.folder / "out" / "pixels.cu").read_text()


def test_every_architecture_has_a_vdevice(tamp):
    assert ARCHITECTURES <= set(vdevices()), vdevices()


def all_tests():
    known = subprocess.run([nvcc(), "--list-gpu-arch"], capture_output=True, text=True, check=True).stdout.replace("compute_", "sm_").split()
    known += [arch + "a" for arch in known]  # sm_90a goes with sm_90, sm_100a with sm_100, and they are not in that list
    for arch in sorted(ARCHITECTURES - set(known)):  # left out, not passed
        print(f"this nvcc does not know {arch}: nothing is compiled for it")
    return [test_every_architecture_has_a_vdevice, test_the_program_that_measures_a_vdevice, test_the_programs_that_measure_steps_and_copies, test_products_of_a_transformer, test_a_ring_of_one_stage, *(test for arch in vdevices() if arch in known for test in arch_tests(arch))]


if __name__ == "__main__":
    sys.exit(harness.main(all_tests()))
