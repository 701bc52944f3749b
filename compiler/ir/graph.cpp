#include "compiler/ir/graph.h"

#include <queue>

#include "compiler/support/error.h"

namespace tamp {

int64_t length_named(const Graph& graph, const std::string& name) {
  for (size_t i = 0; i < graph.lengths.size(); ++i) {
    if (graph.lengths[i].name == name) return static_cast<int64_t>(i);
  }
  return -1;
}

std::string values_text(const Length& length) {
  return fmt::format("{} to {}{}", length.smallest, length.largest, length.step == 1 ? "" : fmt::format(" in steps of {}", length.step));
}

int64_t value_of(const ExtentProducts& products, const Extent& extent, const std::vector<int64_t>& values) {
  if (extent.length >= 0) return extent.at(values.at(static_cast<size_t>(extent.length)));
  const ExtentProduct& product = products.at(static_cast<size_t>(-1 - extent.length));
  return extent.at(value_of(products, product.left, values) * value_of(products, product.right, values));
}

int64_t largest_of(const Graph& graph, const Extent& extent) {
  std::vector<int64_t> values;
  for (const Length& length : graph.lengths) values.push_back(length.largest);
  return value_of(graph.products, extent, values);
}

TensorId add_tensor(Graph& graph, Tensor tensor) {
  graph.tensors.push_back(std::move(tensor));
  return TensorId(static_cast<int64_t>(graph.tensors.size()) - 1);
}

TensorId add_constant(Graph& graph, std::string name, DType dtype, Shape shape, Bytes data) {
  return add_tensor(graph, {std::move(name), dtype, std::move(shape), Role::constant, std::make_shared<const Bytes>(std::move(data))});
}

TensorId add_f32_constant(Graph& graph, std::string name, Shape shape, const std::vector<float>& values) {
  return add_constant(graph, std::move(name), DType::f32, std::move(shape), packed_bytes(values));
}

std::vector<TensorId> without_last_none(std::vector<TensorId> ids) {
  while (!ids.empty() && !ids.back().valid()) ids.pop_back();
  return ids;
}

std::vector<TensorId> reads_of(const ROperator& rop) {
  std::vector<TensorId> reads;
  for (const TensorId id : rop.inputs) {
    if (id.valid()) reads.push_back(id);
  }
  if (rop.epilogue.bias.valid()) reads.push_back(rop.epilogue.bias);
  if (rop.epilogue.residual.valid()) reads.push_back(rop.epilogue.residual);
  return reads;
}

Uses uses_of(const Graph& graph) {
  Uses uses;
  uses.producer.resize(graph.tensors.size());
  uses.consumers.resize(graph.tensors.size());
  uses.is_output.assign(graph.tensors.size(), false);
  for (size_t i = 0; i < graph.rops.size(); ++i) {
    const ROperatorId id(static_cast<int64_t>(i));
    for (const TensorId out : graph.rops[i].outputs) uses.producer[out.index()] = id;
    for (const TensorId in : reads_of(graph.rops[i])) uses.consumers[in.index()].push_back(id);
  }
  for (const TensorId out : graph.outputs) uses.is_output[out.index()] = true;
  return uses;
}

Graph remove_dead(Graph graph) {
  std::vector<bool> needed(graph.tensors.size(), false);
  for (const TensorId id : graph.outputs) needed[id.index()] = true;
  std::vector<bool> keep(graph.rops.size(), false);
  for (size_t i = graph.rops.size(); i-- > 0;) {
    for (const TensorId out : graph.rops[i].outputs) keep[i] = keep[i] || needed[out.index()];
    if (!keep[i]) continue;
    for (const TensorId out : graph.rops[i].outputs) needed[out.index()] = true;
    for (const TensorId in : reads_of(graph.rops[i])) needed[in.index()] = true;
  }
  for (const TensorId id : graph.inputs) needed[id.index()] = true;
  for (const Buffer& buffer : graph.buffers) TAMP_CHECK(buffer.elements < 0, "remove_dead runs before placement");

  std::vector<TensorId> renamed(graph.tensors.size());
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    if (!needed[i]) continue;
    renamed[i] = TensorId(static_cast<int64_t>(tensors.size()));
    tensors.push_back(std::move(graph.tensors[i]));
  }
  const auto rename = [&](TensorId& id) {
    if (id.valid()) id = renamed[id.index()];
  };
  std::vector<ROperator> rops;
  for (size_t i = 0; i < graph.rops.size(); ++i) {
    if (!keep[i]) continue;
    ROperator& rop = graph.rops[i];
    for (TensorId& id : rop.inputs) rename(id);
    for (TensorId& id : rop.outputs) rename(id);
    rename(rop.epilogue.bias);
    rename(rop.epilogue.residual);
    rops.push_back(std::move(rop));
  }
  for (TensorId& id : graph.inputs) rename(id);
  for (TensorId& id : graph.outputs) rename(id);
  graph.tensors = std::move(tensors);
  graph.rops = std::move(rops);
  return graph;
}

Graph drop_unread_results(Graph graph) {
  const Uses uses = uses_of(graph);
  for (ROperator& rop : graph.rops) {
    auto* const recurrent = std::get_if<Recurrent>(&rop.attrs);
    if (!recurrent) continue;
    std::vector<TensorId> kept;
    for (RecurrentCell& cell : recurrent->cells) {
      for (int32_t* result : {&cell.y, &cell.y_h, &cell.y_c}) {
        if (*result < 0) continue;
        const TensorId id = rop.outputs[static_cast<size_t>(*result)];
        const bool used = uses.is_output[id.index()] || !uses.consumers[id.index()].empty();
        *result = used ? static_cast<int32_t>(kept.size()) : -1;
        if (used) kept.push_back(id);
      }
    }
    rop.outputs = std::move(kept);
  }
  return remove_dead(std::move(graph));
}

Graph sort_topologically(Graph graph) {
  const Uses uses = uses_of(graph);
  std::vector<int> missing(graph.rops.size(), 0);
  std::vector<std::vector<size_t>> next(graph.rops.size());
  for (size_t i = 0; i < graph.rops.size(); ++i) {
    for (const TensorId in : reads_of(graph.rops[i])) {
      const ROperatorId producer = uses.producer[in.index()];
      if (!producer.valid()) continue;
      next[producer.index()].push_back(i);
      ++missing[i];
    }
  }
  std::priority_queue<size_t, std::vector<size_t>, std::greater<>> ready;  // smallest index first keeps the order stable
  for (size_t i = 0; i < missing.size(); ++i) {
    if (missing[i] == 0) ready.push(i);
  }
  std::vector<ROperator> sorted;
  while (!ready.empty()) {
    const size_t i = ready.top();
    ready.pop();
    for (const size_t j : next[i]) {
      if (--missing[j] == 0) ready.push(j);
    }
    sorted.push_back(std::move(graph.rops[i]));
  }
  TAMP_CHECK(sorted.size() == missing.size(), "cycle in graph '" + graph.name + "'");
  graph.rops = std::move(sorted);
  return graph;
}

void forget_data(const Graph& graph) {
  for (const Tensor& tensor : graph.tensors) tensor.data.forget();
}

void ConstantReads::expect(const Graph& graph, const ROperator& rop) {
  for (const TensorId id : reads_of(rop)) ++left_[graph.tensor(id).data];
}

void ConstantReads::end(const Graph& graph, const ROperator& rop) {
  for (const TensorId id : reads_of(rop)) {
    if (--left_.at(graph.tensor(id).data) == 0) graph.tensor(id).data.forget();
  }
}

size_t constant_bytes(const Graph& graph, const ROperator& rop) {
  size_t bytes = 0;
  for (const TensorId id : reads_of(rop)) bytes += graph.tensor(id).data ? graph.tensor(id).data.size() : 0;
  return bytes;
}

void verify(const Graph& graph) {
  const auto in_range = [&](TensorId id) { return id.valid() && id.index() < graph.tensors.size(); };
  std::vector<bool> computed(graph.tensors.size(), false), made(graph.tensors.size(), false);
  for (const ROperator& rop : graph.rops) {
    for (const TensorId id : rop.outputs) {
      if (in_range(id)) computed[id.index()] = true;
    }
  }
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    const Tensor& tensor = graph.tensors[i];
    // In a placed graph a tensor that no rOperator makes is a view of memory that other rOperators write.
    const bool is_view = tensor.role == Role::activation && tensor.place.buffer.valid() && !computed[i];
    for (const int64_t extent : tensor.shape) TAMP_CHECK(extent >= 0, "negative extent in '" + tensor.name + "'");
    TAMP_CHECK((tensor.role == Role::constant) == (tensor.data != nullptr), "data and role of '" + tensor.name + "' disagree");
    if (tensor.data) {
      const auto want = static_cast<size_t>(element_count(tensor.shape) * bytes_of(tensor.dtype));
      TAMP_CHECK(tensor.data.size() == want, "size of constant '" + tensor.name + "'");
    }
    made[i] = tensor.role == Role::constant || is_view;
  }
  for (const TensorId id : graph.inputs) {
    TAMP_CHECK(in_range(id) && graph.tensor(id).role == Role::input, "graph input");
    made[id.index()] = true;
  }
  for (const ROperator& rop : graph.rops) {
    for (const TensorId id : reads_of(rop)) {
      TAMP_CHECK(in_range(id), "operand of '" + rop.name + "' out of range");
      TAMP_CHECK(made[id.index()], "'" + rop.name + "' reads '" + graph.tensor(id).name + "' before it is made");
    }
    TAMP_CHECK(!rop.outputs.empty(), "'" + rop.name + "' has no outputs");
    for (const TensorId id : rop.outputs) {
      TAMP_CHECK(in_range(id) && graph.tensor(id).role == Role::activation, "result of '" + rop.name + "'");
      TAMP_CHECK(!made[id.index()], "'" + graph.tensor(id).name + "' is made twice");
      made[id.index()] = true;
    }
  }
  for (const TensorId id : graph.outputs) TAMP_CHECK(in_range(id) && made[id.index()], "graph output is never made");
}

}  // namespace tamp
