// Host side of next_token.cuh.
#include <algorithm>

#include "kernels/any_type.h"
#include "kernels/args.h"
#include "kernels/family.h"

namespace tamp::kernels {
namespace {

constexpr int64_t kWordsPerRtask = 1024, kDrawWorkBytes = 8 * 1024 + 128;

int64_t words_of(const Graph& graph, const ROperator& rop) { return element_count(graph.tensor(rop.inputs[0]).shape); }

std::vector<RKernel> offers(const Request& request) {
  const ROperator& rop = request.rop;
  const Graph& graph = request.graph;
  if (!std::holds_alternative<NextToken>(rop.attrs) || has_epilogue(rop) || !all_plain(graph, rop)) return {};
  if (graph.tensor(rop.inputs[0]).dtype != DType::f32 || !all_tensors(graph, rop, is_row_major)) return {};
  const int64_t words = words_of(graph, rop), shares = ceil_div(words, kWordsPerRtask);
  const auto phase_of = [&](const char* body, int64_t rtasks, double cycles) {
    Phase phase = body_phase("kernels/typed/next_token.cuh", body, "rk::NextTokenArgs");
    phase.args = {{"scores", arg(TensorArg{rop.inputs[0]})}, {"amounts", arg(TensorArg{rop.inputs[1]})},
                  {"draw", arg(TensorArg{rop.inputs[2]})},   {"seen", arg(TensorArg{rop.inputs[3]})},
                  {"token", arg(TensorArg{rop.outputs[0]})}, {"divided", ArgValue{ScratchArg{0}}},
                  {"best", ArgValue{ScratchArg{words}}},     {"words", arg(words)},
                  {"words_per_rtask", arg(kWordsPerRtask)},  {"shares", arg(shares)}};
    phase.rtasks = rtasks;
    phase.work_bytes = kDrawWorkBytes;
    phase.cost.calibrated_cycles = cycles;
    return phase;
  };
  RKernel rkernel{.name = "next_token"};
  // Loads from L2 that wait for each other, and a few of each thread; a greedy choice, since what a draw takes is known at run time only.
  rkernel.phases = {phase_of("rk::next_token_scores", shares, 3000), phase_of("rk::next_token", 1, 2000)};
  rkernel.scratch_elements = words + 2 * shares;
  return {rkernel};
}

void accesses(const Graph& graph, const ROperator& rop, const RKernel&, int phase, int64_t index, Accesses& out) {
  const int64_t words = words_of(graph, rop), shares = ceil_div(words, kWordsPerRtask);
  append_whole(graph, rop.inputs[1], out.reads);
  if (phase == 0) {
    const int64_t begin = index * kWordsPerRtask, count = std::min(kWordsPerRtask, words - begin);
    for (const size_t operand : {0, 3}) append_whole(graph, rop.inputs[operand], out.reads);
    out.writes.push_back({{}, {.offset = begin, .length = count}});
    out.writes.push_back({{}, {.offset = words + 2 * index, .length = 2}});
    return;
  }
  append_whole(graph, rop.inputs[2], out.reads);
  out.reads.push_back({{}, {.offset = 0, .length = words + 2 * shares}});
  append_whole(graph, rop.outputs[0], out.writes);
}

}  // namespace

Family next_token() { return {"next_token", offers, no_pack, accesses, nullptr, Narrowed::refuses}; }

}  // namespace tamp::kernels
