#!/usr/bin/env python3
"""`tamp compare`, as a user has it: saved schedules run elsewhere, and the papers' networks made and compared. Nothing here needs a GPU."""
import json
import math
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime

import harness
import models as m
from harness import has_gpu

MAKER = harness.ROOT / "examples" / "paper_models" / "make.py"
sys.path.insert(0, str(MAKER.parent))
import ios
import rammer

# Nodes, convolutions, of them depthwise, millions of multiply-adds and of weights without biases of 0: of IOS' networks as its repository has them.
IOS_NETWORKS = {"inception_v3": (94, 0, 5711, 21.77), "squeezenet": (30, 0, 1187, 1.59), "randwire": (226, 112, 7822, 60.67), "nasnet": (488, 220, 22184, 79.67)}


def make(paper, network, folder, *flags):
    subprocess.run([sys.executable, MAKER, paper, network, "--into", folder, *flags], check=True, capture_output=True, timeout=harness.RUN_SECONDS)
    return folder / f"{paper}_{network}.onnx"


def save_schedule(tamp, model, name, *options):
    tamp("compile", model, "-o", f"out_{name}", "--save-schedule", name, "--vdevice", "h200", *options)
    return name


def table_rows(text, first):
    """Lines of a table as words, from the one behind the title line that begins with `first`."""
    lines = text.splitlines()
    begin = next(n for n, line in enumerate(lines) if line.startswith(first))
    return [line.split() for line in lines[begin + 1:lines.index("", begin)]]


# --- stages that are measured ------------------------------------------------------------------------------------------------

def branches():
    """Two convolutions on one input, which can become one, beside a pool."""
    rng = np.random.default_rng(1)
    weights = [m.constant(name, rng.uniform(-1, 1, shape)) for name, shape in (("v", (8, 4, 1, 1)), ("w", (8, 4, 3, 3)), ("u", (4, 20, 1, 1)))]
    nodes = [m.node("Conv", ["x", "v"], ["a"], "one"), m.node("Conv", ["x", "w"], ["b"], "three", pads=[1, 1, 1, 1]),
             m.node("MaxPool", ["x"], ["c"], "pool", kernel_shape=[3, 3], pads=[1, 1, 1, 1]), m.node("Concat", ["a", "b", "c"], ["d"], axis=1),
             m.node("Conv", ["d", "u"], ["y"], "last")]
    return m.model(nodes, [m.value("x", [1, 4, 10, 10])], [m.value("y", [1, 4, 10, 10])], weights)


def test_stages_are_measured_where_there_is_a_device(tamp):
    """The stand-in's times say nothing, but the programs, the stages and their lanes are those of a GPU."""
    model = tamp.folder / "branches.onnx"
    onnx.save(branches(), model)
    for execution, policy in (("graph", "ios"), ("persistent", "ios-merge")):
        done = tamp("run", model, "--device", "cpu", "--policy", policy, "--execution", execution, "--measure", "--check")
        assert "check   'y': good" in done.stdout, done.stdout
        assert "measures " in done.stderr and " stages in " in done.stderr and "say nothing about a GPU" in done.stderr, done.stderr


def test_measure_says_what_it_is_for(tamp):
    model = tamp.folder / "branches.onnx"
    onnx.save(branches(), model)
    for words, said in ((["run", model, "--device", "cpu", "--measure"], "--measure is for the policies ios, ios-merge and ios-parallel, found 'best'"),
                        (["compile", model, "-o", "out", "--measure"], "--measure is for the policies" if has_gpu() else "--device cuda: this machine has no NVIDIA GPU"),
                        (["compare", model, "--device", "none", "--measure"], "--measure needs a GPU and nvcc"),
                        (["compare", "--paper", "ios", "--measure"], "--measure: is for a table of policies")):
        done = tamp(*words, code=1)
        assert said in done.stderr and not (tamp.folder / "out").exists(), done.stderr


# --- saved schedules ---------------------------------------------------------------------------------------------------------

def test_each_schedule_is_best_where_it_was_made_for(tamp):
    model = make("ios", "squeezenet", tamp.folder)
    files = [save_schedule(tamp, model, f"of_{batch}.json", "--policy", "wavefront", "--batch", batch) for batch in (1, 4)]
    words = ["compare", model, "--schedules", ",".join(files), "--device", "none"]
    done = tamp(*words, "--plot", "bars.svg")
    rows = table_rows(done.stdout, "SCHEDULE")
    assert [row[:6] for row in rows] == [[name, "wavefront", "persistent", "tf32", "batch", batch] for name, batch in zip(files, ("1", "4"))], done.stdout
    assert rows[0][7] == "*" and rows[1][8] == "*" and [len(row) for row in rows] == [9, 9], f"the diagonal is not the fastest: {done.stdout}"
    assert "of_1.json, batch 4: " in done.stdout and "of_4.json, batch 1: " in done.stdout and "have the schedule's rKernel" in done.stdout, done.stdout
    assert "simulated" in done.stdout.splitlines()[0] and (tamp.folder / "bars.svg").read_text().count("<rect ") == 5
    cells = {(cell["schedule"], cell["batch"]): cell for cell in json.loads(tamp(*words, "--json").stdout)}
    assert len(cells) == 4 and all(cells[name, batch]["is_own"] == (name == f"of_{batch}.json") for name, batch in cells)
    for name, batch in cells:
        cell = cells[name, batch]
        assert cells[f"of_{batch}.json", batch]["simulated_us"] <= cell["simulated_us"] and cell["rops_not_in_schedule"] == 0, cells
        assert cell["rkernels_same"] + cell["rkernels_of_same_family"] > cell["rkernels_of_other_family"], cells


def test_a_schedule_runs_on_another_vdevice_in_both_executions(tamp):
    model = make("ios", "squeezenet", tamp.folder)
    graph = save_schedule(tamp, model, "graph.json", "--policy", "greedy", "--execution", "graph")
    kernel = save_schedule(tamp, model, "kernel.json", "--policy", "wavefront")
    cells = json.loads(tamp("compare", model, "--schedules", f"{graph},{kernel}", "--vdevices", "h200,a100", "--device", "none", "--json").stdout)
    assert [(cell["schedule"], cell["execution"], cell["vdevice"], cell["is_own"]) for cell in cells] == [
        (graph, "graph", "h200", True), (graph, "graph", "a100", False), (kernel, "persistent", "h200", True), (kernel, "persistent", "a100", False)]
    assert all(cell["simulated_us"] > 0 for cell in cells)


def test_schedules_that_cannot_be_compared_are_refused_by_name(tamp):
    for name, make_model in (("relu.onnx", m.relu), ("other.onnx", m.conv)):
        (tamp.folder / name).write_bytes(make_model().SerializeToString())
    saved = save_schedule(tamp, "relu.onnx", "relu.json")
    (tamp.folder / "none.json").write_text("{}")
    foreign = json.loads((tamp.folder / saved).read_text()) | {"vdevice": "abacus"}
    (tamp.folder / "abacus.json").write_text(json.dumps(foreign))
    for words, says in [
        (["other.onnx", "--schedules", saved], "relu.json: a schedule for model"),
        (["relu.onnx", "--schedules", "none.json"], "none.json: not a schedule"),
        (["relu.onnx", "--schedules", "absent.json"], "absent.json"),
        (["relu.onnx", "--schedules", "abacus.json"], "abacus.json: it was made for a vDevice"),
        (["relu.onnx", "--schedules", saved, "--policies", "list"], "--policies: a schedule of --schedules says that itself"),
        (["relu.onnx", "--vdevices", "h200"], "--vdevices: goes with --schedules"),
    ]:
        tamp("compare", *words, "--device", "none", code=1, says=says)


# --- the papers' networks ----------------------------------------------------------------------------------------------------

def test_networks_of_ios_have_the_known_sizes(tamp):
    for name, (convolutions, depthwise, mmacs, mweights) in IOS_NETWORKS.items():
        net = ios.NETWORKS[name]()
        assert (net.count("Conv"), net.count("Conv", depthwise=True)) == (convolutions, depthwise), name
        assert round(net.macs / 1e6) == mmacs and round(net.parameters() / 1e6, 2) == mweights, f"{name}: {net.macs}, {net.parameters()}"


def test_networks_of_rammer_have_the_known_sizes(tamp):
    net = rammer.resnext()
    assert net.count("Conv") == 298
    net = rammer.nasnet()
    assert net.count("Conv", depthwise=False) == 246
    net = rammer.lstm()
    assert net.count("MatMul") == 10 * 100 * 8 and net.macs == 10 * 100 * 8 * 256 * 256
    net = rammer.seq2seq()
    assert net.count("MatMul") == 8 * 100 + 4 * 30 and net.shapes["output"] == [30, 128]
    net = rammer.deepspeech2()
    assert net.count("MatMul") == 7 * 75 and net.count("Conv") == 2 and [2752 + 256, 1024] in [weight["shape"] for weight in net.weights]
    assert rammer.alexnet().count("Conv") == 5


def test_networks_are_onnx_and_their_shapes_are_what_onnx_infers(tamp):
    for network in [*ios.NETWORKS.values(), rammer.resnext, rammer.nasnet, rammer.alexnet, rammer.deepspeech2]:
        net = network()
        model = onnx.load(net.save(tamp.folder), load_external_data=False)
        for tensor in onnx.shape_inference.infer_shapes(model, strict_mode=True).graph.value_info:
            shape = [dim.dim_value for dim in tensor.type.tensor_type.shape.dim]
            assert shape == net.shapes[tensor.name], f"{net.name}: {tensor.name} is {shape}, {net.shapes[tensor.name]} was meant"


def test_weights_keep_activations_near_one_and_are_the_same_without_numpy(tamp):
    path = make("ios", "squeezenet", tamp.folder)
    onnx.checker.check_model(str(path))
    output = onnxruntime.InferenceSession(str(path)).run(None, {"input": np.random.default_rng(1).standard_normal((1, 3, 224, 224), np.float32)})[0]
    assert np.isfinite(output).all() and 0.01 < math.sqrt(np.mean(output**2)) < 100, output
    (tamp.folder / "plain").mkdir()
    plain = make("ios", "squeezenet", tamp.folder / "plain", "--no-weights")
    assert not plain.with_suffix(".bin").exists()
    subprocess.run([sys.executable, "-c", f"""
import sys; sys.modules["numpy"] = None; sys.path.insert(0, {str(MAKER.parents[1])!r}); sys.argv[1:] = [{str(plain)!r}]
import make_weights; make_weights.main()"""], check=True, capture_output=True)
    assert plain.with_suffix(".bin").read_bytes() == path.with_suffix(".bin").read_bytes()


def test_a_paper_is_compared_in_one_command(tamp):
    make("ios", "squeezenet", tamp.folder)
    words = ["compare", "--paper", "ios", "--models", ".", "--networks", "squeezenet", "--device", "none", "--vdevice", "h200"]
    text = tamp(*words, "--plot", "ios.svg").stdout
    assert text.startswith("IOS, MLSys 2021 on vDevice h200, tf32, simulated\n"), text
    rows = {(row[0], row[1]): row[2:] for row in table_rows(text, "SCHEDULE")}
    for execution in ("graph", "persistent"):
        assert rows["Sequential", execution][1] == "1.00" and float(rows["IOS-Both", execution][0]) > 0 and ("wavefront", execution) in rows, text
    assert rows["Sequential", "published"] == ["860", "1.00"] and rows["IOS-Both", "published"] == ["730", "1.18"], text
    assert "V100" in text and "squeezenet: IOS-Both, published" in (tamp.folder / "ios.svg").read_text()
    cells = json.loads(tamp(*words, "--json").stdout)
    assert {"published_us", "simulated_us"} == {key for cell in cells for key in cell if key.endswith("_us") and key != "measured_us"}, cells
    assert all(cell["network"] == "squeezenet" for cell in cells)


def test_rammers_ablation_is_one_block_and_its_base_is_graph_execution(tamp):
    make("rammer", "resnext", tamp.folder)
    text = tamp("compare", "--paper", "rammer", "--models", ".", "--networks", "resnext", "--device", "none").stdout
    rows = [line for line in text.splitlines() if line.startswith(("RammerBase", "fastest", "one launch", "full", "Rammer "))]
    assert len(rows) == 7 and rows[0].split()[1] == "graph" and rows[3].split()[1] == "persistent" and rows[6].split()[:3] == ["Rammer", "published", "4,629"], text
    factor = lambda row: float(row.split()[-1])
    assert factor(rows[0]) == 1 and factor(rows[3]) > 1 and factor(rows[6]) == 2.36, text


def test_a_paper_without_its_networks_says_what_makes_them(tamp):
    tamp("compare", "--paper", "rammer", code=1, says="python3 examples/paper_models/make.py rammer resnext nasnet")
    tamp("compare", "--paper", "ios", "--networks", "lenet", code=1, says="no network 'lenet', it has inception_v3")
    tamp("compare", "--paper", "bible", code=1, says="supported: rammer, ios")
    tamp("compare", "--paper", "ios", "--policies", "list", code=1, says="--policies: --paper has")
    tamp("compare", code=1, says="model is required")


if __name__ == "__main__":
    sys.exit(harness.main(harness.tests_of(globals())))
