#!/usr/bin/env python3
"""What happens after `tamp compile`: somebody else's CMake project builds the generated folder and calls it. On the stand-in
it is run and compared with ONNX Runtime; where nvcc is, it is built for a GPU as well.

    user_project_test.py TAMP [WORD...]
"""
import ctypes
import os
import shutil
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime

import harness
import models as m
import transformers_test as transformers

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


def other_weights(path):
    """The same network, trained otherwise."""
    model = onnx.load(path)
    random = np.random.default_rng(7)
    for tensor in model.graph.initializer:
        values = onnx.numpy_helper.to_array(tensor)
        tensor.CopyFrom(onnx.numpy_helper.from_array((values + 0.02 * random.standard_normal(values.shape)).astype(np.float32), tensor.name))
    return model


def check_classify(build, model):
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    lines = run(build / "classify").splitlines()
    assert len(lines) == 2
    for line, image in zip(lines, images()):
        got, scores = np.array(line.split(), np.float32), session.run(None, {"input": image})[0].ravel()
        assert np.allclose(got, scores, rtol=1e-4, atol=1e-5), f"{got}, expected {scores}"


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
    retrained = save(other_weights(model), tamp.folder / "retrained.onnx")
    for options in [[], ["--embed-weights"], ["--execution", "graph"]]:
        folder, build = tamp.folder / "mnist_mlp", tamp.folder / "build"
        tamp("compile", model, "-o", folder, "--vdevice", "cpu", *options)
        run("cmake", "-S", PROJECT, "-B", build, f"-DMODEL_FOLDER={folder}", f"-DTAMP_CUDA_ON_CPU={STAND_IN}", "-DCMAKE_BUILD_TYPE=Release",
            f"-DCMAKE_CXX_FLAGS={' '.join(STRICT)}")
        run("cmake", "--build", build)
        if "--embed-weights" in options:
            assert not (folder / "mnist_mlp.weights").exists()
        check_classify(build, model)
        if "--embed-weights" not in options:  # other weights, the same program
            program = (build / "classify").read_bytes()
            tamp("weights", retrained, "--like", folder, "-o", folder / "mnist_mlp.weights")
            run("cmake", "--build", build)
            assert (build / "classify").read_bytes() == program, "is built again"
            check_classify(build, retrained)
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
                       (good[:-1], "shorter"), (good + b"x", "longer"), (good[:16] + bytes(8) + good[24:], "damaged, the checksum"),
                       (good[:24] + bytes(8) + good[32:], f"of structure {'0' * 16}, this one is {good[24:32][::-1].hex()};"),
                       (good[:8] + bytes(8) + good[16:], "damaged, it says that it holds 0 bytes"),
                       (good[:5000] + bytes([good[5000] ^ 1]) + good[5001:], "damaged"), (good[:-1] + bytes([good[-1] ^ 128]), "damaged")]:
        weights.unlink(missing_ok=True)
        if data is not None:
            weights.write_bytes(data)
        done = subprocess.run([build / "classify"], capture_output=True, text=True)
        assert done.returncode == 1 and says in done.stderr and "mnist_mlp.weights" in done.stderr, f"{says}: {done.returncode} {done.stderr}"


def test_the_header_is_c_and_old_cpp_as_well(tamp):
    (tamp.folder / "relu.onnx").write_bytes(m.relu().SerializeToString())
    tamp("compile", "relu.onnx", "-o", "out")
    (tamp.folder / "main.c").write_text('#include "relu.h"\nint main(void) { return relu_create(0, 0) == TAMP_OK; }\n')
    run("gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", "-DTAMP_CUDA_ON_CPU", "-I", STAND_IN, "-I", "out", "main.c", cwd=tamp.folder)
    (tamp.folder / "main.cpp").write_text('#include <cuda_runtime.h>\n#include "relu.h"\nint main() { return relu::Model::input_index("x"); }\n')
    run("g++", "-std=c++11", *STRICT, "-pedantic", "-fsyntax-only", "-DTAMP_CUDA_ON_CPU", "-I", STAND_IN, "-I", "out", "main.cpp", cwd=tamp.folder)


# What dlpack.h declares.
DLPACK = """#include <stdint.h>
typedef struct { int32_t device_type, device_id; } DLDevice;
typedef struct { uint8_t code, bits; uint16_t lanes; } DLDataType;
typedef struct { void* data; DLDevice device; int32_t ndim; DLDataType dtype; int64_t *shape, *strides; uint64_t byte_offset; } DLTensor;
typedef struct DLManagedTensor { DLTensor dl_tensor; void* manager_ctx; void (*deleter)(struct DLManagedTensor*); } DLManagedTensor;
"""


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
target_compile_options(in_cpp PRIVATE -Wall -Wextra -Werror)
target_compile_features(in_cpp PRIVATE cxx_std_20)
target_link_libraries(in_cpp PRIVATE nine)
add_executable(in_cpp14 cpp14.cpp)
target_compile_options(in_cpp14 PRIVATE -Wall -Wextra -Werror)
set_target_properties(in_cpp14 PROPERTIES CXX_STANDARD 14)
target_link_libraries(in_cpp14 PRIVATE nine)
""")
    (tamp.folder / "dlpack.h").write_text(DLPACK)
    (tamp.folder / "cpp14.cpp").write_text("""#include "nine.h"
#if __cplusplus != 201402L
#error "the model's target changes the standard of who links it"
#endif
int main() {
  nine::Model model;
  float *x = nullptr, *y = nullptr;
  if (cudaMalloc(&x, 96) != cudaSuccess || cudaMalloc(&y, 96) != cudaSuccess) return 1;
  x[0] = 7;
  const void* inputs[] = {x};
  void* outputs[] = {y};
  model.run(inputs, outputs);
  cudaDeviceSynchronize();
  model.check();
  return y[0] == 7 && model.input_index(std::string("x")) == 0 && model.output_index("x") == -1 ? 0 : 1;
}
""")
    (tamp.folder / "main.c").write_text("""#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "nine.h"
#include "dlpack.h"
static int refused(nine_context* context, DLManagedTensor changed, const char* says) {
  DLManagedTensor* input = &changed;
  DLManagedTensor* output = NULL;
  const tamp_status status = nine_run_dlpack(context, &input, &output, NULL);
  if (status == TAMP_INVALID_ARGUMENT && output == NULL && strstr(nine_message(context), "input 'x'") && strstr(nine_message(context), says)) return 1;
  fprintf(stderr, "status %d, '%s', expected %s\\n", (int)status, nine_message(context), says);
  return 0;
}
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
  const tamp_info* info = nine_info();
  CHECK(strcmp(info->tamp, "VERSION") == 0 && strcmp(info->name, "nine") == 0 && strcmp(info->vdevice, "cpu") == 0);
  CHECK(strcmp(info->precision, "fp32") == 0 && info->batch == 1 && info->input_count == 1 && info->output_count == 1);
  CHECK(info->inputs == port && info->outputs == nine_outputs() && info->structure != 0);
  CHECK(nine_input_index("x") == 0 && nine_input_index("y") == -1 && nine_input_index(NULL) == -1 && nine_output_index("y") == 0);
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
  int64_t shape[] = {1, 2, 1, 2, 1, 2, 1, 1, 3}, strides[] = {24, 12, 99, 6, 6, 3, 3, 3, 1}, other_strides[] = {24, 3, 3, 6, 6, 12, 3, 3, 1};
  int64_t other_shape[] = {1, 2, 1, 2, 1, 2, 1, 1, 4};
  DLManagedTensor given = {{in, {1, 0}, 9, {2, 32, 1}, shape, strides, 0}, NULL, NULL}, wrong;
  DLManagedTensor *from[] = {&given}, *to[] = {NULL};
  CHECK(nine_run_dlpack(context, from, to, stream) == TAMP_OK && to[0] != NULL && cudaStreamSynchronize(stream) == cudaSuccess);
  const DLTensor* made = &to[0]->dl_tensor;
  CHECK(made->device.device_type == 1 && made->ndim == 9 && made->dtype.code == 2 && made->dtype.bits == 32 && made->dtype.lanes == 1);
  CHECK(memcmp(made->shape, shape, sizeof shape) == 0 && made->strides[8] == 1 && made->strides[5] == 3 && made->strides[1] == 12);
  CHECK(memcmp(made->data, y, sizeof y) == 0);
  memset(made->data, 0, sizeof y);
  given.dl_tensor.strides = NULL, given.dl_tensor.data = (char*)in - 64, given.dl_tensor.byte_offset = 64;
  CHECK(nine_run_dlpack(context, from, to, stream) == TAMP_OK && cudaStreamSynchronize(stream) == cudaSuccess && memcmp(made->data, y, sizeof y) == 0);
  to[0]->dl_tensor.ndim = 8;
  CHECK(nine_run_dlpack(context, from, to, stream) == TAMP_INVALID_ARGUMENT && strstr(nine_message(context), "output 'y': shape [1,2,1,2,1,2,1,1], wanted f32[1,2,"));
  to[0]->deleter(to[0]);
#define REFUSED(change, says) wrong = given, wrong.dl_tensor.change; CHECK(refused(context, wrong, says))
  REFUSED(device.device_type = 2, "lies on CUDA device 0, wanted the CPU");
  REFUSED(dtype.code = 0, "elements of i32, wanted f32[1,2,1,2,1,2,1,1,3]");
  REFUSED(dtype.lanes = 2, "elements of f32 in 2 lanes");
  REFUSED(shape = other_shape, "shape [1,2,1,2,1,2,1,1,4], wanted f32[1,2,1,2,1,2,1,1,3]");
  REFUSED(ndim = -1, "rank -1");
  REFUSED(strides = other_strides, "strides [24,3,3,6,6,12,3,3,1], wanted a dense");
  REFUSED(data = NULL, "null");
  REFUSED(byte_offset = 68, "16-byte");
  from[0] = NULL;
  CHECK(nine_run_dlpack(context, from, to, stream) == TAMP_INVALID_ARGUMENT && strstr(nine_message(context), "input 'x': a null tensor"));
  CHECK(nine_run_dlpack(context, NULL, to, stream) == TAMP_INVALID_ARGUMENT && nine_run_dlpack(NULL, from, to, stream) == TAMP_INVALID_ARGUMENT);
  nine_destroy(context);
  return cudaFree(in) == cudaSuccess && cudaFree(out) == cudaSuccess && cudaStreamDestroy(stream) == cudaSuccess ? 0 : 1;
}
""")
    source = (tamp.folder / "main.c").read_text().replace("VERSION", tamp("--version").stdout.split()[1])
    (tamp.folder / "main.c").write_text(source)
    (tamp.folder / "main.cpp").write_text("""#include <cuda_runtime.h>
#include <cstdio>
#include <cstring>
#include "dlpack.h"
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
static_assert(!std::is_constructible_v<nine::Output, std::span<const float>>);
static_assert(!std::is_copy_constructible_v<nine::Model> && std::is_nothrow_move_constructible_v<nine::Model> && std::is_nothrow_move_assignable_v<nine::Model>);
// Memory of the stand-in is the host's.
bool spans_are_checked_and_models_move() {
  nine::Model model;
  const nine::Model* const first = &model;
  alignas(16) float x[24], y[25];
  alignas(16) int wrong[24];
  for (int i = 0; i < 24; ++i) x[i] = float(i - 12);
  const std::span<const float> in(x);
  const std::span<float> out(y, 24);
  const auto is_right = [&] {
    cudaDeviceSynchronize();
    model.check();
    const bool right = y[0] == 0 && y[23] == 11;
    y[0] = y[23] = -1;
    return right;
  };
  const auto refuses = [&](nine::Input from, nine::Output to, const char* says) { return throws([&] { model.run({from}, {to}); }, says); };
  model.run({in}, {out}, nullptr);
  bool good = is_right();
  model.run({std::as_bytes(in)}, {std::as_writable_bytes(out)});
  good = good && is_right();
  const std::vector<nine::Input> inputs{in};
  model.run(inputs, std::vector<nine::Output>{out});
  good = good && is_right();
  good = good && refuses(in.first(23), out, "nine: input 'x': 23 elements of f32, wanted 24 of f32[1,2,1,2,1,2,1,1,3]");
  good = good && refuses(in, std::span<float>(y), "output 'y': 25 elements of f32, wanted 24");
  good = good && refuses(std::span<int>(wrong), out, "input 'x': 24 elements of i32, wanted 24 of f32");
  good = good && refuses(std::as_bytes(in).first(95), out, "input 'x': 95 bytes, wanted 96");
  good = good && throws([&] { model.run({in, in}, {out}); }, "2 inputs, wanted 1");
  good = good && throws([&] { model.run({in}, {}); }, "0 outputs, wanted 1");
  model.run({{"x", in}}, {{"y", out}});
  good = good && is_right() && model.input_index(std::string_view("x")) == 0;
  good = good && throws([&] { model.run({{"z", in}}, {{"y", out}}); }, "nine: input 'x' is not among those that are given");
  good = good && throws([&] { model.run({{"x", in}, {"x", in}}, {{"y", out}}); }, "2 inputs, wanted 1");
  nine::Model moved(std::move(model));
  good = good && model.get() == nullptr && throws([&] { model.run({in}, {out}); }, "nine: this Model was moved from") && throws([&] { model.check(); }, "moved");
  model = std::move(moved);
  nine::Model other;
  model = std::move(other);  // the one that it had is destroyed
  nine::Model& itself = model;
  model = std::move(itself);
  model.run({in}, {out});
  good = good && is_right() && first == &model && std::strcmp(nine::Model::info().name, "nine") == 0 && model.info().inputs[0].bytes == 96;
  int64_t shape[] = {1, 2, 1, 2, 1, 2, 1, 1, 3};
  DLManagedTensor tensor = {{x, {1, 0}, 9, {2, 32, 1}, shape, nullptr, 0}, nullptr, nullptr};
  const std::vector<DLManagedTensor*> made = model.run_dlpack({&tensor});
  cudaDeviceSynchronize();
  good = good && made.size() == 1 && static_cast<float*>(made[0]->dl_tensor.data)[23] == 11;
  made[0]->deleter(made[0]);
  return good && throws([&] { model.run_dlpack({&tensor, &tensor}); }, "2 inputs, wanted 1") && throws([&] { model.run_dlpack({nullptr}); }, "'x': a null tensor");
}
int main() {
  if (!spans_are_checked_and_models_move()) return 1;
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
    run("build/in_cpp14", cwd=tamp.folder)


class Capsule:
    """A DLManagedTensor as Python's libraries hand it on."""

    def __init__(self, tensor):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        self.capsule = new(tensor, b"dltensor", None)

    def __dlpack__(self, **_):
        return self.capsule

    def __dlpack_device__(self):
        return 1, 0


def test_tensors_of_another_library_go_in_and_out(tamp):
    """numpy's own idea of DLPack, of several element types, in a program built from one source."""
    nodes = [m.node("Sin", ["x"], ["sin"]), m.node("Not", ["b"], ["not"]), m.node("Neg", ["i"], ["neg"]), m.node("Abs", ["h"], ["abs"])]
    types = {"x": (m.FLOAT, np.float32), "b": (m.TensorProto.BOOL, np.bool_), "i": (m.TensorProto.INT64, np.int64), "h": (m.TensorProto.FLOAT16, np.float16)}
    results = {"sin": "x", "not": "b", "neg": "i", "abs": "h"}
    save(m.model(nodes, [m.value(name, [2, 3], of) for name, (of, _) in types.items()], [m.value(name, [2, 3], types[x][0]) for name, x in results.items()]),
         tamp.folder / "several.onnx")
    tamp("compile", "several.onnx", "-o", "several", "--vdevice", "cpu", "-q")
    run("g++", "-std=c++20", "-shared", "-fPIC", "-DTAMP_CUDA_ON_CPU", "-I", STAND_IN, "-o", "several.so", "-x", "c++", tamp.folder / "several" / "several.cu", "-x", "none",
        "-lboost_context", cwd=tamp.folder)
    library = ctypes.CDLL(str(tamp.folder / "several.so"))
    library.several_message.restype = ctypes.c_char_p
    context, address = ctypes.c_void_p(), ctypes.pythonapi.PyCapsule_GetPointer
    address.restype, address.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    assert library.several_create(None, ctypes.byref(context)) == 0, library.several_message(None)

    def call(arrays):
        capsules = [array.__dlpack__() for array in arrays]
        given = (ctypes.c_void_p * 4)(*[address(capsule, b"dltensor") for capsule in capsules])
        made = (ctypes.c_void_p * 4)()
        status = library.several_run_dlpack(context, given, made, None)
        return [np.from_dlpack(Capsule(tensor)) for tensor in made] if status == 0 else library.several_message(context).decode()

    aligned = lambda values, of: np.frombuffer(bytearray(16 * ((values.nbytes + 31) // 16)), np.uint8)  # room for it
    arrays = []
    for name, (_, of) in types.items():
        values = (np.arange(6).reshape(2, 3) % 4 - 1).astype(of)
        room = aligned(values, of)
        begin = -room.ctypes.data % 16
        arrays.append(room[begin:begin + values.nbytes].view(of).reshape(2, 3))
        arrays[-1][:] = values
    x, b, i, h = arrays
    for got, expected in zip(call(arrays), [np.sin(x), ~b, -i, np.abs(h)]):
        assert got.dtype == expected.dtype and got.shape == (2, 3) and np.allclose(got, expected, atol=1e-6), f"{got}, expected {expected}"
    assert call([x, b, i.astype(np.uint64), h]) == "input 'i': elements of u64, wanted i64[2,3]"
    assert call([x, b, i.T.copy().T, h]).startswith("input 'i': strides [1,2], wanted a dense, row-major tensor")
    assert call([x[:1], b, i, h]) == "input 'x': shape [1,3], wanted f32[2,3]"
    library.several_destroy(context)


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


def test_other_weights_from_a_file_or_memory_instead_of_embedded_ones(tamp):
    old = save(m.conv(), tamp.folder / "conv.onnx")
    new = save(other_weights(old), tamp.folder / "new.onnx")
    tamp("compile", "conv.onnx", "-o", "conv", "--vdevice", "cpu", "--embed-weights")
    tamp("weights", "new.onnx", "--like", "conv", "-o", "new.weights")
    tamp("compile", "conv.onnx", "-o", "graph", "--vdevice", "cpu", "--execution", "graph")  # another structure
    (tamp.folder / "main.cpp").write_text("""#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include "conv.h"
void run(const tamp_options& options) try {
  conv::Model model(options);
  alignas(16) float x[4 * 64], y[6 * 36];
  for (int i = 0; i < 4 * 64; ++i) x[i] = float(i % 29) / 29;
  model.run({std::span<const float>(x)}, {std::span<float>(y)});
  cudaDeviceSynchronize();
  model.check();
  for (const float value : y) std::printf("%.6f ", double(value));
  std::printf("\\n");
} catch (const std::exception& error) {
  std::printf("%s\\n", error.what());
}
int main() {
  tamp_options options{};
  run(options);
  options.weights_path = "new.weights";
  run(options);
  options.weights_path = "graph/conv.weights";
  run(options);
  std::ifstream file("new.weights", std::ios::binary);
  std::vector<char> data{std::istreambuf_iterator<char>(file), {}};
  options.weights = data.data();
  options.weights_bytes = data.size();
  run(options);
  --options.weights_bytes;
  run(options);
  ++options.weights_bytes;
  data.back() ^= 1;
  run(options);
  data[24] ^= 1;
  run(options);
}
""")
    run("g++", "-std=c++20", "-O1", *STRICT, "-DTAMP_CUDA_ON_CPU", "-I", STAND_IN, "-I", "conv", "-o", "main", "-x", "c++", "main.cpp", "conv/conv.cu", "-x", "none",
        "-lboost_context", cwd=tamp.folder)
    lines = run("./main", cwd=tamp.folder).splitlines()
    x = (np.arange(256) % 29 / np.float32(29)).astype(np.float32).reshape(1, 4, 8, 8)
    first, second = [onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0].ravel() for path in [old, new]]
    assert not np.allclose(first, second, rtol=1e-3)
    for line, expected in [(lines[0], first), (lines[1], second), (lines[3], second)]:
        assert np.allclose(np.array(line.split(), np.float32), expected, rtol=1e-4, atol=1e-5), line
    here, there = [(tamp.folder / name).read_bytes()[24:32][::-1].hex() for name in ["new.weights", "graph/conv.weights"]]
    assert here != there
    for line, says in [(lines[2], f"conv: graph/conv.weights: weights for programs of structure {there}, this one is {here}; 'tamp weights' writes"),
                       (lines[4], "weights_bytes is "), (lines[5], "the weights in memory: damaged, the checksum"), (lines[6], "the weights in memory: weights for programs of")]:
        assert says in line, f"{says!r} is not in {line!r}"


def test_a_cache_stays_in_place(tamp):
    """A decoder's cache of constant size is the same memory as input and as output, token for token, and nothing else may be."""
    save(transformers.cached_step(places=70, size=32), tamp.folder / "step.onnx")
    tamp("compile", "step.onnx", "-o", "step", "--vdevice", "cpu")
    said = tamp("inspect", "step").stdout
    assert "'keys' f32[1,2,70,32], may stay in place of 'cache_k'" in said and "'y' f32[1,1,64]\n" in said, said
    assert "outputs[1] may be inputs[2]: then it stays in place" in (tamp.folder / "step" / "step.h").read_text()
    (tamp.folder / "main.cpp").write_text("""#include <sys/mman.h>
#include <cstdio>
#include <cstring>
#include "step.h"
constexpr size_t kCache = 2 * 70 * 32;
alignas(16) float x[64], y[64], apart_y[64];
alignas(4096) float keys[kCache + 4];
alignas(16) float values[kCache], apart[4][kCache];
alignas(16) int64_t place[1];
void refused(step::Model& model, float* y_out, float* keys_out) try {
  const void* inputs[] = {x, place, keys, values};
  void* outputs[] = {y_out, keys_out, apart[3]};
  model.run(inputs, outputs);
  std::printf("taken\\n");
} catch (const std::exception& error) {
  std::printf("%s\\n", error.what());
}
int main() {
  step::Model model;
  for (size_t i = 0; i < kCache; ++i) apart[0][i] = keys[i] = float(i % 31) / 31, apart[1][i] = values[i] = float(i % 37) / 37;
  // No store into places 32 to 63, which stay as they are.
  if (mprotect(reinterpret_cast<char*>(keys) + 4096, 4096, PROT_READ) != 0) return 1;
  for (const int at : {5, 6, 69}) {
    place[0] = at;
    for (int i = 0; i < 64; ++i) x[i] = float((i * 7 + at) % 29) / 29;
    const void* inputs[] = {x, place, keys, values};
    void* outputs[] = {y, keys, values};
    model.run(inputs, outputs);
    model.run({{"cache_v", std::span(apart[1])}, {"cache_k", std::span(apart[0])}, {"place", std::span(place)}, {"x", std::span(x)}},
              {{"values", std::span(apart[3])}, {"keys", std::span(apart[2])}, {"y", std::span(apart_y)}});
    cudaDeviceSynchronize();
    model.check();
    std::memcpy(apart[0], apart[2], sizeof apart[0]);
    std::memcpy(apart[1], apart[3], sizeof apart[1]);
    std::printf("%d %d %d %.3f\\n", std::memcmp(y, apart_y, sizeof y), std::memcmp(keys, apart[0], sizeof apart[0]), std::memcmp(values, apart[1], sizeof values), double(y[0]));
  }
  refused(model, y, values);    // of another input
  refused(model, y, keys + 4);  // not from the beginning
  refused(model, x, keys);      // of an input that does not stay
  refused(model, keys, keys);   // twice
}
""")
    run("g++", "-std=c++20", "-O1", *STRICT, "-DTAMP_CUDA_ON_CPU", "-I", STAND_IN, "-I", "step", "-o", "main", "-x", "c++", "main.cpp", "step/step.cu", "-x", "none",
        "-lboost_context", cwd=tamp.folder)
    lines = run("./main", cwd=tamp.folder).splitlines()
    assert [line.split()[:3] for line in lines[:3]] == [["0"] * 3] * 3 and len({line.split()[3] for line in lines[:3]}) == 3, lines
    for line, says in zip(lines[3:], ["input 'cache_v' and output 'keys' overlap", "input 'cache_k' and output 'keys' overlap", "input 'x' and output 'y' overlap", "input 'cache_k' and output 'y' overlap"]):
        assert says in line, lines


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
    assert calls() == 2 and packed.read_bytes() != before[0], "the old weights are still there"
    assert source.read_bytes() == before[1], "the source is built anew for other weights"
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


def test_a_source_compiled_as_cpp17_is_one_clear_error(tamp):
    """nvcc's default is C++17."""
    save(m.relu(), tamp.folder / "relu.onnx")
    tamp("compile", "relu.onnx", "-o", "relu", "--vdevice", "h200")
    for words in ([nvcc(), "-std=c++17", "-arch=sm_90a"], ["g++", "-std=c++17", "-DTAMP_CUDA_ON_CPU", "-I", STAND_IN, "-x", "c++"]):
        done = subprocess.run([*words, "-c", "relu/relu.cu", "-o", "relu.o"], cwd=tamp.folder, capture_output=True, text=True)
        errors = [line for line in done.stderr.splitlines() if " error: " in line]
        assert done.returncode != 0 and "relu.cu is C++20: give the compiler -std=c++20" in errors[0], done.stderr[:2000]
        assert words[0] == "g++" or len(errors) == 1, errors


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
    (tamp.folder / "main.cpp").write_text("""#include <cstring>
#include "first.h"
#include "second.h"
template <class Model>
bool is(const Model& model, const char* name) {
  return std::strcmp(model.info().name, name) == 0;
}
int main() {
  std::vector<first::Model> many(1);
  for (int i = 0; i < 3; ++i) many.emplace_back();  // moves those that are there
  first::Model& a = many.front();
  second::Model b;
  const bool right = is(a, "first") && is(b, "second") && first_info()->structure != second_info()->structure && second_info()->inputs[0].rank == 4;
  return right && first_input_count() == 1 && second_inputs()[0].rank == 4 ? 0 : 1;
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
