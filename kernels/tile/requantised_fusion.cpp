#include <algorithm>
#include <utility>

#include "compiler/ir/fused.h"
#include "compiler/passes/rewrite.h"
#include "compiler/passes/whole_chain.h"
#include "kernels/tile/requantised.h"

namespace tamp::kernels {
namespace {

// Dimension of the channels in a product's result.
size_t channel_dim(const ROperator& product, const Shape& shape) {
  return std::holds_alternative<Conv>(product.attrs) ? 1 : shape.size() - 1;
}

// Whether each channel has a filter of its own.
bool is_depthwise(const Graph& graph, const ROperator& rop) {
  const auto* const conv = std::get_if<Conv>(&rop.attrs);
  return conv && conv->group > 1 && graph.tensor(rop.inputs[0]).shape[1] == conv->group &&
         graph.tensor(rop.outputs[0]).shape[1] == conv->group;
}

// Whether the body makes whole numbers of the product alone, apart from what types it has.
bool rounds_plainly(const Graph& graph, const ROperator& rop) {
  const auto* const conv = std::get_if<Conv>(&rop.attrs);
  const auto* const matmul = std::get_if<MatMul>(&rop.attrs);
  if (!(conv && !has_prologue(*conv)) && !(matmul && !matmul->trans_a)) return false;
  constexpr int64_t kLeastChannels = 4;  // of a group
  if (conv && !is_depthwise(graph, rop) && graph.tensor(rop.inputs[0]).shape[1] / conv->group < kLeastChannels) return false;
  const Epilogue& e = rop.epilogue;
  if (e.activation != Activation::rounded || e.residual.valid() || e.sum || rop.outputs.size() != 1) return false;
  if (rop.inputs.size() != 2 || !is_f32_constant(graph, rop.inputs[1])) return false;
  const Shape& shape = graph.tensor(rop.outputs[0]).shape;
  return shape.size() >= 2 && element_count(shape) > shape[channel_dim(rop, shape)] && holds_whole_numbers(graph, rop.inputs[0]);
}

// The steps in the one form that requantised_of knows: for a row {mul, add, rounded}, for a table a whole number that is an index into it.
RegionSteps joined(Graph& graph, const ROperator& product, const ROperator& chain, const passes::WholeChain& made) {
  const std::string name = chain.name;
  const Shape shape = graph.tensor(chain.outputs[0]).shape;
  const auto number = [&](const char* what, float value) { return add_f32_constant(graph, name + "." + what, {}, {value}); };
  RegionSteps region{{product}, chain.outputs};
  TensorId last = product.outputs[0];
  if (!made.row.empty()) {
    Shape row(shape.size() - channel_dim(product, shape), 1);
    row[0] = static_cast<int64_t>(made.row.size());
    const std::vector<TensorId> inputs = {last, number("scale", made.scale), add_f32_constant(graph, name + ".row", row, made.row)};
    const TensorId to = made.table.empty() ? chain.outputs[0] : passes::add_like(graph, last, name + ".whole", shape);
    region.steps.push_back(passes::make_elementwise(
        made.table.empty() ? name : graph.tensor(to).name,
        {{ElementwiseOp::mul, {0, 1}}, {ElementwiseOp::add, {-1, 2}}, {ElementwiseOp::rounded, {-2}, made.low, made.high}}, inputs, to));
    last = to;
  }
  if (!made.table.empty()) {
    append_lookup(graph, name, last, chain.outputs[0], made, region.steps);
  }
  region.steps.back().origin = chain.origin;
  return region;
}

// Found from the chain.
std::optional<FusionRegion> region_at(const Graph& graph, const Uses& uses, size_t at) {
  const ROperator& chain = graph.rops[at];
  if (!std::holds_alternative<Elementwise>(chain.attrs)) return std::nullopt;
  for (const TensorId id : chain.inputs) {
    const ROperatorId maker = uses.maker_for_one(id);
    if (!maker.valid() || !rounds_plainly(graph, graph.rop(maker))) continue;
    const ROperator& product = graph.rop(maker);
    const std::optional<WholeRange> range = rounded_range(product.epilogue);
    const Shape& shape = graph.tensor(id).shape;
    if (!range) continue;
    const auto made = passes::whole_chain_of(graph, chain, id, *range, channel_dim(product, shape));
    const bool depthwise = is_depthwise(graph, product);
    if (!made || (depthwise && !made->row.empty())) continue;
    std::vector<int64_t> kind = shape;
    kind.insert(kind.end(), {depthwise, !made->row.empty(), !made->table.empty()});
    const std::vector<size_t> rops = {maker.index(), at};
    return FusionRegion{std::move(kind), rops, [rops, made = *made](Graph& from) {
                          const ROperator first = from.rops[rops[0]], second = from.rops[rops[1]];
                          return joined(from, first, second, made);
                        }};
  }
  return std::nullopt;
}

bool has_steps(const ROperator& rop, std::initializer_list<ElementwiseOp> ops) {
  const auto* const chain = std::get_if<Elementwise>(&rop.attrs);
  return chain && std::equal(chain->steps.begin(), chain->steps.end(), ops.begin(), ops.end(),
                             [](const ElementwiseStep& step, ElementwiseOp op) { return step.op == op; });
}

}  // namespace

std::optional<WholeRange> rounded_range(const Epilogue& epilogue) {
  constexpr float kMost = 1 << 20;
  if (!(epilogue.a >= -kMost && epilogue.b <= kMost)) return std::nullopt;
  const auto low = static_cast<int64_t>(epilogue.a), high = static_cast<int64_t>(epilogue.b);
  const bool are_whole = static_cast<float>(low) == epilogue.a && static_cast<float>(high) == epilogue.b;
  return are_whole && low <= high && high - low < 256 ? std::optional(WholeRange{low, high}) : std::nullopt;
}

std::optional<Lookup> lookup_at(const Graph& graph, const FusedView& view, size_t at) {
  if (at == 0 || at + 1 >= view.count() || !has_steps(view.step(at), {ElementwiseOp::sub, ElementwiseOp::cast})) return std::nullopt;
  const std::optional<float> low = passes::scalar_value(graph, view.input(at, 1));
  if (!low || !view.as<Gather>(at + 1) || !view.feeds(at - 1, at) || !view.feeds(at, at + 1, 1)) return std::nullopt;
  return Lookup{view.input(at + 1, 0), static_cast<int64_t>(*low)};
}

void append_lookup(Graph& graph, const std::string& name, TensorId from, TensorId to, const passes::WholeChain& made,
                   std::vector<ROperator>& steps) {
  const TensorId index = passes::add_like(graph, from, name + ".index", graph.tensor(from).shape);
  graph.tensor(index).dtype = DType::i64;
  const TensorId low = add_f32_constant(graph, name + ".low", {}, {static_cast<float>(made.table_low)});
  ROperator place =
      passes::make_elementwise(name + ".index", {{ElementwiseOp::sub, {0, 1}}, {ElementwiseOp::cast, {-1}}}, {from, low}, index);
  std::get<Elementwise>(place.attrs).dtype = DType::i64;
  steps.push_back(std::move(place));
  const TensorId table = add_f32_constant(graph, name + ".table", {static_cast<int64_t>(made.table.size())}, made.table);
  steps.push_back({name, Gather{0}, {}, {table, index}, {to}, {}});
}

std::optional<Requantised> requantised_of(const Graph& graph, const ROperator& rop) {
  const std::optional<FusedView> view = FusedView::of(rop);
  if (!view || view->count() < 2 || rop.outputs.size() != 1 || !(view->as<Conv>(0) || view->as<MatMul>(0))) return std::nullopt;
  Requantised found;
  found.product = view->alone(0);
  found.product.outputs = rop.outputs;
  const Epilogue& e = found.product.epilogue;
  if (e.activation != Activation::rounded || !rounded_range(e)) return std::nullopt;
  const auto value = [&](size_t step, size_t i) { return passes::scalar_value(graph, view->input(step, i)); };
  size_t at = 1;
  found.results = *rounded_range(e);
  if (has_steps(view->step(1), {ElementwiseOp::mul, ElementwiseOp::add, ElementwiseOp::rounded})) {
    const ElementwiseStep& end = std::get<Elementwise>(view->step(1).attrs).steps[2];
    const std::optional<float> scale = value(1, 1);
    if (!view->feeds(0, 1) || !scale || view->step(1).inputs.size() != 3) return std::nullopt;
    found.row = view->input(1, 2);
    found.scale = *scale;
    found.low = end.a;
    found.high = end.b;
    found.results = {static_cast<int64_t>(end.a), static_cast<int64_t>(end.b)};
    at = 2;
  }
  if (at == view->count()) return found;
  const std::optional<Lookup> lookup = lookup_at(graph, *view, at);
  if (!lookup || view->count() != at + 2) return std::nullopt;
  found.table = lookup->table;
  found.table_low = lookup->low;
  const Tensor& table = graph.tensor(found.table);
  const float* const first = f32_data(table);
  const auto [least, most] = std::minmax_element(first, first + element_count(table.shape));
  found.results = {static_cast<int64_t>(*least), static_cast<int64_t>(*most)};
  return found;
}

FusionPattern requantised_products() {
  return {.title = "requantised product", .when = FusionTime::maps, .least_us_of_kind = 0.3, .regions = regions_at_each(region_at)};
}

}  // namespace tamp::kernels
