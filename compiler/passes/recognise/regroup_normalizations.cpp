#include "compiler/passes/recognise/regroup_normalizations.h"

#include <utility>

#include "compiler/passes/rewrite.h"

namespace tamp::passes {
namespace {

// Numbers of channels, which are multiplied with the normalised values and added to them.
struct Factors {
  std::vector<float> scale, bias;
};

struct GroupMatch {
  TensorId x;
  int64_t groups = 0;
  Factors factors;
  std::vector<size_t> folded;  // rOperators behind the Reshape back to x's shape
  size_t last = 0;             // the rOperator whose result it computes
};

class GroupMatcher {
 public:
  explicit GroupMatcher(const Graph& graph) : graph_(graph), uses_(uses_of(graph)) {}

  std::optional<GroupMatch> match(const ROperator& rop) const {
    const auto* normalize = std::get_if<Normalize>(&rop.attrs);
    if (!normalize || rop.inputs.size() > kNormalizeRows) return std::nullopt;
    const ROperatorId maker = uses_.producer[rop.inputs[0].index()], back = uses_.only_reader(rop.outputs[0]);
    if (!maker.valid() || !back.valid() || !is_reshape(graph_.rop(maker)) || !is_reshape(graph_.rop(back))) return std::nullopt;
    GroupMatch found;
    found.x = graph_.rop(maker).inputs[0];
    const Shape &shape = graph_.tensor(found.x).shape, &flat = graph_.tensor(rop.inputs[0]).shape;
    if (graph_.tensor(graph_.rop(back).outputs[0]).shape != shape || graph_.tensor(found.x).dtype != DType::f32) return std::nullopt;
    if (shape.size() < 3 || flat.size() < 3 || flat[0] != shape[0] || normalize->axes != range(2, static_cast<int64_t>(flat.size())))
      return std::nullopt;
    found.groups = flat[1];
    if (found.groups < 1 || shape[1] % found.groups != 0 || !read_own(rop, flat, shape[1], found)) return std::nullopt;
    found.last = back.index();
    fold(ElementwiseOp::mul, shape, found);
    fold(ElementwiseOp::add, shape, found);
    const bool is_regrouped = flat.size() == shape.size() + 1 && flat[2] == shape[1] / found.groups;
    return is_regrouped && found.folded.empty() ? std::nullopt : std::optional(found);
  }

 private:
  static bool is_reshape(const ROperator& rop) { return std::holds_alternative<Reshape>(rop.attrs); }

  // The factors of the groups, which the Normalize has itself, one for each channel.
  bool read_own(const ROperator& rop, const Shape& flat, int64_t channels, GroupMatch& found) const {
    for (const size_t i : {size_t{1}, size_t{2}}) {
      std::vector<float>& values = i == 1 ? found.factors.scale : found.factors.bias;
      values.assign(static_cast<size_t>(channels), i == 1 ? 1.0F : 0.0F);
      if (!operand(rop, i).valid()) continue;
      if (!is_f32_constant(graph_, rop.inputs[i])) return false;
      const auto of_groups = values_along(graph_.tensor(rop.inputs[i]), flat, 1);
      if (!of_groups) return false;
      for (int64_t c = 0; c < channels; ++c)
        values[static_cast<size_t>(c)] = (*of_groups)[static_cast<size_t>(c / (channels / found.groups))];
    }
    return true;
  }

  // If the only reader of the result is an `op` with a constant of channels, takes it in.
  void fold(ElementwiseOp op, const Shape& shape, GroupMatch& found) const {
    const TensorId result = graph_.rops[found.last].outputs[0];
    const ROperatorId reader = uses_.only_reader(result);
    if (!reader.valid()) return;
    const ROperator& rop = graph_.rop(reader);
    const ElementwiseStep* step = single_step(rop);
    if (!step || step->op != op || rop.inputs.size() != 2 || graph_.tensor(rop.outputs[0]).shape != shape) return;
    const TensorId other = rop.inputs[0] == result ? rop.inputs[1] : rop.inputs[0];
    const auto values = is_f32_constant(graph_, other) ? values_along(graph_.tensor(other), shape, 1) : std::nullopt;
    if (!values) return;
    for (size_t c = 0; c < values->size(); ++c) {
      if (op == ElementwiseOp::mul) found.factors.scale[c] *= (*values)[c];
      (op == ElementwiseOp::mul ? found.factors.bias[c] *= (*values)[c] : found.factors.bias[c] += (*values)[c]);
    }
    found.folded.push_back(reader.index());
    found.last = reader.index();
  }

  const Graph& graph_;
  Uses uses_;
};

// What takes the place of the match: the Normalize, between two Reshapes where channels are cut.
std::vector<ROperator> regrouped(Graph& graph, const ROperator& rop, const GroupMatch& match) {
  const Shape shape = graph.tensor(match.x).shape;
  const int64_t groups = match.groups, channels = shape[1];
  const bool is_cut = groups > 1 && groups < channels;
  Shape cut = shape, factors = {channels};
  if (is_cut) {
    cut[1] = groups;
    cut.insert(cut.begin() + 2, channels / groups);
    factors = {groups, channels / groups};
  }
  factors.resize(cut.size() - 1, 1);
  ROperator made = rop;
  std::get<Normalize>(made.attrs).axes = range(groups == 1 ? 1 : 2, static_cast<int64_t>(cut.size()));
  for (const size_t i : match.folded) made.origin.insert(made.origin.end(), graph.rops[i].origin.begin(), graph.rops[i].origin.end());
  const TensorId scale = add_f32_constant(graph, rop.name + ".scale", factors, match.factors.scale);
  const TensorId bias = add_f32_constant(graph, rop.name + ".bias", factors, match.factors.bias);
  const TensorId result = graph.rops[match.last].outputs[0];
  made.inputs = {match.x, scale, bias};
  made.outputs = {result};
  if (!is_cut) return {made};
  std::vector<ROperator> all;
  made.inputs[0] = append_view(graph, all, rop.name + ".groups", Reshape{cut}, match.x, cut);
  made.outputs = {add_like(graph, match.x, rop.name + ".map", cut)};
  all.push_back(made);
  all.push_back({rop.name + ".map", Reshape{shape}, {}, made.outputs, {result}, {}});
  return all;
}

}  // namespace

Graph regroup_normalizations(Graph graph) {
  std::vector<std::vector<ROperator>> made(graph.rops.size());  // in place of a rOperator
  const Graph before = graph;
  const GroupMatcher matcher(before);
  for (const ROperator& rop : before.rops) {
    if (const std::optional<GroupMatch> match = matcher.match(rop)) made[match->last] = regrouped(graph, rop, *match);
  }
  return remove_dead(replace_rops(std::move(graph), std::move(made)));
}

}  // namespace tamp::passes
