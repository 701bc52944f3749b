// How staged_conv divides a product: tiles, shares of k, teams, boxes and chunks of its candidates. staged_conv_test.cpp runs them.
#include "kernels/product/staged_conv_plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "kernels/catalogue.h"
#include "kernels/product/staged_conv_pack.h"
#include "test/kernels/conv_cases.h"
#include "test/kernels/heavy_bench.h"
#include "test/support/catch.h"

namespace tamp::test {
namespace {

// The candidates of a 3x3 convolution of a map of 14 x 14 on a H200, whose teams are several.
struct Planned {
  Case c;
  kernels::Product product;
  std::vector<RKernel> rkernels;
};
Planned planned(int64_t channels, Precision precision) {
  Planned out{
      conv_case(
          {.name = "plan", .in = {1, channels, 14, 14}, .out_channels = 64, .kernel = {3, 3}, .pads_begin = {1, 1}, .pads_end = {1, 1}}),
      {},
      {}};
  out.product = *kernels::product_of(out.c.graph, out.c.graph.rops[0]);
  out.rkernels = kernels::candidates_of(kernels::family("staged_conv"),
                                        {out.c.graph, out.c.graph.rops[0], read_vdevice("h200").with_inputs(), precision});
  return out;
}

TEST_CASE("as many groups are merged as divide the groups and fit a box") {
  const auto merged = [](int64_t groups, DType dtype) {
    const Case c = narrowed(conv_case({.name = "groups",
                                       .in = {1, groups * 8, 14, 14},
                                       .out_channels = groups * 8,
                                       .kernel = {3, 3},
                                       .pads_begin = {1, 1},
                                       .pads_end = {1, 1},
                                       .group = groups}),
                            dtype, dtype);
    const std::optional<kernels::Product> p = kernels::product_of(c.graph, c.graph.rops[0], kernels::Activations::bytes);
    const kernels::staged::Groups found = kernels::staged::groups_of(*p, {});
    CHECK(found.merged * found.count == groups);
    CHECK(found.in_channels == found.merged * 8);
    return found.merged;
  };
  CHECK(merged(32, DType::f16) == 8);  // of a box of 64 channels
  CHECK(merged(6, DType::f16) == 6);
  CHECK(merged(55, DType::f16) == 5);
  CHECK(merged(13, DType::f16) == 1);
  CHECK(merged(32, DType::f32) == 4);
  CHECK(merged(6, DType::f32) == 3);
  CHECK(merged(13, DType::whole_u8) == 13);
  CHECK(merged(26, DType::whole_u8) == 2);  // 13 of 8 channels would begin 8 bytes behind a multiple of 16
}

TEST_CASE("the sum of split k costs what its rows do") {
  ShapedVDevice vdevice = read_vdevice("h200").with_inputs();
  vdevice.wide_products = true;
  std::map<int64_t, double> cycles;  // by the rows of a rTask, of two splits
  for (const int64_t batch : {1, 8, 32}) {
    const Case c = narrowed(conv_case({.name = "dense", .in = {batch, 1024, 16, 8}, .out_channels = 768, .kernel = {1, 1}, .residual = 1}),
                            DType::f16, DType::f16);
    for (const RKernel& rkernel :
         kernels::candidates_of(kernels::family("staged_conv"), {c.graph, c.graph.rops[0], vdevice, Precision::fp16})) {
      const kernels::staged::Config config = kernels::staged::config_of(rkernel);
      if (config.splits != 2) continue;
      const Phase& sum = rkernel.phases[1];
      CHECK(sum.body == (config.sum_rows < 64 ? "rk::split_k_sum" : "rk::split_k_sum_rows"));
      cycles[config.sum_rows] = sum.cost.calibrated_cycles;
    }
  }
  REQUIRE(cycles.size() == 3);
  CHECK(cycles.at(16) == vdevice.cost("split_k_sum.fixed_cycles") + 2 * vdevice.cost("split_k_sum.split_cycles"));
  CHECK(cycles.at(96) > 2 * cycles.at(16));
  CHECK(cycles.at(384) > 3 * cycles.at(96));
}

TEST_CASE("large tiles of one tap are taken with six blocks of channels beside each other, all others tile by tile") {
  ShapedVDevice vdevice = read_vdevice("h200").with_batches();
  vdevice.wide_products = true;
  const auto beside = [&](int64_t kernel) {
    const Case c = conv_case({.name = "plan", .in = {1, 128, 64, 64}, .out_channels = 768, .kernel = {kernel, kernel}});
    std::set<std::pair<bool, int64_t>> found;  // large, blocks beside
    for (const RKernel& rkernel :
         kernels::candidates_of(kernels::family("staged_conv"), {c.graph, c.graph.rops[0], vdevice, Precision::tf32})) {
      const kernels::staged::Config config = kernels::staged::config_of(rkernel);
      found.emplace(kernels::staged::shape_of(config).only_deep() && config.splits == 1, rkernel.phases[0].boxes->blocks_beside);
    }
    return found;
  };
  CHECK(beside(1) == std::set<std::pair<bool, int64_t>>{{false, 1}, {true, 6}});
  for (const auto& [large, blocks] : beside(3)) CHECK(blocks == 1);
}

TEST_CASE("teams take boxes where taps would leave one of them idle") {
  using namespace kernels::staged;
  const int64_t stage_bytes = read_vdevice("h200").with_inputs().input_stage_bytes;
  for (const Precision precision : {Precision::tf32, Precision::fp16}) {
    int taken = 0;
    for (const int64_t boxes : {3, 8}) {
      int several = 0;
      const Planned plan = planned(32 * boxes, precision);
      for (const RKernel& rkernel : plan.rkernels) {
        const Config c = config_of(rkernel);
        const int64_t teams = teams_of(c);
        if (teams == 1 || c.splits > 1) continue;
        ++several;
        INFO(rkernel.name << ", " << boxes << " boxes");
        const bool whole = boxes % teams == 0 && teams * bytes_of_box(plan.product, c) <= stage_bytes;
        CHECK(c.team_boxes == (whole ? 1 : 0));
        CHECK(steps_of_boxes(plan.product, c, boxes) == (whole ? boxes * 9 / teams : boxes * (9 / teams + 1)));
        taken += whole;
      }
      CHECK(several > 0);
    }
    CHECK(taken > 0);
  }
}

TEST_CASE("a chunk of all its boxes is filled up to a batch of steps where that is cheaper, one of fewer boxes never is") {
  using namespace kernels::staged;
  const Planned plan = planned(160, Precision::tf32);
  Config c = config_of(plan.rkernels.front());
  REQUIRE(batch_of(c) == 4);
  REQUIRE(teams_of(c) == 2);
  c.team_boxes = 0;  // 5 steps a box
  for (const auto& [boxes, steps] : {std::pair{1, 5}, {2, 10}, {3, 16}, {4, 20}}) {
    c.boxes_per_chunk = boxes;
    CHECK(input_steps_of(plan.product, c) == steps);
  }
  c.boxes_per_chunk = 3;
  CHECK(steps_of_split(plan.product, c, 5) == 16 + 10);
  c.boxes_per_chunk = 4;
  CHECK(steps_of_split(plan.product, c, 7) == 20 + 15);
}

TEST_CASE("chunks of inputs and of weights end with a batch of four where its boxes fit a stage") {
  using namespace kernels::staged;
  const Case c = conv_case({.name = "1x1", .in = {1, 1024, 14, 14}, .out_channels = 256, .kernel = {1, 1}});
  const kernels::Product product = *kernels::product_of(c.graph, c.graph.rops[0]);
  const ShapedVDevice vdevice = read_vdevice("h200").with_inputs();
  int batches = 0;
  for (const RKernel& rkernel :
       kernels::candidates_of(kernels::family("staged_conv"), {c.graph, c.graph.rops[0], vdevice, Precision::tf32})) {
    const Config config = config_of(rkernel);
    const int64_t batch = batch_of(config), box = boxes_of_step(config);
    if (batch < 4 || batch * box > config.boxes_per_split || batch * box * bytes_of_box(product, config) > vdevice.input_stage_bytes)
      continue;
    INFO(rkernel.name << " " << input_steps_of(product, config) << " " << config.chunk_steps);
    CHECK(input_steps_of(product, config) % batch == 0);
    CHECK(config.chunk_steps % batch == 0);
    ++batches;
  }
  CHECK(batches > 5);
}

TEST_CASE("few rows are offered in one more tile than copies least, many rows are not") {
  using namespace kernels::staged;
  ShapedVDevice vdevice = read_vdevice("h200").with_inputs();
  vdevice.wide_products = true;
  const auto widths = [&](int64_t images) {  // of tiles of 64 channels by up to 64 pixels
    const Case c =
        narrowed(conv_case({.name = "dense", .in = {images, 768, 16, 8}, .out_channels = 768, .kernel = {1, 1}}), DType::f16, DType::f16);
    std::set<int64_t> found;
    for (const RKernel& rkernel :
         kernels::candidates_of(kernels::family("staged_conv"), {c.graph, c.graph.rops[0], vdevice, Precision::fp16})) {
      const Config config = config_of(rkernel);
      if (config.deep != 0 && shape_of(config).channels() == 64 && shape_of(config).pixels() == 64) found.insert(config.tile_w);
    }
    return found;
  };
  CHECK(widths(1) == std::set<int64_t>{43, 64});  // 128 rows
  CHECK(widths(8).size() == 1);
}

TEST_CASE("where one-tap products are all that counts, stages of inputs have one number of steps, and stages of weights are whole ones") {
  using namespace kernels::staged;
  ShapedVDevice vdevice = read_vdevice("h200").with_inputs();
  vdevice.wide_products = vdevice.even_stages = true;
  struct Stages {
    int64_t steps, chunk_steps;
  };
  const auto stages = [&](int64_t k) {  // of tiles of 64 channels by 64 pixels, the whole k in one share
    const Case c =
        narrowed(conv_case({.name = "dense", .in = {1, k, 16, 8}, .out_channels = 768, .kernel = {1, 1}}), DType::f16, DType::f16);
    std::optional<Stages> found;
    for (const RKernel& rkernel :
         kernels::candidates_of(kernels::family("staged_conv"), {c.graph, c.graph.rops[0], vdevice, Precision::fp16})) {
      const Config config = config_of(rkernel);
      const kernels::staged::Shape& shape = shape_of(config);
      if (config.deep == 0 || shape.channels() != 64 || shape.pixels() != 64 || config.tile_w != 64 || config.splits != 1) continue;
      const kernels::Product product = product_for(c.graph, c.graph.rops[0], config);
      INFO(rkernel.name << " " << k);
      const auto& arguments = rkernel.phases[0].template_args;
      const auto is_steps = [](const auto& argument) { return argument.first == "STAGE_STEPS"; };
      CHECK(std::any_of(arguments.begin(), arguments.end(), is_steps) == (config.stage_steps != 0));
      if (config.stage_steps != 0) {
        CHECK(input_steps_of(product, config) == config.stage_steps);
        CHECK(config.boxes_per_split % config.stage_steps == 0);
        CHECK(config.chunk_steps % config.stage_steps == 0);
        CHECK(config.stage_steps * bytes_of_box(product, config) <= vdevice.input_stage_bytes);
        CHECK(config.chunk_steps * step_bytes_of(config) <= vdevice.weight_stage_bytes);
      }
      found = Stages{config.stage_steps, config.chunk_steps};
    }
    REQUIRE(found);
    return *found;
  };
  CHECK(stages(768).steps == 3);  // 12 steps
  CHECK(stages(640).steps == 2);  // 10
  CHECK(stages(640).chunk_steps == 4);
  CHECK(stages(704).steps == 0);  // 11
  CHECK(stages(512).steps == 2);  // 8
  CHECK(stages(128).steps == 2);  // 2, all in one stage
  vdevice.even_stages = false;
  CHECK(stages(768).steps == 0);
}

}  // namespace
}  // namespace tamp::test
