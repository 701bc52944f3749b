#!/usr/bin/env python3
"""What test/gpu/sanitize.py makes of the output of compute-sanitizer, without a GPU: logs whose right summary is known, over a source
that tamp generated.

    sanitize_test.py TAMP [WORD...]
"""
import json
import sys

import harness
import models as m

sys.path.insert(0, str(harness.ROOT / "test" / "gpu"))
import sanitize


def compiled(tamp):
    (tamp.folder / "relu.onnx").write_bytes(m.relu().SerializeToString())
    tamp("compile", "relu.onnx", "-o", "relu")
    return tamp.folder / "relu"


def line_of(source, text):
    return next(number for number, line in enumerate(source.splitlines(), 1) if text in line)


def test_lines_of_a_generated_source_are_shown_as_the_file_they_came_from(tamp):
    source = (compiled(tamp) / "relu.cu").read_text()
    places = sanitize.source_places(source, "relu.cu")
    assert places[line_of(source, "RK_INLINE void run_waiter(")][0] == "kernels/vdevice/interpreter.cuh"
    assert places[1] == ("relu.cu", source.splitlines()[0])
    assert places[len(source.splitlines())][0] == "relu.cu"


def log_of(source):
    arrive, copy = line_of(source, "arrive(control.ready[s])"), line_of(source, "reinterpret_cast<uint4*>(slot.args)[w]")
    missing = "\n".join(f"""========= Barrier error detected. Missing wait.
=========     at relu_kernel+0x1b0 in /tmp/x/relu.cu:{arrive}
=========     by thread (288,0,0) in block ({block},0,0)
=========     Address 0x13{block}0 is a shared address
=========""" for block in range(3))
    return f"""========= COMPUTE-SANITIZER
{missing}
========= Error: Race reported between Write access at relu_kernel+0x400 in /tmp/x/relu.cu:{copy}
=========     and Read access at void rk::elementwise<Veu>()+0x80 in /tmp/x/relu.cu:{arrive} [64 hazards]
=========
========= Uninitialized __global__ memory read of size 4 bytes
=========     at relu_kernel+0x20 in /home/u/other.cuh:12
=========     by thread (0,0,0) in block (0,0,0)
=========
========= ERROR SUMMARY: 5 errors
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""


def test_equal_reports_are_counted_as_one_and_lose_addresses_and_threads(tamp):
    source = (compiled(tamp) / "relu.cu").read_text()
    found = sanitize.reports_of(log_of(source), sanitize.source_places(source, "relu.cu"))
    interpreter = "kernels/vdevice/interpreter.cuh"
    shown = {kind: (count, [file for file, _ in where]) for (kind, where), count in found.items()}
    assert shown == {"Barrier error detected. Missing wait.": (3, [interpreter]),
                     "Race reported between Write access, and Read access": (64, [interpreter, interpreter]),
                     "Uninitialized __global__ memory read of size 4 bytes": (1, ["other.cuh:12"])}, shown
    row = {"tool": "synccheck", "model": "relu", "precision": "tf32", "execution": "persistent", "reports": found, "failure": None}
    text = sanitize.table([row, {**row, "model": "other"}])
    assert "| synccheck | relu | tf32 | persistent | 68 | 3 |" in text and "synccheck: 3 distinct" in text and "- 128 x Race reported" in text, text
    assert "arrive(control.ready[s]);`" in text, text


def test_a_log_without_reports_has_none(tamp):
    assert not sanitize.reports_of("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n", [None])


def test_every_input_gets_a_file_of_its_size(tamp):
    plan = json.loads((compiled(tamp) / "relu.rprogram.json").read_text())
    arguments = sanitize.random_inputs(plan, tamp.folder)
    assert [str(word) for word in arguments[::2]] == ["--input", "--output"] and (tamp.folder / "in0.bin").stat().st_size == 16


if __name__ == "__main__":
    sys.exit(harness.main(harness.tests_of(globals())))
