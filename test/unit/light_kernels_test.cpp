// The bodies of the elementwise, pool, reduce, direct and depthwise convolution and matmul families against the reference:
// on the CPU, over the stand-in, at sizes that fit no tile. See test/kernels/light_bench.h for what else is checked.
#include <cstdlib>

#include "kernels/conv/depthwise.h"
#include "kernels/conv/direct.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/indexed_copy.h"
#include "kernels/gemm/matmul_direct.h"
#include "kernels/pool/pool.h"
#include "kernels/reduce/lrn.h"
#include "kernels/reduce/reduce.h"
#include "kernels/reduce/softmax.h"
#include "test/kernels/light_bench.h"
#include "test/support/catch.h"

namespace tamp::test {
namespace {

void expect_no_problems(const std::vector<Case>& cases, const std::vector<kernels::Family>& families, const std::string& name) {
  const std::filesystem::path root = std::filesystem::absolute(__FILE__).parent_path().parent_path().parent_path();
  const char* const kept = std::getenv("TAMP_KEEP");  // a folder, to look at the generated files
  const std::filesystem::path folder =
      (kept ? std::filesystem::path(kept) : std::filesystem::temp_directory_path()) / ("tamp_light_" + name);
  CHECK(join(run_cases(cases, families, root, folder), "\n") == "");
  if (!kept) std::filesystem::remove_all(folder);
}

// --- elementwise --------------------------------------------------------------------------------------------------------

// One step on inputs [0, arity).
Elementwise single(ElementwiseOp op, float a = 0, float b = 0) {
  ElementwiseStep step{op, {}, a, b};
  for (int i = 0; i < arity_of(op); ++i) step.operands.push_back(i);
  return Elementwise{{step}};
}

// Every function at values where functions differ: zeros, halves, large, infinite, NaN. An odd number of elements is for the body
// that reads its chain, whole groups for the one that is compiled with it, if the function is small enough.
Case function_case(ElementwiseOp op, float a, float b, int64_t elements) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> special = {0, -0.0F, 0.5F, -0.5F, 1.5F, 2.5F, -2.5F, 3, -3, 7.25F, -7.25F, 30, -30, inf, -inf, nan};
  CaseMaker maker(std::string("function ") + name_of(op) + " of " + std::to_string(elements));
  std::vector<TensorId> inputs;
  for (int i = 0; i < arity_of(op); ++i) {
    std::vector<float> values;
    for (size_t e = 0; e < static_cast<size_t>(elements); ++e)
      values.push_back(special[i == 0 ? e % 16 : i == 1 ? e / 16 : (e + e / 16) % 16]);
    inputs.push_back(maker.input({elements}, Lay::rows, values));
  }
  return maker.finish(single(op, a, b), inputs, maker.output({elements}));
}

std::vector<Case> function_cases() {
  std::vector<Case> cases;
  for (int i = 0; i <= static_cast<int>(ElementwiseOp::where); ++i) {
    const auto op = static_cast<ElementwiseOp>(i);
    const bool logical = op >= ElementwiseOp::logical_and && op <= ElementwiseOp::where;
    const bool clips = op == ElementwiseOp::clip;
    for (const int64_t elements : {256, 255}) {
      if (!logical) cases.push_back(function_case(op, clips ? -1.0F : 0.3F, clips ? 2.0F : 0.4F, elements));
    }
  }
  return cases;
}

Case binary_case(const std::string& name, const Shape& a, Lay lay_a, const Shape& b, Lay lay_b, const Shape& out, Lay lay_out) {
  CaseMaker maker(name);
  const TensorId x = maker.input(a, lay_a), y = maker.input(b, lay_b);
  return maker.finish(single(ElementwiseOp::sub), {x, y}, maker.output(out, lay_out));
}

Case unary_case(const std::string& name, OpAttrs attrs, const Shape& in, Lay lay_in, const Shape& out, Lay lay_out) {
  CaseMaker maker(name);
  const TensorId x = maker.input(in, lay_in);
  return maker.finish(std::move(attrs), {x}, maker.output(out, lay_out));
}

// A chain that keeps many temporaries and reads more inputs than are prefetched.
Case long_chain() {
  CaseMaker maker("long chain");
  std::vector<TensorId> inputs;
  for (int i = 0; i < 6; ++i) inputs.push_back(maker.input({3, 5, 7}));
  inputs.push_back(maker.constant({1}, Lay::rows, {0.25F}));
  inputs.push_back(maker.constant({5, 1}));
  using enum ElementwiseOp;
  Elementwise chain{{{add, {0, 1}, 0, 0},
                     {mul, {-1, 2}, 0, 0},
                     {relu, {-1}, 0, 0},
                     {sub, {3, 4}, 0, 0},
                     {clip, {-2}, -0.5F, 0.5F},
                     {add, {-1, -2}, 0, 0},
                     {mul, {-6, -3}, 0, 0},
                     {mul, {-7, 6}, 0, 0},
                     {add, {-8, 7}, 0, 0},
                     {add, {-9, 5}, 0, 0},
                     {leaky_relu, {-10}, 0.1F, 0},
                     {where, {-3, -4, -5}, 0, 0},
                     {add, {-12, -11}, 0, 0},
                     {max, {-13, -1}, 0, 0},
                     {mul, {-14, -14}, 0, 0},
                     {add, {-15, -4}, 0, 0}}};
  return maker.finish(chain, inputs, maker.output({3, 5, 7}));
}

// Temporaries, constants, an operand per channel, and dear functions, few enough for a body of their own.
Case static_chain_case(const std::string& name, const Shape& shape, Lay lay) {
  CaseMaker maker(name);
  const TensorId x = maker.input(shape, lay), y = maker.input(shape, Lay::channels_last), per_channel = maker.input({shape[1], 1, 1});
  const TensorId three = maker.constant({1}, Lay::rows, {3});
  using enum ElementwiseOp;
  return maker.finish(Elementwise{{{sub, {0, 1}, 0, 0},
                                   {sigmoid, {-1}, 0, 0},
                                   {mul, {-1, 2}, 0, 0},
                                   {div, {-3, 3}, 0, 0},
                                   {add, {-2, -1}, 0, 0},
                                   {clip, {-5}, -0.25F, 0.5F}}},
                      {x, y, per_channel, three}, maker.output(shape, lay));
}

// Pixels of all channels-last images begin at multiples of four elements, the last one ends with its buffer.
Case with_padded_pixels(Case made) {
  for (Tensor& tensor : made.graph.tensors) {
    if (tensor.shape.size() != 4 || tensor.place.strides[1] != 1) continue;
    const int64_t pitch = (tensor.shape[1] + 3) / 4 * 4, height = tensor.shape[2], width = tensor.shape[3];
    tensor.place.offset = 0;
    tensor.place.strides = {height * width * pitch, 1, width * pitch, pitch};
    made.graph.buffers[tensor.place.buffer.index()].elements = tensor.shape[0] * height * width * pitch;
  }
  return made;
}

// Images of `channels` with padded pixels: alone, and together with what is not padded.
std::vector<Case> padded_cases(int64_t images, int64_t channels, int64_t height, int64_t width) {
  const Shape image = {images, channels, height, width};
  const std::string of = " of " + std::to_string(channels) + " channels";
  const Lay last = Lay::channels_last, rows = Lay::rows;
  Case slice = with_padded_pixels(binary_case("padded, and a part of wider pixels" + of, image, last, image, rows, image, last));
  Placement& part = slice.graph.tensors[1].place;  // the vector of the last pixel would end behind the buffer
  const int64_t pitch = (channels + 7) / 4 * 4;
  part = {part.buffer, 4, {height * width * pitch, 1, width * pitch, pitch}};
  slice.graph.buffers[part.buffer.index()].elements = part.offset + (images * height * width - 1) * pitch + channels;
  return {with_padded_pixels(unary_case("padded" + of, single(ElementwiseOp::relu), image, last, image, last)),
          with_padded_pixels(binary_case("padded twice" + of, image, last, image, last, image, last)),
          with_padded_pixels(binary_case("padded and a scalar" + of, image, last, {1}, rows, image, last)),
          with_padded_pixels(binary_case("padded and a value per channel" + of, image, last, {channels, 1, 1}, rows, image, last)),
          with_padded_pixels(binary_case("padded and rows" + of, image, last, image, rows, image, last)),
          with_padded_pixels(binary_case("rows and padded into padded" + of, image, rows, image, last, image, last)),
          with_padded_pixels(binary_case("padded into rows" + of, image, last, image, last, image, rows)),
          with_padded_pixels(static_chain_case("a chain of padded" + of, image, last)),
          slice};
}

std::vector<Case> all_padded_cases() {
  std::vector<Case> cases;
  for (const int64_t channels : {2, 5, 39, 78, 109}) {
    const int64_t images = channels == 78 ? 2 : 1;
    for (Case& c : padded_cases(images, channels, 3, 7)) cases.push_back(std::move(c));
  }
  for (Case& c : padded_cases(1, 39, 13, 11)) cases.push_back(std::move(c));
  return cases;
}

std::vector<Case> elementwise_cases() {
  const Shape image = {2, 5, 3, 7}, wide = {2, 8, 3, 7};
  const Elementwise copy = single(ElementwiseOp::identity);
  std::vector<Case> cases = {
      binary_case("one element", {1}, Lay::rows, {}, Lay::rows, {1}, Lay::rows),
      binary_case("scalar shape", {}, Lay::rows, {}, Lay::rows, {}, Lay::rows),
      binary_case("dense", {33}, Lay::rows, {33}, Lay::rows, {33}, Lay::rows),
      binary_case("dense and larger than a pass", {4 * 1024 * 3 + 5}, Lay::rows, {4 * 1024 * 3 + 5}, Lay::rows, {4 * 1024 * 3 + 5},
                  Lay::rows),
      binary_case("channels last", image, Lay::channels_last, image, Lay::channels_last, image, Lay::channels_last),
      binary_case("channels last and rows", wide, Lay::channels_last, wide, Lay::rows, wide, Lay::channels_last),
      binary_case("a value per channel", wide, Lay::channels_last, {8, 1, 1}, Lay::rows, wide, Lay::channels_last),
      binary_case("a value per odd channel", image, Lay::channels_last, {5, 1, 1}, Lay::rows, image, Lay::channels_last),
      binary_case("slices", wide, Lay::slice, wide, Lay::channels_last, wide, Lay::slice),
      binary_case("odd slices", image, Lay::slice, image, Lay::slice, image, Lay::slice),
      binary_case("both sides broadcast", {5, 1, 3}, Lay::rows, {1, 4, 1}, Lay::rows, {5, 4, 3}, Lay::rows),
      binary_case("negative strides", {3, 4, 5}, Lay::reversed, {4, 5}, Lay::rows, {3, 4, 5}, Lay::rows),
      binary_case("rank 8", {2, 1, 3, 1, 2, 1, 2, 1}, Lay::rows, {1, 2, 1, 2, 1, 3, 1, 2}, Lay::rows, {2, 2, 3, 2, 2, 3, 2, 2}, Lay::rows),
      binary_case("empty", {0, 3}, Lay::rows, {1, 3}, Lay::rows, {0, 3}, Lay::rows),
      unary_case("rows to channels last", copy, image, Lay::rows, image, Lay::channels_last),
      unary_case("channels last to rows", copy, image, Lay::channels_last, image, Lay::rows),
      unary_case("wide rows to channels last", copy, wide, Lay::rows, wide, Lay::channels_last),
      unary_case("channels last to rows of whole groups", copy, {1, 8, 6, 6}, Lay::channels_last, {1, 8, 6, 6}, Lay::rows),
      binary_case("a value per pixel", {1, 8, 3, 7}, Lay::channels_last, {1, 1, 3, 7}, Lay::rows, {1, 8, 3, 7}, Lay::channels_last),
      unary_case("pool of one pixel into rows", Pool{PoolKind::average, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, false}, {1, 20, 6, 6},
                 Lay::channels_last, {1, 20, 6, 6}, Lay::rows),
      unary_case("expand", copy, {5, 1}, Lay::rows, {3, 5, 4}, Lay::rows),
      unary_case("transpose", Transpose{{2, 0, 1}}, {3, 4, 5}, Lay::rows, {5, 3, 4}, Lay::rows),
      unary_case("slice", Slice{{1, 4}, {2, -1}}, {7, 5}, Lay::rows, {3, 5}, Lay::rows),
      unary_case("flatten channels last", Reshape{}, image, Lay::channels_last, {2, 105}, Lay::rows),
      unary_case("reshape that no nest walks", Reshape{}, {2, 6, 1, 5}, Lay::channels_last, {3, 4, 5}, Lay::channels_last),
      binary_case("one group", {4}, Lay::rows, {4}, Lay::rows, {4}, Lay::rows),
      binary_case("two turns of two groups", {1, 36, 13, 11}, Lay::channels_last, {1, 36, 13, 11}, Lay::slice, {1, 36, 13, 11}, Lay::slice),
      static_chain_case("a chain that nvcc knows", {3, 8, 5, 7}, Lay::slice),
      static_chain_case("the same chain of odd channels", {3, 5, 5, 7}, Lay::channels_last),
      long_chain(),
  };
  return cases;
}

TEST_CASE("every elementwise function agrees with the reference, special values included") {
  expect_no_problems(function_cases(), {kernels::elementwise()}, "functions");
}

TEST_CASE("elementwise chains and copies agree with the reference in every layout") {
  expect_no_problems(elementwise_cases(), {kernels::elementwise()}, "elementwise");
}

TEST_CASE("elementwise chains of padded pixels agree with the reference, and leave the padding alone") {
  expect_no_problems(all_padded_cases(), {kernels::elementwise()}, "padded");
}

// --- indexed copies -----------------------------------------------------------------------------------------------------

Case pad_case(const std::string& name, const Pad& attrs, const Shape& in, Lay lay) {
  CaseMaker maker(name);
  const TensorId x = maker.input(in, lay);
  Shape out = in;
  for (size_t d = 0; d < in.size(); ++d) out[d] += attrs.before[d] + attrs.after[d];
  return maker.finish(attrs, {x}, maker.output(out, lay));
}

Case gather_case(const std::string& name, int64_t axis, const Shape& in, const Shape& index_shape, const std::vector<int64_t>& indices,
                 Lay lay) {
  CaseMaker maker(name);
  const TensorId x = maker.input(in, lay);
  const TensorId i = maker.indices(index_shape, indices);
  Shape out(in.begin(), in.begin() + axis);
  out.insert(out.end(), index_shape.begin(), index_shape.end());
  out.insert(out.end(), in.begin() + axis + 1, in.end());
  return maker.finish(Gather{axis}, {x, i}, maker.output(out, lay));
}

std::vector<Case> indexed_copy_cases() {
  using enum PadMode;
  return {
      pad_case("pad an image", {{0, 0, 1, 2}, {0, 0, 3, 0}, constant, 0.5F}, {2, 8, 3, 5}, Lay::channels_last),
      pad_case("pad a large image", {{0, 0, 1, 1}, {0, 0, 1, 1}, constant, 0}, {1, 16, 33, 35}, Lay::channels_last),
      pad_case("pad odd channels", {{0, 1, 1, 2}, {0, 0, 3, 0}, constant, -INFINITY}, {2, 5, 3, 5}, Lay::channels_last),
      pad_case("pad rows", {{0, 0, 1, 2}, {1, 0, 3, 0}, constant, 2}, {2, 5, 3, 5}, Lay::rows),
      pad_case("crop", {{0, -1, -1, 2}, {0, 0, 1, -3}, constant, 2}, {2, 5, 3, 5}, Lay::rows),
      pad_case("crop to one element of padding", {{-1, 0}, {1, 0}, constant, 2}, {1, 5}, Lay::rows),
      pad_case("crop to one element", {{-2, -1}, {-1, -3}, constant, 2}, {4, 5}, Lay::rows),
      pad_case("reflect", {{0, 0, 2, 4}, {0, 0, 1, 4}, reflect, 0}, {1, 3, 3, 5}, Lay::channels_last),
      pad_case("edge", {{0, 0, 2, 7}, {0, 0, 1, 6}, edge, 0}, {1, 4, 3, 5}, Lay::channels_last),
      pad_case("wrap", {{0, 3}, {0, 5}, wrap, 0}, {3, 4}, Lay::rows),
      gather_case("gather rows", 0, {5, 8}, {3}, {4, -5, 2}, Lay::rows),
      gather_case("gather the last dimension", 1, {3, 7}, {2, 2}, {6, 0, -1, 3}, Lay::rows),
      gather_case("gather with a matrix", 1, {2, 7, 4, 3}, {2, 3}, {6, 0, -1, 3, 3, 1}, Lay::channels_last),
      gather_case("gather with a scalar", 1, {2, 7, 5}, {}, {-2}, Lay::rows),
  };
}

TEST_CASE("pad and gather agree with the reference") {
  expect_no_problems(indexed_copy_cases(), {kernels::indexed_copy()}, "indexed_copy");
}

// --- pooling ------------------------------------------------------------------------------------------------------------

Case pool_case(const std::string& name, const Pool& attrs, const Shape& in, const Shape& out_pixels, Lay lay_in, Lay lay_out,
               bool epilogue = false) {
  CaseMaker maker(name);
  const TensorId x = maker.input(in, lay_in);
  Shape out = {in[0], in[1]};
  out.insert(out.end(), out_pixels.begin(), out_pixels.end());
  Epilogue e;
  if (epilogue) {
    e.bias = maker.constant({in[1]});
    e.residual = maker.input(out, lay_out);
    e.activation = Activation::relu;
  }
  return maker.finish(attrs, {x}, maker.output(out, lay_out), e);
}

std::vector<Case> pool_cases() {
  using enum PoolKind;
  const Lay last = Lay::channels_last, slice = Lay::slice, rows = Lay::rows;
  Case nan = pool_case("max with NaN", {max, {2, 2}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, false}, {1, 4, 3, 3}, {2, 2}, last, last);
  Bytes with_nan = *nan.values[0].data;
  const float value = NAN;
  std::memcpy(with_nan.data() + 16, &value, 4);
  nan.values[0].data = std::make_shared<const Bytes>(with_nan);
  return {
      nan,
      pool_case("max 3x3 stride 2", {max, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}, false}, {2, 8, 11, 13}, {6, 7}, last, last),
      pool_case("max over many rTasks", {max, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}, false}, {1, 32, 31, 33}, {16, 17}, last, slice),
      pool_case("max of odd channels", {max, {3, 2}, {1, 3}, {1, 1}, {1, 0}, {0, 1}, false}, {2, 5, 7, 9}, {6, 3}, last, slice),
      pool_case("max of rows", {max, {3, 3}, {2, 2}, {2, 1}, {1, 1}, {1, 1}, false}, {2, 5, 9, 9}, {4, 5}, rows, rows),
      pool_case("rows to channels last", {max, {2, 2}, {2, 2}, {1, 1}, {0, 0}, {0, 0}, false}, {1, 8, 6, 6}, {3, 3}, rows, last),
      pool_case("max 3x3 stride 2 in strips of two", {max, {3, 3}, {2, 2}, {1, 1}, {0, 0}, {0, 0}, false}, {1, 20, 31, 33}, {15, 16}, last,
                last),
      pool_case("max 3x3 of two images in strips of two", {max, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, false}, {2, 24, 17, 19}, {17, 19},
                last, slice),
      pool_case("max 2x2 with overhang", {max, {2, 2}, {2, 2}, {1, 1}, {0, 0}, {1, 1}, false}, {1, 8, 7, 9}, {4, 5}, slice, last),
      pool_case("max 5x5", {max, {5, 5}, {1, 1}, {1, 1}, {2, 2}, {2, 2}, false}, {1, 8, 6, 7}, {6, 7}, last, last),
      pool_case("max with holes", {max, {2, 2}, {1, 1}, {2, 2}, {1, 1}, {1, 1}, false}, {1, 8, 6, 7}, {6, 7}, last, last),
      pool_case("average in strips of two", {average, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, false}, {1, 12, 17, 19}, {17, 19}, last,
                last),
      pool_case("average in strips of two, pads counted", {average, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, true}, {2, 16, 18, 21},
                {18, 21}, last, slice),
      pool_case("average stride 2, one pad counted", {average, {3, 3}, {2, 2}, {1, 1}, {1, 0}, {0, 1}, true}, {1, 8, 10, 10}, {5, 5}, last,
                last),
      pool_case("average of one pixel", {average, {1, 1}, {2, 2}, {1, 1}, {0, 0}, {0, 0}, false}, {1, 12, 6, 7}, {3, 4}, last, last),
      pool_case("average", {average, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}, false}, {1, 8, 7, 7}, {4, 4}, last, last),
      pool_case("average with overhang", {average, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {0, 0}, true}, {1, 4, 7, 7}, {4, 4}, last, last),
      pool_case("average of 4x4 with pads counted", {average, {4, 4}, {1, 1}, {1, 1}, {2, 1}, {1, 2}, true}, {1, 3, 5, 5}, {5, 5}, rows,
                rows),
      pool_case("one dimension", {max, {5}, {2}, {1}, {2}, {2}, false}, {2, 3, 15}, {8}, rows, rows),
      pool_case("one dimension, channels last", {average, {3}, {1}, {2}, {0}, {0}, false}, {2, 4, 9}, {5}, last, last),
      pool_case("epilogue", {average, {2, 2}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, false}, {1, 4, 4, 5}, {3, 4}, last, last, true),
      pool_case("epilogue, one channel at a time", {max, {2, 2}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, false}, {1, 3, 4, 5}, {3, 4}, rows, rows,
                true),
  };
}

TEST_CASE("pooling agrees with the reference") { expect_no_problems(pool_cases(), {kernels::pool()}, "pool"); }

// --- reductions ---------------------------------------------------------------------------------------------------------

Case reduce_case(const std::string& name, ReduceKind kind, const std::vector<int64_t>& axes, bool keepdims, const Shape& in, Lay lay) {
  CaseMaker maker(name);
  maker.set_range(0.1F, 1.1F);
  const TensorId x = maker.input(in, lay);
  Shape out;
  for (size_t d = 0; d < in.size(); ++d) {
    const bool reduced = std::find(axes.begin(), axes.end(), static_cast<int64_t>(d)) != axes.end();
    if (!reduced || keepdims) out.push_back(reduced ? 1 : in[d]);
  }
  return maker.finish(Reduce{kind, axes, keepdims}, {x}, maker.output(out, out.size() == in.size() ? lay : Lay::rows));
}

std::vector<Case> reduce_cases() {
  using enum ReduceKind;
  const Lay last = Lay::channels_last, rows = Lay::rows;
  std::vector<Case> cases = {
      reduce_case("global average pool", mean, {2, 3}, true, {2, 64, 7, 7}, last),
      reduce_case("global average pool of odd channels", mean, {2, 3}, true, {2, 33, 5, 3}, last),
      reduce_case("global average pool of rows", mean, {2, 3}, true, {2, 33, 5, 3}, rows),
      reduce_case("global average pool of few channels", mean, {2, 3}, true, {1, 8, 40, 41}, last),
      reduce_case("global average pool of a slice", mean, {2, 3}, true, {2, 16, 3, 3}, Lay::slice),
      reduce_case("global average pool of one pixel", mean, {2, 3}, true, {1, 20, 1, 1}, last),
      reduce_case("global sum of more items than rTasks have lanes", sum, {2, 3}, true, {1, 60, 9, 15}, last),
      reduce_case("global average pool of many channels", mean, {2, 3}, true, {3, 124, 3, 11}, last),
      reduce_case("global average pool into other dimensions", mean, {2, 3}, false, {2, 12, 13, 10}, last),
      reduce_case("too many channels for few lanes", mean, {2, 3}, true, {2, 196, 2, 2}, last),
      reduce_case("norm of few rows", l2, {1}, false, {2, 5000}, rows),
      reduce_case("everything", sum, {0, 1, 2}, false, {9, 10, 11}, rows),
      reduce_case("the last dimension", max, {2}, false, {3, 17, 65}, rows),
      reduce_case("the middle", sum, {1}, false, {3, 17, 13}, rows),
      reduce_case("first and last", sum, {0, 3}, true, {3, 4, 5, 6}, rows),
      reduce_case("of rank 6", mean, {1, 3, 5}, false, {2, 3, 2, 3, 2, 3}, rows),
      reduce_case("over one element", mean, {1}, true, {4, 1, 3}, rows),
      reduce_case("over none", prod, {1}, false, {4, 0, 3}, rows),
      reduce_case("backwards", sum, {1}, false, {4, 5, 3}, Lay::reversed),
  };
  for (const ReduceKind kind : {sum, mean, max, min, prod, l1, l2, sum_square, log_sum, log_sum_exp}) {
    cases.push_back(reduce_case("kind " + std::to_string(static_cast<int>(kind)), kind, {1}, false, {3, 37, 5}, rows));
  }
  return cases;
}

TEST_CASE("reductions agree with the reference") { expect_no_problems(reduce_cases(), {kernels::reduce()}, "reduce"); }

Case softmax_case(const std::string& name, const Softmax& attrs, const Shape& shape, Lay lay_in, Lay lay_out) {
  CaseMaker maker(name);
  maker.set_range(-20, 20);
  const TensorId x = maker.input(shape, lay_in);
  return maker.finish(attrs, {x}, maker.output(shape, lay_out));
}

Case lrn_case(const std::string& name, const Lrn& attrs, const Shape& shape, Lay lay) {
  CaseMaker maker(name);
  const TensorId x = maker.input(shape, lay);
  return maker.finish(attrs, {x}, maker.output(shape, lay));
}

TEST_CASE("softmax agrees with the reference") {
  const Lay last = Lay::channels_last, rows = Lay::rows;
  expect_no_problems(
      {softmax_case("classes", {1, 1, false}, {1, 1000}, rows, rows), softmax_case("rows of 33", {2, 2, false}, {3, 5, 33}, rows, rows),
       softmax_case("log", {1, 1, true}, {7, 19}, rows, rows), softmax_case("channels", {1, 1, false}, {2, 9, 4, 5}, last, last),
       softmax_case("channels of rows", {1, 1, false}, {2, 9, 4, 5}, rows, rows),
       softmax_case("joint dimensions", {1, 3, false}, {2, 3, 4, 5}, last, rows),
       softmax_case("everything", {0, 1, false}, {3, 3}, rows, rows), softmax_case("of one element", {1, 1, false}, {5, 1}, rows, rows),
       softmax_case("longer than is kept", {1, 1, true}, {2, 7001}, rows, rows)},
      {kernels::softmax()}, "softmax");
}

TEST_CASE("local response normalisation agrees with the reference") {
  const Lay last = Lay::channels_last, rows = Lay::rows;
  expect_no_problems(
      {lrn_case("size 5", {5, 0.5F, 0.75F, 1.0F}, {2, 9, 5, 7}, last), lrn_case("even size", {4, 0.5F, 0.75F, 2.0F}, {1, 6, 5, 3}, rows),
       lrn_case("wider than the channels", {9, 0.5F, 0.5F, 1.0F}, {1, 3, 17, 19}, last),
       lrn_case("one channel", {3, 0.5F, 0.75F, 1.0F}, {2, 1, 4}, rows)},
      {kernels::lrn()}, "lrn");
}

// --- convolution --------------------------------------------------------------------------------------------------------

struct ConvCase {
  std::string name;
  Conv attrs;
  Shape in;
  int64_t outputs;
  Lay lay_in = Lay::channels_last, lay_out = Lay::channels_last;
  bool epilogue = false;
  bool constant = true;
};

Conv square(int64_t taps, int64_t stride, int64_t group, int64_t pad, int64_t dilation = 1) {
  return Conv{{taps, taps}, {stride, stride}, {dilation, dilation}, {pad, pad}, {pad, pad}, group};
}

Case conv_case(const ConvCase& c) {
  CaseMaker maker(c.name);
  const TensorId x = maker.input(c.in, c.lay_in);
  Shape weights = {c.outputs, c.in[1] / c.attrs.group}, out = {c.in[0], c.outputs};
  for (size_t d = 0; d < c.attrs.kernel.size(); ++d) {
    weights.push_back(c.attrs.kernel[d]);
    const int64_t span = (c.attrs.kernel[d] - 1) * c.attrs.dilations[d] + 1;
    out.push_back((c.in[d + 2] + c.attrs.pads_begin[d] + c.attrs.pads_end[d] - span) / c.attrs.strides[d] + 1);
  }
  const TensorId w = c.constant ? maker.constant(weights) : maker.input(weights);
  Epilogue e;
  if (c.epilogue) {
    e.bias = maker.constant({c.outputs});
    e.residual = maker.input(out, c.lay_out);
    e.activation = Activation::clip;
    e.a = -0.5F;
    e.b = 0.75F;
    e.residual_after_activation = true;
  }
  return maker.finish(c.attrs, {x, w}, maker.output(out, c.lay_out), e);
}

TEST_CASE("depthwise convolution agrees with the reference") {
  const std::vector<ConvCase> table = {
      {"3x3", square(3, 1, 8, 1), {2, 8, 7, 9}, 8},
      {"3x3 stride 2", square(3, 2, 32, 1), {1, 32, 31, 33}, 32},
      {"3x3 on one pixel", square(3, 1, 4, 1), {1, 4, 1, 1}, 4},
      {"5x5", square(5, 1, 12, 2), {1, 12, 9, 5}, 12},
      {"5x5 stride 2 into a slice", square(5, 2, 4, 2), {2, 4, 9, 11}, 4, Lay::slice, Lay::slice},
      {"7x7", square(7, 1, 4, 3), {1, 4, 9, 9}, 4},
      {"7x7 stride 2", square(7, 2, 4, 3), {1, 4, 13, 10}, 4},
      {"epilogue", square(3, 1, 8, 1), {1, 8, 5, 5}, 8, Lay::channels_last, Lay::channels_last, true},
      {"dilated", square(3, 1, 8, 2, 2), {1, 8, 7, 9}, 8},
      {"1x5 with stride 3", {{1, 5}, {1, 3}, {1, 1}, {0, 2}, {0, 1}, 8}, {1, 8, 3, 17}, 8},
      {"one dimension", {{3}, {1}, {1}, {1}, {1}, 8}, {2, 8, 11}, 8},
      {"odd channels", square(3, 1, 5, 1), {1, 5, 7, 9}, 5},
      {"3x3, pixels of 39 channels padded", square(3, 2, 39, 1), {1, 39, 7, 9}, 39, Lay::padded, Lay::padded, true},
      {"7x7, pixels of 6 channels padded", square(7, 1, 6, 3), {2, 6, 7, 9}, 6, Lay::padded, Lay::padded},
      {"dilated, pixels of 5 channels padded", square(3, 1, 5, 2, 2), {1, 5, 7, 9}, 5, Lay::padded, Lay::padded, true},
      {"odd channels with stride 2", square(5, 2, 39, 2), {2, 39, 8, 9}, 39, Lay::channels_last, Lay::slice, true},
      {"rows", square(3, 2, 6, 1), {1, 6, 7, 9}, 6, Lay::rows, Lay::rows},
      {"odd channels, dilated", square(3, 1, 3, 2, 2), {1, 3, 7, 9}, 3},
  };
  std::vector<Case> cases;
  for (const ConvCase& c : table) cases.push_back(conv_case(c));
  expect_no_problems(cases, {kernels::depthwise()}, "depthwise");
}

TEST_CASE("direct convolution agrees with the reference") {
  const Lay last = Lay::channels_last, rows = Lay::rows;
  const std::vector<ConvCase> table = {
      {"groups of 4", square(3, 1, 8, 1), {1, 32, 7, 9}, 32},
      {"groups of 8 with stride 2", square(3, 2, 4, 1), {2, 32, 9, 9}, 32},
      {"over many rTasks", square(3, 1, 8, 1), {1, 64, 13, 15}, 64},
      {"groups of 3 to 4", square(3, 1, 2, 1), {1, 6, 7, 5}, 8},
      {"groups of 4 to 3", square(3, 1, 2, 1), {1, 8, 7, 5}, 6},
      {"rows to rows", square(3, 1, 1, 1), {1, 3, 9, 7}, 8, rows, rows},
      {"rows to channels last", square(3, 2, 1, 1), {1, 3, 9, 7}, 8, rows, last},
      {"channels last to rows", square(1, 1, 1, 0), {1, 8, 5, 7}, 4, last, rows},
      {"slices", square(3, 1, 2, 1), {1, 8, 5, 7}, 8, Lay::slice, Lay::slice},
      {"depthwise with a multiplier", square(3, 1, 5, 1), {1, 5, 6, 7}, 15},
      {"depthwise with four filters a channel", square(3, 1, 5, 1), {1, 5, 6, 7}, 20},
      {"dilated and not square", {{2, 3}, {2, 1}, {3, 2}, {1, 0}, {0, 3}, 1}, {1, 5, 9, 11}, 7},
      {"one dimension", {{5}, {2}, {1}, {2}, {2}, 2}, {2, 6, 15}, 8},
      {"one dimension of rows", {{3}, {1}, {2}, {0}, {1}, 1}, {2, 3, 15}, 5, rows, rows},
      {"epilogue", square(3, 1, 2, 1), {1, 8, 5, 5}, 8, last, last, true},
      {"epilogue, one channel at a time", square(3, 1, 1, 1), {1, 3, 5, 5}, 5, rows, rows, true},
      {"weights made by the program", square(3, 1, 2, 1), {1, 8, 5, 5}, 8, last, last, false, false},
  };
  std::vector<Case> cases;
  for (const ConvCase& c : table) cases.push_back(conv_case(c));
  expect_no_problems(cases, {kernels::direct()}, "direct");
}

// --- products -----------------------------------------------------------------------------------------------------------

struct MatMulCase {
  std::string name;
  MatMul attrs;
  Shape a, b, c, out;  // c may be empty: none
  Lay lay = Lay::rows;
  bool epilogue = false;
};

Case matmul_case(const MatMulCase& c) {
  CaseMaker maker(c.name);
  std::vector<TensorId> inputs = {maker.input(c.a, c.lay), maker.input(c.b, c.lay)};
  if (!c.c.empty()) inputs.push_back(maker.input(c.c, Lay::rows));
  Epilogue e;
  if (c.epilogue) {
    e.bias = maker.constant({c.out.back()});
    e.residual = maker.input(c.out, c.lay);
    e.activation = Activation::tanh;
  }
  return maker.finish(c.attrs, inputs, maker.output(c.out, c.lay), e);
}

TEST_CASE("products of activations agree with the reference") {
  const std::vector<MatMulCase> table = {
      {"one element", {}, {1, 1}, {1, 1}, {}, {1, 1}},
      {"odd sizes", {}, {33, 35}, {35, 67}, {}, {33, 67}},
      {"both transposed", {true, true, 0.5F, 1}, {35, 33}, {67, 35}, {}, {33, 67}},
      {"gemm with a row of C", {false, true, 2, 0.5F}, {5, 70}, {9, 70}, {9}, {5, 9}},
      {"gemm with a column of C", {true, false, 1, -1}, {7, 5}, {7, 9}, {5, 1}, {5, 9}},
      {"batched", {}, {3, 2, 17, 9}, {3, 2, 9, 33}, {}, {3, 2, 17, 33}},
      {"broadcast on both sides", {}, {3, 1, 5, 9}, {2, 9, 3}, {}, {3, 2, 5, 3}},
      {"a matrix for all", {}, {4, 3, 5, 9}, {9, 3}, {}, {4, 3, 5, 3}},
      {"channels last", {}, {2, 3, 5, 9}, {2, 3, 9, 7}, {}, {2, 3, 5, 7}, Lay::channels_last},
      {"backwards", {}, {2, 5, 9}, {2, 9, 7}, {}, {2, 5, 7}, Lay::reversed},
      {"epilogue", {}, {2, 5, 40}, {2, 40, 7}, {}, {2, 5, 7}, Lay::rows, true},
      {"nothing to add up", {}, {3, 0}, {0, 5}, {}, {3, 5}},
      {"several tiles per rTask", {}, {20, 20, 3}, {20, 3, 40}, {}, {20, 20, 40}},
  };
  std::vector<Case> cases;
  for (const MatMulCase& c : table) cases.push_back(matmul_case(c));
  expect_no_problems(cases, {kernels::matmul_direct()}, "matmul");
}

}  // namespace
}  // namespace tamp::test
