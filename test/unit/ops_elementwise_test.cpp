// The CPU reference of the elementwise operators against values worked out by hand, and at the edges that models and passes run
// into: broadcasting, NaN, rounding, integer overflow and division, casts, half precision.
#include "test/support/one_rop.h"

namespace tamp {

using namespace test;

TEST_CASE("elementwise functions of one operand") {
  using enum ElementwiseOp;
  const std::vector<float> x{-2, -0.5F, 0, 0.5F, 3};
  struct Row {
    ElementwiseOp op;
    float a, b;
    std::vector<float> expected;
  };
  const Row row = GENERATE(values<Row>({
      {identity, 0, 0, {-2, -0.5F, 0, 0.5F, 3}},
      {neg, 0, 0, {2, 0.5F, 0, -0.5F, -3}},
      {abs, 0, 0, {2, 0.5F, 0, 0.5F, 3}},
      {sqrt, 0, 0, {kNan, kNan, 0, 0.70710678F, 1.7320508F}},
      {reciprocal, 0, 0, {-0.5F, -2, kInf, 2, 1.0F / 3}},
      {exp, 0, 0, {0.13533528F, 0.60653066F, 1, 1.64872127F, 20.0855369F}},
      {log, 0, 0, {kNan, kNan, -kInf, -0.69314718F, 1.09861229F}},
      {erf, 0, 0, {-0.99532227F, -0.52049988F, 0, 0.52049988F, 0.99997791F}},
      {sin, 0, 0, {-0.90929743F, -0.47942554F, 0, 0.47942554F, 0.14112001F}},
      {cos, 0, 0, {-0.41614684F, 0.87758256F, 1, 0.87758256F, -0.98999250F}},
      {floor, 0, 0, {-2, -1, 0, 0, 3}},
      {ceil, 0, 0, {-2, 0, 0, 1, 3}},
      {round, 0, 0, {-2, 0, 0, 0, 3}},
      {sign, 0, 0, {-1, -1, 0, 1, 1}},
      {relu, 0, 0, {0, 0, 0, 0.5F, 3}},
      {leaky_relu, 0.1F, 0, {-0.2F, -0.05F, 0, 0.5F, 3}},
      {elu, 2, 0, {-1.72932943F, -0.78693868F, 0, 0.5F, 3}},
      {clip, -1, 0.25F, {-1, -0.5F, 0, 0.25F, 0.25F}},
      {clip, 1, -1, {-1, -1, -1, -1, -1}},  // min > max gives max
      {sigmoid, 0, 0, {0.11920292F, 0.37754067F, 0.5F, 0.62245933F, 0.95257413F}},
      {hard_sigmoid, 0.2F, 0.5F, {0.1F, 0.4F, 0.5F, 0.6F, 1}},
      {hard_swish, 0, 0, {-1.0F / 3, -0.20833333F, 0, 0.29166667F, 3}},
      {tanh, 0, 0, {-0.96402758F, -0.46211716F, 0, 0.46211716F, 0.99505475F}},
      {softplus, 0, 0, {0.12692801F, 0.47407698F, 0.69314718F, 0.97407698F, 3.04858735F}},
      {gelu, 0, 0, {-0.04550026F, -0.15426877F, 0, 0.34573123F, 2.99595031F}},
      {gelu_tanh, 0, 0, {-0.04540231F, -0.15428599F, 0, 0.34571401F, 2.99636261F}},
      {tan, 0, 0, {2.18503986F, -0.54630249F, 0, 0.54630249F, -0.14254654F}},
      {asin, 0, 0, {kNan, -0.52359878F, 0, 0.52359878F, kNan}},
      {acos, 0, 0, {kNan, 2.09439510F, 1.57079633F, 1.04719755F, kNan}},
      {atan, 0, 0, {-1.10714872F, -0.46364761F, 0, 0.46364761F, 1.24904577F}},
      {sinh, 0, 0, {-3.62686041F, -0.52109531F, 0, 0.52109531F, 10.0178749F}},
      {cosh, 0, 0, {3.76219569F, 1.12762597F, 1, 1.12762597F, 10.0676620F}},
      {asinh, 0, 0, {-1.44363548F, -0.48121183F, 0, 0.48121183F, 1.81844646F}},
      {acosh, 0, 0, {kNan, kNan, kNan, kNan, 1.76274717F}},
      {atanh, 0, 0, {kNan, -0.54930614F, 0, 0.54930614F, kNan}},
      {selu, 2, 3, {-5.18798830F, -2.36081604F, 0, 1.5F, 9}},
      {celu, 2, 0, {-1.26424112F, -0.44239843F, 0, 0.5F, 3}},
      {thresholded_relu, 0.5F, 0, {0, 0, 0, 0, 3}},
      {softsign, 0, 0, {-2.0F / 3, -1.0F / 3, 0, 1.0F / 3, 0.75F}},
      {mish, 0, 0, {-0.25250148F, -0.22074377F, 0, 0.37524524F, 2.98653500F}},
      {swish, 2, 0, {-0.03597242F, -0.13447071F, 0, 0.36552929F, 2.99258210F}},
      {shrink, 0.5F, 1, {-1.5F, 0, 0, 0, 2.5F}},
  }));
  INFO(name_of(row.op));
  check_close(unary(row.op, x, row.a, row.b), row.expected);
}

TEST_CASE("rounding goes to even, softplus does not overflow, NaN passes through") {
  using enum ElementwiseOp;
  CHECK(unary(round, {0.5F, 1.5F, 2.5F, -1.5F}) == std::vector<float>{0, 2, 2, -2});
  CHECK(unary(softplus, {1000, -1000}) == std::vector<float>{1000, 0});
  for (const ElementwiseOp op : {relu, clip, sign, leaky_relu, hard_sigmoid, softplus}) {
    INFO(name_of(op));
    CHECK(std::isnan(unary(op, {kNan}, 0, 1)[0]));
  }
  for (const ElementwiseOp op : {min, max}) {
    check_close(floats(eval(one_step(op), {f32({2}, {kNan, 1}), f32({2}, {1, kNan})}, {2})), {kNan, kNan});
  }
}

TEST_CASE("elementwise functions of two operands broadcast") {
  using enum ElementwiseOp;
  struct Row {
    ElementwiseOp op;
    std::vector<float> expected;
  };
  const Row row = GENERATE(values<Row>({{add, {2, -5, -1, -8}},
                                        {sub, {8, 1, 5, -2}},
                                        {mul, {-15, 6, -6, 15}},
                                        {div, {-5.0F / 3, 2.0F / 3, -2.0F / 3, 5.0F / 3}},
                                        {pow, {1.0F / 125, -1.0F / 8, 1.0F / 8, -1.0F / 125}},
                                        {min, {-3, -3, -3, -5}},
                                        {max, {5, -2, 2, -3}},
                                        {mod, {-1, -2, -1, -2}},  // the sign of the divisor
                                        {fmod, {2, -2, 2, -2}},
                                        {prelu, {5, 6, 2, 15}}}));
  INFO(name_of(row.op));
  check_close(floats(eval(one_step(row.op), {f32({2, 2}, {5, -2, 2, -5}), f32({1}, {-3})}, {2, 2})), row.expected);
  check_close(floats(eval(one_step(add), {f32({2, 1}, {10, 20}), f32({3}, {1, 2, 3})}, {2, 3})), {11, 12, 13, 21, 22, 23});
}

TEST_CASE("broadcasts of any shape read the right elements, also beyond one strip") {
  const Shape shape{3, 5, 7, 11};  // 1155 elements
  const Shape narrow = GENERATE(values<Shape>({{}, {1}, {11}, {7, 1}, {5, 1, 1}, {3, 1, 7, 1}, {1, 5, 1, 11}, {3, 5, 7, 11}}));
  const std::vector<float> y = floats(eval(one_step(ElementwiseOp::add), {counting(shape), counting(narrow)}, shape));
  for (int64_t i = 0; i < element_count(shape); ++i) {
    int64_t rest = i, stride = 1, at = 0;
    for (size_t d = 0; d < narrow.size(); ++d) {  // from the last dimension
      const int64_t extent = shape[3 - d], own = narrow[narrow.size() - 1 - d];
      if (own != 1) at += rest % extent * stride;
      rest /= extent;
      stride *= own;
    }
    REQUIRE(y[static_cast<size_t>(i)] == static_cast<float>(i + at));
  }
}

TEST_CASE("integer arithmetic truncates, wraps and keeps signs") {
  using enum ElementwiseOp;
  struct Row {
    ElementwiseOp op;
    std::vector<int64_t> expected;
  };
  const Value x = i64({4}, {7, -7, 7, -7}), y = i64({4}, {2, 2, -2, -2});
  const Row row = GENERATE(values<Row>({{add, {9, -5, 5, -9}},
                                        {sub, {5, -9, 9, -5}},
                                        {mul, {14, -14, -14, 14}},
                                        {div, {3, -3, -3, 3}},
                                        {mod, {1, 1, -1, -1}},
                                        {fmod, {1, -1, 1, -1}},
                                        {pow, {49, 49, 0, 0}},
                                        {min, {2, -7, -2, -7}},
                                        {max, {7, 2, 7, -2}}}));
  INFO(name_of(row.op));
  CHECK(whole(eval(one_step(row.op), {x, y}, {4}, DType::i64)) == row.expected);
  CHECK(whole(eval(one_step(add), {i64({}, {~kMin64}), i64({}, {1})}, {}, DType::i64)) == std::vector<int64_t>{kMin64});
  const Value narrow = eval(one_step(mul), {i32({1}, {1 << 30}), i32({1}, {4})}, {1}, DType::i32);
  CHECK(elements_of<int32_t>(narrow) == std::vector<int32_t>{0});
  CHECK(whole(eval(one_step(mod), {i64({1}, {kMin64}), i64({1}, {-1})}, {1}, DType::i64)) == std::vector<int64_t>{0});
}

TEST_CASE("integer divisions without a result give numpy's and never trap") {
  using enum ElementwiseOp;
  CHECK(whole(eval(one_step(div), {i64({2}, {7, 7}), i64({2}, {1, 0})}, {2}, DType::i64)) == std::vector<int64_t>{7, 0});
  CHECK(whole(eval(one_step(mod), {i64({2}, {7, -7}), i64({1}, {0})}, {2}, DType::i64)) == std::vector<int64_t>{0, 0});
  CHECK(whole(eval(one_step(div), {i64({1}, {kMin64}), i64({1}, {-1})}, {1}, DType::i64)) == std::vector<int64_t>{kMin64});
  CHECK(elements_of<int32_t>(eval(one_step(div), {i32({1}, {INT32_MIN}), i32({1}, {-1})}, {1}, DType::i32)) ==
        std::vector<int32_t>{INT32_MIN});
  CHECK(whole(eval(one_step(pow), {i64({4}, {0, 1, -1, 2}), i64({1}, {-3})}, {4}, DType::i64)) == std::vector<int64_t>{0, 1, -1, 0});
  check_error(Case(one_step(exp), {i64({1}, {0})}, {1}, DType::i64), ExitCode::unsupported, "exp of element type i64");
  check_error(Case(one_step(bit_and), {f32({1}, {0}), f32({1}, {0})}, {1}), ExitCode::unsupported, "bit_and of element type f32");
}

TEST_CASE("bits of integers") {
  using enum ElementwiseOp;
  const Value x = value<uint8_t>(DType::u8, {3}, {0b1100, 0xff, 1}), y = value<uint8_t>(DType::u8, {3}, {0b1010, 1, 7});
  const auto bits = [&](ElementwiseOp op) { return elements_of<uint8_t>(eval(one_step(op), {x, y}, {3}, DType::u8)); };
  CHECK(bits(bit_and) == std::vector<uint8_t>{0b1000, 1, 1});
  CHECK(bits(bit_or) == std::vector<uint8_t>{0b1110, 0xff, 7});
  CHECK(bits(bit_xor) == std::vector<uint8_t>{0b0110, 0xfe, 6});
  CHECK(bits(shift_left) == std::vector<uint8_t>{0, 0xfe, 128});
  CHECK(bits(shift_right) == std::vector<uint8_t>{0, 0x7f, 0});
  CHECK(elements_of<uint8_t>(eval(one_step(bit_not), {x}, {3}, DType::u8)) == std::vector<uint8_t>{0xf3, 0, 0xfe});
}

TEST_CASE("numbers of floats of few bits") {
  const auto rounded = [](float type, float saturate, const std::vector<float>& numbers) {
    const auto count = static_cast<int64_t>(numbers.size());
    return elements_of<float>(eval(Elementwise{{{ElementwiseOp::small_float, {0}, type, saturate}}}, {f32({count}, numbers)}, {count}));
  };
  CHECK(rounded(17, 1, {17, 19, 0.3F, 464, 1000, -kInf, 1.0F / 1024}) == std::vector<float>{16, 20, 0.3125F, 448, 448, -448, 0});
  CHECK(rounded(18, 1, {17, 247, -1e6F}) == std::vector<float>{16, 240, -240});
  CHECK(rounded(19, 0, {9, 61439, 61440, -kInf}) == std::vector<float>{8, 57344, kInf, -kInf});
  CHECK(rounded(23, 0, {0.25F, 0.75F, 5, 7, -100}) == std::vector<float>{0, 1, 4, 6, -6});
  for (const float type : {17.0F, 18.0F, 20.0F}) CHECK(std::isnan(rounded(type, 0, {kInf})[0]));
  CHECK(std::isnan(rounded(17, 1, {kNan})[0]));
  CHECK(std::signbit(rounded(17, 1, {-1e-9F})[0]));
  CHECK_FALSE(std::signbit(rounded(18, 1, {-1e-9F})[0]));
}

TEST_CASE("the infinite and what is no number") {
  using enum ElementwiseOp;
  const Value x = f32({4}, {kNan, kInf, -kInf, 1});
  const auto truths = [&](ElementwiseOp op, float a, float b) {
    return elements_of<uint8_t>(eval(Elementwise{{{op, {0}, a, b}}}, {x}, {4}, DType::boolean));
  };
  CHECK(truths(is_nan, 0, 0) == std::vector<uint8_t>{1, 0, 0, 0});
  CHECK(truths(is_inf, 1, 1) == std::vector<uint8_t>{0, 1, 1, 0});
  CHECK(truths(is_inf, 1, 0) == std::vector<uint8_t>{0, 0, 1, 0});
  CHECK(truths(is_inf, 0, 1) == std::vector<uint8_t>{0, 1, 0, 0});
}

TEST_CASE("unsigned 64-bit integers stay unsigned") {
  using enum ElementwiseOp;
  const uint64_t big = ~uint64_t{0};
  const Value x = value<uint64_t>(DType::u64, {1}, {big}), two = value<uint64_t>(DType::u64, {1}, {2});
  CHECK(elements_of<uint64_t>(eval(one_step(div), {x, two}, {1}, DType::u64)) == std::vector<uint64_t>{big / 2});
  CHECK(elements_of<uint64_t>(eval(one_step(max), {x, two}, {1}, DType::u64)) == std::vector<uint64_t>{big});
  CHECK(elements_of<uint8_t>(eval(one_step(less), {x, two}, {1}, DType::boolean)) == std::vector<uint8_t>{0});
}

TEST_CASE("comparisons, logic and where") {
  using enum ElementwiseOp;
  struct Row {
    ElementwiseOp op;
    std::vector<uint8_t> expected;
  };
  const Row row = GENERATE(values<Row>(
      {{equal, {0, 1, 0, 0}}, {less, {1, 0, 0, 0}}, {less_equal, {1, 1, 0, 0}}, {greater, {0, 0, 1, 0}}, {greater_equal, {0, 1, 1, 0}}}));
  INFO(name_of(row.op));
  const Value x = f32({4}, {1, 2, 3, kNan}), y = f32({}, {2});
  CHECK(elements_of<uint8_t>(eval(one_step(row.op), {x, y}, {4}, DType::boolean)) == row.expected);

  const Value p = boolean({4}, {0, 0, 1, 1}), q = boolean({4}, {0, 1, 0, 1});
  const auto logic = [&](ElementwiseOp op) { return elements_of<uint8_t>(eval(one_step(op), {p, q}, {4}, DType::boolean)); };
  CHECK(logic(logical_and) == std::vector<uint8_t>{0, 0, 0, 1});
  CHECK(logic(logical_or) == std::vector<uint8_t>{0, 1, 1, 1});
  CHECK(logic(logical_xor) == std::vector<uint8_t>{0, 1, 1, 0});
  CHECK(elements_of<uint8_t>(eval(one_step(logical_not), {p}, {4}, DType::boolean)) == std::vector<uint8_t>{1, 1, 0, 0});
  const Value chosen = eval(one_step(where), {boolean({2, 1}, {1, 0}), i64({3}, {1, 2, 3}), i64({}, {-1})}, {2, 3}, DType::i64);
  CHECK(whole(chosen) == std::vector<int64_t>{1, 2, 3, -1, -1, -1});
}

TEST_CASE("casts truncate, wrap and round as numpy's") {
  const auto cast = [](const Value& x, DType to) { return eval(one_step(ElementwiseOp::cast), {x}, x.shape, to); };
  CHECK(whole(cast(f32({4}, {1.9F, -1.9F, kNan, 1e30F}), DType::i64)) == std::vector<int64_t>{1, -1, kMin64, kMin64});
  CHECK(elements_of<int8_t>(cast(i64({3}, {127, 128, -129}), DType::i8)) == std::vector<int8_t>{127, -128, 127});
  CHECK(elements_of<uint8_t>(cast(f32({3}, {0, -0.25F, kNan}), DType::boolean)) == std::vector<uint8_t>{0, 1, 1});
  CHECK(floats(cast(boolean({2}, {0, 1}), DType::f32)) == std::vector<float>{0, 1});
  CHECK(floats(cast(boolean({1}, {7}), DType::f32)) == std::vector<float>{1});
  CHECK(floats(cast(i64({1}, {(int64_t{1} << 54) + (int64_t{1} << 30) + 1}), DType::f32)) == std::vector<float>{18014400656965632.0F});
}

TEST_CASE("half precision floats round to nearest even, with subnormals and infinities") {
  struct Row {
    double x;
    uint16_t f16, bf16;
  };
  const Row row = GENERATE(values<Row>({{0.0, 0x0000, 0x0000},
                                        {-0.0, 0x8000, 0x8000},
                                        {1.0, 0x3c00, 0x3f80},
                                        {1.0 + 0x1p-11, 0x3c00, 0x3f80},
                                        {1.0 + 0x1p-11 + 0x1p-40, 0x3c01, 0x3f80},  // a detour over float would lose the last bit
                                        {1.0 + 0x3p-11, 0x3c02, 0x3f80},
                                        {65504, 0x7bff, 0x4780},
                                        {65520, 0x7c00, 0x4780},
                                        {-1e30, 0xfc00, 0xf14a},
                                        {0x1p-24, 0x0001, 0x3380},
                                        {0x1p-25, 0x0000, 0x3300},
                                        {0x1.ffcp-15, 0x0400, 0x3880}}));
  const auto bits = [&](DType to) {
    return elements_of<uint16_t>(eval(one_step(ElementwiseOp::cast), {value<double>(DType::f64, {1}, {row.x})}, {1}, to))[0];
  };
  CHECK(bits(DType::f16) == row.f16);
  CHECK(bits(DType::bf16) == row.bf16);
  const Value sum =
      eval(one_step(ElementwiseOp::add),
           {value<uint16_t>(DType::f16, {2}, {0x3c00, 0x0001}), value<uint16_t>(DType::f16, {2}, {0x4000, 0x0001})}, {2}, DType::f16);
  CHECK(elements_of<uint16_t>(sum) == std::vector<uint16_t>{0x4200, 0x0002});
}

TEST_CASE("a chain gives the bits of its steps one by one") {
  using enum ElementwiseOp;
  const Value x = f32({3}, {16777216.0F, 0.1F, 3e38F}), y = f32({3}, {1, 0.2F, 3e38F});
  const Elementwise chain{{{add, {0, 1}, 0, 0}, {sub, {-1, 1}, 0, 0}, {equal, {-2, 0}, 0, 0}, {where, {-3, -1, -2}, 0, 0}}};
  const Value sum = eval(one_step(add), {x, y}, {3});
  const Value difference = eval(one_step(sub), {sum, y}, {3});
  const Value same = eval(one_step(equal), {difference, x}, {3}, DType::boolean);
  const Value expected = eval(one_step(where), {same, sum, difference}, {3});
  CHECK(floats(eval(chain, {x, y}, {3})) == floats(expected));
  const Elementwise mask{{{less, {0, 1}, 0, 0}, {cast, {-1}, 0, 0}, {mul, {-2, 1}, 0, 0}}};
  CHECK(floats(eval(mask, {f32({2}, {1, 5}), f32({2}, {3, 3})}, {2})) == std::vector<float>{3, 0});
}

TEST_CASE("identity may repeat its input to a larger output") {
  CHECK(floats(eval(one_step(ElementwiseOp::identity), {f32({2, 1}, {1, 2})}, {2, 2, 2})) == std::vector<float>{1, 1, 2, 2, 1, 1, 2, 2});
}

}  // namespace tamp
