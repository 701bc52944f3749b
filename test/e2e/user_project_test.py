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


STRICT = ["-Wall", "-Wextra", "-Werror"]


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


def refused(args, says, cwd=None):
    done = subprocess.run([str(arg) for arg in args], cwd=cwd, capture_output=True, text=True)
    assert done.returncode != 0, f"{' '.join(map(str, args))}: is good, expected a failure with {says}"
    for text in says:
        assert text in done.stderr, f"{text!r} is not in {done.stderr[-2000:]}"


def write_project(folder, languages, text):
    (folder / "CMakeLists.txt").write_text(f"cmake_minimum_required(VERSION 3.22)\nproject(user LANGUAGES {languages})\n{text}")


def save(model, path):
    path.write_bytes(model.SerializeToString())
    return path


def nvcc():
    return shutil.which("nvcc") or next((path for path in ["/usr/local/cuda/bin/nvcc"] if os.path.exists(path)), None)


def clang():
    return ["clang++"] if shutil.which("clang++") else []


def test_the_example_project_runs_on_the_stand_in(tamp):
    model = mnist(tamp)
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    expected = [session.run(None, {"input": image})[0].ravel() for image in images()]
    for options in [[], ["--embed-weights"], ["--execution", "graph"]]:
        folder, build = tamp.folder / "mnist_mlp", tamp.folder / "build"
        tamp("compile", model, "-o", folder, "--vdevice", "cpu", *options)
        run("cmake", "-S", PROJECT, "-B", build, f"-DMODEL_FOLDER={folder}", f"-DTAMP_CUDA_ON_CPU={STAND_IN}", "-DCMAKE_BUILD_TYPE=Release",
            f"-DCMAKE_CXX_FLAGS={' '.join(STRICT)}")
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
                       (good[:-1], "shorter"), (good + b"x", "longer"), (good[:16] + bytes(8) + good[24:], "another model"),
                       (good[:5000] + bytes([good[5000] ^ 1]) + good[5001:], "damaged"), (good[:-1] + bytes([good[-1] ^ 128]), "damaged")]:
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


def test_the_api_from_c_and_what_it_refuses(tamp):
    """Ports of rank 9 on the way; in C as well as in C++."""
    shape = [1, 2, 1, 2, 1, 2, 1, 1, 3]
    save(m.model([m.node("Relu", ["x"], ["y"])], [m.value("x", shape)], [m.value("y", shape)]), tamp.folder / "nine.onnx")
    tamp("compile", "nine.onnx", "-o", "nine", "--vdevice", "cpu")
    write_project(tamp.folder, "C CXX", """add_subdirectory(nine)
add_executable(in_c main.c)
target_compile_options(in_c PRIVATE -Wall -Wextra -Werror -pedantic)
target_link_libraries(in_c PRIVATE nine)
add_executable(in_cpp main.cpp)
target_link_libraries(in_cpp PRIVATE nine)
""")
    (tamp.folder / "main.c").write_text("""#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "nine.h"
#define CHECK(condition) do { if (!(condition)) { fprintf(stderr, "line %d: %s; %s\\n", __LINE__, #condition, nine_message(context)); return 1; } } while (0)
int main(void) {
  nine_context* context = NULL;
  const double budgets[] = {0, 1e-3, 1e30, INFINITY}, bad_budgets[] = {-1, -INFINITY, NAN};
  for (int i = 0; i < 4; ++i) {
    tamp_options options = {0};
    options.wait_budget_seconds = budgets[i];
    CHECK(nine_create(&options, &context) == TAMP_OK);
    nine_destroy(context);
  }
  for (int i = 0; i < 3; ++i) {
    tamp_options options = {0};
    options.wait_budget_seconds = bad_budgets[i];
    CHECK(nine_create(&options, &context) == TAMP_INVALID_ARGUMENT && context == NULL && strstr(nine_message(NULL), "wait_budget_seconds"));
  }
  CHECK(nine_create(NULL, &context) == TAMP_OK);
  const tamp_port* port = nine_inputs();
  CHECK(port->rank == 9 && port->shape[1] == 2 && port->shape[8] == 3 && port->bytes == 96);
  float x[24], y[24];
  for (int i = 0; i < 24; ++i) x[i] = (float)(i - 12);
  void *in = NULL, *out = NULL;
  cudaStream_t stream = NULL;
  CHECK(cudaMalloc(&in, 192) == cudaSuccess && cudaMalloc(&out, sizeof y) == cudaSuccess && cudaStreamCreate(&stream) == cudaSuccess);
  CHECK(cudaMemcpy(in, x, sizeof x, cudaMemcpyHostToDevice) == cudaSuccess);
  const void* inputs[] = {in};
  void* outputs[] = {in};
  CHECK(nine_run(context, inputs, outputs, stream) == TAMP_INVALID_ARGUMENT && strstr(nine_message(context), "overlap"));
  outputs[0] = (char*)in + 80;
  CHECK(nine_run(context, inputs, outputs, stream) == TAMP_INVALID_ARGUMENT && strstr(nine_message(context), "'x' and output 'y'"));
  outputs[0] = (char*)in + 96;
  CHECK(nine_run(context, inputs, outputs, stream) == TAMP_OK);
  outputs[0] = out;
  CHECK(nine_run(context, inputs, outputs, stream) == TAMP_OK);
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess && nine_status(context) == TAMP_OK);
  CHECK(cudaMemcpy(y, out, sizeof y, cudaMemcpyDeviceToHost) == cudaSuccess);
  for (int i = 0; i < 24; ++i) CHECK(y[i] == (i < 12 ? 0.0f : x[i]));
  nine_destroy(context);
  return cudaFree(in) == cudaSuccess && cudaFree(out) == cudaSuccess && cudaStreamDestroy(stream) == cudaSuccess ? 0 : 1;
}
""")
    (tamp.folder / "main.cpp").write_text("""#include <cuda_runtime.h>
#include <cstdio>
#include <cstring>
#include "nine.h"
template <class Call>
bool throws(Call call, const char* says) {
  try {
    call();
  } catch (const std::exception& error) {
    if (std::strstr(error.what(), says) != nullptr) return true;
    std::fprintf(stderr, "%s; expected: %s\\n", error.what(), says);
    return false;
  }
  std::fprintf(stderr, "nothing is thrown; expected: %s\\n", says);
  return false;
}
int main() {
  nine::Model model;
  model.check();
  cuda_on_cpu::kill_device(cudaErrorIllegalAddress);  // as if a kernel had died
  const bool died = nine_status(model.get()) == TAMP_CUDA && throws([&] { model.check(); }, cudaGetErrorString(cudaErrorIllegalAddress));
  cuda_on_cpu::kill_device(cudaSuccess);
  cuda_on_cpu::set_devices(0);
  return died && throws([] { nine::Model other; }, "no CUDA device") && nine_create(nullptr, nullptr) == TAMP_INVALID_ARGUMENT ? 0 : 1;
}
""")
    run("cmake", "-S", ".", "-B", "build", f"-DTAMP_CUDA_ON_CPU={STAND_IN}", cwd=tamp.folder)
    run("cmake", "--build", "build", cwd=tamp.folder)
    run("build/in_c", cwd=tamp.folder)
    run("build/in_cpp", cwd=tamp.folder)


def test_weights_without_cmake_lie_beside_the_source_or_the_program(tamp):
    save(m.conv(), tamp.folder / "conv.onnx")
    tamp("compile", "conv.onnx", "-o", "conv", "--vdevice", "cpu")
    (tamp.folder / "main.cpp").write_text('#include <cstdio>\n#include "conv/conv.h"\n'
                                          'int main() try { conv::Model m; } catch (const std::exception& e) { std::fputs(e.what(), stderr); return 1; }\n')
    (tamp.folder / "elsewhere").mkdir()
    run("g++", "-std=c++20", "-DTAMP_CUDA_ON_CPU", "-I", STAND_IN, "-o", "elsewhere/main", "-x", "c++", "main.cpp", "conv/conv.cu", "-x", "none",
        "-lboost_context", cwd=tamp.folder)
    run("elsewhere/main", cwd=tamp.folder)
    refused(["./main"], ["conv/conv.weights: cannot be opened", "elsewhere/conv.weights", "weights_path"], cwd=tamp.folder / "elsewhere")
    shutil.move(tamp.folder / "conv" / "conv.weights", tamp.folder / "elsewhere")
    run("elsewhere/main", cwd=tamp.folder)


def test_a_library_on_top_of_a_model_can_be_installed(tamp):
    """The model's folder lies in the project, as users have it; a consumer finds the package and needs the weights beside its program."""
    project, prefix, consumer = tamp.folder / "project", tamp.folder / "prefix", tamp.folder / "consumer"
    project.mkdir(), consumer.mkdir()
    save(m.conv(), tamp.folder / "conv.onnx")
    tamp("compile", "conv.onnx", "-o", "project/conv", "--vdevice", "cpu")
    write_project(project, "CXX", """add_subdirectory(conv)
add_library(scores STATIC scores.cpp)
target_link_libraries(scores PRIVATE conv)
install(TARGETS scores conv EXPORT scores ARCHIVE DESTINATION lib PUBLIC_HEADER DESTINATION include)
install(EXPORT scores DESTINATION lib/cmake/scores FILE scores-config.cmake)
""")
    (project / "scores.cpp").write_text('#include "conv.h"\nint scores() { conv::Model m; return conv_output_count(); }\n')
    run("cmake", "-S", project, "-B", project / "build", f"-DTAMP_CUDA_ON_CPU={STAND_IN}", f"-DCMAKE_INSTALL_PREFIX={prefix}")
    run("cmake", "--build", project / "build", "--target", "install")
    assert (prefix / "include" / "conv.h").exists()
    write_project(consumer, "CXX", """find_package(Boost REQUIRED COMPONENTS context)
find_package(scores REQUIRED)
add_executable(main main.cpp)
target_link_libraries(main PRIVATE scores)
""")
    (consumer / "main.cpp").write_text("int scores();\nint main() { return scores() == 1 ? 0 : 1; }\n")
    run("cmake", "-S", consumer, "-B", consumer / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", consumer / "build")
    shutil.move(project / "conv" / "conv.weights", consumer / "build")
    run(consumer / "build" / "main")


def test_a_model_may_be_called_like_anything(tamp):
    """Headers of all of them in one C++ file between the system's, one CMake project with all their targets, and one whole source."""
    names = ["string", "cuda_runtime", "test", "all", "exp", "log", "min", "index", "select", "read", "free", "time", "errno", "linux", "constexpr",
             "NULL", "tamp_api", "sem", "timer", "INT_MAX", "Net", "net", "resnet18"]
    text = ""
    headers = []
    for name in names:
        save(m.relu(), tamp.folder / f"{name}.onnx")
        tamp("compile", f"{name}.onnx", "-o", name, "--vdevice", "cpu", "-q")
        headers.append(next((tamp.folder / name).glob("*.h")).name)
        text += f"add_subdirectory({name})\n"
    assert headers[-3:] == ["Net.h", "net.h", "resnet18.h"], headers
    write_project(tamp.folder, "CXX", text)
    run("cmake", "-S", ".", "-B", "build", f"-DTAMP_CUDA_ON_CPU={STAND_IN}", cwd=tamp.folder)
    system = [f"#include <{name}>\n" for name in ["cmath", "cuda_runtime.h", "errno.h", "semaphore.h", "stdlib.h", "string.h", "strings.h", "sys/select.h",
                                                  "time.h", "unistd.h"]]
    own = [f'#include "{header}"\n' for header in headers]
    (tamp.folder / "main.cpp").write_text("".join(own[:10] + system + own[10:]) + "int main() { Net::Model a; net::Model b; resnet18::Model c; }\n")
    compiler = ["g++", "-std=gnu++20", "-fsyntax-only", "-DTAMP_CUDA_ON_CPU", "-I", STAND_IN, *[f"-I{tamp.folder / name}" for name in names]]
    run(*compiler, tamp.folder / "main.cpp")
    run(*compiler, "-x", "c++", next((tamp.folder / "string").glob("*.cu")))
    tamp("compile", "net.onnx", "-o", "out", "--name", "string", code=1, says="m_string")


def test_generated_code_gives_no_warnings(tamp):
    """In the words of several families; the optimising g++ and nvcc see mnist_mlp in the tests of the example project."""
    save(m.conv(x=(1, 32, 8, 8), w=(32, 32, 3, 3), y=(1, 32, 6, 6), bias=(32,)), tamp.folder / "conv.onnx")
    lstm = m.model([m.node("LSTM", ["x", "w", "r"], ["y"], hidden_size=32)], [m.value("x", [4, 1, 32])], [m.value("y", [4, 1, 1, 32])],
                   [m.constant("w", np.full((1, 128, 32), 0.1)), m.constant("r", np.full((1, 128, 32), 0.1))])
    save(lstm, tamp.folder / "lstm.onnx")
    for name, execution in [("conv", "persistent"), ("lstm", "persistent"), ("conv", "graph")]:
        tamp("compile", f"{name}.onnx", "-o", "out", "--name", name, "--execution", execution)
        for compiler in ["g++", *clang()]:
            run(compiler, "-std=c++20", *STRICT, "-fsyntax-only", "-DTAMP_CUDA_ON_CPU", "-I", STAND_IN, "-x", "c++", f"out/{name}.cu", cwd=tamp.folder)
        shutil.rmtree(tamp.folder / "out")


def test_a_model_is_compiled_again_when_what_it_reads_changes(tamp):
    """The external weights alone, and tamp alone; nothing is built, to configure is enough."""
    weights = tamp.folder / "w.bin"
    weights.write_bytes(np.full((6, 4, 3, 3), 0.1, np.float32).tobytes())
    model = m.model([m.node("Conv", ["x", "w"], ["y"])], [m.value("x", [1, 4, 8, 8])], [m.value("y", [1, 6, 6, 6])],
                    [m.external("w", [6, 4, 3, 3], "w.bin")])
    save(model, tamp.folder / "conv.onnx")
    program = tamp.folder / "tamp.sh"
    program.write_text(f'#!/bin/sh\necho called >> "{tamp.folder}/log"\nexec "{tamp.program}" "$@"\n')
    program.chmod(0o755)
    write_project(tamp.folder, "CXX", f"""include({harness.ROOT}/cmake/TampModel.cmake)
tamp_add_model(conv MODEL conv.onnx VDEVICE cpu EXECUTION graph RECORDS none)
add_custom_target(nothing)
""")
    calls = lambda: len((tamp.folder / "log").read_text().splitlines())
    packed = tamp.folder / "build" / "tamp" / "conv" / "conv.weights"
    source = packed.with_suffix(".cu")
    build = lambda: run("cmake", "--build", "build", "--target", "nothing", cwd=tamp.folder)
    run("cmake", "-S", ".", "-B", "build", f"-DTAMP_EXECUTABLE={program}", f"-DTAMP_CUDA_ON_CPU={STAND_IN}", cwd=tamp.folder)
    assert "kernel launches" in source.read_text()
    build()
    assert calls() == 1, "configures again although nothing changed"
    before = packed.read_bytes(), source.read_bytes()
    weights.write_bytes(np.full((6, 4, 3, 3), 0.2, np.float32).tobytes())
    build()
    assert calls() == 2 and packed.read_bytes() != before[0] and source.read_bytes() != before[1], "the old weights are still there"
    os.utime(program)
    build()
    assert calls() == 3, "a new tamp is not noticed"


def test_a_project_that_names_no_vdevice_gets_this_gpus(tamp):
    save(m.relu(), tamp.folder / "relu.onnx")
    write_project(tamp.folder, "CXX", f"""include({harness.ROOT}/cmake/TampModel.cmake)
tamp_add_model(first MODEL relu.onnx)
tamp_add_model(second MODEL relu.onnx VDEVICE auto)
tamp_add_model(third MODEL relu.onnx VDEVICE a100)
""")
    configure = ["cmake", "-S", ".", "-B", "build", f"-DTAMP_EXECUTABLE={tamp.program}", f"-DTAMP_CUDA_ON_CPU={STAND_IN}"]
    said = run(*configure, cwd=tamp.folder, env=harness.with_nvidia_smi(tamp, "echo 'Tesla T4'"))
    for name, vdevice in (("first", "t4"), ("second", "t4"), ("third", "a100")):
        assert f"-- tamp: {name} is compiled for vDevice {vdevice}\n" in said, said


def test_a_source_for_another_architecture_is_an_error_of_nvcc(tamp):
    save(m.relu(), tamp.folder / "relu.onnx")
    tamp("compile", "relu.onnx", "-o", "relu", "--vdevice", "h200")
    for name in ["relu.cu", "relu.h"]:
        assert "-arch=sm_90a" in (tamp.folder / "relu" / name).read_text()
    refused([nvcc(), "-std=c++20", "-c", "relu/relu.cu", "-o", "relu.o"], ["relu was compiled by tamp for sm_90a", "-arch=sm_90a"], cwd=tamp.folder)


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
        run("cmake", "-S", PROJECT, "-B", build, f"-DMODEL_FOLDER={folder}", f"-DCMAKE_CUDA_FLAGS=-Xcompiler={','.join(STRICT)}",
            env={"CUDACXX": nvcc()})
        run("cmake", "--build", build)
        assert (build / "classify").exists()
        shutil.rmtree(build)


if __name__ == "__main__":
    tests = harness.tests_of(globals())
    if nvcc() is None:  # left out, not passed
        print("no nvcc: the example project is not built for a GPU")
        tests.remove(test_the_example_project_builds_for_a_gpu)
        tests.remove(test_a_source_for_another_architecture_is_an_error_of_nvcc)
    if not clang():
        print("no clang++: the generated source is checked for warnings by g++ alone")
    sys.exit(harness.main(tests))
