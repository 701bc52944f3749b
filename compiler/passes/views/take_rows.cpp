#include "compiler/passes/views/take_rows.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ops/ops.h"
#include "compiler/passes/rewrite.h"
#include "compiler/passes/views/row_work.h"

namespace tamp::passes {
namespace {

class RowTaker {
 public:
  explicit RowTaker(Graph graph) : graph_(std::move(graph)), uses_(uses_of(graph_)) {}

  Graph run() {
    const std::vector<ROperator> old = graph_.rops;
    for (const ROperator& rop : old) {
      if (!takes_rows(rop)) out_.push_back(rop);
    }
    graph_.rops = std::move(out_);
    return remove_dead(std::move(graph_));
  }

 private:
  bool takes_rows(const ROperator& rop) {
    if (!std::holds_alternative<Normalize>(rop.attrs) || !row_work(graph_, rop)) return false;
    const Shape shape = graph_.tensor(rop.outputs[0]).shape;
    const std::optional<ROperator> gather = gather_behind(rop.inputs[0]);
    if (!gather) return false;
    const int64_t count = graph_.tensor(gather->inputs[1]).shape[0], columns = graph_.tensor(gather->inputs[0]).shape[1];
    if (columns == 0 || shape.back() == 0 || shape.back() % columns != 0) return false;
    const int64_t pieces = shape.back() / columns, rows = count / pieces;
    ROperator done = rop;
    std::get<Normalize>(done.attrs).axes = {1};
    done.inputs.resize(kNormalizeRows + 1);
    done.inputs[0] = gather->inputs[0];
    done.inputs[kNormalizeRows] = gather->inputs[1];
    if (pieces > 1) {
      const Tensor numbers = graph_.tensor(gather->inputs[1]);
      done.inputs[kNormalizeRows] =
          add_constant(graph_, numbers.name + ".rows" + std::to_string(pieces), DType::i64, {rows, pieces}, Bytes(*numbers.data));
    }
    done.outputs = {add_like(graph_, rop.outputs[0], graph_.tensor(rop.outputs[0]).name + ".rows" + std::to_string(graph_.tensors.size()),
                             {rows, shape.back()})};
    done.origin.insert(done.origin.begin(), gather->origin.begin(), gather->origin.end());
    out_.push_back(done);
    out_.push_back({rop.name, Reshape{shape}, {}, done.outputs, rop.outputs, rop.origin});
    return true;
  }

  // The Gather of rows of a matrix, by constant numbers, that makes these elements; Reshapes may stand between, and nothing else reads it.
  std::optional<ROperator> gather_behind(TensorId id) const {
    ROperatorId maker = uses_.maker_for_one(id);
    while (maker.valid() && std::holds_alternative<Reshape>(graph_.rop(maker).attrs))
      maker = uses_.maker_for_one(graph_.rop(maker).inputs[0]);
    if (!maker.valid()) return std::nullopt;
    const ROperator& rop = graph_.rop(maker);
    if (!gathers_rows(graph_, rop)) return std::nullopt;
    return rop;
  }

  Graph graph_;
  Uses uses_;
  std::vector<ROperator> out_;
};

}  // namespace

bool gathers_rows(const Graph& graph, const ROperator& rop) {
  const auto* gather = std::get_if<Gather>(&rop.attrs);
  if (!gather || gather->axis != 0) return false;
  const Tensor &data = graph.tensor(rop.inputs[0]), &indices = graph.tensor(rop.inputs[1]);
  if (data.shape.size() != 2 || data.dtype != DType::f32) return false;
  if (indices.role != Role::constant || indices.dtype != DType::i64 || indices.shape.size() != 1) return false;
  const int64_t* const first = i64_data(indices);
  return std::all_of(first, first + indices.shape[0], [&](int64_t row) { return row >= 0 && row < data.shape[0]; });
}

Graph take_rows(Graph graph) { return RowTaker(std::move(graph)).run(); }

}  // namespace tamp::passes
