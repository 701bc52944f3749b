// Gangs of recurrent cells against the reference, on the CPU over the stand-in; see test/kernels/recurrent_bench.h for what else
// is checked. The vDevices are small, so that small cells are spread over several vEUs and do not fit their memory.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "kernels/catalogue.h"
#include "test/kernels/recurrent_bench.h"
#include "test/kernels/recurrent_cases.h"
#include "test/support/case_folder.h"
#include "test/support/catch.h"

namespace tamp::test {
namespace {

using Sizes = RecurrentMaker::Sizes;
using Links = RecurrentMaker::Links;
using enum CellKind;

ShapedVDevice vdevice_of(int64_t veus, int64_t work_kbytes) {
  ShapedVDevice d = small_vdevice();
  d.sms = veus;
  d.smem_bytes = kControlBytes + d.weight_stages * d.weight_stage_bytes + work_kbytes * 1024;
  d.clock_ghz = 1.98;
  d.edge_us = 0.01;  // so that many shares look good
  d.dram_gb_per_s = 1000;
  d.l2_bytes = 50e6;
  return d;
}

void expect_no_problems(const std::vector<Case>& cases, const ShapedVDevice& vdevice, const std::string& name) {
  const std::filesystem::path root = std::filesystem::absolute(__FILE__).parent_path().parent_path().parent_path();
  const CaseFolder folder("tamp_recurrent_" + name);
  RecurrentRun run;
  run.vdevice = vdevice;
  run.tolerance = 1e-5;
  CHECK(join(run_recurrent(cases, kernels::family("recurrent_gang"), run, root, folder.path()), "\n") == "");
}

Case single(const std::string& name, const Sizes& sizes, int64_t batch, const Links& links = {}) {
  return RecurrentMaker(name, batch).cell(sizes, links).finish();
}

Links initial() {
  Links links;
  links.initial = true;
  return links;
}

// As a pass asks before tensors have places.
std::optional<Estimate> estimate_of(Case c, const ShapedVDevice& vdevice, Precision precision) {
  for (Tensor& tensor : c.graph.tensors) tensor.place = {};
  return kernels::estimate({c.graph, c.graph.rops[0], vdevice, precision});
}

}  // namespace

TEST_CASE("one cell of every kind and of sizes that fit nothing runs as a gang") {
  std::vector<Case> cases;
  for (const CellKind kind : {lstm, gru, rnn}) {
    const std::string name = name_of(kind);
    cases.push_back(single(name + " of one unit", {kind, 1, 1, 1}, 1));
    cases.push_back(single(name + " with an initial state", {kind, 4, 5, 7}, 1, initial()));
    cases.push_back(single(name + " spread", {kind, 3, 33, 70}, 1, initial()));
    cases.push_back(single(name + " of a batch", {kind, 3, 9, 19}, 5, initial()));
    Links gates = initial();
    gates.x_is_gates = true;
    cases.push_back(single(name + " of gates", {kind, 3, 8, 37}, 3, gates));
  }
  expect_no_problems(cases, vdevice_of(6, 60), "kinds");
}

TEST_CASE("weights that fit no share's memory are read again in each step") {
  std::vector<Case> cases;
  for (const CellKind kind : {lstm, gru, rnn}) {
    cases.push_back(single(name_of(kind), {kind, 3, 130, 90}, 2, initial()));
    cases.push_back(single(std::string(name_of(kind)) + " wide", {kind, 2, 600, 40}, 9, initial()));
  }
  expect_no_problems(cases, vdevice_of(3, 18), "stream");
}

TEST_CASE("cells of one gang feed each other") {
  std::vector<Case> cases;
  Links next = {};
  next.x_cell = 0;
  Links third = initial();
  third.x_cell = 1;
  cases.push_back(RecurrentMaker("three layers", 2)
                      .cell({lstm, 5, 12, 24}, initial())
                      .cell({gru, 5, 24, 17}, next)
                      .cell({lstm, 5, 17, 9}, third)
                      .finish());
  Links decoder = {};
  decoder.h0_cell = decoder.c0_cell = 0;
  cases.push_back(RecurrentMaker("encoder and decoder", 1).cell({lstm, 6, 10, 21}, {}).cell({lstm, 3, 4, 21}, decoder).finish());
  Links gru_decoder = {};
  gru_decoder.h0_cell = 0;
  cases.push_back(RecurrentMaker("gru decoder", 3).cell({gru, 4, 10, 20}, {}).cell({gru, 2, 4, 20}, gru_decoder).finish());
  const auto backwards = [](RecurrentMaker&, RecurrentCell& cell) { cell.reverse = true; };
  cases.push_back(RecurrentMaker("both directions", 1).cell({lstm, 5, 6, 20}, {}).cell({lstm, 5, 6, 20}, initial(), backwards).finish());
  expect_no_problems(cases, vdevice_of(9, 40), "cells");
  // One vEU a cell: h stays there, and goes out for others only.
  expect_no_problems(cases, vdevice_of(3, 40), "cells_alone");
}

TEST_CASE("a gang takes what is not usual: functions, clip, peepholes, lengths") {
  std::vector<Case> cases;
  const auto peepholes = [](RecurrentMaker& m, RecurrentCell& cell) { cell.peepholes = m.add(m.maker().constant({3 * cell.hidden})); };
  const auto clip = [](RecurrentMaker&, RecurrentCell& cell) { cell.clip = 0.3F; };
  const auto forget = [](RecurrentMaker&, RecurrentCell& cell) { cell.input_forget = true; };
  cases.push_back(RecurrentMaker("peepholes", 2).cell({lstm, 4, 6, 21}, initial(), peepholes).finish());
  cases.push_back(RecurrentMaker("input forget", 1).cell({lstm, 4, 6, 21}, initial(), forget).finish());
  for (const CellKind kind : {lstm, gru, rnn}) {
    const std::string name = name_of(kind);
    cases.push_back(RecurrentMaker(name + " clipped", 2).cell({kind, 4, 6, 21}, initial(), clip).finish());
    const auto functions = [](RecurrentMaker&, RecurrentCell& cell) {
      cell.functions = {CellFunction{CellFunctionKind::hard_sigmoid, 0.2F, 0.5F}, CellFunction{CellFunctionKind::softsign, 0, 0},
                        CellFunction{CellFunctionKind::scaled_tanh, 0.7F, 1.1F}};
    };
    cases.push_back(RecurrentMaker(name + " of other functions", 1).cell({kind, 3, 6, 13}, initial(), functions).finish());
    for (const bool reverse : {false, true}) {
      const auto lengths = [reverse](RecurrentMaker& m, RecurrentCell& cell) {
        cell.lengths = m.lengths({4, 0, 2});
        cell.reverse = reverse;
      };
      cases.push_back(RecurrentMaker(name + (reverse ? " with lengths, backwards" : " with lengths"), 3)
                          .cell({kind, 4, 6, 21}, initial(), lengths)
                          .finish());
    }
  }
  expect_no_problems(cases, vdevice_of(4, 40), "unusual");
}

TEST_CASE("what a gang cannot run has no candidates and no estimate") {
  const ShapedVDevice vdevice = vdevice_of(2, 40);
  const auto early_reset = [](RecurrentMaker&, RecurrentCell& cell) { cell.linear_before_reset = false; };
  const Case gru_case = RecurrentMaker("gru", 1).cell({gru, 3, 4, 5}, {}, early_reset).finish();
  CHECK(kernels::candidates_of(kernels::family("recurrent_gang"), {gru_case.graph, gru_case.graph.rops[0], vdevice, Precision::fp32})
            .empty());
  CHECK_FALSE(estimate_of(gru_case, vdevice, Precision::fp32));

  const Case large = single("more units than the vEUs have rows for", {lstm, 2, 4, 500}, 1);
  CHECK(kernels::candidates_of(kernels::family("recurrent_gang"), {large.graph, large.graph.rops[0], vdevice, Precision::fp32}).empty());

  Case changing = single("weights made at run time", {lstm, 2, 4, 5}, 1);
  changing.graph.tensor(changing.graph.rops[0].inputs[2]).role = Role::activation;
  CHECK_FALSE(estimate_of(changing, vdevice, Precision::fp32));
  CHECK(kernels::candidates_of(kernels::family("recurrent_gang"), {changing.graph, changing.graph.rops[0], vdevice, Precision::fp32})
            .empty());
}

// The packed words of 16 bits of a cell whose R begins with `values`, at `precision`; empty if it has weights of 32 bits.
std::vector<uint16_t> packed_16_bits(const std::vector<float>& values, Precision precision) {
  Case made = single("16 bits", {rnn, 2, 4, 5}, 1);
  const ROperator& rop = made.graph.rops[0];
  Tensor& r = made.graph.tensor(rop.inputs[static_cast<size_t>(std::get<Recurrent>(rop.attrs).cells[0].r)]);
  Bytes data = *r.data;
  std::memcpy(data.data(), values.data(), values.size() * 4);
  r.data = std::make_shared<const Bytes>(data);
  const ShapedVDevice vdevice = vdevice_of(2, 40);
  const auto rkernels = kernels::candidates_of(kernels::family("recurrent_gang"), {made.graph, rop, vdevice, precision});
  REQUIRE(!rkernels.empty());
  const std::string kind = std::string(name_of(precision)) + " weights";
  if (rkernels[0].name.find(kind) == std::string::npos) return {};
  const Bytes packed = kernels::family("recurrent_gang").pack(made.graph, rop, rkernels[0], 0);
  std::vector<uint16_t> words(packed.size() / 2);
  std::memcpy(words.data(), packed.data(), packed.size());
  return words;
}

TEST_CASE("weights of 16 bits are the nearest ones, of two equally near the even one") {
  struct Row {
    float value;
    uint16_t half, bfloat;
  };
  const Row rows[] = {{1.0F, 0x3c00, 0x3f80},
                      {-2.5F, 0xc100, 0xc020},
                      {65504.0F, 0x7bff, 0x4780},
                      {0x1p-24F, 0x0001, 0x3380},             // the smallest half
                      {0x1.8p-15F, 0x0300, 0x3840},           // below the normal ones
                      {1.0F + 0x1p-11F, 0x3c00, 0x3f80},      // between two halves: the even one is below,
                      {1.0F + 3 * 0x1p-11F, 0x3c02, 0x3f80},  // and here above
                      {1.0F + 0x1p-8F, 0x3c04, 0x3f80},       // between two bfloats, below
                      {1.0F + 3 * 0x1p-8F, 0x3c0c, 0x3f82}};  // and above
  for (const Row& row : rows) {
    CAPTURE(row.value);
    const std::vector<uint16_t> halves = packed_16_bits({row.value}, Precision::fp16),
                                bfloats = packed_16_bits({row.value}, Precision::bf16);
    CHECK(std::find(halves.begin(), halves.end(), row.half) != halves.end());
    CHECK(std::find(bfloats.begin(), bfloats.end(), row.bfloat) != bfloats.end());
  }
}

TEST_CASE("a cell with a weight beyond the halves keeps floats at fp16") {
  CHECK(packed_16_bits({65505.0F}, Precision::fp16).empty());
  CHECK(packed_16_bits({-1e6F}, Precision::fp16).empty());
  CHECK_FALSE(packed_16_bits({-1e6F}, Precision::bf16).empty());
}

TEST_CASE("the name of a gang says what has no place on chip") {
  const auto name_on = [](int64_t work_kbytes) {
    const Case made = single("name", {lstm, 3, 600, 40}, 1);
    return kernels::candidates_of(kernels::family("recurrent_gang"),
                                  {made.graph, made.graph.rops[0], vdevice_of(3, work_kbytes), Precision::fp32})
        .at(0)
        .name;
  };
  CHECK(name_on(18).find("% of the weights read in each step") != std::string::npos);
  CHECK(name_on(2000).find("% of the weights") == std::string::npos);
}

TEST_CASE("a stack on an H200 is spread over nearly all vEUs, and its time is that of the steps and the layers") {
  RecurrentMaker maker("stack", 1);
  for (int32_t layer = 0; layer < 10; ++layer) {
    Links links;
    links.x_cell = layer - 1;
    links.results = layer == 9;
    maker.cell({lstm, 100, 256, 256}, links);
  }
  const Case stack = maker.finish();
  const ShapedVDevice h200 = read_vdevice("h200").without_inputs();
  const std::optional<Estimate> estimate = estimate_of(stack, h200, Precision::fp32);
  REQUIRE(estimate);
  CHECK(estimate->us > 40);
  CHECK(estimate->us < 130);
  const std::vector<RKernel> rkernels =
      kernels::candidates_of(kernels::family("recurrent_gang"), {stack.graph, stack.graph.rops[0], h200, Precision::fp32});
  REQUIRE(!rkernels.empty());
  CHECK(rkernels[0].rtasks() <= h200.veus());
  CHECK(rkernels[0].rtasks() >= 100);
  for (const Phase& phase : rkernels[0].phases) CHECK(phase.work_bytes <= h200.work_bytes());
}

// As measured on an H200: 1.8 us a step with the input in the gang, 0.9 with its product ahead, which itself takes some 10 to 40 us.
TEST_CASE("an input much longer than the hidden state is dearer in the gang than as a product ahead of it") {
  RecurrentMaker maker("stack", 1);
  for (int32_t layer = 0; layer < 7; ++layer) {
    Links links;
    links.x_cell = layer - 1;
    links.results = layer == 6;
    maker.cell({lstm, 150, layer == 0 ? 1312 : 256, 256}, links);
  }
  const Case inside = maker.finish();
  Case ahead = inside;
  RecurrentCell& first = std::get<Recurrent>(ahead.graph.rops[0].attrs).cells[0];
  first.x_is_gates = true;
  first.w = -1;
  const ShapedVDevice h200 = read_vdevice("h200").without_inputs();
  for (const Precision precision : {Precision::fp32, Precision::fp16, Precision::bf16}) {
    CHECK(estimate_of(inside, h200, precision)->us > estimate_of(ahead, h200, precision)->us + 30);
  }
}

}  // namespace tamp::test
