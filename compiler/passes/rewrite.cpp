#include "compiler/passes/rewrite.h"

#include <algorithm>
#include <set>
#include <utility>

#include "compiler/support/error.h"

namespace tamp::passes {
namespace {

// Strides that walk a dense constant in the shape it broadcasts to.
std::vector<int64_t> repeated_strides(const Shape& from, const Shape& to) {
  TAMP_CHECK(from.size() <= to.size(), "constant has more dimensions than what it broadcasts to");
  std::vector<int64_t> strides(to.size() - from.size(), 0);
  const std::vector<int64_t> dense = row_major_strides(from);  // 0 where the extent is 1
  strides.insert(strides.end(), dense.begin(), dense.end());
  return strides;
}

}  // namespace

bool all_are(const std::vector<int64_t>& values, int64_t wanted) {
  return std::all_of(values.begin(), values.end(), [&](int64_t value) { return value == wanted; });
}

Activation activation_of(ElementwiseOp op) {
  switch (op) {
    case ElementwiseOp::relu: return Activation::relu;
    case ElementwiseOp::clip: return Activation::clip;
    case ElementwiseOp::sigmoid: return Activation::sigmoid;
    case ElementwiseOp::tanh: return Activation::tanh;
    case ElementwiseOp::hard_sigmoid: return Activation::hard_sigmoid;
    case ElementwiseOp::hard_swish: return Activation::hard_swish;
    case ElementwiseOp::leaky_relu: return Activation::leaky_relu;
    case ElementwiseOp::gelu: return Activation::gelu;
    case ElementwiseOp::gelu_tanh: return Activation::gelu_tanh;
    case ElementwiseOp::rounded: return Activation::rounded;
    default: return Activation::none;
  }
}

const ROperator* maker_of(const Graph& graph, const Uses& uses, TensorId id) {
  const ROperatorId maker = id.index() < uses.producer.size() ? uses.producer[id.index()] : ROperatorId();
  return maker.valid() ? &graph.rop(maker) : nullptr;
}

const ROperator* maker_by(const Graph& graph, const Uses& uses, TensorId id, ElementwiseOp op) {
  const ROperator* const maker = maker_of(graph, uses, id);
  const ElementwiseStep* const step = maker ? single_step(*maker) : nullptr;
  return step && step->op == op ? maker : nullptr;
}

TensorId add_like(Graph& graph, TensorId like, std::string name, Shape shape) {
  return add_tensor(graph, {std::move(name), graph.tensor(like).dtype, std::move(shape)});
}

TensorId append_view(Graph& graph, std::vector<ROperator>& rops, const std::string& name, OpAttrs view, TensorId from, const Shape& shape,
                     const std::vector<std::string>& origin) {
  const TensorId to = add_like(graph, from, name, shape);
  rops.push_back({name, std::move(view), {}, {from}, {to}, origin});
  return to;
}

std::vector<int64_t> swapped(size_t rank, size_t first) {
  std::vector<int64_t> perm = range(0, static_cast<int64_t>(rank));
  std::swap(perm[first], perm[first + 1]);
  return perm;
}

ROperator make_elementwise(std::string name, std::vector<ElementwiseStep> steps, std::vector<TensorId> inputs, TensorId output) {
  return {std::move(name), Elementwise{std::move(steps)}, {}, std::move(inputs), {output}, {}};
}

ROperator make_copy(std::string name, TensorId from, TensorId to) {
  return make_elementwise(std::move(name), {{ElementwiseOp::identity, {0}}}, {from}, to);
}

TensorId add_scaled(Graph& graph, std::string name, const Tensor& constant, std::vector<float> factors, bool by_columns) {
  TAMP_CHECK(constant.data != nullptr && constant.dtype == DType::f32, "'" + constant.name + "' is not an f32 constant");
  const size_t count = constant.data.size() / sizeof(float), rows = factors.empty() ? 0
                                                                    : by_columns    ? count / factors.size()
                                                                                    : factors.size();
  TAMP_CHECK(rows == 0 || count % factors.size() == 0, "factors of '" + constant.name + "'");
  const auto scale = [from = constant.data, factors = std::move(factors), by_columns, rows, length = rows == 0 ? 0 : count / rows] {
    Bytes bytes = *from.hold();
    auto* const values = reinterpret_cast<float*>(bytes.data());
    const float* const by = factors.data();
    for (size_t row = 0; row < rows; ++row) {
      for (size_t i = 0; i < length; ++i) values[row * length + i] *= by[by_columns ? i : row];
    }
    return bytes;
  };
  return add_tensor(graph, {std::move(name), DType::f32, constant.shape, Role::constant, TensorData::made_by(constant.data.size(), scale)});
}

std::vector<float> broadcast_values(const Tensor& constant, const Shape& to) {
  const float* values = f32_data(constant);
  const std::vector<int64_t> strides = repeated_strides(constant.shape, to);
  std::vector<float> out;
  for (int64_t i = 0; i < element_count(to); ++i) {
    int64_t rest = i, offset = 0;
    for (size_t d = to.size(); d-- > 0;) {
      offset += rest % to[d] * strides[d];
      rest /= to[d];
    }
    out.push_back(values[offset]);
  }
  return out;
}

std::optional<std::vector<float>> values_along(const Tensor& constant, const Shape& to, size_t axis) {
  if (constant.shape.size() > to.size() || axis >= to.size()) return std::nullopt;
  const size_t shift = to.size() - constant.shape.size();
  for (size_t d = 0; d < constant.shape.size(); ++d) {
    const bool varies = constant.shape[d] != 1;
    if (varies && (d + shift != axis || constant.shape[d] != to[axis])) return std::nullopt;
  }
  const float* values = f32_data(constant);
  const bool varies = element_count(constant.shape) != 1;
  std::vector<float> out;
  for (int64_t i = 0; i < to[axis]; ++i) out.push_back(values[varies ? i : 0]);
  return out;
}

std::optional<float> scalar_value(const Graph& graph, TensorId id) {
  if (!is_f32_constant(graph, id) || element_count(graph.tensor(id).shape) != 1) return std::nullopt;
  return *f32_data(graph.tensor(id));
}

bool is_row_or_none(const Graph& graph, TensorId id, int64_t columns) {
  return !id.valid() || (is_f32_constant(graph, id) && graph.tensor(id).shape == Shape{columns});
}

bool normalizes_rows(const Graph& graph, const ROperator& rop) {
  const auto* normalize = std::get_if<Normalize>(&rop.attrs);
  if (!normalize || operand(rop, kNormalizeRows).valid()) return false;
  const Tensor& x = graph.tensor(rop.inputs[0]);
  const int64_t rank = static_cast<int64_t>(x.shape.size());
  if (x.dtype != DType::f32 || normalize->axes != std::vector<int64_t>{rank - 1} || element_count(x.shape) == 0) return false;
  return is_row_or_none(graph, operand(rop, 1), x.shape.back()) && is_row_or_none(graph, operand(rop, 2), x.shape.back());
}

bool keeps_order(const Graph& graph, const ROperator& rop) {
  if (std::holds_alternative<Reshape>(rop.attrs)) return true;
  const auto* transpose = std::get_if<Transpose>(&rop.attrs);
  if (!transpose) return false;
  std::vector<int64_t> longer;
  for (const int64_t from : transpose->perm) {
    if (graph.tensor(rop.inputs[0]).shape[static_cast<size_t>(from)] != 1) longer.push_back(from);
  }
  return std::is_sorted(longer.begin(), longer.end());
}

void prepend_origin(ROperator& rop, const ROperator& first) {
  rop.origin.insert(rop.origin.begin(), first.origin.begin(), first.origin.end());
}

std::vector<std::string> origin_between(const Graph& graph, const Uses& uses, const std::vector<TensorId>& from, size_t to) {
  std::set<size_t> found, open = {to};
  while (!open.empty()) {
    const size_t next = *open.begin();
    open.erase(open.begin());
    found.insert(next);
    for (const TensorId id : graph.rops[next].inputs) {
      if (!id.valid() || std::find(from.begin(), from.end(), id) != from.end()) continue;
      if (uses.producer[id.index()].valid()) open.insert(uses.producer[id.index()].index());
    }
  }
  std::vector<std::string> origin;
  for (const size_t i : found) origin.insert(origin.end(), graph.rops[i].origin.begin(), graph.rops[i].origin.end());
  return origin;
}

TensorId Replacements::resolve(TensorId id) const {
  const auto is_replaced = [&](TensorId at) { return at.valid() && at.index() < by_.size() && by_[at.index()].valid(); };
  TensorId end = id;
  while (is_replaced(end)) end = by_[end.index()];
  while (is_replaced(id)) id = std::exchange(by_[id.index()], end);
  return end;
}

Graph Replacements::apply(Graph graph) const {
  for (ROperator& rop : graph.rops) {
    for (TensorId& id : rop.inputs) id = resolve(id);
    rop.epilogue.bias = resolve(rop.epilogue.bias);
    rop.epilogue.residual = resolve(rop.epilogue.residual);
  }
  for (TensorId& id : graph.outputs) id = resolve(id);
  return graph;
}

Graph replace_rops(Graph graph, std::vector<std::vector<ROperator>> made) {
  std::vector<ROperator> rops;
  for (size_t i = 0; i < graph.rops.size(); ++i) {
    if (made[i].empty()) made[i].push_back(std::move(graph.rops[i]));
    for (ROperator& next : made[i]) rops.push_back(std::move(next));
  }
  graph.rops = std::move(rops);
  return graph;
}

Graph erase_rops(Graph graph, const std::vector<bool>& dead) {
  std::vector<ROperator> kept;
  for (size_t i = 0; i < graph.rops.size(); ++i) {
    if (i >= dead.size() || !dead[i]) kept.push_back(std::move(graph.rops[i]));
  }
  graph.rops = std::move(kept);
  return graph;
}

}  // namespace tamp::passes
