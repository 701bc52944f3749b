#!/usr/bin/env python3
"""What happens after `tamp compile`: somebody else's CMake project builds the generated folder and calls it. On the stand-in
it is run and compared with ONNX Runtime; where nvcc is, it is built for a GPU as well.

    user_project_test.py TAMP [WORD...]
"""
import os
import shutil
import subprocess
import sys

import numpy as np
import onnxruntime

import harness
import models as m

STAND_IN = harness.ROOT / "runtime_stub" / "cuda_on_cpu"
PROJECT = harness.ROOT / "examples" / "user_project"


def run(*args, cwd=None, env=None):
    done = subprocess.run([str(arg) for arg in args], cwd=cwd, env={**os.environ, **(env or {})}, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(map(str, args))}: exit code {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def mnist(tamp):
    run(sys.executable, harness.ROOT / "examples" / "make_weights.py", harness.ROOT / "examples" / "models" / "mnist_mlp.onnx", "--into", tamp.folder)
    return tamp.folder / "mnist_mlp.onnx"


def images():
    """The two images of classify.cpp."""
    pixels = np.arange(784)
    return [(((pixels * 7 + i * 13) % 29) / np.float32(29)).astype(np.float32).reshape(1, 1, 28, 28) for i in range(2)]


def nvcc():
    return shutil.which("nvcc") or next((path for path in ["/usr/local/cuda/bin/nvcc"] if os.path.exists(path)), None)


def test_the_example_project_runs_on_the_stand_in(tamp):
    model = mnist(tamp)
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    expected = [session.run(None, {"input": image})[0].ravel() for image in images()]
    for options in [[], ["--embed-weights"], ["--execution", "graph"]]:
        folder, build = tamp.folder / "mnist_mlp", tamp.folder / "build"
        tamp("compile", model, "-o", folder, "--vdevice", "cpu", *options)
        run("cmake", "-S", PROJECT, "-B", build, f"-DMODEL_FOLDER={folder}", f"-DTAMP_CUDA_ON_CPU={STAND_IN}", "-DCMAKE_BUILD_TYPE=Release")
        run("cmake", "--build", build)
        if "--embed-weights" in options:
            assert not (folder / "mnist_mlp.weights").exists()
        lines = run(build / "classify").splitlines()
        assert len(lines) == 2
        for line, scores in zip(lines, expected):
            got = np.array(line.split(), np.float32)
            assert np.allclose(got, scores, rtol=1e-4, atol=1e-5), f"{got}, expected {scores}"
        shutil.rmtree(folder)
        shutil.rmtree(build)


def test_missing_and_foreign_weights_are_errors_not_crashes(tamp):
    model = mnist(tamp)
    folder, build = tamp.folder / "mnist_mlp", tamp.folder / "build"
    tamp("compile", model, "-o", folder, "--vdevice", "cpu")
    run("cmake", "-S", PROJECT, "-B", build, f"-DMODEL_FOLDER={folder}", f"-DTAMP_CUDA_ON_CPU={STAND_IN}")
    run("cmake", "--build", build)
    weights = folder / "mnist_mlp.weights"
    good = weights.read_bytes()
    for data, says in [(None, "cannot be opened"), (b"", "not a tamp weights file"), (b"x" * len(good), "not a tamp weights file"),
                       (good[:-1], "shorter"), (good[:16] + bytes(8) + good[24:], "another model")]:
        weights.unlink(missing_ok=True)
        if data is not None:
            weights.write_bytes(data)
        done = subprocess.run([build / "classify"], capture_output=True, text=True)
        assert done.returncode == 1 and says in done.stderr and "mnist_mlp.weights" in done.stderr, f"{says}: {done.returncode} {done.stderr}"


def test_the_header_is_c_as_well(tamp):
    (tamp.folder / "relu.onnx").write_bytes(m.relu().SerializeToString())
    tamp("compile", "relu.onnx", "-o", "out")
    (tamp.folder / "main.c").write_text('#include "relu.h"\nint main(void) { return relu_create(0, 0) == TAMP_OK; }\n')
    run("gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", "-DTAMP_CUDA_ON_CPU", "-I", STAND_IN, "-I", "out", "main.c", cwd=tamp.folder)


def test_two_models_link_into_one_program(tamp):
    """Also through tamp_add_model, which names them itself."""
    (tamp.folder / "relu.onnx").write_bytes(m.relu().SerializeToString())
    (tamp.folder / "conv.onnx").write_bytes(m.conv().SerializeToString())
    (tamp.folder / "CMakeLists.txt").write_text(f"""cmake_minimum_required(VERSION 3.22)
project(two LANGUAGES CXX)
include({harness.ROOT}/cmake/TampModel.cmake)
tamp_add_model(first MODEL relu.onnx VDEVICE cpu)
tamp_add_model(second MODEL conv.onnx VDEVICE cpu PRECISION fp32 POLICY sequential EMBED_WEIGHTS)
add_executable(two main.cpp)
target_link_libraries(two PRIVATE first second)
""")
    (tamp.folder / "main.cpp").write_text("""#include "first.h"
#include "second.h"
int main() {
  first::Model a;
  second::Model b;
  return first_input_count() == 1 && second_inputs()[0].rank == 4 ? 0 : 1;
}
""")
    build = tamp.folder / "build"
    configure = ["cmake", "-S", tamp.folder, "-B", build, f"-DTAMP_EXECUTABLE={tamp.program}", f"-DTAMP_CUDA_ON_CPU={STAND_IN}"]
    run(*configure)
    run("cmake", "--build", build)
    run(build / "two")
    stamps = {path: path.stat().st_mtime_ns for path in (build / "tamp").glob("*/*.cu")}
    assert len(stamps) == 2
    run(*configure)
    assert stamps == {path: path.stat().st_mtime_ns for path in stamps}, "unchanged files were touched"


def test_the_example_project_builds_for_a_gpu(tamp):
    model = mnist(tamp)
    folder, build = tamp.folder / "mnist_mlp", tamp.folder / "build"
    for execution in ["persistent", "graph"]:
        tamp("compile", model, "-o", folder, "--vdevice", "h200", "--execution", execution)
        run("cmake", "-S", PROJECT, "-B", build, f"-DMODEL_FOLDER={folder}", env={"CUDACXX": nvcc()})
        run("cmake", "--build", build)
        assert (build / "classify").exists()
        shutil.rmtree(build)


if __name__ == "__main__":
    tests = harness.tests_of(globals())
    if nvcc() is None:  # left out, not passed
        print("no nvcc: the example project is not built for a GPU")
        tests.remove(test_the_example_project_builds_for_a_gpu)
    sys.exit(harness.main(tests))
