// 16-bit numbers for packed weights, against what the reference makes of the same floats.
#include "kernels/narrow.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "compiler/ops/number.h"
#include "test/support/catch.h"

namespace tamp::test {
namespace {

// Every 16-bit number with the float in the middle to the next one, the floats around them, and any others.
template <class F>
void for_each_sample(F&& f) {
  std::mt19937 random(9);
  for (uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const auto value = static_cast<float>(ops::real_of(ops::Half{static_cast<uint16_t>(bits)}));
    const auto next = static_cast<float>(ops::real_of(ops::Half{static_cast<uint16_t>(bits + 1)}));
    for (const float at : {value, (value + next) / 2, std::bit_cast<float>(bits << 16), std::bit_cast<float>(bits << 16 | 0x8000U),
                           std::bit_cast<float>(static_cast<uint32_t>(random()))}) {
      f(at);
      f(std::nextafter(at, -std::numeric_limits<float>::infinity()));
      f(std::nextafter(at, std::numeric_limits<float>::infinity()));
    }
  }
}

TEST_CASE("floats become the nearest half, ties to even") {
  int64_t wrong = 0;
  for_each_sample([&](float x) { wrong += !std::isnan(x) && kernels::half_of(x) != ops::half_of(static_cast<double>(x)).bits; });
  CHECK(wrong == 0);
}

TEST_CASE("floats become the nearest bfloat, ties to even") {
  int64_t wrong = 0;
  for_each_sample([&](float x) { wrong += !std::isnan(x) && kernels::bfloat_of(x) != ops::bfloat_of(static_cast<double>(x)).bits; });
  CHECK(wrong == 0);
}

TEST_CASE("a NaN stays one, whatever its bits") {
  for (const uint32_t bits : {0x7fc00000U, 0x7f800001U, 0x7f80ffffU, 0xff800001U, 0xffffffffU}) {
    const auto x = std::bit_cast<float>(bits);
    CHECK(std::isnan(ops::real_of(ops::Half{kernels::half_of(x)})));
    CHECK(std::isnan(ops::real_of(ops::Bfloat{kernels::bfloat_of(x)})));
  }
}

std::shared_ptr<const Bytes> constant_of(const std::vector<float>& values) {
  Bytes bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  // Not make_shared, whose memory stays while somebody remembers the constant: here the next one may come to lie at the same address.
  return std::shared_ptr<const Bytes>(new Bytes(std::move(bytes)));
}

TEST_CASE("what halves hold of a constant is remembered for that constant alone") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<std::vector<float>> all = {
      {1, -2}, {70000}, {0, 0}, {1e-5F}, {kInfinity, 3}, {kInfinity}, {}, {65504, -1}, {std::nanf(""), 1e-4F}};
  for (int turn = 0; turn < 3; ++turn) {
    for (const std::vector<float>& values : all) {
      const std::shared_ptr<const Bytes> constant = constant_of(values);
      for (const float factor : {1.0F, 1.0F, 0.5F, 1e4F}) {
        CAPTURE(turn, values, factor);
        CHECK(kernels::halves_hold(constant, factor) == kernels::halves_hold(values.data(), static_cast<int64_t>(values.size()), factor));
      }
    }
  }
}

}  // namespace
}  // namespace tamp::test

namespace tamp::test {

using kernels::byte_scale;

TEST_CASE("byte_scale finds a step of which all weights are signed bytes") {
  const std::vector<float> weights = {0.03F, -0.015F, 0.1F, 0};
  REQUIRE(byte_scale(weights).has_value());
  CHECK(std::abs(*byte_scale(weights) - 0.005F) < 1e-8F);
  std::vector<float> all;
  for (int i = -127; i <= 127; ++i) all.push_back(static_cast<float>(i) * 0.37F);
  REQUIRE(byte_scale(all).has_value());
  for (const float weight : all) CHECK(std::abs(weight / *byte_scale(all) - std::rint(weight / *byte_scale(all))) < 1e-4F);
}

TEST_CASE("byte_scale of one magnitude is that magnitude, of zeros any") {
  CHECK(byte_scale(std::vector<float>{0.25F, -0.25F, 0}) == 0.25F);
  CHECK(byte_scale(std::vector<float>{0, 0}).has_value());
}

TEST_CASE("byte_scale finds none for weights without such a step") {
  CHECK_FALSE(byte_scale(std::vector<float>{1, 0.3333F, 0.77721F}).has_value());
  CHECK_FALSE(byte_scale(std::vector<float>{200, 1, 3}).has_value());  // whole, and too many steps
  CHECK_FALSE(byte_scale(std::vector<float>{std::numeric_limits<float>::infinity(), 1}).has_value());
  CHECK_FALSE(byte_scale(std::vector<float>{std::numeric_limits<float>::quiet_NaN(), 1}).has_value());
}

}  // namespace tamp::test
