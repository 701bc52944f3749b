#include "compiler/passes/recognise/recurrences/lift_recurrences_emit.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "compiler/passes/rewrite.h"
#include "compiler/support/error.h"

namespace tamp::passes::lift {

Emitter::Emitter(const Graph& graph) : graph_(graph), maker_(graph.tensors.size(), -1), dead_(graph.rops.size(), false) {
  for (const Tensor& tensor : graph.tensors) tensor_names_.insert(tensor.name);
  for (size_t i = 0; i < graph.rops.size(); ++i) {
    rop_names_.insert(graph.rops[i].name);
    own(i);
  }
}

const ROperator* Emitter::maker(TensorId id) const {
  const int64_t rop = maker_[id.index()];
  return rop < 0 ? nullptr : &graph_.rops[static_cast<size_t>(rop)];
}

void Emitter::own(size_t rop) {
  for (const TensorId id : graph_.rops[rop].outputs) maker_[id.index()] = static_cast<int64_t>(rop);
}

void Emitter::disown(TensorId id) {
  const int64_t rop = std::exchange(maker_[id.index()], -1);
  if (rop < 0) return;
  dead_[static_cast<size_t>(rop)] = true;
  rop_names_.erase(graph_.rops[static_cast<size_t>(rop)].name);
}

std::string Emitter::unique(Names& names, const std::string& name) {
  std::string found = name;
  for (int64_t i = 1; !names.insert(found).second; ++i) found = name + "_" + std::to_string(i);
  return found;
}

TensorId Emitter::add_tensor(const std::string& name, Shape shape) {
  maker_.push_back(-1);
  return tamp::add_tensor(graph_, {unique(tensor_names_, name), DType::f32, std::move(shape)});
}

TensorId Emitter::add_constant(const std::string& name, Shape shape, const std::vector<float>& values) {
  maker_.push_back(-1);
  return add_f32_constant(graph_, unique(tensor_names_, name), std::move(shape), values);
}

void Emitter::add_rop(OpAttrs attrs, const std::string& name, std::vector<TensorId> inputs, std::vector<TensorId> outputs,
                      std::vector<std::string> origin) {
  graph_.rops.push_back({unique(rop_names_, name), std::move(attrs), {}, std::move(inputs), std::move(outputs), std::move(origin)});
  dead_.push_back(false);
  own(graph_.rops.size() - 1);
}

std::optional<TensorId> Emitter::add_view(TensorId from, const Strided& wanted, const Shape& to) {
  Key key = {from.value, wanted.offset};
  for (const auto* list : {&wanted.extents, &wanted.strides, &to}) key.insert(key.end(), list->begin(), list->end());
  if (const auto made = views_.find(key); made != views_.end()) return made->second;
  std::optional<std::vector<ViewStep>> steps = view_steps(shape(from), wanted, to);
  if (!steps) return std::nullopt;
  TensorId last = from;
  for (ViewStep& step : *steps) {
    const TensorId made = add_tensor(graph_.tensor(from).name + ".view", step.shape);
    add_rop(std::move(step.attrs), graph_.tensor(made).name, {last}, {made});
    last = made;
  }
  return views_[std::move(key)] = last;
}

bool Emitter::remake(TensorId result, TensorId from, const Strided& wanted, const ROperator& old) {
  std::optional<std::vector<ViewStep>> steps = view_steps(shape(from), wanted, shape(result));
  if (!steps) return false;
  if (steps->empty()) steps->push_back({Reshape{shape(result)}, shape(result)});  // the result keeps its name
  disown(result);
  TensorId last = from;
  for (size_t i = 0; i < steps->size(); ++i) {
    const bool is_last = i + 1 == steps->size();
    const TensorId made = is_last ? result : add_tensor(graph_.tensor(result).name + ".view", (*steps)[i].shape);
    add_rop(std::move((*steps)[i].attrs), is_last ? old.name : old.name + ".view", {last}, {made}, old.origin);
    last = made;
  }
  return true;
}

TensorId Emitter::reshaped(TensorId id, const Shape& to) {
  const std::optional<TensorId> view = add_view(id, {0, shape(id), row_major_strides(shape(id))}, to);
  TAMP_CHECK(view, "a dense tensor has any shape");
  return *view;
}

TensorId Emitter::concat(const std::vector<TensorId>& parts, int64_t axis) {
  if (parts.size() == 1) return parts[0];
  Shape to = shape(parts[0]);
  Key key = {-1, axis};
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) to[static_cast<size_t>(axis)] += shape(parts[i])[static_cast<size_t>(axis)];
    key.push_back(parts[i].value);
  }
  if (const auto made = views_.find(key); made != views_.end()) return made->second;
  const TensorId made = add_tensor(graph_.tensor(parts[0]).name + ".joined", std::move(to));
  add_rop(Concat{axis}, graph_.tensor(made).name, parts, {made});
  return views_[std::move(key)] = made;
}

TensorId Emitter::repeated(TensorId one, int64_t times) {
  Shape to = shape(one);
  to[0] = times;
  const Key key = {-2, times, one.value};
  if (const auto made = views_.find(key); made != views_.end()) return made->second;
  const TensorId made = add_tensor(graph_.tensor(one).name + ".repeated", to);
  const Shape zeros = [&] {  // what makes the sum as large
    Shape extents(to.size(), 1);
    extents[0] = times;
    return extents;
  }();
  const TensorId zero = add_constant(graph_.tensor(made).name + ".zero", zeros, std::vector<float>(static_cast<size_t>(times), 0.0F));
  add_rop(Elementwise{{{ElementwiseOp::add, {0, 1}}}}, graph_.tensor(made).name, {one, zero}, {made});
  return views_[key] = made;
}

TensorId Emitter::weights(const Constants& constants, const Cell& cell, const std::vector<size_t>& parts) {
  const auto gates = static_cast<size_t>(gates_of(cell.kind));
  int64_t cols = 0;
  Key key;
  for (const size_t p : parts) {
    cols += cell.parts[p].operand.cols;
    for (size_t g = 0; g < gates; ++g) {
      const Block& block = *cell.parts[p].blocks[g];
      key.insert(key.end(), {block.constant.value, block.transposed, block.row, block.rows, block.col, block.cols});
      key.push_back(std::bit_cast<int32_t>(block.scale));
    }
  }
  if (const auto made = weights_.find(key); made != weights_.end()) return made->second;
  std::vector<float> values;
  values.reserve(gates * static_cast<size_t>(cell.hidden * cols));
  for (size_t g = 0; g < gates; ++g) {
    for (int64_t row = 0; row < cell.hidden; ++row) {
      for (const size_t p : parts) {
        const Block& block = *cell.parts[p].blocks[g];
        for (int64_t col = 0; col < block.rows; ++col) values.push_back(constants.value(block, col, row));
      }
    }
  }
  const std::string name = graph_.tensor(cell.parts[parts[0]].blocks[0]->constant).name + ".gates";
  return weights_[std::move(key)] = add_constant(name, {gates_of(cell.kind) * cell.hidden, cols}, values);
}

TensorId Emitter::bias(const Constants& constants, const Cell& cell) {
  const auto gates = static_cast<size_t>(gates_of(cell.kind));
  std::vector<float> values;
  for (size_t g = 0; g < gates; ++g) {
    for (const double x : constants.sum(cell.bias[g], cell.hidden)) values.push_back(static_cast<float>(x));
  }
  values.resize(2 * values.size(), 0.0F);
  const std::vector<double> inner = constants.sum(cell.inner_bias, cell.hidden);
  std::transform(inner.begin(), inner.end(), values.end() - cell.hidden, [](double x) { return static_cast<float>(x); });
  if (std::all_of(values.begin(), values.end(), [](float x) { return x == 0; })) return TensorId();
  return add_constant(graph_.tensor(cell.h).name + ".bias", {static_cast<int64_t>(values.size())}, values);
}

Graph Emitter::finish() { return drop_unread_results(remove_dead(sort_topologically(erase_rops(std::move(graph_), dead_)))); }

}  // namespace tamp::passes::lift
