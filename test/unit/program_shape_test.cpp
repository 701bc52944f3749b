// Which shapes a program may have, and which of them is taken.
#include "compiler/shape/program_shape.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "compiler/passes/place/assign_layout.h"
#include "test/support/graph_text.h"

namespace tamp::test {
namespace {

constexpr const char* kConv = R"(
  x = input f32[1,8,8,8]
  w = const f32[8,8,3,3]
  y = Conv(x, w) {kernel=[3,3] pads=[1,1,1,1]} -> f32[1,8,8,8]
  outputs(y)
)";
constexpr const char* kGang = R"(
  x = input f32[5,1,8]
  w = const f32[64,8]
  r = const f32[64,16]
  y = Recurrent(x, w, r) {batch=1, cell=[kind=LSTM steps=5 hidden=16 x=0 w=1 r=2 y=0]} -> f32[5,1,16]
  outputs(y)
)";

// `rows` rows by 512 columns times 512 x 512 weights, the one product of a program.
std::string product(int64_t rows, int64_t columns = 512) {
  return fmt::format("x = input f32[{0},{1}]\nw = const f32[{1},512]\ny = MatMul(x, w) -> f32[{0},512]\noutputs(y)\n", rows, columns);
}

shape::Setting setting_of(const std::string& vdevice, Precision precision) {
  shape::Setting setting;
  setting.vdevice = read_vdevice(vdevice);
  setting.precision = precision;
  return setting;
}

std::string names_of(const std::string& text, const shape::Setting& setting) {
  std::string names;
  for (const shape::Offer& offer : shape::offers(passes::assign_layout(parse_graph(text)), setting))
    names += (names.empty() ? "" : ", ") + offer.name;
  return names;
}

}  // namespace

TEST_CASE("a program may have the shapes that suit its graph") {
  struct Row {
    std::string graph, vdevice;
    Precision precision;
    std::string names;
  };
  const std::string both = std::string(kGang).substr(0, std::string(kGang).find("  outputs")) +
                           "  m = input f32[1,8,8,8]\n  k = const f32[8,8,3,3]\n"
                           "  z = Conv(m, k) {kernel=[3,3] pads=[1,1,1,1]} -> f32[1,8,8,8]\n  outputs(y, z)\n";
  const Row rows[] = {
      {kConv, "h200", Precision::tf32, "usual"},
      {kConv, "h200", Precision::fp32, "usual"},
      {kGang, "h200", Precision::tf32, "usual"},
      {both, "h200", Precision::tf32, "usual, without boxes"},
      {both, "h200", Precision::fp32, "usual"},
      {both, "t4", Precision::fp32, "usual"},
      {product(64), "h200", Precision::fp16, "usual, clusters"},
      {product(64), "h200", Precision::tf32, "usual, clusters"},
      {product(64), "h200", Precision::fp32, "usual"},
      {product(64), "a100", Precision::fp16, "usual"},       // no wgmma
      {product(64, 128), "h200", Precision::fp16, "usual"},  // too few channels for wgmma
      {product(1), "h200", Precision::fp16, "usual"},        // one row, so no boxes
      {product(8192), "h200", Precision::fp16, "usual, longer stages"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.graph, row.vdevice, row.precision);
    CHECK(names_of(row.graph, setting_of(row.vdevice, row.precision)) == row.names);
  }
  shape::Setting graph_execution = setting_of("h200", Precision::fp16);
  graph_execution.gangs = false;
  CHECK(names_of(product(64), graph_execution) == "usual");  // a cluster's members run at the same time
  shape::Setting wide = setting_of("h200", Precision::fp16);
  wide.narrow_activations = false;
  CHECK(names_of(product(8192), wide) == "usual");  // longer stages are for tiles of 16 bits
}

TEST_CASE("the shape of the least time is taken, by what each must gain") {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  struct Row {
    std::vector<double> us;     // of each offer, the last one with the factor
    double factor, control_us;  // control_us 0: none
    size_t taken;
  };
  const Row rows[] = {
      {{10}, 1, 0, 0},
      {{10, 9}, 1, 0, 1},
      {{10, 10}, 1, 0, 0},  // the first of equals
      {{10, 9, 8}, 1, 0, 2},
      {{10, 8, 9}, 1, 0, 1},
      {{10, 9.5}, 1.07, 0, 0},  // gains too little
      {{10, 9.3}, 1.07, 0, 1},
      {{10, 10.1}, 1 / 1.02, 0, 0},
      {{10, 10.1}, 1 / 1.02, 10.2, 1},  // gains more than is estimated, by what the control has not
      {{10, 10.1}, 1 / 1.02, 10.1, 0},
      {{10, 10.3}, 1 / 1.02, 11, 0},  // not near enough
      {{10, 9.9}, 1 / 1.02, 9, 1},
      {{kNever, 10}, 1, 0, 1},
      {{10, kNever}, 1 / 1.02, 0, 0},
      {{kNever, kNever}, 1, 0, 0},
  };
  for (const Row& row : rows) {
    std::vector<shape::Offer> offers;
    std::map<std::string, double> us = {{"control", row.control_us}};
    const auto add = [&](double time) {
      shape::Offer& offer = offers.emplace_back();
      offer.name = offer.vdevice.name = std::to_string(offers.size() - 1);
      us[offer.name] = time;
    };
    for (const double time : row.us) add(time);
    offers.back().factor = row.factor;
    if (row.control_us > 0) {
      offers.back().control.emplace();
      offers.back().control->name = "control";
    }
    CAPTURE(row.us, row.factor, row.control_us);
    CHECK(shape::least(offers, [&](const ShapedVDevice& d) { return us.at(d.name); }).name == std::to_string(row.taken));
  }
}

TEST_CASE("a program's products decide which kinds of bodies it has") {
  const auto flags = [](int64_t rows, int64_t columns, Precision precision) {
    const ShapedVDevice d = shape::usual_shape(parse_graph(product(rows, columns)), read_vdevice("h200"), precision);
    return fmt::format("{}{}{}{}", d.wide_products ? "w" : "", d.more_tiles ? "m" : "", d.even_stages ? "e" : "",
                       d.voting_waits ? "v" : "");
  };
  CHECK(flags(64, 256, Precision::tf32) == "wev");
  CHECK(flags(64, 255, Precision::tf32).empty());
  CHECK(flags(4096, 128, Precision::tf32).empty());
  CHECK(flags(4096, 128, Precision::fp16) == "wme");  // 85 tiles of 128 x 192
  CHECK(flags(2048, 256, Precision::tf32) == "wev");  // 43 are less than a third of 132
  CHECK(flags(2112, 256, Precision::tf32) == "wme");
  CHECK(flags(2112, 256, Precision::fp32).empty());
}

}  // namespace tamp::test
