// What runs of a program that makes tokens need of each other. A run may write what the run before it reads (an output in the memory of an
// input, a token in the place of the last one) and reads what that wrote. So the boundary must come behind all that a run does, in each
// lane: then the run before it is done as if it had been a launch of its own, for which the rest of the verifier stands.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "compiler/schedule/verify_memory.h"
#include "compiler/support/text.h"

namespace tamp::schedule {
namespace {

class GenerationVerifier {
 public:
  GenerationVerifier(const RProgram& program, Violations& violations)
      : program_(program), graph_(program.graph), generation_(*program.generation), violations_(violations) {}

  void run() {
    if (program_.launches || !graph_.loops.empty()) violations_.add("a program that makes tokens has loops, or is no persistent kernel");
    verify_ports();
    if (!generation_.is_step()) return verify_rows();
    if (!program_.smaller.empty()) violations_.add("a program that repeats its run has buckets");
    if (!program_.boundary.valid() || program_.boundary.index() >= program_.events.size())
      return violations_.add("there is no boundary between tokens");
    for (size_t veu = 0; veu < program_.lanes.size(); ++veu) verify_lane(veu);
  }

 private:
  // A program for parts of a prompt repeats nothing, and what is of each token has room for all of them.
  void verify_rows() {
    if (program_.boundary.valid()) violations_.add("a program for parts of a prompt repeats its run");
    for (const Advanced& advanced : generation_.inputs) {
      const Tensor* const in = port(graph_.inputs, advanced.input);
      if (in != nullptr && advanced.is_each && element_count(in->shape) != generation_.rows)
        violations_.add(fmt::format("input '{}' has not an element for each token of a run", printable(in->name)));
    }
  }
  void verify_lane(size_t veu) {
    const auto& lane = program_.lanes[veu];
    for (size_t p = 0; p < lane.size(); ++p) {
      const Instruction& i = lane[p];
      const bool waits = std::find(i.waits.begin(), i.waits.end(), program_.boundary) != i.waits.end();
      const bool is_boundary = i.signal == program_.boundary && !i.rtask.rop.valid() && i.turn == Turn::none;
      const bool wanted = p + 1 == lane.size();
      if (!waits && is_boundary == wanted && (i.signal == program_.boundary) == wanted) continue;
      const At at{static_cast<int32_t>(veu), static_cast<int32_t>(p)};
      return violations_.add(
          fmt::format("{} may run beside the run of the token before: its lane does not end at the boundary between "
                      "tokens, or is there too early",
                      describe(program_, at)));
    }
  }

  const Tensor* port(const std::vector<TensorId>& ports, int64_t i) {
    if (i >= 0 && i < static_cast<int64_t>(ports.size())) return &graph_.tensor(ports[static_cast<size_t>(i)]);
    violations_.add("the generation names an input or output that does not exist");
    return nullptr;
  }
  // Per input, at most one run-to-run change of each element, and none of what an output brings.
  void verify_ports() {
    std::set<std::pair<int64_t, int64_t>> changed;
    std::set<int64_t> fed, feeding;
    for (const Feed& feed : generation_.feeds) {
      const Tensor *const in = port(graph_.inputs, feed.input), *const out = port(graph_.outputs, feed.output);
      if (in == nullptr || out == nullptr) return;
      if (has_axes(feed.input)) violations_.add(fmt::format("input '{}' is as long as a run says", printable(in->name)));
      if (in->dtype != out->dtype || in->shape != out->shape || type_of(feed.input, true) != type_of(feed.output, false))
        violations_.add(fmt::format("output '{}' becomes input '{}' of another type", printable(out->name), printable(in->name)));
      const bool is_new = fed.insert(feed.input).second && feeding.insert(feed.output).second;
      if (!is_new || feed.output == generation_.token)
        violations_.add(
            fmt::format("output '{}' becomes input '{}', and one of them has another part", printable(out->name), printable(in->name)));
    }
    for (const Advanced& advanced : generation_.inputs) {
      const Tensor* const in = port(graph_.inputs, advanced.input);
      if (in == nullptr) return;
      if (has_axes(advanced.input) && !advanced.is_each)
        violations_.add(fmt::format("input '{}' is as long as a run says", printable(in->name)));
      const int64_t elements = element_count(in->shape);
      const int64_t least = advanced.advance == Advance::mark_token      ? generation_.words
                            : advanced.advance == Advance::mark_position ? generation_.places
                                                                         : advanced.element + 1;
      if (advanced.element < 0 || elements < least || least < 1 || fed.contains(advanced.input) ||
          !changed.emplace(advanced.input, advanced.element).second)
        violations_.add(fmt::format("input '{}' is changed outside of itself, or twice", printable(in->name)));
    }
    verify_draw();
    const bool has_token = !generation_.inputs.empty() && generation_.inputs[0].advance == Advance::token;
    if (!has_token) return violations_.add("no input is the token");
    const LengthAxes* const axes = axes_of(generation_.inputs[0].input);
    if (generation_.length != (axes == nullptr || axes->empty() ? -1 : (*axes)[0].extent.length))
      violations_.add("a run has as many tokens as another length says");
  }
  // The token is drawn by what the generation names.
  void verify_draw() {
    const Tensor *const token = port(graph_.outputs, generation_.token), *const scores = port(graph_.outputs, generation_.scores);
    if (token == nullptr || scores == nullptr) return;
    const auto is_operand = [&](TensorId id, int64_t input) {
      return input >= 0 && input < static_cast<int64_t>(graph_.inputs.size()) && graph_.inputs[static_cast<size_t>(input)] == id;
    };
    const bool is_drawn = std::any_of(graph_.rops.begin(), graph_.rops.end(), [&](const ROperator& rop) {
      return std::holds_alternative<NextToken>(rop.attrs) && &graph_.tensor(rop.outputs[0]) == token &&
             is_operand(rop.inputs[1], generation_.amounts) && is_operand(rop.inputs[2], generation_.draw) &&
             is_operand(rop.inputs[3], generation_.seen);
    });
    if (!is_drawn || element_count(scores->shape) != generation_.words)
      violations_.add(fmt::format("output '{}' is no token that is drawn from so many words", printable(token->name)));
    for (const int64_t stop : generation_.stops) {
      if (stop < 0 || stop >= generation_.words) violations_.add(fmt::format("a text ends at token {}, which is no word", stop));
    }
  }
  const LengthAxes* axes_of(int64_t input) const {
    const std::vector<LengthAxes>& axes = graph_.input_axes;
    return input >= 0 && input < static_cast<int64_t>(axes.size()) ? &axes[static_cast<size_t>(input)] : nullptr;
  }
  bool has_axes(int64_t input) const { return axes_of(input) != nullptr && !axes_of(input)->empty(); }
  DType type_of(int64_t i, bool is_input) const {
    const auto& types = is_input ? graph_.input_types : graph_.output_types;
    const auto& ports = is_input ? graph_.inputs : graph_.outputs;
    return types.empty() ? graph_.tensor(ports[static_cast<size_t>(i)]).dtype : types[static_cast<size_t>(i)];
  }

  const RProgram& program_;
  const Graph& graph_;
  const Generation& generation_;
  Violations& violations_;
};

}  // namespace

void verify_generation(const RProgram& program, Violations& violations) {
  if (program.generation) GenerationVerifier(program, violations).run();
}

}  // namespace tamp::schedule
