// The bodies of the elementwise, pad and gather families against the reference: on the CPU, over the stand-in, at sizes that fit no tile.
// See test/kernels/light_bench.h for what else is checked.
#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/catalogue.h"
#include "test/kernels/light_bench.h"
#include "test/support/catch.h"

namespace tamp::test {
namespace {

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
  Elementwise function = single(op, a, b);
  function.dtype = DType::f32;  // where the function has a truth value, 0 or 1
  return maker.finish(function, inputs, maker.output({elements}));
}

std::vector<Case> function_cases() {
  std::vector<Case> cases;
  for (const FunctionRow& row : function_rows()) {
    const bool of_others = !rk::functions::has_form<float>(row.types) || row.types == rk::functions::Types::truths;
    if (of_others || row.op == ElementwiseOp::where || row.op == ElementwiseOp::cast) continue;
    const bool clips = row.op == ElementwiseOp::clip;
    for (const int64_t elements : {256, 255}) cases.push_back(function_case(row.op, clips ? -1.0F : 0.3F, clips ? 2.0F : 0.4F, elements));
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

// A function between two quantisations, as exporters write gelu: more steps and constants than other chains have.
Case quantised_chain_case(const std::string& name, const Shape& shape) {
  CaseMaker maker(name);
  const TensorId x = maker.input(shape), bias = maker.constant({shape.back()});
  std::vector<TensorId> inputs = {x, bias};
  for (const float value : {40.37F, 0.0271F, 0.00787F, 0.993F, 127.3F, 0.00631F}) inputs.push_back(maker.constant({}, Lay::rows, {value}));
  using enum ElementwiseOp;
  return maker.finish(Elementwise{{{mul, {0, 2}, 0, 0},
                                   {add, {-1, 1}, 0, 0},
                                   {rounded, {-2}, -139, 116},
                                   {mul, {-3, 3}, 0, 0},
                                   {erf, {-4}, 0, 0},
                                   {div, {-5, 4}, 0, 0},
                                   {rounded, {-6}, -128, 127},
                                   {mul, {-7, 5}, 0, 0},
                                   {add, {-8, 6}, 0, 0},
                                   {rounded, {-9}, 0, 255},
                                   {mul, {-3, -10}, 0, 0},
                                   {mul, {-11, 7}, 0, 0},
                                   {rounded, {-12}, -9, 246}}},
                      inputs, maker.output(shape));
}

// A gate and a row for all images, with functions of all speeds.
Case gated_chain_case(const std::string& name, const Shape& shape) {
  CaseMaker maker(name);
  const TensorId x = maker.input(shape, Lay::channels_last), gates = maker.input({shape[0], shape[1], 1, 1}),
                 per_channel = maker.input({shape[1], 1, 1});
  using enum ElementwiseOp;
  return maker.finish(
      Elementwise{{{hard_swish, {0}, 0, 0}, {mul, {-1, 1}, 0, 0}, {add, {-2, 2}, 0, 0}, {sigmoid, {-3}, 0, 0}, {mul, {-3, -4}, 0, 0}}},
      {x, gates, per_channel}, maker.output(shape, Lay::channels_last));
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
      unary_case("rows in another order", Transpose{{1, 0, 2}}, {13, 11, 160}, Lay::rows, {11, 13, 160}, Lay::rows),
      binary_case("a value per image and channel", {2, 68, 13, 13}, Lay::channels_last, {2, 68, 1, 1}, Lay::rows, {2, 68, 13, 13},
                  Lay::channels_last),
      unary_case("slice", Slice{{1, 4}, {2, -1}}, {7, 5}, Lay::rows, {3, 5}, Lay::rows),
      unary_case("flatten channels last", Reshape{}, image, Lay::channels_last, {2, 105}, Lay::rows),
      unary_case("reshape that no nest walks", Reshape{}, {2, 6, 1, 5}, Lay::channels_last, {3, 4, 5}, Lay::channels_last),
      binary_case("one group", {4}, Lay::rows, {4}, Lay::rows, {4}, Lay::rows),
      binary_case("two turns of two groups", {1, 36, 13, 11}, Lay::channels_last, {1, 36, 13, 11}, Lay::slice, {1, 36, 13, 11}, Lay::slice),
      static_chain_case("a chain that nvcc knows", {3, 8, 5, 7}, Lay::slice),
      static_chain_case("the same chain of odd channels", {3, 5, 5, 7}, Lay::channels_last),
      quantised_chain_case("a function between two quantisations", {3, 5, 36}),
      long_chain(),
  };
  return cases;
}

TEST_CASE("every elementwise function agrees with the reference, special values included") {
  expect_no_problems(function_cases(), {kernels::family("elementwise")}, "functions");
}

TEST_CASE("elementwise chains and copies agree with the reference in every layout") {
  expect_no_problems(elementwise_cases(), {kernels::family("elementwise")}, "elementwise");
}

TEST_CASE("elementwise chains of padded pixels agree with the reference, and leave the padding alone") {
  expect_no_problems(all_padded_cases(), {kernels::family("elementwise")}, "padded");
}

// All operands of 16 bits, or the result, or one operand of several alone.
std::vector<Case> narrow_cases(const std::vector<Case>& cases) {
  std::vector<Case> narrow;
  for (const Case& c : cases) {
    narrow.push_back(narrowed(c, DType::f16, DType::f16));
    narrow.push_back(narrowed(c, DType::bf16, DType::f32));
    narrow.push_back(narrowed(c, DType::f32, DType::bf16));
    if (c.graph.rops[0].inputs.size() < 2) continue;
    narrow.push_back(narrowed(narrowed(c, DType::f32, DType::f16), {c.graph.rops[0].inputs[0]}, DType::f16));
  }
  return narrow;
}

TEST_CASE("elementwise chains and copies of 16 bits agree with the reference in every layout") {
  expect_no_problems(narrow_cases(elementwise_cases()), {kernels::family("elementwise")}, "narrow_elementwise");
}

TEST_CASE("elementwise chains of padded pixels of 16 bits leave the padding alone") {
  expect_no_problems(narrow_cases(padded_cases(1, 39, 3, 7)), {kernels::family("elementwise")}, "narrow_padded");
}

// So many elements that a thread has several groups of four at a time: a copy of patches, a sum with a broadcast operand.
TEST_CASE("many elements at a time agree with the reference, in 16 bits too") {
  const std::vector<Case> large = {
      unary_case("patches", Transpose{{0, 3, 1, 2, 4}}, {3, 7, 16, 6, 16}, Lay::rows, {3, 6, 7, 16, 16}, Lay::rows),
      binary_case("rows less a row", {4, 12300}, Lay::rows, {12300}, Lay::rows, {4, 12300}, Lay::rows),
  };
  std::vector<Case> all = narrow_cases(large);
  all.insert(all.begin(), large.begin(), large.end());
  for (const Case& c : large) {
    const Phase phase =
        kernels::candidates_of(kernels::family("elementwise"), {c.graph, c.graph.rops[0], small_vdevice(), Precision::fp32})[0].phases[0];
    const bool copies = c.name == "patches";
    CHECK(phase.body == (copies ? "rk::vector_copy" : "rk::static_chain"));
    CHECK(std::count(phase.template_args.begin(), phase.template_args.end(), std::pair<std::string, std::string>("kGroups", "8")) == 1);
  }
  expect_no_problems(all, {kernels::family("elementwise")}, "large");
}

// Gates of each image and channel: all rows of an image read the same. One image is one block, one pixel a block of one row.
std::vector<Case> gated_cases() {
  const Lay last = Lay::channels_last, rows = Lay::rows;
  std::vector<Case> cases;
  for (const auto& [images, channels, height, width] : std::vector<std::array<int64_t, 4>>{
           {3, 8, 5, 7}, {3, 5, 5, 7}, {3, 6, 4, 3}, {2, 12, 9, 11}, {1, 24, 5, 3}, {3, 24, 1, 1}, {5, 4, 1, 2}}) {
    const Shape map = {images, channels, height, width}, gates = {images, channels, 1, 1};
    const std::string of = " of " + std::to_string(images) + " x " + std::to_string(channels) + " x " + std::to_string(height * width);
    cases.push_back(binary_case("gates" + of, map, last, gates, rows, map, last));
    cases.push_back(binary_case("gates of a slice" + of, map, Lay::slice, gates, last, map, last));
    cases.push_back(with_padded_pixels(binary_case("padded gates" + of, map, last, gates, last, map, last)));
    cases.push_back(binary_case("rows and gates" + of, map, rows, gates, rows, map, last));
    cases.push_back(gated_chain_case("a chain with gates" + of, map));
  }
  return cases;
}

TEST_CASE("rows in blocks agree with the reference, in 16 bits too") {
  const std::vector<Case> cases = gated_cases();
  const auto offered =
      kernels::candidates_of(kernels::family("elementwise"), {cases[0].graph, cases[0].graph.rops[0], small_vdevice(), Precision::fp32});
  CHECK(offered[0].phases[0].body == "rk::static_chain_blocks");
  expect_no_problems(cases, {kernels::family("elementwise")}, "blocks");
  expect_no_problems(narrow_cases(cases), {kernels::family("elementwise")}, "narrow_blocks");
}

// Large maps: rows in blocks, rows, and one row; items of a thread fill the ring or not, and the last rTask has fewer.
TEST_CASE("chains of large maps have copies under way, and agree with the reference in 16 bits too") {
  const Lay last = Lay::channels_last, rows = Lay::rows;
  std::vector<Case> cases;
  for (const auto& [images, channels, height, width] :
       std::vector<std::array<int64_t, 4>>{{5, 24, 36, 9}, {3, 40, 23, 31}, {1, 72, 19, 21}, {2500, 24, 1, 1}}) {
    const Shape map = {images, channels, height, width};
    const std::string of = " of " + std::to_string(images) + " x " + std::to_string(channels) + " x " + std::to_string(height * width);
    if (images > 1 && height > 1) cases.push_back(binary_case("gates" + of, map, last, {images, channels, 1, 1}, rows, map, last));
    if (images > 1 && height > 1)
      cases.push_back(binary_case("gates of a slice" + of, map, Lay::slice, {images, channels, 1, 1}, rows, map, last));
    cases.push_back(gated_chain_case("a chain" + of, map));
    cases.push_back(unary_case("hard_swish" + of, single(ElementwiseOp::hard_swish), map, last, map, last));
    cases.push_back(static_chain_case("a chain that nvcc knows" + of, map, last));
  }
  std::set<std::string> forms;
  for (const Case& c : narrow_cases(cases)) {
    const auto offered =
        kernels::candidates_of(kernels::family("elementwise"), {c.graph, c.graph.rops[0], small_vdevice(), Precision::fp16});
    for (const RKernel& rkernel : offered) {
      const Phase& phase = rkernel.phases[0];
      if (phase.body != "rk::static_chain_ahead") continue;
      for (const auto& [name, value] : phase.template_args) {
        if (name == "kRank" || name == "kSlots") forms.insert(name + value);
      }
    }
  }
  CHECK(forms == std::set<std::string>{"kRank1", "kRank2", "kRank3", "kSlots4", "kSlots8"});
  expect_no_problems(cases, {kernels::family("elementwise")}, "ahead");
  expect_no_problems(narrow_cases(cases), {kernels::family("elementwise")}, "narrow_ahead");
}

TEST_CASE("a function between two quantisations is a chain that nvcc knows") {
  const Case c = quantised_chain_case("quantised", {2, 8});
  const auto offered = kernels::candidates_of(kernels::family("elementwise"), {c.graph, c.graph.rops[0], small_vdevice(), Precision::fp32});
  CHECK(offered[0].phases[0].body == "rk::static_chain_long");
}

TEST_CASE("chains of two types of 16 bits, and a model's own, are left to others") {
  const Case c = elementwise_cases()[4];
  const auto offers = [](const Case& made, Precision precision) {
    return kernels::candidates_of(kernels::family("elementwise"), {made.graph, made.graph.rops[0], small_vdevice(), precision});
  };
  CHECK_FALSE(offers(narrowed(c, DType::f16, DType::f16), Precision::fp16).empty());
  CHECK(offers(narrowed(c, DType::f16, DType::f16), Precision::tf32).empty());
  CHECK(offers(narrowed(c, DType::f16, DType::bf16), Precision::fp16).empty());
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

TEST_CASE("gather moves elements of 16 bits eight at a time where it can") {
  const std::vector<Case> wide = {
      gather_case("rows", 0, {5, 32}, {3}, {4, -5, 2}, Lay::rows),
      gather_case("rows of each image", 1, {3, 7, 16}, {4}, {6, 0, -1, 3}, Lay::rows),
      gather_case("rows of no whole vectors", 0, {5, 12}, {3}, {4, -5, 2}, Lay::rows),
      gather_case("one row", 0, {5, 8}, {1}, {3}, Lay::rows),
  };
  std::vector<Case> cases;
  for (const Case& c : wide) {
    const ROperator& rop = c.graph.rops[0];
    for (const DType dtype : {DType::f16, DType::bf16}) cases.push_back(narrowed(c, {rop.inputs[0], rop.outputs[0]}, dtype));
  }
  expect_no_problems(cases, {kernels::family("indexed_copy")}, "indexed_copy_narrow");
}

TEST_CASE("pad and gather agree with the reference") {
  expect_no_problems(indexed_copy_cases(), {kernels::family("indexed_copy")}, "indexed_copy");
}

}  // namespace
}  // namespace tamp::test
