// What programs that make tokens have besides (docs/adr/0051): tables of what changes from run to run, and NAME_generate.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/emit.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"
#include "kernels/vdevice/numbers.cuh"

namespace tamp::codegen {
namespace {

int64_t input_base(int64_t input) { return rk::kFirstPort + input; }
int64_t output_base(const Plan& plan, int64_t output) {
  return rk::kFirstPort + static_cast<int64_t>(plan.program.graph.inputs.size()) + output;
}

// Whether the two have memory of their own, so that they change places.
bool swaps(const Plan& plan, const Feed& feed) { return plan.in_place[static_cast<size_t>(feed.output)] != feed.input; }

std::string input_name(const Plan& plan, int64_t input) {
  return plan.program.graph.tensor(plan.program.graph.inputs[static_cast<size_t>(input)]).name;
}

std::string advance_text(const Plan& plan, const Advanced& advanced) {
  constexpr const char* kKinds[] = {"kAdvanceToken", "kAdvancePosition", "kMarkPosition", "kMarkToken"};
  const Graph& graph = plan.program.graph;
  const DType dtype = graph.tensor(graph.inputs[static_cast<size_t>(advanced.input)]).dtype;
  return fmt::format("{{{}, {}, rk::{}, {}, {}}}", input_base(advanced.input), static_cast<int>(dtype),
                     kKinds[static_cast<int>(advanced.advance)], advanced.element, advanced.plus);
}

}  // namespace

std::vector<int64_t> held_inputs(const RProgram& program) {
  const Generation& g = *program.generation;
  std::vector<int64_t> held;
  for (int64_t i = 0; i < static_cast<int64_t>(program.graph.inputs.size()); ++i) {
    const bool changes = i == g.amounts || i == g.draw ||
                         std::any_of(g.inputs.begin(), g.inputs.end(), [&](const Advanced& a) { return a.input == i; }) ||
                         std::any_of(g.feeds.begin(), g.feeds.end(), [&](const Feed& feed) { return feed.input == i; });
    if (!changes) held.push_back(i);
  }
  return held;
}

void emit_advances(SourceWriter& w, const Plan& plan) {
  if (!repeats(plan.program)) return;
  w.section("tokens: what changes from run to run");
  w.line("// Base of the input, element type, what the next run finds there, at which element, plus what.");
  w.open("__device__ const rk::InputAdvance kAdvances[] =");
  for (const Advanced& advanced : plan.program.generation->inputs)
    w.line("{},  // {}", advance_text(plan, advanced), comment(input_name(plan, advanced.input)));
  w.close(";");
  w.line("// An output that becomes an input, in memory of its own: bases that change places.");
  w.open("__device__ const rk::PortSwap kSwaps[] =");
  size_t count = 0;
  for (const Feed& feed : plan.program.generation->feeds) {
    if (!swaps(plan, feed)) continue;
    w.line("{{{}, {}}},  // {}", input_base(feed.input), output_base(plan, feed.output), comment(input_name(plan, feed.input)));
    ++count;
  }
  if (count == 0) w.line("{{0, 0}},");
  w.close(";");
  w.line("constexpr int kSwapCount = {};", count);
}

void emit_token_members(SourceWriter& w, const Plan& plan) {
  const RProgram& program = plan.program;
  std::vector<size_t> lanes;  // that have something to do
  for (size_t veu = 0; veu < program.lanes.size(); ++veu) {
    if (!program.lanes[veu].empty()) lanes.push_back(veu);
  }
  TAMP_CHECK(!lanes.empty(), "a program that makes tokens does nothing");
  w.line("static constexpr uint32_t kLeader = {}, kWatcher = {};  // who decides between runs, and who looks for a cancel", lanes.front(),
         lanes.back());
  w.line("static constexpr uint16_t kBoundary = {};", plan.event_symbols[program.boundary.index()]);
  w.line("static constexpr uint32_t kTokenBase = {};", output_base(plan, program.generation->token));
  w.line("static constexpr int kAdvanceCount = {};", program.generation->inputs.size());
  w.line("static constexpr int kSwapCount = {}::kSwapCount;", plan.scope());
  w.line("static RK_INLINE const rk::InputAdvance* advances() {{ return kAdvances; }}");
  w.line("static RK_INLINE const rk::PortSwap* swaps() {{ return kSwaps; }}");
}

void require_swaps(const Plan& plan, int64_t shared_bases) {
  for (const Feed& feed : plan.program.generation->feeds) {
    if (!swaps(plan, feed) || output_base(plan, feed.output) < shared_bases) continue;
    throw unsupported("--generate: input '{}' is port {}, and comes from an output with memory of its own; supported: among the first {}",
                      printable(input_name(plan, feed.input)), output_base(plan, feed.output), shared_bases);
  }
}

void emit_token_plan(SourceWriter& w, const Plan& plan) {
  const Generation& g = *plan.program.generation;
  w.blank();
  w.line("// As the kernel's table; whether an input has an element for each token of a run, and else whether it is of the last one.");
  w.open("const tamp_host::TokenInput kTokenInputs[] =");
  for (const Advanced& a : g.inputs)
    w.line("{{{}, {}, {}}},  // {}", advance_text(plan, a), a.is_each, a.is_last, comment(input_name(plan, a.input)));
  w.close(";");
  std::vector<std::string> feeds;
  for (const Feed& feed : g.feeds) feeds.push_back(fmt::format("{{{}, {}, {}}}", feed.output, feed.input, swaps(plan, feed)));
  const std::vector<int64_t> held = held_inputs(plan.program);
  const auto list = [](const auto& values) { return values.empty() ? std::string("0") : fmt::format("{}", fmt::join(values, ", ")); };
  w.line("const tamp_host::FedPort kFeeds[] = {{{}}};  // output, input, whether they change places",
         feeds.empty() ? "{}" : join(feeds, ", "));
  w.line("const int kHeld[] = {{{}}};", list(held));
  w.line("const int64_t kStops[] = {{{}}};", list(g.stops));
  w.line(
      "const tamp_host::TokenPlan kTokenPlan = {{kTokenInputs, {}, kFeeds, {}, /*amounts=*/{}, /*draw=*/{}, /*token=*/{}, kHeld, {}, "
      "/*words=*/{},",
      g.inputs.size(), g.feeds.size(), g.amounts, g.draw, g.token, held.size(), g.words);
  w.line("                                         /*places=*/{}, kStops, {}, /*length=*/{}}};", g.places, g.stops.size(), g.length);
}

void emit_token_functions(SourceWriter& w, const Plan& plan) {
  const std::string& name = plan.options.name;
  w.line(
      "tamp_status {0}_generate({0}_context* context, const tamp_tokens* wanted, int64_t* tokens, int32_t* count, cudaStream_t stream) {{",
      name);
  w.line("  return detail_of_{0}::generate(context, {0}_detail::kTokenPlan, wanted, tokens, count, stream);", name);
  w.line("}}");
  w.line("void {0}_cancel({0}_context* context) {{ detail_of_{0}::cancel(context); }}", name);
}

void describe_tokens(SourceWriter& w, const Plan& plan) {
  const Generation& g = *plan.program.generation;
  w.blank();
  w.line("   {}_generate makes tokens: it repeats the run in one kernel. From run to run", plan.options.name);
  for (const Advanced& a : g.inputs) {
    const std::string at =
        fmt::format("   inputs[{}]{}", a.input, a.advance == Advance::position && a.element > 0 ? fmt::format("[{}]", a.element) : "");
    switch (a.advance) {
      case Advance::token: w.line("{} is the next token,", at); break;
      case Advance::position:
        w.line("{} is the position of the token, from 0{}{},", at, a.plus == 0 ? "" : fmt::format(", {:+}", a.plus),
               g.is_step() || a.is_each ? ""
               : a.is_last              ? " (of the last, if a run has several)"
                                        : " (of the first, if a run has several)");
        break;
      case Advance::mark_position: w.line("{} has a 1 at each position in use, else 0,", at); break;
      case Advance::mark_token: w.line("{} has a 1 at each token that was seen,", at); break;
    }
  }
  for (const Feed& feed : g.feeds) w.line("   outputs[{}] becomes inputs[{}],", feed.output, feed.input);
  for (const int64_t held : held_inputs(plan.program)) w.line("   inputs[{}] is as each call gives it,", held);
  w.line("   inputs[{}] are temperature, top-p and repetition penalty, inputs[{}] top-k, seed and the number of the draw.", g.amounts,
         g.draw);
  w.line("   outputs[{}] are the scores of {} words{}, outputs[{}] is the token drawn.", g.scores, g.words,
         g.is_step() ? "" : " behind the last token", g.token);
  if (!g.is_step()) w.line("   A prompt is given to runs of up to {} tokens.", g.rows);
  if (g.places > 0) w.line("   A text has at most {} tokens, with its prompt.", g.places);
  if (!g.stops.empty()) w.line("   It ends behind token {}.", fmt::join(g.stops, " or "));
}

void declare_tokens(SourceWriter& w, const Plan& plan) {
  const std::string& name = plan.options.name;
  w.line(
      "/* Makes tokens from a prompt, and returns when the last one is there. Those made are in tokens (host memory for max_tokens, or "
      "NULL)");
  w.line(
      "   and their number in *count (or NULL), also where a text was cancelled. TAMP_INVALID_ARGUMENT if an option is out of range; else "
      "as");
  w.line("   {0}_status. Runs in the stream, behind what is in it; the memory of inputs and outputs is the context's own. */", name);
  w.line("tamp_status {0}_generate({0}_context* context, const tamp_tokens* wanted, int64_t* tokens, int32_t* count, cudaStream_t stream);",
         name);
  w.line("/* From another thread: the call under way ends after one token more, at most two. */");
  w.line("void {0}_cancel({0}_context* context);", name);
}

}  // namespace tamp::codegen
