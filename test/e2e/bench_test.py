#!/usr/bin/env python3
"""What measures and reports, without a GPU: traces (test/gpu/trace.py), the comparison (test/bench/bench.py) and the fits of costs
(test/bench/calibrate.py), on numbers made here whose right summary is known.

    bench_test.py TAMP [WORD...]
"""
import json
import os
import subprocess
import sys

import numpy as np

import decoders
import harness
import models as m

sys.path[:0] = [str(harness.ROOT / "test" / "gpu"), str(harness.ROOT / "test" / "bench")]
import bench
import calibrate
import estimates
import plot_bench
import measure
import page
import report
import rtask_phases
import trace as traces
import what_if


def raises(kind, call, says):
    try:
        call()
    except kind as problem:
        assert says in str(problem), problem
        return
    raise AssertionError(f"no {kind.__name__}")


def near(a, b):
    return abs(a - b) < 1e-6


# --- traces ----------------------------------------------------------------------------------------------------------------

# Two vEUs. `a` runs on both and is slow on vEU 1; `b` needs both, on vEU 0; `c` follows on the same vEU without an event.
START = 1_763_700_000_000_000_000
US = 1000


def entry(rop, waits=(), signal=-1):
    return {"rop": rop, "phase": 0, "index": 0, "waits": list(waits), "signal": signal}


def two_lanes():
    rop = lambda name, rkernel: {"name": name, "rkernel": rkernel, "phases": [{"body": "rk::staged_conv", "template": {"MT": "1"}, "rtasks": 2, "input_bytes": 4096, "estimated_cycles": 4000.0,
                                                                                "numbers": {"steps": 18}}]}
    plan = {"name": "two", "precision": "tf32", "rops": [rop("a", "staged_conv<16x32>"), rop("b", "pool<4>"), rop("c", "staged_conv<16x32>, split 2")],
            "lanes": [[entry(0, signal=0), entry(1, [0], signal=1), entry(2)], [entry(0, signal=0)]]}
    # waiting, ready, started, computed, signalled; with boxes a body starts before its inputs are there, the first even before anything waits.
    times = [[0, 0, -1, 3, 3.5], [0.5, 7, 6, 9, 9.5], [8, 8, 9.25, 10, 0], [0, 0, 0, 6, 6.5]]
    stamps = np.array([[START + int(t * US) if t or column < 3 else 0 for column, t in enumerate(row)] for row in times], np.uint64)
    return plan, stamps


def test_the_time_of_all_veus_divides_into_parts_that_add_up(tamp):
    numbers = traces.division(*with_tasks())
    assert numbers["span_us"] == 10 and numbers["veus"] == 2
    parts = {key: 2 * value for key, value in numbers["us_of_a_veu"].items()}
    # vEU 0: a 0-3, waits for the other a until 6, edge until 7, b 7-9, start 0.25, c until 10. vEU 1: a 0-6, then idle.
    expected = {"computing": 3 + 2 + 0.75 + 6, "producers": 3, "edges": 1, "starting": 0.25, "idle": 4}
    assert all(near(parts[key], expected[key]) for key in expected), parts
    assert near(sum(parts.values()), 20)


def with_tasks():
    plan, stamps = two_lanes()
    return plan, traces.tasks_of(plan, stamps)


def test_the_critical_path_goes_back_through_the_last_signal(tamp):
    steps = traces.critical_path(*with_tasks())
    assert [(step["name"], step["veu"], step["by"]) for step in steps] == [("a", 1, "begin"), ("b", 0, "signal"), ("c", 0, "vEU")]
    assert [round(step["gap_us"], 6) for step in steps] == [0, 1, 0.25]
    path = traces.summary(*with_tasks())["path"]
    assert near(path["computing_us"], 8.75) and near(path["computing_us"] + path["gaps_us"], 10)
    assert path["families"]["staged_conv"] == {"steps": 2, "computing_us": 6.75}


def test_a_trace_for_a_browser_has_a_track_for_each_veu_and_a_slice_for_each_rtask(tamp):
    plan, stamps = two_lanes()
    (tamp.folder / "two.rprogram.json").write_text(json.dumps(plan))
    stamps.tofile(tamp.folder / "trace.bin")
    command = [sys.executable, harness.ROOT / "test/gpu/trace.py", "two.rprogram.json", "trace.bin", "--chrome", "chrome.json"]
    done = subprocess.run(command, cwd=tamp.folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "critical path: 3 rTasks, 8.8 us computing, 1.2 us between them" in done.stdout, done.stdout
    events = json.loads((tamp.folder / "chrome.json").read_text())["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    assert [(s["name"], s["tid"], s["ts"], s["dur"]) for s in slices] == [("a", 0, 0, 3), ("b", 0, 7, 2), ("c", 0, 9.25, 0.75), ("a", 1, 0, 6)]
    assert {event["tid"] for event in events if event["name"] == "thread_name"} == {0, 1}


def test_a_trace_of_another_program_or_without_times_is_refused(tamp):
    plan, stamps = two_lanes()
    raises(ValueError, lambda: traces.tasks_of(plan, stamps[1:]), "the trace has 3 rows, the rProgram has 4")
    raises(ValueError, lambda: traces.tasks_of(plan, stamps * 0), "no times")


def test_rows_of_a_lane_are_those_of_the_instruction_table(tamp):
    """Further Waits take rows of their own: a sum of many, each from a vEU of its own, waits for all of them. Each is needed by somebody else,
    too, since what is needed together only is one event."""
    inputs = [m.value(f"x{i}", [1, 64]) for i in range(9)]
    nodes = [m.node("Softmax", [f"x{i}"], [f"s{i}"], name=f"softmax{i}") for i in range(9)]
    nodes.append(m.node("Sum", [f"s{i}" for i in range(9)], ["t"], name="sum"))
    nodes.append(m.node("Softmax", ["t"], ["y"], name="last"))
    nodes += [m.node("Softmax", [f"s{i}"], [f"y{i}"], name=f"alone{i}") for i in range(9)]
    outputs = [m.value("y", [1, 64])] + [m.value(f"y{i}", [1, 64]) for i in range(9)]
    (tamp.folder / "many.onnx").write_bytes(m.model(nodes, inputs, outputs).SerializeToString())
    root = harness.ROOT
    wide = {**json.loads((root / "compiler/ir/vdevices/cpu.json").read_text()), "name": "wide", "sms": 12}
    (tamp.folder / "wide.json").write_text(json.dumps(wide))
    tamp("compile", "many.onnx", "-o", "many", "--vdevice", "wide.json")
    subprocess.run(["g++", "-std=c++20", "-w", "-DTAMP_TRACE", "-DTAMP_CUDA_ON_CPU", "-I", "many", "-I", root, "-I", root / "runtime_stub/cuda_on_cpu", '-DTAMP_MODEL_HEADER="many.h"',
                    "-DTAMP_MODEL=many", f'-DTAMP_WEIGHTS_FOLDER="{tamp.folder}/many/"', "-x", "c++", "many/many.cu", root / "runtime_stub/host/runner.cpp", "-o", "runner", "-lboost_context"],
                   cwd=tamp.folder, check=True)
    np.ones(64, np.float32).tofile(tamp.folder / "x.bin")
    subprocess.run(["./runner", *["--input", "x.bin"] * 9, *["--output", "y.bin"] * 10, "--wait-budget", "3600", "--trace", "trace.bin"], cwd=tamp.folder, check=True, capture_output=True)
    plan = json.loads((tamp.folder / "many/many.rprogram.json").read_text())
    rows = list(traces.rows_of(plan))
    assert any(row is None for _, row in rows), "no rTask waits for more than three events: nothing was tested"
    assert len(rows) == (tamp.folder / "trace.bin").stat().st_size // 40


# --- the comparison --------------------------------------------------------------------------------------------------------


def row(model, us=None, **more):
    timed = {"us": us, "floor": report.floor((1e9, 1e6), "tf32", 10, report.vdevice("h200"))} if us else {}
    return {"model": model, "precision": "tf32", "execution": "persistent", "error": 1e-4, "bar": 1e-3, "estimated_us": 90.0, "rops": 5, "waves": 10, "compile_s": 0.1, "nvcc_s": 4.0, **timed, **more}


def results():
    peer = lambda model, name, us=None, **more: {"model": model, "precision": "tf32", "peer": name, "layouts": {}, **({"us": us} if us else {}), **more}
    return {"facts": {"gpu": {"name": "NVIDIA H200"}, "date": "2026-01-02T03:04:05+00:00", "commit": "0123456789abcdef"},
            "rows": [row("quick", 100.0), row("wrong", failure="wrong answer: error 1.0e-02, bar 1.0e-03")],
            "peers": [peer("quick", "eager", 300.0), peer("quick", "compile", 250.0), peer("wrong", "eager", 300.0), peer("wrong", "compile", failure="took longer than 120 s")]}


def test_the_table_compares_with_the_best_peer_and_hides_no_failure(tamp):
    text = report.tables(results())
    quick, wrong = [line for line in text.splitlines() if line.startswith(("| quick", "| wrong"))][:2]
    assert "**100.0** | 300.0 | 250.0 | 2.50 |" in quick, quick
    assert "failed (1) | 300.0 | none (2) |  |" in wrong, wrong
    assert "(1) tamp, wrong in tf32, persistent: wrong answer" in text and "(2) compile of wrong in tf32: took longer than 120 s" in text, text
    assert "NVIDIA H200, commit 0123456789ab, 2026-01-02." in text
    assert report.summary_line(results()) == "best peer / tamp: least 2.50, median 2.50, most 2.50, of 1"


def test_a_document_gets_the_tables_between_its_marks_and_nothing_else_changes(tamp):
    document = "before\n<!-- bench:times -->\nold\n<!-- bench:end -->\nbetween\n<!-- bench:machine -->\n<!-- bench:end -->\nafter\n"
    once = report.filled(document, results())
    lines = once.splitlines()
    assert "old" not in lines and [line for line in lines if line in ("before", "between", "after")] == ["before", "between", "after"], once
    assert any(line.startswith("| quick") for line in lines) and report.filled(once, results()) == once
    raises(ValueError, lambda: report.filled(document.replace("times", "tims"), results()), "unknown mark 'tims'")
    assert report.filled((harness.ROOT / "docs/log/2026-11-21.md").read_text(), results()).count("| quick |") == 2


def test_runs_are_merged_the_later_one_counts_and_rows_say_their_commits(tamp):
    later = results()
    later["rows"] = [row("wrong", 50.0), row("new", 10.0)]
    both = report.merged([results(), later])
    assert {made["model"]: made.get("us") for made in both["rows"]} == {"quick": 100.0, "wrong": 50.0, "new": 10.0}
    assert "commit |" not in report.tables(both)
    later["facts"] = {**later["facts"], "commit": "another commit"}
    text = report.tables(report.merged([results(), later]))
    assert "| new | tf32 | another |" in text and "| quick | tf32 | 0123456 |" in text and "commits 0123456789ab, another comm" in text, text
    assert report.tables(report.merged([report.merged([results(), later])])) == text, "as one file, too"
    later["facts"] = {**later["facts"], "gpu": {"name": "another"}}
    raises(ValueError, lambda: report.merged([results(), later]), "different machines")


def measured(us, good=True, **peers):
    part = {"good": good, "train_us": us, "error": 1e-4, "bar": 1e-3}
    return {"plain": part, "two_instances": part, "graph": part, **peers}


def test_the_first_page_counts_the_best_peer_known_and_no_wrong_answer(tamp):
    first = page.rows_of({"resnet50 tf32": measured(100.0, pytorch_graph_us=300.0, pytorch_compile_us=150.0), "alexnet tf32": measured(9.0, good=False), "resnet18 tf32": {"failure": "no memory"}}, 1, "2026-01-01")
    assert [page.key_of(row) for row in first] == [("resnet50", "tf32", 1)]
    again = page.rows_of({"resnet50 tf32": measured(80.0, pytorch_graph_us=160.0)}, 1, "2026-01-02")
    (both,) = page.merged(first, again)
    # eager was measured again; torch.compile was not, and is better: it counts, with a star.
    assert both["us"] == 80.0 and page.best_peer(both) == {"who": "torch.compile", "us": 150.0, "run": "2026-01-01"}, both
    assert page.cells(both) == ["80.0", "150.0 * torch.compile", "**1.88**"] and page.merged([both], []) == [both]
    assert page.cells({**both, "us": 300.0})[2] == "0.50" and page.cells({**both, "peers": []}) == ["80.0", "", ""]
    # A slower run of the same peer does not take the place of the faster one.
    (slow,) = page.merged(first, page.rows_of({"resnet50 tf32": measured(80.0, pytorch_compile_us=170.0)}, 1, "2026-01-02"))
    assert page.best_peer(slow) == {"who": "torch.compile", "us": 150.0, "run": "2026-01-01"}, slow
    raises(ValueError, lambda: page.filled("no marks", [both]), "<!-- page:cnns -->")


def test_the_first_page_says_what_its_data_say(tamp):
    text = page.PAGE.read_text()
    assert page.filled(text, json.loads(page.DATA.read_text())["rows"]) == text, "run test/bench/page.py"


def test_the_floor_is_the_edges_and_the_larger_of_arithmetic_and_weights(tamp):
    device = {"l2_bytes": 50e6, "edge_us": 1.25}
    small = report.floor((302e6, 5.5e6), "tf32", 4, device)
    assert near(small["arithmetic_us"], 1) and near(small["weights_us"], 2) and near(small["edges_us"], 5) and near(small["us"], 7), small
    large = report.floor((0, 43e6), "tf32", 1, device)
    assert near(large["weights_us"], 20), "weights that do not fit L2 come from DRAM"
    assert near(report.floor((0, 43e6), "fp32", 1, device)["weights_us"], 40)


def test_peers_of_another_run_fill_what_is_missing_and_are_named(tamp):
    mine, other = results(), results()
    other["facts"] = {**other["facts"], "commit": "0123456789abcdef"}
    assert report.with_peers(mine, other)["peers"] == mine["peers"], "nothing is missing"
    joined = report.with_peers({**mine, "peers": mine["peers"][:1]}, other)
    assert joined["peers"] == mine["peers"], "each peer by itself"
    joined = report.with_peers({**mine, "peers": []}, other)
    assert joined["peers"] and {peer["model"] for peer in joined["peers"]} <= {row["model"] for row in mine["rows"]}
    assert "compile in tf32, eager in tf32: by the run of commit 0123456789ab" in report.versions_line(joined)
    other["facts"] = {**other["facts"], "gpu": {"name": "another"}}
    raises(ValueError, lambda: report.with_peers(mine, other), "peers of another machine")


def test_the_work_of_a_network_counts_groups_and_products(tamp):
    weights = [m.constant("w", np.ones((8, 2, 3, 3))), m.constant("v", np.ones((8 * 16, 10)))]
    nodes = [m.node("Conv", ["x", "w"], ["c"], group=2, pads=[1, 1, 1, 1]), m.node("Flatten", ["c"], ["f"]), m.node("MatMul", ["f", "v"], ["y"])]
    model = m.model(nodes, [m.value("x", [1, 4, 4, 4])], [m.value("y", [1, 10])], weights)
    (tamp.folder / "m.onnx").write_bytes(model.SerializeToString())
    assert measure.work_of(tamp.folder / "m.onnx") == (2.0 * 8 * 16 * 2 * 9 + 2.0 * 128 * 10, 8 * 2 * 9 + 1280)


def python(text):
    return [sys.executable, "-c", text]


def test_a_peer_that_takes_too_long_is_stopped_and_what_it_had_counts(tamp):
    slow = "import json, time; print(json.dumps({'layout': 'contiguous', 'us': 7.0}), flush=True); time.sleep(60)"
    made = bench.peer_row("m", "tf32", "compile", *bench.run_limited(python(slow), 1.5), None)
    assert made["us"] == 7 and made["failure"] == "took longer than 1.5 s", made


def test_a_peer_that_fails_or_is_another_network_has_no_time_but_a_reason(tamp):
    failed = bench.peer_row("m", "tf32", "eager", *bench.run_limited(python("raise ValueError('no such network')"), 20), None)
    assert "us" not in failed and failed["failure"] == "ValueError: no such network", failed
    other = bench.peer_row("m", "tf32", "eager", [{"flops": 3e9}, {"layout": "contiguous", "us": 7.0}], None, 2e9)
    assert "us" not in other and other["failure"].startswith("another network"), other
    layouts = bench.peer_row("m", "tf32", "eager", [{"flops": 2e9}, {"layout": "contiguous", "us": 7.0}, {"layout": "channels_last", "us": 5.0}], None, 2e9)
    assert layouts["us"] == 5 and "failure" not in layouts


def test_the_plot_shows_what_was_timed_on_both_sides(tamp):
    assert [row["model"] for row in plot_bench.rows_to_draw(results())] == ["quick"]
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return  # only the choice of rows is tested
    for name in ("one.svg", "two.svg"):
        plot_bench.draw(results(), tamp.folder / name)
    text = (tamp.folder / "one.svg").read_text()
    assert text == (tamp.folder / "two.svg").read_text() and "<svg" in text


# --- calibration -----------------------------------------------------------------------------------------------------------


def test_a_fit_finds_the_constants_that_made_the_cycles(tamp):
    columns = np.array([[1, steps, bytes_] for steps in (2, 9, 36) for bytes_ in (4096, 25088, 100352)], float)
    assert np.allclose(calibrate.fit(columns, columns @ [3180, 135, 0.0324]), [3180, 135, 0.0324])
    columns[:, 2] = 0  # bodies without boxes
    assert np.allclose(calibrate.fit(columns, columns @ [9000, 1500, 0]), [9000, 1500, 0])


def test_a_fit_has_no_coefficient_below_zero(tamp):
    columns = np.array([[1, 1, 5], [1, 2, 3], [1, 3, 1.5]], float)
    found = calibrate.fit(columns, columns @ [1000, 100, -50])
    assert found.min() >= 0 and found[0] > 0, found


def test_records_are_medians_of_rtasks_and_one_for_each_kind(tamp):
    plan, stamps = two_lanes()
    records = list(calibrate.records_of(plan, traces.tasks_of(plan, stamps), "H200", 2.0))
    assert [(record["steps"], record["input_bytes"], record["cycles"]) for record in records] == [(18, 4096, 9000), (18, 4096, 4000), (18, 4096, 1500)]
    assert calibrate.mean_of_traces([records, [{**record, "cycles": record["cycles"] + 100} for record in records]])[0]["cycles"] == 9050
    (one,) = calibrate.merged(records)
    assert one["cycles"] == 4000 and one["rops"] == 3


def test_records_come_from_what_tamp_compile_writes(tamp):
    weights = [m.constant("w", np.ones((64, 32, 3, 3)))]
    model = m.model([m.node("Relu", ["x"], ["r"]), m.node("Conv", ["r", "w"], ["y"], pads=[1, 1, 1, 1])], [m.value("x", [1, 32, 14, 14])], [m.value("y", [1, 64, 14, 14])], weights)
    (tamp.folder / "conv.onnx").write_bytes(model.SerializeToString())
    tamp("compile", "conv.onnx", "-o", "conv", "--vdevice", "h200", "--precision", "tf32")
    plan = json.loads((tamp.folder / "conv/conv.rprogram.json").read_text())
    rows = list(traces.rows_of(plan))
    stamps = np.array([[START, START, START, START + 3 * US, START + 4 * US]] * len(rows), np.uint64)
    records = list(calibrate.records_of(plan, traces.tasks_of(plan, stamps), "H200", 2.0))
    phases = [phase for rop in plan["rops"] for phase in rop["phases"]]
    assert [(record["body"], record["tasks"], record["cycles"]) for record in records] == [(phase["body"], phase["rtasks"], 6000) for phase in phases]
    product = next(record for record in records if record["body"] in calibrate.STEPS)
    assert product["steps"] > 0 and product["estimated_cycles"] > 0 and product["template"], product


def two_convolutions(tamp):
    """What tamp compile writes for two convolutions by boxes."""
    weights = [m.constant(name, np.ones((64, 64, 3, 3))) for name in ("v", "w")]
    convs = [m.node("Conv", ["x", "v"], ["h"], pads=[1, 1, 1, 1]), m.node("Conv", ["h", "w"], ["y"], pads=[1, 1, 1, 1])]
    (tamp.folder / "convs.onnx").write_bytes(m.model(convs, [m.value("x", [1, 64, 14, 14])], [m.value("y", [1, 64, 14, 14])], weights).SerializeToString())
    tamp("compile", "convs.onnx", "-o", "convs", "--vdevice", "h200", "--precision", "tf32")
    return (tamp.folder / "convs/convs.cu").read_text()


def test_estimates_are_compared_with_what_was_measured(tamp):
    (tamp.folder / "small.onnx").write_bytes(m.relu().SerializeToString())
    rows = [{"model": "small", "precision": "fp32", "batch": batch, "us": us} for batch, us in ((1, 1.0), (4, 1000.0))]
    found = estimates.compared(tamp.program, tamp.folder, [*rows, {"model": "missing", "precision": "fp32", "batch": 1, "us": 1.0}])
    assert [row["batch"] for row, _, _ in found] == [1, 4], found  # a launch alone takes more than 2 us, so that the first is the worse
    assert all(near(off, us / row["us"] - 1) and us > 2 for row, us, off in found)
    assert estimates.table(found).endswith("\n\n2 of 2 estimates are more than 15% off")
    exact = [(rows[0], 1.1, 0.1)]
    assert estimates.table(exact).splitlines()[2:] == ["| small | fp32 | 1 | 1.0 | 1.1 | +10% |", "", "0 of 1 estimates are more than 15% off"]


def test_variants_take_lines_out_of_what_tamp_compile_writes(tamp):
    source = two_convolutions(tamp)
    for variant in what_if.VARIANTS:
        assert (what_if.changed(source, variant) == source) == (variant == "as it is"), variant
    raises(ValueError, lambda: what_if.changed(source.replace("copy_weights", "load_weights"), "weights"), "the generated source has no 'copy_weights")


def test_phases_are_stamped_in_what_tamp_compile_writes(tamp):
    """Each place has one stamp more than the trace's own, between the body's lines, and what is written compiles."""
    source = two_convolutions(tamp)
    for place, piece in rtask_phases.PLACES.items():
        stamped = rtask_phases.stamped(source, place)
        if piece is None:
            assert stamped == source, place
            continue
        text, where = piece
        stamp = "  stamp_started(task);\n"
        assert stamped.count(stamp) == 1 and (text + stamp if where == "behind" else stamp + text) in stamped, place
        assert stamped.replace(stamp, "").replace(rtask_phases.STAMP, "") == source, place
        (tamp.folder / "convs" / "stamped.cu").write_text(stamped)
        subprocess.run(["g++", "-std=c++20", "-w", "-fsyntax-only", "-DTAMP_TRACE", "-DTAMP_CUDA_ON_CPU", "-I", harness.ROOT / "runtime_stub/cuda_on_cpu", "-x", "c++", "convs/stamped.cu"],
                       cwd=tamp.folder, check=True)
        for missing in (text, rtask_phases.BODY):
            raises(ValueError, lambda: rtask_phases.stamped(source.replace(missing, ""), place), f"place '{place}': the generated source has 0 times")
        raises(ValueError, lambda: rtask_phases.stamped(source + text, place), "has 2 times")


RUNNER = """#!{python}
import sys, numpy as np
expected = np.load("{expected}")
for path, name in zip((word for flag, word in zip(sys.argv, sys.argv[1:]) if flag == "--output"), expected.files):
    (expected[name] * {factor}).astype(np.float32).tofile(path)
print("run 7.5 1" + "\\nrun 6.5 1" * 2 + "\\ntrain 5.5")
"""


def verified(tamp, factor, *options):
    """What test/gpu/verify.py says and writes where nvcc makes a program that answers what is expected, times `factor`."""
    programs = tamp.folder / f"nvcc{factor}"
    programs.mkdir()
    runner = RUNNER.format(python=sys.executable, expected=tamp.folder / "models/mnist_mlp.expected.npz", factor=factor)
    (programs / "nvcc").write_text(f"""#!{sys.executable}
import os, sys
if "--version" in sys.argv:
    print("release 1.2")
else:
    path = sys.argv[sys.argv.index("-o") + 1]
    open(path, "w").write({runner!r})
    os.chmod(path, 0o755)
""")
    (programs / "nvidia-smi").write_text("#!/bin/sh\necho a GPU\n")
    for name in ("nvcc", "nvidia-smi"):
        (programs / name).chmod(0o755)
    command = [sys.executable, harness.ROOT / "test/gpu/verify.py", "--tamp", tamp.program, "--commit", "abc", "--vdevice", "h200", "--no-tests", "--folder", tamp.folder / "models", "--out", tamp.folder / "verified.json", *options, "mnist_mlp"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"})
    assert (tamp.folder / "verified.json").exists(), done.stderr
    return done.returncode, done.stdout.splitlines()[-1], json.loads((tamp.folder / "verified.json").read_text())


def test_a_version_is_verified_in_a_given_time(tamp):
    code, last, right = verified(tamp, 1)
    assert (code, last) == (0, "3 passed, 0 failed, 0 not run"), right
    assert [(row["precision"], row["good"], row["error"], row["median_us"], row["equal_runs"]) for row in right["rows"]] == [(p, True, 0, 6.5, 3) for p in ("tf32", "fp16", "bf16")], right
    assert (right["commit"], right["device"], right["nvcc"]) == ("abc", "a GPU", "release 1.2"), right
    code, last, wrong = verified(tamp, 1.5)
    assert (code, last) == (1, "0 passed, 3 failed, 0 not run") and all(near(row["error"], 0.5) for row in wrong["rows"]), wrong
    code, last, late = verified(tamp, 0, "--seconds", 1)
    assert (code, last) == (0, "0 passed, 0 failed, 3 not run") and all(row["not_run"] == "the time was over" for row in late["rows"]), late
    shown = [page.verified(found) for found in (None, right, wrong, late)]
    assert shown[0] == "No run is recorded." and "| mnist_mlp | 6.5 us, 0.0e+00 of 5.0e-03 |" in shown[1] and "3 right, 0 wrong or failed, 0 not run" in shown[1], shown
    assert "**wrong**, 5.0e-01 of 5.0e-03" in shown[2] and "| mnist_mlp | not run | not run | not run |" in shown[3], shown


# --- fidelity --------------------------------------------------------------------------------------------------------------


def test_a_step_in_16_bits_stays_near_itself_in_fp32(tamp):
    (tamp.folder / "step.onnx").write_bytes(decoders.exported("llama").SerializeToString())
    fidelity = [sys.executable, harness.ROOT / "test" / "gpu" / "fidelity.py", "--tamp", tamp.program, "--onnx", "step.onnx", "--positions", "12", "--first", "146", "--device", "cpu", "--out", "out.json"]
    done = subprocess.run(fidelity, cwd=tamp.folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tamp.folder / "out.json").read_text())
    assert list(rows) == ["fp32 on the CPU", "tamp fp16", "tamp bf16"]
    exact, half, brain = rows.values()
    assert exact["kl"] == 0 and exact["same"] == 1
    assert 0 < half["kl"] < 1e-5 and half["kl"] < brain["kl"] < 1e-3, rows
    assert abs(half["perplexity"] / exact["perplexity"] - 1) < 1e-3 and abs(brain["perplexity"] / exact["perplexity"] - 1) < 2e-2, rows
    assert f"| tamp fp16 | {half['kl']:.2e} |" in done.stdout, done.stdout


if __name__ == "__main__":
    sys.exit(harness.main(harness.tests_of(globals())))
