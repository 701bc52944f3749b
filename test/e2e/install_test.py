#!/usr/bin/env python3
"""`cmake --install` of the build folder that TAMP lies in, and CPack's .deb: the prefix is moved, then a foreign project finds the package, builds two
models with the stand-in and is compared with ONNX Runtime.

    install_test.py TAMP [WORD...]
"""
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import onnxruntime

import harness
import models as m

PROGRAM = pathlib.Path(os.path.abspath(sys.argv[1]))
BUILD = PROGRAM.parents[1]
COMMANDS = ["compile", "run", "compare", "tune", "weights", "inspect", "ops", "devices"]


def run(*args, cwd=None, umask=-1):
    done = subprocess.run([str(arg) for arg in args], cwd=cwd, umask=umask, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(map(str, args))}: exit code {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def refused(args, says, cwd):
    done = subprocess.run([str(arg) for arg in args], cwd=cwd, capture_output=True, text=True)
    assert done.returncode != 0, f"{' '.join(map(str, args))}: is good, expected a failure with {says}"
    words = " ".join(done.stderr.split())  # CMake breaks lines
    for text in says:
        assert text in words, f"{text!r} is not in {done.stderr[-2000:]}"


def install(folder):
    """Where an installation lies now, and the prefix that it was made for."""
    first, moved = folder / "first_prefix", folder / "a place for it"
    run("cmake", "--install", BUILD, "--prefix", first)
    first.rename(moved)
    return moved, first


def nvcc():
    return shutil.which("nvcc") or next((path for path in ["/usr/local/cuda/bin/nvcc"] if os.path.exists(path)), None)


def files_below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def configure(prefix, *options):
    return ["cmake", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={prefix}", "-DTAMP_CUDA_ON_CPU=ON", *options]


def write_project(folder, languages, text):
    (folder / "CMakeLists.txt").write_text(f"cmake_minimum_required(VERSION 3.22)\nproject(user LANGUAGES {languages})\n{text}")


def pattern(shape):
    values = np.arange(np.prod(shape)) * 7 % 29 / np.float32(29)
    return values.astype(np.float32).reshape(shape)


def reference(model, x):
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x})[0].ravel()


def test_all_that_is_needed_is_installed_and_nothing_else(tamp):
    prefix, _ = install(tamp.folder)
    stand_in = {path.name for path in (harness.ROOT / "runtime_stub" / "cuda_on_cpu").iterdir()}
    vdevices = {path.name for path in (harness.ROOT / "compiler" / "ir" / "vdevices").glob("*.json")}
    assert files_below(prefix) == sorted(
        ["bin/tamp", *[f"lib/cmake/tamp/{name}.cmake" for name in ["TampModel", "tampConfig", "tampConfigVersion"]],
         "share/bash-completion/completions/tamp", "share/doc/tamp/LICENSE", "share/doc/tamp/README.md", "share/man/man1/tamp.1",
         *[f"share/tamp/cuda_on_cpu/{name}" for name in stand_in], *[f"share/tamp/vdevices/{name}" for name in vdevices]])
    assert stand_in and vdevices
    assert run(prefix / "bin" / "tamp", "--version") == tamp("--version").stdout


def test_no_file_knows_where_it_was_built_or_installed(tamp):
    prefix, first = install(tamp.folder)
    for name in files_below(prefix):
        data = (prefix / name).read_bytes()
        for place in [harness.ROOT, BUILD, first, prefix]:
            assert f"{place}/".encode() not in data and f"{place}\n".encode() not in data, f"{name} contains {place}"
    for line in run("readelf", "-d", prefix / "bin" / "tamp").splitlines():
        assert "RPATH" not in line and "RUNPATH" not in line, line


def test_the_man_page_and_the_completion_know_every_option(tamp):
    prefix, _ = install(tamp.folder)
    page = (prefix / "share/man/man1/tamp.1").read_text()
    assert page.startswith('.TH TAMP 1 "" "tamp ')
    plain = page.replace("\\-", "-")
    completion = prefix / "share/bash-completion/completions/tamp"

    def completed(*words):
        script = f'. "{completion}"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tamp; printf "%s\\n" "${{COMPREPLY[@]}}"'
        return run("bash", "-c", script, "bash", prefix / "bin" / "tamp", *words).split()

    assert completed("") == [*COMMANDS, "help", "version", "--help", "--version"]
    assert completed("co") == ["compile", "compare"]
    for command in COMMANDS:
        text = tamp(command, "--help").stdout
        options = [word for line in text.splitlines() if line.startswith("  -") for word in line.split()[0].split(",") if word.startswith("--")]
        assert len(options) >= 3 and completed(command, "-") == options, f"{command}: {options}"
        assert f'.SH "TAMP {command.upper()}"' in plain
        for line in text.splitlines():
            assert line.startswith("Usage: ") or line.endswith(":") or line.split("  ")[-1].strip() in plain, f"{command}: {line!r} is not in the page"
    help_text = tamp("run", "--help").stdout
    for option in ["--precision", "--activations", "--execution", "--policy", "--device"]:
        values = completed("run", option, "")
        assert len(values) > 1 and all(value in help_text for value in values), f"{option}: {values}"
    assert completed("help", "co") == ["compile", "compare"]
    assert {"auto", "h200", "cpu"} <= set(completed("compile", "model.onnx", "--vdevice", ""))
    assert completed("compile", "mod") == []  # left to the shell: names of files


def test_two_models_in_a_foreign_project_from_c_and_from_cpp(tamp):
    """An MLP in C++ and a convolution with two batches in C, in one program; the C++ example of the repository beside it."""
    prefix, _ = install(tamp.folder)
    project = tamp.folder / "project"
    project.mkdir()
    run(sys.executable, harness.ROOT / "examples" / "make_weights.py", harness.ROOT / "examples" / "models" / "mnist_mlp.onnx", "--into", project)
    conv = project / "conv.onnx"
    weights = np.linspace(-1, 1, 6 * 4 * 9).reshape(6, 4, 3, 3)
    conv.write_bytes(m.model([m.node("Conv", ["x", "w"], ["y"])], [m.value("x", ["N", 4, 8, 8])], [m.value("y", ["N", 6, 6, 6])],
                             [m.constant("w", weights)]).SerializeToString())
    shutil.copy(harness.ROOT / "examples" / "user_project" / "classify.cpp", project)
    write_project(project, "C CXX", """find_package(tamp 0.1 CONFIG REQUIRED)
tamp_add_model(mnist_mlp MODEL mnist_mlp.onnx VDEVICE cpu)
tamp_add_model(conv MODEL conv.onnx BATCH 1,3 VDEVICE h200 PRECISION fp32 EMBED_WEIGHTS)
add_executable(classify classify.cpp)
target_link_libraries(classify PRIVATE mnist_mlp)
add_executable(both main.cpp in_c.c)
target_link_libraries(both PRIVATE mnist_mlp conv)
""")
    (project / "in_c.c").write_text("""#include <cuda_runtime.h>
#include <stdio.h>
#include "conv_b1.h"
#include "conv_b3.h"
#define RUN(MODEL)                                                                                  \\
  do {                                                                                              \\
    MODEL##_context* context = NULL;                                                                \\
    const void* inputs[] = {in};                                                                    \\
    void* outputs[] = {out};                                                                        \\
    if (MODEL##_create(NULL, &context) != TAMP_OK || MODEL##_run(context, inputs, outputs, NULL) != TAMP_OK || \\
        cudaDeviceSynchronize() != cudaSuccess || MODEL##_status(context) != TAMP_OK) {             \\
      fprintf(stderr, "%s\\n", MODEL##_message(context));                                            \\
      return 1;                                                                                     \\
    }                                                                                               \\
    cudaMemcpy(y, out, MODEL##_outputs()[0].bytes, cudaMemcpyDeviceToHost);                         \\
    for (size_t i = 0; i < MODEL##_outputs()[0].bytes / 4; ++i) printf("%.6f ", (double)y[i]);      \\
    printf("\\n");                                                                                   \\
    MODEL##_destroy(context);                                                                       \\
  } while (0)
int convolve(void) {
  float x[3 * 4 * 64], y[3 * 6 * 36];
  void *in = NULL, *out = NULL;
  for (int i = 0; i < 3 * 4 * 64; ++i) x[i] = (float)(i * 7 % 29) / 29.0f;
  if (cudaMalloc(&in, sizeof x) != cudaSuccess || cudaMalloc(&out, sizeof y) != cudaSuccess) return 1;
  cudaMemcpy(in, x, sizeof x, cudaMemcpyHostToDevice);
  RUN(conv_b1);
  RUN(conv_b3);
  return cudaFree(in) == cudaSuccess && cudaFree(out) == cudaSuccess ? 0 : 1;
}
""")
    (project / "main.cpp").write_text("""#include <cuda_runtime.h>
#include <cstdio>
#include <exception>
#include "mnist_mlp.h"
extern "C" int convolve(void);
int main() try {
  mnist_mlp::Model model;
  float x[784], y[10];
  for (int i = 0; i < 784; ++i) x[i] = float(i * 7 % 29) / 29.0f;
  void *in = nullptr, *out = nullptr;
  if (cudaMalloc(&in, sizeof x) != cudaSuccess || cudaMalloc(&out, sizeof y) != cudaSuccess) return 1;
  cudaMemcpy(in, x, sizeof x, cudaMemcpyHostToDevice);
  const void* inputs[] = {in};
  void* outputs[] = {out};
  model.run(inputs, outputs, nullptr);
  cudaDeviceSynchronize();
  model.check();
  cudaMemcpy(y, out, sizeof y, cudaMemcpyDeviceToHost);
  for (const float score : y) std::printf("%.6f ", double(score));
  std::printf("\\n");
  std::fflush(stdout);
  return convolve();
} catch (const std::exception& error) {
  std::fputs(error.what(), stderr);
  return 1;
}
""")
    run(*configure(prefix), cwd=project)
    run("cmake", "--build", "build", "-j2", cwd=project)
    scores = reference(project / "mnist_mlp.onnx", pattern((1, 1, 28, 28)))
    expected = [scores, reference(conv, pattern((1, 4, 8, 8))), reference(conv, pattern((3, 4, 8, 8)))]
    lines = run(project / "build" / "both").splitlines()
    assert len(lines) == 3
    for line, values in zip(lines, expected):
        got = np.array(line.split(), np.float32)
        assert got.shape == values.shape and np.allclose(got, values, rtol=1e-4, atol=1e-5), f"{got}, expected {values}"
    first_image = np.array(run(project / "build" / "classify").splitlines()[0].split(), np.float32)
    assert np.allclose(first_image, scores, rtol=1e-4, atol=1e-5), f"{first_image}, expected {scores}"


def test_a_folder_of_tamp_compile_builds_with_the_installed_stand_in(tamp):
    """The project adds the folder itself, and has a vDevice of its own that began as an installed one."""
    prefix, _ = install(tamp.folder)
    (tamp.folder / "relu.onnx").write_bytes(m.relu().SerializeToString())
    shutil.copy(prefix / "share" / "tamp" / "vdevices" / "cpu.json", tamp.folder / "mine.json")
    run(prefix / "bin" / "tamp", "compile", "relu.onnx", "-o", "relu", "--vdevice", "mine.json", cwd=tamp.folder)
    write_project(tamp.folder, "CXX", """find_package(tamp CONFIG REQUIRED)
add_subdirectory(relu)
tamp_add_model(second MODEL relu.onnx VDEVICE mine.json BATCH 2)
add_executable(main main.cpp)
target_link_libraries(main PRIVATE relu second)
""")
    (tamp.folder / "main.cpp").write_text('#include "relu.h"\n#include "second.h"\n'
                                          "int main() { relu::Model a; second::Model b; return second_inputs()[0].shape[0] == 2 ? 0 : 1; }\n")
    run(*configure(prefix), cwd=tamp.folder)
    run("cmake", "--build", "build", "-j2", cwd=tamp.folder)
    run(tamp.folder / "build" / "main")


def c_project(tamp):
    (tamp.folder / "relu.onnx").write_bytes(m.relu().SerializeToString())
    write_project(tamp.folder, "C", """find_package(tamp CONFIG REQUIRED)
tamp_add_model(relu MODEL relu.onnx VDEVICE h200)
add_executable(main main.c)
target_link_libraries(main PRIVATE relu)
""")
    (tamp.folder / "main.c").write_text('#include "relu.h"\nint main(int argc, char** argv) {\n  relu_context* context;\n  (void)argv;\n'
                                        "  return argc > 1 ? relu_create(0, &context) != TAMP_OK : relu_info()->input_count != 1 || relu_info()->vdevice[0] != 'h';\n}\n")


def test_a_project_that_has_only_c(tamp):
    prefix, _ = install(tamp.folder)
    c_project(tamp)
    run(*configure(prefix), cwd=tamp.folder)
    run("cmake", "--build", "build", cwd=tamp.folder)
    run(tamp.folder / "build" / "main", "create")


def test_a_project_for_a_gpu_that_has_only_c(tamp):
    prefix, _ = install(tamp.folder)
    c_project(tamp)
    run(*configure(prefix, "-DTAMP_CUDA_ON_CPU=OFF", f"-DCMAKE_CUDA_COMPILER={nvcc()}"), cwd=tamp.folder)
    run("cmake", "--build", "build", cwd=tamp.folder)
    run(tamp.folder / "build" / "main")  # without a GPU nothing can be created


def test_what_find_package_refuses(tamp):
    prefix, _ = install(tamp.folder)
    version = run(prefix / "bin" / "tamp", "--version").split()[1]
    for asked, good in [(version, True), (".".join(version.split(".")[:2]), True), ("0.0", False), ("0.99", False), ("9.0", False)]:
        write_project(tamp.folder, "CXX", f"find_package(tamp {asked} CONFIG REQUIRED)\n")
        shutil.rmtree(tamp.folder / "build", ignore_errors=True)
        if good:
            run(*configure(prefix), cwd=tamp.folder)
        else:
            refused(configure(prefix), [f'compatible with requested version "{asked}"', f"version: {version}"], tamp.folder)
    write_project(tamp.folder, "CXX", "find_package(tamp CONFIG REQUIRED)\n")
    refused(configure(prefix, "-DCMAKE_DISABLE_FIND_PACKAGE_Boost=ON"), ["Boost.Context", "apt install libboost-context-dev"], tamp.folder)
    run(*configure(prefix, "-DCMAKE_DISABLE_FIND_PACKAGE_Boost=ON", "-DTAMP_CUDA_ON_CPU=OFF"), cwd=tamp.folder)


def test_the_deb_has_the_files_of_the_installation(tamp):
    prefix, _ = install(tamp.folder)
    run("cpack", "--config", BUILD / "CPackConfig.cmake", "-G", "DEB", "-B", tamp.folder / "package", umask=0o077)
    packages = list((tamp.folder / "package").glob("*.deb"))
    assert len(packages) == 1, packages
    modes = {line.split()[0] for line in run("dpkg-deb", "-c", packages[0]).splitlines()}
    assert modes == {"drwxr-xr-x", "-rw-r--r--", "-rwxr-xr-x"}, modes
    run("dpkg-deb", "-x", packages[0], tamp.folder / "unpacked")
    assert files_below(tamp.folder / "unpacked") == [f"usr/{name}" for name in files_below(prefix)]
    unpacked = tamp.folder / "unpacked" / "usr"
    for name in files_below(prefix):
        if name != "bin/tamp":  # without symbols there
            assert (unpacked / name).read_bytes() == (prefix / name).read_bytes(), name
    assert str(harness.ROOT).encode() not in (unpacked / "bin" / "tamp").read_bytes()
    assert run(unpacked / "bin" / "tamp", "--version") == tamp("--version").stdout
    depends = run("dpkg-deb", "-f", packages[0], "Depends")
    for library in ["libc6 (>=", "libstdc++6 (>=", "libprotobuf", "libonnx"]:
        assert library in depends, depends
    assert "boost" not in depends and "libboost-context-dev" in run("dpkg-deb", "-f", packages[0], "Recommends")
    write_project(tamp.folder, "CXX", "find_package(tamp CONFIG REQUIRED)\n")
    run(*configure(unpacked), cwd=tamp.folder)


if __name__ == "__main__":
    tests = harness.tests_of(globals())
    if nvcc() is None:  # left out, not passed
        print("no nvcc: nothing is built for a GPU")
        tests.remove(test_a_project_for_a_gpu_that_has_only_c)
    sys.exit(harness.main(tests))
