#!/usr/bin/env python3
"""examples/quantised on the stand-in.

    quantised_example_test.py TAMP [WORD...]
"""
import pathlib
import re
import sys
import sysconfig

import harness
import python_package
from python_package import run

EXAMPLE = harness.ROOT / "examples" / "quantised"


def python_of(tamp):
    """Of an environment with what the example needs, and what this one has (onnx, onnxruntime)."""
    folder = pathlib.Path(tamp.program).parents[1] / "quantised_venv"
    python = folder / "bin" / "python"
    if not python.exists():
        run(sys.executable, "-m", "venv", folder)
    site = pathlib.Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (site / "tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python_package.pip_install(python, "-r", EXAMPLE / "requirements.txt")
    return python


def test_quantised_digits_are_as_right_as_onnx_runtimes(tamp):
    """The example itself asserts that they are."""
    shown = run(python_of(tamp), EXAMPLE / "digits.py", tamp.folder / "digits", "--tamp", tamp.program)
    print(shown)
    rows = re.findall(r"^(floats|8 bits, \w+.*?|weights of 4 bits) +([\d.]+) % +([\d.]+) %$", shown, re.M)
    assert len(rows) >= 3 and all(float(theirs) > 95 for _, theirs, _ in rows), shown
    assert len(re.findall(r"^digits\w* check +'scores': good", shown, re.M)) == len(rows), shown


if __name__ == "__main__":
    sys.exit(harness.main(harness.tests_of(globals())))
