// The bodies of the pool, reduce, softmax and LRN families against the reference: on the CPU, over the stand-in, at sizes that fit no tile.
// See test/kernels/light_bench.h for what else is checked.
#include "kernels/catalogue.h"
#include "test/kernels/light_bench.h"
#include "test/support/catch.h"

namespace tamp::test {
namespace {

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
      pool_case("average with overhang", {average, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {0, 0}, true, true}, {1, 4, 7, 7}, {4, 4}, last, last),
      pool_case("average of 4x4 with pads counted", {average, {4, 4}, {1, 1}, {1, 1}, {2, 1}, {1, 2}, true}, {1, 3, 5, 5}, {5, 5}, rows,
                rows),
      pool_case("one dimension", {max, {5}, {2}, {1}, {2}, {2}, false}, {2, 3, 15}, {8}, rows, rows),
      pool_case("one dimension, channels last", {average, {3}, {1}, {2}, {0}, {0}, false}, {2, 4, 9}, {5}, last, last),
      pool_case("epilogue", {average, {2, 2}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, false}, {1, 4, 4, 5}, {3, 4}, last, last, true),
      pool_case("epilogue, one channel at a time", {max, {2, 2}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, false}, {1, 3, 4, 5}, {3, 4}, rows, rows,
                true),
  };
}

// Pools of many turns: several items below each other, rows and columns that are no whole items, and one with NaN.
std::vector<Case> walk_cases() {
  using enum PoolKind;
  const Lay last = Lay::channels_last, slice = Lay::slice;
  std::vector<Case> cases = {
      pool_case("walks of max, stride 2", {max, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}, false}, {2, 48, 31, 33}, {16, 17}, last, last),
      pool_case("walks of max, stride 2, no pads", {max, {3, 3}, {2, 2}, {1, 1}, {0, 0}, {0, 0}, false}, {2, 40, 34, 36}, {16, 17}, last,
                last),
      pool_case("walks of max with overhang", {max, {3, 3}, {2, 2}, {1, 1}, {0, 0}, {1, 1}, false}, {3, 40, 24, 28}, {12, 14}, last, last),
      pool_case("walks of max", {max, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, false}, {1, 48, 23, 19}, {23, 19}, last, last),
      pool_case("walks of averages", {average, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, false}, {2, 48, 17, 19}, {17, 19}, last, last),
      pool_case("walks of averages, pads counted", {average, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, true}, {3, 24, 18, 21}, {18, 21}, last,
                last),
      pool_case("walks of averages, stride 2, one pad counted", {average, {3, 3}, {2, 2}, {1, 1}, {1, 0}, {0, 1}, true}, {3, 48, 26, 32},
                {13, 16}, last, last),
      pool_case("walks in wider pixels", {average, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, false}, {1, 48, 18, 21}, {18, 21}, slice, slice),
  };
  Bytes with_nan = *cases[0].values[0].data;
  const float value = NAN;
  std::memcpy(with_nan.data() + with_nan.size() / 2, &value, 4);
  cases[0].values[0].data = std::make_shared<const Bytes>(with_nan);
  return cases;
}

TEST_CASE("pools of many turns walk down the map if cells of 16 bytes are aligned") {
  const auto walks = [](const Case& c) {
    const ShapedVDevice vdevice = small_vdevice();
    const std::vector<RKernel> offers =
        kernels::candidates_of(kernels::family("pool"), {c.graph, c.graph.rops[0], vdevice, Precision::fp16});
    return std::count_if(offers.begin(), offers.end(), [](const RKernel& r) { return r.phases[0].body == "rk::pool_walk"; }) == 1;
  };
  std::vector<Case> cases = walk_cases();
  for (const Case& c : cases) {
    INFO(c.name);
    CHECK(walks(c));
    CHECK(walks(narrowed(c, DType::f16, DType::f16)) == (c.name != "walks in wider pixels"));  // these begin at 8 bytes
  }
  expect_no_problems(cases, {kernels::family("pool")}, "pool_walk");
  cases.pop_back();
  expect_no_problems(narrowed(cases, true, true), {kernels::family("pool")}, "narrow_pool_walk");
}

TEST_CASE("pooling agrees with the reference") { expect_no_problems(pool_cases(), {kernels::family("pool")}, "pool"); }

TEST_CASE("pooling of 16 bits agrees with the reference") {
  expect_no_problems(narrowed(pool_cases(), true, true), {kernels::family("pool")}, "narrow_pool");
}

TEST_CASE("pooling is between values of one type") {
  const Case c = pool_cases()[1];
  for (const auto& [in, out] : {std::pair{DType::f16, DType::f32}, std::pair{DType::f32, DType::f16}, std::pair{DType::f16, DType::bf16}}) {
    const Case narrow = narrowed(c, in, out);
    CHECK(kernels::candidates_of(kernels::family("pool"), {narrow.graph, narrow.graph.rops[0], small_vdevice(), Precision::fp16}).empty());
  }
}

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
      reduce_case("global average pool of some octets", mean, {2, 3}, true, {2, 200, 5, 7}, last),
      reduce_case("global average pool of a batch", mean, {2, 3}, true, {9, 104, 7, 7}, last),
      reduce_case("global sum of a batch", sum, {2, 3}, false, {3, 1000, 3, 3}, last),
      reduce_case("global average pool of more octets than threads", mean, {2, 3}, true, {4, 1600, 3, 2}, last),
      reduce_case("global average pool of a batch in wider pixels", mean, {2, 3}, true, {9, 104, 3, 5}, Lay::slice),
      reduce_case("norm of few rows", l2, {1}, false, {2, 5000}, rows),
      reduce_case("everything", sum, {0, 1, 2}, false, {9, 10, 11}, rows),
      reduce_case("the last dimension", max, {2}, false, {3, 17, 65}, rows),
      reduce_case("the middle", sum, {1}, false, {3, 17, 13}, rows),
      reduce_case("first and last", sum, {0, 3}, true, {3, 4, 5, 6}, rows),
      reduce_case("of rank 6", mean, {1, 3, 5}, false, {2, 3, 2, 3, 2, 3}, rows),
      reduce_case("over one element", mean, {1}, true, {4, 1, 3}, rows),
      reduce_case("over none", prod, {1}, false, {4, 0, 3}, rows),
      reduce_case("backwards", sum, {1}, false, {4, 5, 3}, Lay::reversed),
      reduce_case("few long columns", sum_square, {1}, false, {2, 1500, 3}, rows),
      reduce_case("few long columns of vectors", max, {2, 3}, true, {1, 12, 31, 33}, last),
  };
  for (const ReduceKind kind : {sum, mean, max, min, prod, l1, l2, sum_square, log_sum, log_sum_exp}) {
    cases.push_back(reduce_case("kind " + std::to_string(static_cast<int>(kind)), kind, {1}, false, {3, 37, 5}, rows));
  }
  return cases;
}

TEST_CASE("reductions agree with the reference") { expect_no_problems(reduce_cases(), {kernels::family("reduce")}, "reduce"); }

TEST_CASE("reductions of 16 bits agree with the reference") {
  std::vector<Case> cases = narrowed(reduce_cases(), true, false);
  for (const Case& c : reduce_cases()) {
    if (c.name != "over none") cases.push_back(narrowed(c, cases.size() % 2 == 0 ? DType::f16 : DType::f32, DType::f16));
    if (c.name != "over none") cases.push_back(narrowed(c, cases.size() % 2 == 0 ? DType::bf16 : DType::f32, DType::bf16));
  }
  expect_no_problems(cases, {kernels::family("reduce")}, "narrow_reduce");
}

TEST_CASE("sums of many rows take octets where these are aligned") {
  const auto body = [](const Case& c) {
    return kernels::candidates_of(kernels::family("reduce"), {c.graph, c.graph.rops[0], small_vdevice(), Precision::fp16})[0]
        .phases[0]
        .body;
  };
  const auto pool = [](int64_t channels, Lay lay) { return reduce_case("", ReduceKind::mean, {2, 3}, true, {9, channels, 3, 5}, lay); };
  CHECK(body(pool(104, Lay::channels_last)) == "rk::reduce_octets");
  CHECK(body(narrowed(pool(104, Lay::channels_last), DType::f16, DType::f16)) == "rk::reduce_octets");
  CHECK(body(pool(104, Lay::slice)) == "rk::reduce_octets");
  CHECK(body(narrowed(pool(104, Lay::slice), DType::f16, DType::f16)) == "rk::reduce");  // begins at 8 bytes
  CHECK(body(pool(100, Lay::channels_last)) == "rk::reduce");                            // half an octet
  CHECK(body(pool(24, Lay::channels_last)) == "rk::reduce_sum");                         // few rows
}

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
       softmax_case("longer than is kept", {1, 1, true}, {2, 7001}, rows, rows),
       softmax_case("few long columns", {1, 1, false}, {1, 701, 3}, rows, rows),
       softmax_case("few columns, longer than is kept", {1, 1, false}, {1, 7001, 2}, rows, last)},
      {kernels::family("softmax")}, "softmax");
}

TEST_CASE("columns that are too few for the vEUs are offered with fewer side by side") {
  ShapedVDevice vdevice = small_vdevice();
  vdevice.sms = 132;
  const auto names = [&](const Case& c, const kernels::Family& family) {
    std::vector<std::string> all;
    for (const RKernel& r : kernels::candidates_of(family, {c.graph, c.graph.rops[0], vdevice, Precision::fp32})) all.push_back(r.name);
    return all;
  };
  const Lay rows = Lay::rows;
  CHECK(names(softmax_case("", {1, 1, false}, {2, 3000, 98}, rows, rows), kernels::family("softmax")) ==
        std::vector<std::string>{"softmax<32 rows, 7>", "softmax<16 rows, 13>", "softmax<8 rows, 25>", "softmax<4 rows, 49>",
                                 "softmax<2 rows, 98>"});
  // Enough of them; rows that lie densely; and columns that give 32 threads each two elements, but not more.
  CHECK(names(softmax_case("", {1, 1, false}, {50, 300, 98}, rows, rows), kernels::family("softmax")).size() == 2);
  CHECK(names(softmax_case("", {1, 1, false}, {20, 3000}, rows, rows), kernels::family("softmax")).size() == 2);
  CHECK(names(softmax_case("", {1, 1, false}, {1, 64, 32}, rows, rows), kernels::family("softmax")).back() == "softmax<8 rows, 4>");
  const auto reductions = names(reduce_case("", ReduceKind::max, {1}, false, {2, 3000, 98}, rows), kernels::family("reduce"));
  CHECK(std::count(reductions.begin(), reductions.end(), "reduce<1 wide, 98, split 1>") == 1);
}

TEST_CASE("fewer than eight columns side by side pay for whole sectors") {
  ShapedVDevice vdevice = small_vdevice();
  vdevice.sms = 132;
  const Case c = softmax_case("", {1, 1, false}, {2, 3000, 98}, Lay::rows, Lay::rows);
  const std::vector<RKernel> offers =
      kernels::candidates_of(kernels::family("softmax"), {c.graph, c.graph.rops[0], vdevice, Precision::fp32});
  const auto bytes = [&](size_t i) { return offers[i].phases[0].cost.activation_bytes; };
  CHECK(bytes(1) == bytes(0) / 2);
  CHECK(bytes(2) == bytes(0) / 4);
  CHECK(bytes(3) == bytes(2));  // half of each sector of as many bytes
}

TEST_CASE("local response normalisation agrees with the reference") {
  const Lay last = Lay::channels_last, rows = Lay::rows;
  expect_no_problems(
      {lrn_case("size 5", {5, 0.5F, 0.75F, 1.0F}, {2, 9, 5, 7}, last), lrn_case("even size", {4, 0.5F, 0.75F, 2.0F}, {1, 6, 5, 3}, rows),
       lrn_case("wider than the channels", {9, 0.5F, 0.5F, 1.0F}, {1, 3, 17, 19}, last),
       lrn_case("one channel", {3, 0.5F, 0.75F, 1.0F}, {2, 1, 4}, rows)},
      {kernels::family("lrn")}, "lrn");
}

}  // namespace
}  // namespace tamp::test
