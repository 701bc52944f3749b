#!/usr/bin/env python3
"""Building tamp itself: what CMake says where a library is missing, and the check of the sources' format.

    build_test.py TAMP [WORD...]
"""
import os
import shutil
import subprocess
import sys

import harness

LIBRARIES = {"CLI11": "libcli11-dev", "ONNX": "libonnx-dev", "Catch2": "catch2", "Boost": "libboost-context-dev"}


def configure(tamp, *options):
    command = ["cmake", "-S", harness.ROOT, "-B", tamp.folder / "build", *options]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "CMAKE_CXX_COMPILER_LAUNCHER": ""})


def test_all_missing_libraries_are_named_with_their_packages(tamp):
    done = configure(tamp, *(f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in LIBRARIES))
    said = " ".join(done.stderr.split())  # CMake breaks lines
    assert done.returncode != 0 and f"{', '.join(LIBRARIES)}: not found" in said, done.stderr
    assert f"apt install {' '.join(LIBRARIES.values())}." in said, done.stderr
    (error,) = [line for line in done.stderr.splitlines() if line.startswith("CMake Error")]
    assert "require.cmake" in error, error


def test_the_program_needs_no_library_of_the_tests(tamp):
    done = configure(tamp, "-DTAMP_TESTS=OFF", "-DCMAKE_DISABLE_FIND_PACKAGE_Catch2=ON", "-DCMAKE_DISABLE_FIND_PACKAGE_Boost=ON")
    assert done.returncode == 0, done.stderr


def test_what_is_not_formatted_is_found_and_mended(tamp):
    """In a tree of its own, with one good file and one that is not."""
    for folder in ["compiler", "kernels", "codegen", "runtime_stub", "test", "examples"]:
        (tamp.folder / folder).mkdir()
    shutil.copy(harness.ROOT / ".clang-format", tamp.folder)
    script = shutil.copy(harness.ROOT / "test" / "format.sh", tamp.folder / "test")
    venv = harness.ROOT / "build" / "venv"
    if venv.exists():
        (tamp.folder / "build").mkdir()
        (tamp.folder / "build" / "venv").symlink_to(venv)
    (tamp.folder / "compiler" / "good.cpp").write_text("int good() { return 1; }\n")
    (tamp.folder / "kernels" / "bad.cuh").write_text("int  bad( ) {\nreturn 1;}\n")
    check = lambda *words: subprocess.run(["bash", script, *words], capture_output=True, text=True)
    before, fixed, after = check(), check("--fix"), check()
    lines = before.stdout.splitlines()
    assert before.returncode == 1 and lines[-1] == "1 passed, 1 failed" and lines[0].startswith("kernels/bad.cuh is not formatted"), before
    assert fixed.returncode == 0 and (after.returncode, after.stdout) == (0, "2 passed, 0 failed\n"), (fixed, after)


def test_shell_scripts_parse(tamp):
    scripts = [path for path in harness.ROOT.rglob("*.sh") if "build" not in path.relative_to(harness.ROOT).parts] + [harness.ROOT / ".ci" / "run"]
    assert len(scripts) > 4
    for script in scripts:
        done = subprocess.run(["bash", "-n", script], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    sys.exit(harness.main(harness.tests_of(globals())))
