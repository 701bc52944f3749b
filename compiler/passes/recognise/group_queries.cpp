#include "compiler/passes/recognise/group_queries.h"

#include <algorithm>
#include <optional>

#include "compiler/passes/rewrite.h"

namespace tamp::passes {
namespace {

// Bodies of attention and of products loop over up to four dimensions in front of the matrices.
constexpr size_t kMostGroupedDimensions = 6;

// Heads of keys, and how many heads of queries share one.
struct HeadGroups {
  int64_t heads = 1, each = 1;
  bool operator==(const HeadGroups&) const = default;
};

// What an operand repeats: groups.heads matrices, [..,heads,1,rows,columns], or [..,columns,rows] with `turned`.
struct RepeatedHeads {
  TensorId source;
  bool turned = false;
  std::optional<HeadGroups> groups;  // none where the source broadcasts as it is
};

class QueryGrouper {
 public:
  explicit QueryGrouper(Graph graph) : graph_(std::move(graph)), uses_(uses_of(graph_)) {}

  Graph run() {
    const std::vector<ROperator> rops = graph_.rops;
    for (const ROperator& rop : rops) {
      if (!is_product(rop) || !group(rop)) made_.push_back(rop);
    }
    graph_.rops = std::move(made_);
    return remove_dead(std::move(graph_));
  }

 private:
  static bool is_product(const ROperator& rop) {
    if (std::holds_alternative<Attention>(rop.attrs)) return true;
    return std::holds_alternative<MatMul>(rop.attrs) && !operand(rop, 2).valid();
  }

  bool group(const ROperator& rop) {
    const size_t rank = graph_.tensor(rop.outputs[0]).shape.size();
    std::vector<std::optional<RepeatedHeads>> repeated;
    std::optional<HeadGroups> groups;
    bool any = false;
    for (size_t i = 0; i < rop.inputs.size(); ++i) {
      repeated.push_back(rank > 2 && rop.inputs[i].valid() && i < kBias ? repeated_by(rop.inputs[i], rank) : std::nullopt);
      if (!repeated[i]) continue;
      if (groups && repeated[i]->groups && *groups != *repeated[i]->groups) return false;
      if (repeated[i]->groups) groups = repeated[i]->groups;
      any = true;
    }
    if (!any || rank + (groups ? 1 : 0) > kMostGroupedDimensions || !all_fit(rop, repeated, groups)) return false;
    emit(rop, repeated, groups);
    return true;
  }

  std::optional<RepeatedHeads> repeated_by(TensorId id, size_t rank) const {
    RepeatedHeads found;
    if (graph_.tensor(id).shape.size() != rank) return std::nullopt;
    for (const ROperator* maker = maker_of(graph_, uses_, id); maker; maker = maker_of(graph_, uses_, id)) {
      const size_t own = graph_.tensor(id).shape.size();
      const auto* const turn = std::get_if<Transpose>(&maker->attrs);
      if (turn && own > 1 && turn->perm == swapped(own, own - 2))
        found.turned = !found.turned;
      else if (!adds_ones(*maker))
        break;
      id = maker->inputs[0];
    }
    Shape shape = without_front(graph_.tensor(id).shape);
    if (shape.size() > rank) return std::nullopt;
    shape.insert(shape.begin(), rank - shape.size(), 1);
    const std::optional<TensorId> repeated = repeated_from(id);
    if (repeated && graph_.tensor(*repeated).shape.size() <= rank) {
      const Shape& from = graph_.tensor(*repeated).shape;
      if (from.size() != rank || from[rank - 1] != shape[rank - 1] || from[rank - 2] != shape[rank - 2]) return std::nullopt;
      found.source = *repeated;
      return found;
    }
    // The Reshape that makes heads of groups was one of ones in front, if there is one group.
    const ROperator* const maker = maker_of(graph_, uses_, id);
    if (!repeated && (!maker || !std::holds_alternative<Reshape>(maker->attrs))) return std::nullopt;
    const TensorId by_groups = repeated ? id : maker->inputs[0];
    const std::optional<TensorId> source = repeated_from(by_groups);
    if (!source) return std::nullopt;
    const Shape& from = graph_.tensor(*source).shape;
    if (from.size() != rank + 1 || from[rank - 2] != 1) return std::nullopt;
    found.groups = {from[rank - 3], graph_.tensor(by_groups).shape[rank - 2]};
    Shape grouped = graph_.tensor(*source).shape;
    grouped[rank - 2] = found.groups->each;
    if (graph_.tensor(by_groups).shape != grouped || divided_heads(shape, *found.groups) != grouped) return std::nullopt;
    found.source = *source;
    return found;
  }

  static Shape without_front(Shape shape) {
    while (shape.size() > 2 && shape.front() == 1) shape.erase(shape.begin());
    return shape;
  }
  // Whether it is a Reshape that changes nothing but how many dimensions of one element are in front.
  bool adds_ones(const ROperator& rop) const {
    return std::holds_alternative<Reshape>(rop.attrs) &&
           without_front(graph_.tensor(rop.inputs[0]).shape) == without_front(graph_.tensor(rop.outputs[0]).shape);
  }

  // What the tensor repeats along some dimensions and does not change otherwise.
  std::optional<TensorId> repeated_from(TensorId id) const {
    const ROperator* const maker = maker_of(graph_, uses_, id);
    const ElementwiseStep* const step = maker ? single_step(*maker) : nullptr;
    if (!step || step->op != ElementwiseOp::identity || graph_.tensor(maker->inputs[0]).dtype != graph_.tensor(id).dtype)
      return std::nullopt;
    return maker->inputs[0];
  }

  // The shape with heads and heads of a group as two dimensions; a tensor that is the same for all heads stays so. Nothing if it has
  // another number of heads.
  static std::optional<Shape> divided_heads(Shape shape, const HeadGroups& groups) {
    if (shape.size() < 3) return shape;
    int64_t& heads = shape[shape.size() - 3];
    if (heads != 1 && heads != groups.heads * groups.each) return std::nullopt;
    const int64_t each = heads == 1 ? 1 : groups.each;
    heads /= each;
    shape.insert(shape.end() - 2, each);
    return shape;
  }

  // Whether all operands can be seen in groups, and the result has the same elements without the repetition.
  bool all_fit(const ROperator& rop, const std::vector<std::optional<RepeatedHeads>>& repeated,
               const std::optional<HeadGroups>& groups) const {
    const Shape& result = graph_.tensor(rop.outputs[0]).shape;
    std::vector<int64_t> leading(result.size() - 2, 1);
    for (size_t i = 0; i < rop.inputs.size(); ++i) {
      if (!rop.inputs[i].valid()) continue;
      const bool is_grouped = repeated[i] && repeated[i]->groups;
      if (groups && !is_grouped && !divided_heads(graph_.tensor(rop.inputs[i]).shape, *groups)) return false;
      if (i == kBias) continue;
      const Shape& shape = graph_.tensor(repeated[i] && !is_grouped ? repeated[i]->source : rop.inputs[i]).shape;
      for (size_t d = 0; d + 2 < shape.size(); ++d) {
        int64_t& extent = leading[d + result.size() - shape.size()];
        if (extent == 1) extent = shape[d];
      }
    }
    return std::equal(leading.begin(), leading.end(), result.begin());
  }

  void emit(ROperator rop, const std::vector<std::optional<RepeatedHeads>>& repeated, const std::optional<HeadGroups>& groups) {
    for (size_t i = 0; i < rop.inputs.size(); ++i) {
      if (!rop.inputs[i].valid()) continue;
      const bool is_grouped = repeated[i] && repeated[i]->groups;
      if (repeated[i]) rop.inputs[i] = repeated[i]->source;
      if (groups && !is_grouped) {
        const Shape shape = *divided_heads(graph_.tensor(rop.inputs[i]).shape, *groups);
        if (shape.size() > 2) rop.inputs[i] = emit_reshape(rop, rop.inputs[i], shape);
      }
      if (repeated[i] && repeated[i]->turned) {
        Shape shape = graph_.tensor(rop.inputs[i]).shape;
        std::swap(shape[shape.size() - 2], shape.back());
        rop.inputs[i] = emit_view(rop, rop.inputs[i], Transpose{swapped(shape.size(), shape.size() - 2)}, shape);
      }
    }
    if (!groups) return made_.push_back(std::move(rop));
    const TensorId result = rop.outputs[0];
    const Shape shape = graph_.tensor(result).shape;
    rop.outputs = {add_like(graph_, result, rop.name + ".grouped", *divided_heads(shape, *groups))};
    const ROperator joined{rop.name + ".heads", Reshape{shape}, {}, rop.outputs, {result}, rop.origin};
    made_.push_back(std::move(rop));
    made_.push_back(joined);
  }

  // A constant stays one, for the passes that look for constants.
  TensorId emit_reshape(const ROperator& rop, TensorId id, const Shape& shape) {
    if (!is_constant(graph_, id)) return emit_view(rop, id, Reshape{shape}, shape);
    const Tensor& constant = graph_.tensor(id);
    const std::string name = rop.name + ".group" + std::to_string(graph_.tensors.size());
    return add_tensor(graph_, {name, constant.dtype, shape, constant.role, constant.data});
  }

  TensorId emit_view(const ROperator& rop, TensorId from, OpAttrs attrs, const Shape& shape) {
    const std::string name = rop.name + ".group" + std::to_string(graph_.tensors.size());
    return append_view(graph_, made_, name, std::move(attrs), from, shape, rop.origin);
  }

  static constexpr size_t kBias = kAttentionBias;

  Graph graph_;
  Uses uses_;  // of the graph as it was
  std::vector<ROperator> made_;
};

}  // namespace

Graph group_queries(Graph graph) { return QueryGrouper(std::move(graph)).run(); }

}  // namespace tamp::passes
