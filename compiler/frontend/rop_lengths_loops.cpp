// Loops and branches of run time. A value that ends at a length does so in each iteration and behind the loop.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "compiler/frontend/padded.h"
#include "compiler/frontend/rop_lengths.h"
#include "compiler/ir/loops.h"

namespace tamp::frontend {
namespace {

size_t place_in(const std::vector<TensorId>& ids, TensorId id) {
  return static_cast<size_t>(std::find(ids.begin(), ids.end(), id) - ids.begin());
}

}  // namespace

void RopLengths::apply(const LoopBegin&) {
  for (size_t k = 0; k < rop_->inputs.size(); ++k) {
    // Of a constant the graph does not say that it ends.
    if (operand(k).role == Role::constant && !axes_of(k).empty()) {
      Pad pad;
      pad.before = pad.after = std::vector<int64_t>(shape(k).size(), 0);
      pad.ends = axes_of(k);
      inputs_[k] = emit(pad, {inputs_[k]});
    }
    hand_on(k, k);
  }
}

void RopLengths::apply(const LoopEnd&) {
  const size_t values = rop_->outputs.size();
  for (size_t k = 0; k < values; ++k) {
    const size_t next = values + k;
    if (axes_of(k) != axes_of(next) || rows_of(k) != rows_of(next) || graph_.tensor(inputs_[k]).shape != graph_.tensor(inputs_[next]).shape)
      throw Mixes{fmt::format("makes {} of {} in an iteration, and these end at different lengths of run time", name(next), name(k))};
    hand_on(k, k);
  }
}

// Result k is operand i, whose rows may be apart.
void RopLengths::hand_on(size_t i, size_t k) {
  const TensorId made = rop_->outputs[k];
  result(k, axes_of(i));
  rows_[made.index()] = rows_of(i);
  if (rows_of(i) == 0) return;
  axes_[made.index()] = axes_of(i);
  graph_.tensor(made).shape = graph_.tensor(inputs_[i]).shape;
}

// Whether operand i of a rOperator of the original is an integer that is known not to be negative, at any length, as the number of an
// iteration is: it is none at first, and goes on by what is none.
bool RopLengths::is_natural(const ROperator& rop, size_t i, std::vector<TensorId> assumed) const {
  const TensorId id = rop.inputs[i];
  if (std::find(assumed.begin(), assumed.end(), id) != assumed.end()) return true;
  if (original_.tensor(id).role == Role::constant) return is_natural_constant(rop, i);
  const ROperator* const maker = maker_of(original_, id);
  if (maker == nullptr) return false;
  const auto all_operands = [&] {
    for (size_t k = 0; k < maker->inputs.size(); ++k) {
      if (!is_natural(*maker, k, assumed)) return false;
    }
    return true;
  };
  if (std::holds_alternative<Reshape>(maker->attrs)) return all_operands();
  if (const auto* op = std::get_if<Elementwise>(&maker->attrs))
    return op->steps.size() == 1 && (op->steps[0].op == ElementwiseOp::add || op->steps[0].op == ElementwiseOp::identity) && all_operands();
  const auto* const begin = std::get_if<LoopBegin>(&maker->attrs);
  if (begin == nullptr || !is_natural(*maker, place_in(maker->outputs, id), assumed)) return false;
  assumed.push_back(id);
  return std::all_of(original_.rops.begin(), original_.rops.end(), [&](const ROperator& other) {
    const auto* const end = std::get_if<LoopEnd>(&other.attrs);
    if (end == nullptr || end->loop != begin->loop) return true;
    const size_t k = place_in(other.inputs, id);
    return k >= other.outputs.size() || is_natural(other, other.outputs.size() + k, assumed);
  });
}

bool RopLengths::is_natural_constant(const ROperator& rop, size_t i) const {
  const Tensor& own = original_.tensor(rop.inputs[i]);
  if (own.dtype != DType::i64 || element_count(own.shape) != 1 || !own.data || static_cast<int8_t>(own.data->back()) < 0) return false;
  return std::all_of(probes_.begin(), probes_.end(), [&](const Probe& probe) {
    const ROperator& there = probe.graph.rops[static_cast<size_t>(&rop - original_.rops.data())];
    const Tensor& other = probe.graph.tensor(there.inputs[i]);
    return other.data && *other.data == *own.data;
  });
}

}  // namespace tamp::frontend
