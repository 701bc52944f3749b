#!/usr/bin/env python3
"""Lengths of run time from the outside: the functions of NAME.h in C and C++, DLPack, buckets, and what the commands say of them.

    lengths_api_test.py TAMP [WORD...]
"""
import json
import sys

import numpy as np
import onnxruntime

import harness
import models as m
import user_project_test as user
from user_project_test import DLPACK, STAND_IN, run, save, write_project

RUN = ["run", "--device", "cpu"]


def rows():
    """y = relu(x w) + b, of any number of rows: element [i, j] of x w is that of `expected` in main.c."""
    weights = np.arange(16).reshape(4, 4) / 8 - 1
    nodes = [m.node("MatMul", ["x", "w"], ["t"]), m.node("Relu", ["t"], ["r"]), m.node("Add", ["r", "b"], ["y"])]
    return m.model(nodes, [m.value("x", ["seq", 4]), m.value("b", ["seq", 4])], [m.value("y", ["seq", 4])], [m.constant("w", weights)])


def attention():
    """Of one head, between products and a normalisation."""
    random = np.random.default_rng(0)
    weights = [m.constant(name, random.standard_normal((16, 16)) / 4) for name in ("wq", "wk", "wv")]
    nodes = [m.node("MatMul", ["x", "wq"], ["q"], "q"), m.node("MatMul", ["x", "wk"], ["k"], "k"), m.node("MatMul", ["x", "wv"], ["v"], "v"),
             m.node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]), m.node("MatMul", ["q", "kt"], ["s"], "s"), m.node("Softmax", ["s"], ["p"], axis=-1),
             m.node("MatMul", ["p", "v"], ["a"], "a"), m.node("Add", ["a", "x"], ["h"]), m.node("LayerNormalization", ["h", "g"], ["y"], axis=-1)]
    return m.model(nodes, [m.value("x", ["rows", "seq", 16])], [m.value("y", ["rows", "seq", 16])], [*weights, m.constant("g", np.ones(16))])


IN_C = """#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "net.h"
#define CHECK(condition) do { if (!(condition)) { fprintf(stderr, "line %d: %s; %s\\n", __LINE__, #condition, net_message(context)); return 1; } } while (0)
static float expected(const float* x, const float* b, int i, int j) {
  float sum = 0;
  for (int k = 0; k < 4; ++k) sum += x[i * 4 + k] * ((float)(k * 4 + j) / 8 - 1);
  return (sum > 0 ? sum : 0) + b[i * 4 + j];
}
int main(void) {
  net_context* context = NULL;
  CHECK(net_create(NULL, &context) == TAMP_OK);
  const tamp_lengths* info = net_lengths_info();
  CHECK(info->length_count == 1 && strcmp(info->lengths[0].name, "seq") == 0 && info->lengths[0].smallest == 1 && info->lengths[0].largest == 16);
  CHECK(info->bucket_count == 3 && info->buckets[0] == 1 && info->buckets[1] == 4 && info->buckets[2] == 16 && info->bucket_length == 0);
  CHECK(info->input_axis_count == 2 && info->output_axis_count == 1 && info->input_axes[1].port == 1 && info->input_axes[1].dim == 0);
  int64_t shape[2];
  net_lengths at = {3};
  CHECK(net_output_shape(0, &at, shape) == TAMP_OK && shape[0] == 3 && shape[1] == 4);
  CHECK(net_input_shape(1, NULL, shape) == TAMP_OK && shape[0] == 16 && net_outputs()[0].shape[0] == 16);
  CHECK(net_output_shape(1, &at, shape) == TAMP_INVALID_ARGUMENT && net_output_shape(-1, &at, shape) == TAMP_INVALID_ARGUMENT);
  const int order[] = {16, 1, 3, 4, 5, 2, 15, 1, 16, 7};
  for (int run = 0; run < 10; ++run) {
    const int n = order[run];
    float *x = NULL, *b = NULL, *y = NULL;  /* of true sizes; behind y is a guard */
    CHECK(cudaMalloc((void**)&x, (size_t)n * 16) == cudaSuccess && cudaMalloc((void**)&b, (size_t)n * 16) == cudaSuccess);
    CHECK(cudaMalloc((void**)&y, 17 * 16) == cudaSuccess);
    for (int i = 0; i < n * 4; ++i) x[i] = (float)((i * 5 + run) % 7) - 2, b[i] = (float)i;
    for (int i = 0; i < 68; ++i) y[i] = -7;
    const void* inputs[] = {x, b};
    void* outputs[] = {y};
    at.seq = n;
    CHECK(net_run_at(context, &at, inputs, outputs, NULL) == TAMP_OK && cudaDeviceSynchronize() == cudaSuccess && net_status(context) == TAMP_OK);
    for (int i = 0; i < 17; ++i) for (int j = 0; j < 4; ++j) CHECK(y[i * 4 + j] == (i < n ? expected(x, b, i, j) : -7));
    CHECK(cudaFree(x) == cudaSuccess && cudaFree(b) == cudaSuccess && cudaFree(y) == cudaSuccess);
  }
  float* all = NULL;
  CHECK(cudaMalloc((void**)&all, 3 * 256) == cudaSuccess);
  memset(all, 0, 3 * 256);
  const void* inputs[] = {all, all};
  void* outputs[] = {all + 16};
  const struct { int64_t seq; const char* says; } refused[] = {{0, "length 'seq' is 0, allowed are 1 to 16"}, {17, "is 17"}, {-5, "is -5"}};
  for (int i = 0; i < 3; ++i) {
    at.seq = refused[i].seq;
    CHECK(net_run_at(context, &at, inputs, outputs, NULL) == TAMP_INVALID_ARGUMENT && strstr(net_message(context), refused[i].says));
    CHECK(net_output_shape(0, &at, shape) == TAMP_INVALID_ARGUMENT);
  }
  at.seq = 4;
  CHECK(net_run_at(context, &at, inputs, outputs, NULL) == TAMP_OK);  /* overlaps are those of true sizes */
  at.seq = 5;
  CHECK(net_run_at(context, &at, inputs, outputs, NULL) == TAMP_INVALID_ARGUMENT && strstr(net_message(context), "overlap"));
  CHECK(net_run_at(context, NULL, inputs, outputs, NULL) == TAMP_INVALID_ARGUMENT && net_run(context, inputs, outputs, NULL) == TAMP_INVALID_ARGUMENT);
  outputs[0] = all + 64;
  CHECK(net_run_at(context, NULL, inputs, outputs, NULL) == TAMP_OK && net_run(context, inputs, outputs, NULL) == TAMP_OK);
  CHECK(net_run_at(NULL, &at, inputs, outputs, NULL) == TAMP_INVALID_ARGUMENT && net_status(NULL) == TAMP_INVALID_ARGUMENT);
  CHECK(cudaDeviceSynchronize() == cudaSuccess && net_status(context) == TAMP_OK && cudaFree(all) == cudaSuccess);
  tamp_options options = {0};
  options.weights_path = "none";
  net_destroy(context);
  CHECK(net_create(&options, &context) == TAMP_WEIGHTS && context == NULL && strstr(net_message(NULL), "none: cannot be opened"));
  net_destroy(NULL);
  return 0;
}
"""

IN_CPP = """#include <cuda_runtime.h>
#include <cstdio>
#include <cstring>
#include "dlpack.h"
#include "net.h"
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
DLManagedTensor tensor(float* data, int64_t* shape) { return {{data, {1, 0}, 2, {2, 32, 1}, shape, nullptr, 0}, nullptr, nullptr}; }
int main() {
  net::Model model;
  alignas(16) float x[64], b[64], y[64], again[64];
  for (int i = 0; i < 64; ++i) x[i] = float(i % 5 - 2), b[i] = 1;
  const std::span<const float> from_x(x), from_b(b);
  const std::span<float> to(y), to_again(again);
  const auto right = [&](int rows) {
    cudaDeviceSynchronize();
    model.check();
    const bool same = std::memcmp(y, again, size_t(rows) * 16) == 0;
    std::memset(again, 0, sizeof again);
    return same;
  };
  model.run({from_x, from_b}, {to});  // at the largest
  model.run({{"b", from_b}, {"x", from_x}}, {{"y", to_again}});
  bool good = right(16);
  model.run({from_x.first(12), from_b.first(12)}, {to_again.first(12)}, {.seq = 3});
  good = good && right(3);
  model.run({{"b", from_b.first(4)}, {"x", from_x.first(4)}}, {{"y", to_again.first(4)}}, net::Lengths{1});
  good = good && right(1);
  const void* inputs[] = {x, b};
  void* outputs[] = {again};
  model.run(inputs, outputs, net::Lengths{9});
  good = good && right(9) && net::Model::output_shape(0, {.seq = 3}) == std::vector<int64_t>{3, 4} && model.lengths().bucket_count == 3;
  const auto refuses = [&](size_t a, size_t c, size_t o, int64_t seq, const char* says) {
    return throws([&] { model.run({from_x.first(a), from_b.first(c)}, {to.first(o)}, {.seq = seq}); }, says);
  };
  good = good && refuses(15, 16, 16, 4, "net: input 'x': 15 elements of f32, wanted 16 of f32[4,4]") && refuses(16, 16, 12, 4, "output 'y': 12 elements");
  good = good && refuses(16, 16, 16, 40, "net: lengths are out of range; allowed are seq 1 to 16");
  good = good && throws([&] { model.run({from_x}, {to}, {.seq = 16}); }, "1 inputs, wanted 2");
  good = good && throws([&] { model.run({{"z", from_x}, {"b", from_b}}, {{"y", to}}, {.seq = 16}); }, "input 'x' is not among those that are given");
  good = good && throws([&] { model.output_shape(1, {.seq = 4}); }, "there is no output 1") && throws([&] { model.output_shape(0, {.seq = 0}); }, "out of range");

  int64_t three[] = {3, 4}, four[] = {4, 4}, wide[] = {3, 5}, many[] = {17, 4}, huge[] = {INT64_MAX, 4};
  DLManagedTensor tx = tensor(x, three), tb = tensor(b, three), tb4 = tensor(b, four), twide = tensor(x, wide), tmany = tensor(x, many), thuge = tensor(x, huge);
  const std::vector<DLManagedTensor*> made = model.run_dlpack({&tx, &tb});
  cudaDeviceSynchronize();
  good = good && made[0]->dl_tensor.shape[0] == 3 && made[0]->dl_tensor.shape[1] == 4 && std::memcmp(made[0]->dl_tensor.data, y, 48) == 0;
  made[0]->deleter(made[0]);
  DLManagedTensor given = tensor(again, four), *into[] = {&given}, *tensors[] = {&tx, &tb};
  good = good && throws([&] { model.run_dlpack(tensors, into); }, "output 'y': shape [4,4], wanted f32[3,4]");
  const auto refuses_tensors = [&](DLManagedTensor* a, DLManagedTensor* c, const char* says) { return throws([&] { model.run_dlpack({a, c}); }, says); };
  good = good && refuses_tensors(&tx, &tb4, "input 'b': dimension 0 is 4, allowed is 3, as 'x' has it (seq 3)");
  good = good && refuses_tensors(&tmany, &tb, "input 'x': dimension 0 is 17, allowed are 1 to 16 (seq)") && refuses_tensors(&thuge, &tb, "dimension 0 is 9223372036854775807");
  good = good && refuses_tensors(&twide, &tb, "input 'x': shape [3,5], wanted f32[3,4]") && refuses_tensors(nullptr, &tb, "input 'x': a null tensor, wanted f32[3,4]");
  net::Model moved(std::move(model));
  good = good && throws([&] { model.run({from_x}, {to}, {.seq = 16}); }, "net: ") && throws([&] { model.run(inputs, outputs, net::Lengths{1}); }, "moved from");
  return good ? 0 : 1;
}
"""


def test_the_api_of_buckets_in_c_and_cpp(tamp):
    save(rows(), tamp.folder / "net.onnx")
    tamp("compile", "net.onnx", "-o", "net", "--vdevice", "cpu", "--dim", "seq=1,4,16", "--embed-weights")
    write_project(tamp.folder, "C CXX", """add_subdirectory(net)
add_executable(in_c main.c)
target_compile_options(in_c PRIVATE -Wall -Wextra -Werror -pedantic)
target_link_libraries(in_c PRIVATE net)
target_compile_options(net PRIVATE -Wall -Wextra -Werror -Wno-unknown-pragmas)
add_executable(in_cpp main.cpp)
target_compile_options(in_cpp PRIVATE -Wall -Wextra -Werror)
target_compile_features(in_cpp PRIVATE cxx_std_20)
target_link_libraries(in_cpp PRIVATE net)
""")
    for name, text in [("dlpack.h", DLPACK), ("main.c", IN_C), ("main.cpp", IN_CPP)]:
        (tamp.folder / name).write_text(text)
    run("cmake", "-S", ".", "-B", "build", f"-DTAMP_CUDA_ON_CPU={STAND_IN}", cwd=tamp.folder)
    run("cmake", "--build", "build", cwd=tamp.folder)
    run("build/in_c", cwd=tamp.folder)
    run("build/in_cpp", cwd=tamp.folder)


def test_a_run_takes_its_lengths_from_at_or_from_files(tamp):
    save(attention(), tamp.folder / "att.onnx")
    x = np.random.default_rng(1).standard_normal((2, 11, 16)).astype(np.float32)
    np.save(tamp.folder / "x.npy", x)
    dims = ["--dim", "seq=2:8,24", "--dim", "rows=1:3"]
    tamp("compile", "att.onnx", "-o", "att", "--vdevice", "cpu", *dims, says="bucket: seq up to 8, estimated ")
    tamp(*RUN, "att", "--input", "x=x.npy", "--output-dir", "out", "--check")
    session = onnxruntime.InferenceSession(str(tamp.folder / "att.onnx"), providers=["CPUExecutionProvider"])
    expected, found = session.run(None, {"x": x})[0], np.load(tamp.folder / "out" / "y.npy")
    assert found.shape == (2, 11, 16) and np.allclose(found, expected, atol=1e-5), np.abs(found - expected).max()
    ran = json.loads(tamp(*RUN, "att", "--at", "seq=8", "--check", "--json", "--repeat", "2").stdout)
    assert ran["lengths"] == {"rows": 3, "seq": 8} and ran["checks"][0]["good"] and ran["outputs"][0]["shape"] == [3, 8, 16], ran
    assert "lengths rows 1, seq 7\n" in tamp(*RUN, "att.onnx", "--vdevice", "cpu", *dims, "--at", "seq=7", "--at", "rows=1", "--check", "--races").stdout
    for at, says in [("seq=25", "--at 'seq' is 25, allowed are 2 to 24 (seq)"), ("sec=3", "the model's lengths are rows, seq; did you mean 'seq'?"),
                     ("seq=x", "'x' is no number"), ("seq", "expected NAME=VALUE")]:
        tamp(*RUN, "att", "--at", at, code=1, says=says)
    tamp(*RUN, "att", "--at", "seq=3", "--input", "x=x.npy", code=1, says="x.npy: dimension 1 of input 'x' is 11, which makes seq 11, but --at 'seq' says 3")
    np.save(tamp.folder / "x.npy", np.zeros((4, 11, 16), np.float32))
    tamp(*RUN, "att", "--input", "x=x.npy", code=1, says="x.npy: dimension 0 of input 'x' is 4, allowed are 1 to 3 (rows)")
    tamp(*RUN, "att.onnx", "--dim", "seq=8", "--dim", "rows=1", "--at", "seq=8", code=1, says="the model has no lengths of run time")


def test_other_weights_for_all_buckets(tamp):
    model = save(attention(), tamp.folder / "att.onnx")
    tamp("compile", model, "-o", "att", "--vdevice", "cpu", "--dim", "seq=1,8,24", "--dim", "rows=1:2")
    before = (tamp.folder / "att" / "att.weights").read_bytes()
    (tamp.folder / "retrained").mkdir()
    save(user.other_weights(model), tamp.folder / "retrained" / "att.onnx")
    tamp("weights", "retrained/att.onnx", "--like", "att", "-o", "att/att.weights")
    after = (tamp.folder / "att" / "att.weights").read_bytes()
    assert len(after) == len(before) and after != before
    for at in ("seq=1", "seq=5", "seq=20"):
        tamp(*RUN, "att", "--at", at, "--check", "--model", "retrained/att.onnx")
    tamp(*RUN, "att", "--check", "--model", "att.onnx", code=1, says="is not the model that att was compiled from")


def test_what_is_said_of_buckets(tamp):
    save(rows(), tamp.folder / "net.onnx")
    said = tamp("compile", "net.onnx", "-o", "net", "--vdevice", "cpu", "--dim", "seq=1,15,16").stderr
    assert "warning: a bucket is not worth its code: seq up to 15, estimated " in said and "code: seq up to 1," not in said, said
    text = tamp("inspect", "net").stdout
    for line in ["input       'x' f32[seq,4]\n", "output      'y' f32[seq,4]\n", "length      'seq' 1 to 16\n", "bucket      seq up to 15: estimated "]:
        assert line in text, text
    shown = json.loads(tamp("inspect", "net", "--json").stdout)
    assert shown["lengths"] == [{"name": "seq", "smallest": 1, "largest": 16}] and [bucket["largest"]["seq"] for bucket in shown["buckets"]] == [1, 15, 16]
    assert shown["inputs"][0]["axes"] == [{"dim": 0, "length": 0, "times": 1, "plus": 0, "over": 1}]
    made = json.loads(tamp("compile", "net.onnx", "-o", "net", "--vdevice", "cpu", "--dim", "seq=1,15,16", "--json").stdout)
    assert [bucket["lengths"][0]["largest"] for bucket in made["buckets"]] == [1, 15, 16] and made["lengths"] == shown["lengths"]
    head = (tamp.folder / "net" / "net.cu").read_text().split("\n\n")[0]
    assert "// A program for seq up to 1, estimated " in head and "// A program for seq up to 16, estimated " in head, head
    first = {path.name: path.read_bytes() for path in (tamp.folder / "net").iterdir()}
    tamp("compile", "net.onnx", "-o", "again", "--vdevice", "cpu", "--dim", "seq=1,15,16")
    assert {path.name: path.read_bytes() for path in (tamp.folder / "again").iterdir()} == first


def test_what_cannot_have_buckets_is_refused(tamp):
    save(attention(), tamp.folder / "att.onnx")
    both = ["--dim", "seq=2,8", "--dim", "rows=1,2"]
    for options, says in [(both, "--dim rows and --dim seq have several buckets each"), (["--dim", "seq=2,8", "--dim", "rows=1", "--save-schedule", "s.json"], "--save-schedule: several buckets"),
                          (["--dim", "seq=8,2", "--dim", "rows=1"], "'8,2' does not ascend"), (["--dim", "seq=9:8", "--dim", "rows=1"], "'9:8' begins behind its end"),
                          (["--dim", "seq=a:8", "--dim", "rows=1"], "is not a positive integer")]:
        tamp("compile", "att.onnx", "-o", "att", "--vdevice", "cpu", *options, code=1, says=says)
    tamp(*RUN, "att.onnx", "--dim", "seq=2:8", "--dim", "rows=1", "--measure", "--policy", "ios", code=1, says="--measure needs fixed sizes")
    tamp("tune", "att.onnx", "-o", "att", "--device", "cpu", "--dim", "seq=2,8", "--dim", "rows=1", code=1, says="several buckets are several programs")


if __name__ == "__main__":
    sys.exit(harness.main(harness.tests_of(globals())))
