// Example: y = Softmax(x @ w) along a dimension that ends at L of 512 becomes y = Softmax(x @ w) {end = L}; s = ReduceSum(y) along it
// becomes s = ReduceSum(where(valid, y, 0)), where valid is 1 before L and 0 behind it.
//
// Odd: whether a number in the model, such as the start of a Slice, depends on a length is not to be seen from the graph, since importers
// have folded the arithmetic of shapes. So the model is read with other lengths, too (Probe), and what differs between these graphs must be
// what a rule or a straight line through the values explains.
#include "compiler/frontend/lengths.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "compiler/frontend/rop_lengths.h"
#include "compiler/frontend/unfold.h"
#include "compiler/ir/length_rules.h"
#include "compiler/ir/loops.h"
#include "compiler/ops/ops.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

// Attributes without the extents that follow from the results' shapes.
OpAttrs without_extents(OpAttrs attrs) {
  if (auto* op = std::get_if<Reshape>(&attrs)) op->shape.clear();
  if (auto* op = std::get_if<Elementwise>(&attrs)) op->shape.clear();
  if (auto* op = std::get_if<Conv>(&attrs)) op->pads_end.clear();
  if (auto* op = std::get_if<Pool>(&attrs)) op->pads_end.clear(), op->ceil_mode = false;
  if (auto* op = std::get_if<Slice>(&attrs)) op->starts.clear(), op->extents.clear();
  if (auto* op = std::get_if<Recurrent>(&attrs)) {
    op->batch = 1;
    for (RecurrentCell& cell : op->cells) cell.steps = 0;
  }
  return attrs;
}

bool are_alike(const OpAttrs& own, OpAttrs other) {
  if (auto* op = std::get_if<Slice>(&other); op && std::holds_alternative<Slice>(own)) {
    for (size_t d = 0; d < op->steps.size() && d < std::get<Slice>(own).steps.size(); ++d) {
      if (op->extents[d] < 2) op->steps[d] = std::get<Slice>(own).steps[d];  // of one element there is none
    }
  }
  return without_extents(std::move(other)) == without_extents(own);
}

class Lengths : private RopLengths {
 public:
  Lengths(Graph graph, const std::vector<Probe>& probes) : RopLengths(std::move(graph), probes) {}

  Error refusal(const std::string& file, const std::string& why) const {
    std::vector<Refusal> refusals;
    if (!where_.empty()) refusals = {{refused_.node, refused_.op, why}};
    return unsupported(fmt::format("{}: {} {}", file, where_.empty() ? "the model" : where_, why), std::move(refusals));
  }

  Graph run() {
    graph_.rops.clear();
    for (const Probe& probe : probes_) require_same_kinds(probe);
    take_inputs();
    for (size_t i = 0; i < original_.rops.size(); ++i) follow(i);
    give_outputs();
    graph_.products = products_;
    return remove_dead(std::move(graph_));
  }

 private:
  void take_inputs() {
    for (size_t i = 0; i < original_.inputs.size(); ++i) {
      const TensorId id = original_.inputs[i];
      const LengthAxes& axes = original_.input_axes[i];
      axes_[id.index()] = axes;
      for (const LengthAxis& axis : axes) note(axis.extent);
      if (axes.empty()) continue;
      where_ = fmt::format("input '{}'", printable(graph_.tensor(id).name));
      mapped_[id.index()] = emit(packing(graph_.tensor(id).shape.size(), axes, Packed::in), {id});
      for (const LengthAxis& axis : axes) is_filled_.insert(filled(mapped_[id.index()], static_cast<size_t>(axis.dim), 0, axis.extent));
    }
  }

  static Pad packing(size_t rank, const LengthAxes& axes, Packed packed) {
    // The stride of the first dimension is a product of these.
    if (std::count_if(axes.begin(), axes.end(), [](const LengthAxis& axis) { return axis.dim > 0; }) > 2)
      throw Mixes{"has more than two dimensions behind the first that end at lengths of run time"};
    Pad pad;
    pad.before = pad.after = std::vector<int64_t>(rank, 0);
    pad.ends = axes;
    pad.packed = packed;
    return pad;
  }

  void follow(size_t i) {
    at_ = i;
    rop_ = &original_.rops[i];
    set_where(*rop_);
    attrs_ = rop_->attrs;
    inputs_.clear();
    for (const TensorId id : rop_->inputs) inputs_.push_back(id.valid() ? mapped_[id.index()] : id);
    for (size_t k = 0; k < rop_->inputs.size(); ++k) {
      if (has(k) && operand(k).role == Role::constant) take_operand(k);
    }
    for (const Probe& probe : probes_) {
      if (!are_alike(rop_->attrs, twin(probe).attrs))
        throw Mixes{
            fmt::format("has other attributes with {}, as where a branch or a count follows from the length; a program for each part of "
                        "the range (--dim NAME=A,B) may help",
                        values_text(probe))};
    }
    results_.assign(rop_->outputs.size(), {});
    const bool has_axes =
        std::any_of(rop_->inputs.begin(), rop_->inputs.end(), [&](TensorId id) { return id.valid() && !axes_[id.index()].empty(); });
    const bool has_own = std::holds_alternative<Elementwise>(rop_->attrs) || std::holds_alternative<Slice>(rop_->attrs);
    const Rows rows = follow_rows();
    if (rows == Rows::made) return;
    if (rows == Rows::none && (has_axes || has_own)) std::visit([&](const auto& op) { apply(op); }, rop_->attrs);
    for (size_t k = 0; k < rop_->outputs.size(); ++k) settle(k);
    ROperator rop = *rop_;
    rop.attrs = attrs_;
    rop.inputs = inputs_;
    graph_.rops.push_back(std::move(rop));
  }

  // The shapes that the rule gives the result are those that the probes have.
  void settle(size_t k) {
    if (rows_[rop_->outputs[k].index()] > 0) return;  // seen where they were joined
    const LengthAxes& axes = results_[k];
    for (size_t d = 0; d < result_shape(k).size(); ++d) {
      const auto extent = extent_at(axes, d);
      for (const Probe& probe : probes_) {
        const Shape& there = probe.graph.tensor(twin(probe).outputs[k]).shape;
        const int64_t wanted = extent ? at(*extent, probe.values) : result_shape(k)[d];
        if (there.size() != result_shape(k).size() || there[d] != wanted)
          throw Mixes{fmt::format("has a result of shape {} with {}, which does not follow from its operands", shape_text(there),
                                  values_text(probe))};
      }
      if (!extent) continue;
      require_rising(*extent);
      if (least(*extent) < 1) throw Mixes{fmt::format("has a result without elements at {}", smallest_text(*extent))};
      note(*extent);
    }
    const TensorId id = rop_->outputs[k];
    axes_[id.index()] = axes;
    if (std::holds_alternative<Softmax>(attrs_) && std::get<Softmax>(attrs_).end && !std::get<Softmax>(attrs_).log) {
      const auto& op = std::get<Softmax>(attrs_);
      is_filled_.insert(filled(id, static_cast<size_t>(op.last_axis), 0, *op.end));
    }
  }

  std::string smallest_text(const Extent& extent) const {
    if (extent.length < 0) return "the smallest lengths";
    const Length& length = original_.lengths[static_cast<size_t>(extent.length)];
    return fmt::format("{}={}", printable(length.name), length.smallest);
  }

  // Outputs become dense.
  void give_outputs() {
    graph_.output_axes.resize(original_.outputs.size());
    rop_ = nullptr;
    for (size_t i = 0; i < original_.outputs.size(); ++i) {
      const TensorId id = original_.outputs[i];
      where_ = fmt::format("output '{}'", printable(original_.tensor(id).name));
      if (original_.tensor(id).role == Role::constant)
        mapped_[id.index()] = take_constant(id, [i](const Probe& probe) { return probe.graph.outputs.at(i); });
      if (rows_[id.index()] > 0) joined(id, [i](const Probe& probe) { return probe.graph.outputs.at(i); });
      const LengthAxes axes = axes_[id.index()];
      if (!std::all_of(axes.begin(), axes.end(), [&](const LengthAxis& axis) { return is_for_callers(axis.extent); }))
        throw Mixes{"has a dimension of several lengths that is not their product"};
      graph_.output_axes[i] = axes;
      if (axes.empty()) {
        graph_.outputs[i] = mapped_[id.index()];
        if (graph_.outputs[i] != id) exchange_names(id, graph_.outputs[i]);
        continue;
      }
      graph_.outputs[i] = emit(packing(graph_.tensor(id).shape.size(), axes, Packed::out), {mapped_[id.index()]});
      exchange_names(id, graph_.outputs[i]);
    }
  }

  // Callers know products of plain extents.
  bool is_for_callers(const Extent& extent) const {
    if (extent.length >= 0) return true;
    const auto& [left, right] = products_[static_cast<size_t>(-1 - extent.length)];
    const auto is_whole = [&](const Extent& e) { return e.length >= 0 && is_exact(e, original_.lengths); };
    return extent.plus == 0 && extent.over == 1 && (extent.times == 1 || is_whole(left) || is_whole(right)) && is_for_callers(left) &&
           is_for_callers(right);
  }

  void exchange_names(TensorId id, TensorId with) {
    if (graph_.tensor(id).role != Role::input) std::swap(graph_.tensor(id).name, graph_.tensor(with).name);
  }
};

}  // namespace

Graph with_lengths(const std::string& file, Probe read, std::vector<Probe> probes) {
  unfold(read, probes);
  Lengths lengths(std::move(read.graph), probes);
  try {
    return lengths.run();
  } catch (const Mixes& mixes) {
    throw lengths.refusal(file, mixes.why);
  }
}

}  // namespace tamp::frontend
