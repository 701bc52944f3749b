#include <algorithm>
#include <utility>

#include "compiler/passes/rewrite.h"
#include "compiler/passes/whole_chain.h"
#include "kernels/excite/rounded_excitation.h"

namespace tamp::kernels {
namespace {

// --- what there is to join ----------------------------------------------------------------------------------------------

// A chain that is rounded(scale * operands), each of `of` once.
std::optional<RoundedTo> rounded_product_of(const Graph& graph, const ROperator& rop, const std::vector<TensorId>& of) {
  struct Term {
    std::vector<TensorId> factors;
    double scale = 1;
  };
  const auto* const chain = std::get_if<Elementwise>(&rop.attrs);
  if (!chain || chain->steps.empty() || chain->may_change_type() || graph.tensor(rop.outputs[0]).dtype != DType::f32) return std::nullopt;
  if (rop.epilogue.activation != Activation::none || rop.epilogue.residual.valid()) return std::nullopt;
  std::vector<Term> made;
  for (const ElementwiseStep& step : chain->steps) {
    std::vector<Term> terms;
    for (const int32_t v : step.operands) {
      if (v < 0) {
        terms.push_back(made[static_cast<size_t>(-1 - v)]);
        continue;
      }
      const TensorId id = rop.inputs[static_cast<size_t>(v)];
      const std::optional<float> number = passes::scalar_value(graph, id);
      terms.push_back(number ? Term{{}, *number} : Term{{id}, 1});
    }
    Term term = terms[0];
    if (step.op == ElementwiseOp::rounded && &step == &chain->steps.back()) {
      if (term.factors.size() != of.size() || !std::is_permutation(of.begin(), of.end(), term.factors.begin())) return std::nullopt;
      return RoundedTo{static_cast<float>(term.scale), step.a, step.b};
    }
    if (step.op != ElementwiseOp::mul && step.op != ElementwiseOp::div) return std::nullopt;
    if (step.op == ElementwiseOp::div) {
      if (!terms[1].factors.empty() || terms[1].scale == 0) return std::nullopt;
      terms[1].scale = 1 / terms[1].scale;
    }
    term.scale *= terms[1].scale;
    term.factors.insert(term.factors.end(), terms[1].factors.begin(), terms[1].factors.end());
    made.push_back(std::move(term));
  }
  return std::nullopt;
}

// A convolution of one pixel that rounds, and the chain behind it, which is a table.
struct ProductMatch {
  size_t conv;
  std::optional<size_t> chain;
  passes::WholeChain table{};
};
struct Match {
  TensorId map, squeezed;
  size_t pooling, rounding;
  ProductMatch hidden, gate;
  size_t last;
  RoundedTo mean, out;
};

class Matcher {
 public:
  Matcher(const Graph& graph, const Uses& uses) : graph_(graph), uses_(uses) {}

  // The excitation whose last step is `at`.
  std::optional<Match> match(size_t at) const {
    const ROperator& last = graph_.rops[at];
    if (!std::holds_alternative<Elementwise>(last.attrs)) return std::nullopt;
    const Shape& shape = graph_.tensor(last.outputs[0]).shape;
    if (shape.size() != 4) return std::nullopt;
    std::vector<TensorId> operands;
    for (const TensorId id : last.inputs) {
      if (!passes::scalar_value(graph_, id)) operands.push_back(id);
    }
    if (operands.size() != 2) return std::nullopt;
    if (graph_.tensor(operands[0]).shape != shape) std::swap(operands[0], operands[1]);
    const auto [map, gate_at] = std::pair(operands[0], operands[1]);
    if (!is_whole_map(map) || graph_.tensor(map).shape != shape) return std::nullopt;
    if (graph_.tensor(gate_at).shape != Shape{shape[0], shape[1], 1, 1}) return std::nullopt;
    const std::optional<RoundedTo> out = rounded_product_of(graph_, last, operands);
    std::optional<ProductMatch> gate = out ? product_that_makes(gate_at) : std::nullopt;
    std::optional<ProductMatch> hidden = gate ? product_that_makes(graph_.rops[gate->conv].inputs[0]) : std::nullopt;
    const std::optional<size_t> rounding = hidden ? maker_of(graph_.rops[hidden->conv].inputs[0]) : std::nullopt;
    if (!rounding || graph_.rops[*rounding].inputs.empty()) return std::nullopt;
    const TensorId mean_at = graph_.rops[*rounding].inputs[0];
    const std::optional<RoundedTo> mean = rounded_product_of(graph_, graph_.rops[*rounding], {mean_at});
    const std::optional<size_t> pooling = mean ? maker_of(mean_at) : std::nullopt;
    if (!pooling || !is_mean(graph_.rops[*pooling])) return std::nullopt;
    const TensorId squeezed = graph_.rops[*pooling].inputs[0];
    if (graph_.tensor(squeezed).shape != shape || !is_whole_map(squeezed)) return std::nullopt;
    return Match{map, squeezed, *pooling, *rounding, *std::move(hidden), *std::move(gate), at, *mean, *out};
  }

 private:
  std::optional<size_t> maker_of(TensorId id) const {
    const ROperatorId maker = uses_.maker_for_one(id);
    return maker.valid() ? std::optional(maker.index()) : std::nullopt;
  }
  bool is_whole_map(TensorId id) const { return graph_.tensor(id).dtype == DType::f32 && holds_whole_numbers(graph_, id); }
  static bool is_mean(const ROperator& rop) {
    const auto* const reduce = std::get_if<Reduce>(&rop.attrs);
    return reduce && reduce->kind == ReduceKind::mean && reduce->axes == std::vector<int64_t>{2, 3} && reduce->keepdims;
  }
  // A pointwise convolution with constant weights that rounds to few numbers, and adds nothing but a bias.
  std::optional<WholeRange> rounds(const ROperator& rop) const {
    const auto* const conv = std::get_if<Conv>(&rop.attrs);
    const bool is_plain = conv && is_pointwise(*conv) && !has_prologue(*conv) && rop.inputs.size() == 2 && rop.outputs.size() == 1 &&
                          !rop.epilogue.residual.valid() && !rop.epilogue.sum && rop.epilogue.activation == Activation::rounded &&
                          is_f32_constant(graph_, rop.inputs[1]);
    return is_plain ? rounded_range(rop.epilogue) : std::nullopt;
  }
  std::optional<ProductMatch> product_that_makes(TensorId id) const {
    std::optional<size_t> maker = maker_of(id);
    if (!maker) return std::nullopt;
    if (rounds(graph_.rops[*maker])) return ProductMatch{*maker, std::nullopt};
    const ROperator& chain = graph_.rops[*maker];
    for (const TensorId x : chain.inputs) {
      const std::optional<size_t> conv = maker_of(x);
      const std::optional<WholeRange> range = conv ? rounds(graph_.rops[*conv]) : std::nullopt;
      std::optional<passes::WholeChain> table = range ? passes::whole_chain_of(graph_, chain, x, *range, 1) : std::nullopt;
      if (table && table->row.empty()) return ProductMatch{*conv, maker, *std::move(table)};
    }
    return std::nullopt;
  }

  const Graph& graph_;
  const Uses& uses_;
};

// --- the steps that are made of it --------------------------------------------------------------------------------------

// Appends the convolution, which reads `from`, and its lookup. Returns what they make.
TensorId append_product(Graph& graph, const ProductMatch& match, TensorId from, std::vector<ROperator>& steps) {
  ROperator conv = graph.rops[match.conv];
  conv.inputs[0] = from;
  const TensorId made = conv.outputs[0];
  steps.push_back(std::move(conv));
  if (!match.chain) return made;
  const ROperator chain = graph.rops[*match.chain];
  append_lookup(graph, chain.name, made, chain.outputs[0], match.table, steps);
  steps.back().origin = chain.origin;
  return chain.outputs[0];
}

// The end of the second rOperator: from the hidden values on.
void append_gates(Graph& graph, const Match& match, TensorId hidden, RegionSteps& region) {
  const TensorId gate = append_product(graph, match.gate, hidden, region.steps);
  const ROperator last = graph.rops[match.last];
  ROperator end = passes::make_elementwise(
      last.name,
      {{ElementwiseOp::mul, {0, 1}}, {ElementwiseOp::mul, {-1, 2}}, {ElementwiseOp::rounded, {-2}, match.out.low, match.out.high}},
      {match.map, gate, add_f32_constant(graph, last.name + ".factor", {}, {match.out.scale})}, last.outputs[0]);
  end.origin = last.origin;
  region.steps.push_back(std::move(end));
  region.results = last.outputs;
}

// rounded(scale * x) of a sum of a channel.
ROperator rounded_mean(Graph& graph, const Match& match, TensorId sum) {
  const ROperator rounding = graph.rops[match.rounding];
  const Shape shape = graph.tensor(match.squeezed).shape;
  const float share = match.mean.scale / static_cast<float>(shape[2] * shape[3]);
  ROperator made = passes::make_elementwise(rounding.name,
                                            {{ElementwiseOp::mul, {0, 1}}, {ElementwiseOp::rounded, {-1}, match.mean.low, match.mean.high}},
                                            {sum, add_f32_constant(graph, rounding.name + ".share", {}, {share})}, rounding.outputs[0]);
  made.origin = rounding.origin;
  return made;
}

// By sums of tiles of `rows` rows.
RegionSteps excited_by_sums(Graph& graph, const Match& match, int64_t rows) {
  const Shape shape = graph.tensor(match.squeezed).shape;
  const ROperator pooling = graph.rops[match.pooling];
  const auto made = [&](const char* what, Shape of) { return passes::add_like(graph, match.squeezed, pooling.name + what, std::move(of)); };
  const TensorId sums = made(".sums", {shape[0], shape[1], (shape[2] + rows - 1) / rows});
  const TensorId all = made(".sum", {shape[0], shape[1], 1}), pixel = made(".pixel", {shape[0], shape[1], 1, 1});
  RegionSteps region;
  region.around = {{pooling.name, TileSums{{rows, shape[3]}}, {}, {match.squeezed}, {sums}, pooling.origin}};
  region.steps = {{pooling.name + ".sum", Reduce{ReduceKind::sum, {2}, true}, {}, {sums}, {all}, {}},
                  {pooling.name + ".pixel", Reshape{{shape[0], shape[1], 1, 1}}, {}, {all}, {pixel}, {}},
                  rounded_mean(graph, match, pixel)};
  const TensorId mean = region.steps.back().outputs[0];
  append_gates(graph, match, append_product(graph, match.hidden, mean, region.steps), region);
  region.operands = {match.map, sums};
  return region;
}

// By parts of products with means.
RegionSteps excited_by_parts(Graph& graph, const Match& match) {
  const Shape shape = graph.tensor(match.squeezed).shape;
  const ROperator pooling = graph.rops[match.pooling], first = graph.rops[match.hidden.conv];
  const int64_t hidden = graph.tensor(first.outputs[0]).shape[1], padded = padded_hidden(hidden);
  const auto made = [&](const char* what, Shape of) { return passes::add_like(graph, match.squeezed, first.name + what, std::move(of)); };
  const TensorId parts = made(".parts", {shape[0], padded, (shape[1] + kSqueezeBlock - 1) / kSqueezeBlock});
  const TensorId sum = made(".mean", {shape[0], shape[1], 1, 1}), pixel = made(".pixel", {shape[0], hidden, 1, 1});
  TensorId all = made(".sum", {shape[0], padded, 1});
  const ROperator mean = rounded_mean(graph, match, sum);
  ROperator squeeze = fuse(graph, "rounded squeeze",
                           {{pooling.name, Reduce{ReduceKind::sum, {2, 3}, true}, {}, {match.squeezed}, {sum}, pooling.origin},
                            mean,
                            {first.name, ChannelSqueeze{1}, {}, {mean.outputs[0], first.inputs[1]}, {parts}, first.origin}},
                           {parts}, {match.squeezed});
  RegionSteps region;
  region.around = {std::move(squeeze)};
  region.steps = {{first.name + ".sum", Reduce{ReduceKind::sum, {2}, true}, {}, {parts}, {all}, {}}};
  if (padded != hidden) {
    const TensorId some = made(".some", {shape[0], hidden, 1});
    Slice slice;
    slice.starts = {0, 0, 0};
    slice.steps = {1, 1, 1};
    slice.extents = {shape[0], hidden, 1};
    region.steps.push_back({first.name + ".some", std::move(slice), {}, {all}, {some}, {}});
    all = some;
  }
  region.steps.push_back({first.name + ".pixel", Reshape{{shape[0], hidden, 1, 1}}, {}, {all}, {pixel}, {}});
  ElementwiseStep end{ElementwiseOp::rounded, {0}, first.epilogue.a, first.epilogue.b};
  std::vector<ElementwiseStep> steps;
  std::vector<TensorId> operands = {pixel};
  if (first.epilogue.bias.valid()) {
    const float* const bias = f32_data(graph.tensor(first.epilogue.bias));
    operands.push_back(add_f32_constant(graph, first.name + ".row", {hidden, 1, 1}, {bias, bias + hidden}));
    steps.push_back({ElementwiseOp::add, {0, 1}});
    end.operands = {-1};
  }
  steps.push_back(std::move(end));
  region.steps.push_back(passes::make_elementwise(first.name, std::move(steps), std::move(operands), first.outputs[0]));
  TensorId values = first.outputs[0];
  if (match.hidden.chain) {
    const ROperator chain = graph.rops[*match.hidden.chain];
    append_lookup(graph, chain.name, values, chain.outputs[0], match.hidden.table, region.steps);
    region.steps.back().origin = chain.origin;
    values = chain.outputs[0];
  }
  append_gates(graph, match, values, region);
  region.operands = {match.map, parts};
  return region;
}

// Rows of a tile: all numbers of tiles that differ in them.
std::vector<int64_t> rows_of_tiles(int64_t height) {
  std::vector<int64_t> all;
  for (int64_t tiles = 1; tiles <= height; ++tiles) {
    const int64_t rows = (height + tiles - 1) / tiles;
    if (all.empty() || all.back() != rows) all.push_back(rows);
  }
  return all;
}

void add_ways(const std::vector<int64_t>& rows, FusionRegion& region, const auto& joined) {
  for (const int64_t each : rows) region.ways.push_back([joined, each](Graph& from) { return joined(from, each); });
}

std::optional<FusionRegion> region_at(const Graph& graph, const Uses& uses, size_t at) {
  std::optional<Match> match = Matcher(graph, uses).match(at);
  if (!match) return std::nullopt;
  const Shape& shape = graph.tensor(match->map).shape;
  FusionRegion region;
  region.kind = shape;
  region.kind.insert(region.kind.end(), {graph.tensor(graph.rops[match->hidden.conv].outputs[0]).shape[1], match->hidden.chain.has_value(),
                                         match->gate.chain.has_value()});
  region.rops = {match->pooling, match->rounding, match->hidden.conv};
  if (match->hidden.chain) region.rops.push_back(*match->hidden.chain);
  region.rops.push_back(match->gate.conv);
  if (match->gate.chain) region.rops.push_back(*match->gate.chain);
  region.rops.push_back(match->last);
  const ROperator& first = graph.rops[match->hidden.conv];
  if (!first.epilogue.bias.valid() || is_f32_constant(graph, first.epilogue.bias))
    region.ways.push_back([match = *match](Graph& from) { return excited_by_parts(from, match); });
  add_ways(rows_of_tiles(shape[2]), region, [match = *match](Graph& from, int64_t rows) { return excited_by_sums(from, match, rows); });
  region.join = region.ways.front();
  return region;
}

// --- sums with the depthwise convolution --------------------------------------------------------------------------------

// A depthwise convolution that rounds, with a table or not.
bool is_rounding_depthwise(const Graph& graph, const ROperator& rop) {
  const std::optional<Requantised> again = requantised_of(graph, rop);
  if (again && again->row.valid()) return false;
  const ROperator& product = again ? again->product : rop;
  const auto* const conv = std::get_if<Conv>(&product.attrs);
  if (!conv || has_prologue(*conv) || product.outputs.size() != 1 || product.inputs.size() != 2) return false;
  const int64_t channels = graph.tensor(product.outputs[0]).shape[1];
  if (graph.tensor(product.outputs[0]).shape.size() != 4 || conv->group != channels || graph.tensor(product.inputs[0]).shape[1] != channels)
    return false;
  const Epilogue& e = product.epilogue;
  return is_f32_constant(graph, product.inputs[1]) && e.activation == Activation::rounded && !e.residual.valid() && !e.sum &&
         rounded_range(e) && holds_whole_numbers(graph, product.inputs[0]);
}

// The excitation once more, with other sums: its own graph has their shape.
ROperator with_sums(Graph& graph, const ROperator& excitation, TensorId was, TensorId sums) {
  const Graph steps = steps_of(graph, excitation);
  const FusedView view = *FusedView::of(excitation);
  std::vector<TensorId> outside;
  for (size_t i = 0; i < steps.tensors.size(); ++i) {
    const TensorId id = view.outside(TensorId(static_cast<int64_t>(i)));
    outside.push_back(id == was ? sums : id.valid() ? id : add_tensor(graph, steps.tensors[i]));
  }
  const auto moved = [&](TensorId id) { return id.valid() ? outside[id.index()] : id; };
  std::vector<ROperator> again;
  for (ROperator step : steps.rops) {
    for (TensorId& id : step.inputs) id = moved(id);
    for (TensorId& id : step.outputs) id = moved(id);
    step.epilogue.bias = moved(step.epilogue.bias);
    again.push_back(std::move(step));
  }
  ROperator made = fuse(graph, title_of(excitation), again, excitation.outputs, {excitation.inputs[0], sums});
  made.origin = excitation.origin;
  return made;
}

// Found from the first half without the convolution: that, and the convolution in front. Sums of tiles may be those of other tiles then,
// so the excitation that reads them is part of the region.
std::optional<FusionRegion> summed_region_at(const Graph& graph, const Uses& uses, size_t at) {
  const std::optional<ChannelSums> sums = channel_sums_of(graph, graph.rops[at]);
  if (!sums || sums->conv) return std::nullopt;
  const ROperatorId maker = uses.producer[sums->map.index()];
  const std::vector<ROperatorId>& readers = uses.consumers[sums->sums.index()];
  if (!maker.valid() || !is_rounding_depthwise(graph, graph.rop(maker)) || readers.size() != 1) return std::nullopt;
  const ROperatorId reader = readers[0];
  if (!rounded_excitation_of(graph, graph.rop(reader))) return std::nullopt;
  const Shape& shape = graph.tensor(sums->map).shape;
  FusionRegion region;
  region.kind = shape;
  const Shape& given = graph.tensor(graph.rop(maker).inputs[0]).shape;
  region.kind.insert(region.kind.end(), given.begin(), given.end());
  region.kind.insert(region.kind.end(), {element_count(graph.tensor(graph.rop(maker).inputs[1]).shape) / shape[1], sums->weights.valid()});
  region.rops = {maker.index(), at};
  if (sums->weights.valid()) {
    region.join = [rops = region.rops](Graph& from) {
      ROperator conv = from.rops[rops[0]], squeeze = from.rops[rops[1]];
      RegionSteps made;
      made.results = {conv.outputs[0], squeeze.outputs[0]};
      squeeze.name = conv.name;
      made.steps = {std::move(conv), std::move(squeeze)};
      return made;
    };
    return region;
  }
  region.rops.push_back(reader.index());
  add_ways(rows_of_tiles(shape[2]), region, [rops = region.rops](Graph& from, int64_t rows) {
    const ROperator conv = from.rops[rops[0]], excitation = from.rops[rops[2]];
    ROperator adds = from.rops[rops[1]];
    const TensorId map = conv.outputs[0], was = adds.outputs[0];
    const Shape of = from.tensor(map).shape;
    const TensorId to = passes::add_like(from, was, from.tensor(was).name, {of[0], of[1], (of[2] + rows - 1) / rows});
    adds.attrs = TileSums{{rows, of[3]}};
    adds.outputs = {to};
    adds.name = conv.name;
    RegionSteps made;
    made.steps = {conv, adds};
    made.results = {map, to};
    made.around = {with_sums(from, excitation, was, to)};
    return made;
  });
  region.join = region.ways.front();
  return region;
}

bool has_steps(const ROperator& rop, std::initializer_list<ElementwiseOp> ops) {
  const auto* const chain = std::get_if<Elementwise>(&rop.attrs);
  return chain && std::equal(chain->steps.begin(), chain->steps.end(), ops.begin(), ops.end(),
                             [](const ElementwiseStep& step, ElementwiseOp op) { return step.op == op; });
}

// The product that step `at` is, with its lookup, behind which `at` is moved.
std::optional<RoundedProduct> product_at(const Graph& graph, const FusedView& view, size_t& at) {
  if (!view.as<Conv>(at)) return std::nullopt;
  const ROperator conv = view.alone(at);
  const std::optional<WholeRange> range = rounded_range(conv.epilogue);
  if (!range || conv.epilogue.activation != Activation::rounded || !view.feeds(at - 1, at)) return std::nullopt;
  RoundedProduct found{conv.inputs[1], conv.epilogue.bias, *range, TensorId()};
  if (const std::optional<Lookup> lookup = lookup_at(graph, view, at + 1)) {
    if (lookup->low != range->low) return std::nullopt;
    found.table = lookup->table;
    at += 2;
  }
  ++at;
  return found;
}

}  // namespace

namespace {

std::optional<float> number_at(const Graph& graph, const FusedView& view, size_t step, size_t operand) {
  return passes::scalar_value(graph, view.input(step, operand));
}
// The rounding at the end of step `at`, in front of which operand `scale` is a factor.
std::optional<RoundedTo> rounded_at(const Graph& graph, const FusedView& view, size_t at, size_t scale) {
  const std::optional<float> value = number_at(graph, view, at, scale);
  const ElementwiseStep& end = std::get<Elementwise>(view.step(at).attrs).steps.back();
  return value ? std::optional(RoundedTo{*value, end.a, end.b}) : std::nullopt;
}

// rounded(parts + bias), and its lookup, behind which `at` is moved.
std::optional<RoundedProduct> hidden_of_parts_at(const Graph& graph, const FusedView& view, size_t& at) {
  const bool has_bias = has_steps(view.step(at), {ElementwiseOp::add, ElementwiseOp::rounded});
  if (!has_bias && !has_steps(view.step(at), {ElementwiseOp::rounded})) return std::nullopt;
  const ElementwiseStep& end = std::get<Elementwise>(view.step(at).attrs).steps.back();
  Epilogue rounding;
  rounding.a = end.a;
  rounding.b = end.b;
  const std::optional<WholeRange> range = rounded_range(rounding);
  if (!range || !view.feeds(at - 1, at)) return std::nullopt;
  RoundedProduct found{TensorId(), has_bias ? view.input(at, 1) : TensorId(), *range, TensorId()};
  ++at;
  if (const std::optional<Lookup> lookup = lookup_at(graph, view, at)) {
    if (lookup->low != range->low) return std::nullopt;
    found.table = lookup->table;
    at += 2;
  }
  return found;
}

}  // namespace

std::optional<RoundedExcitation> rounded_excitation_of(const Graph& graph, const ROperator& rop) {
  const std::optional<FusedView> view = FusedView::of(rop);
  if (!view || view->count() < 5 || rop.outputs.size() != 1) return std::nullopt;
  const auto* const sum = view->as<Reduce>(0);
  if (!sum || sum->kind != ReduceKind::sum || sum->axes != std::vector<int64_t>{2}) return std::nullopt;
  size_t at = view->as<Slice>(1) ? 2 : 1;
  if (!view->as<Reshape>(at)) return std::nullopt;
  ++at;
  RoundedExcitation found;
  std::optional<RoundedProduct> hidden;
  if (has_steps(view->step(at), {ElementwiseOp::mul, ElementwiseOp::rounded}) && view->feeds(at - 1, at)) {
    const std::optional<RoundedTo> mean = rounded_at(graph, *view, at, 1);
    if (!mean) return std::nullopt;
    found.mean = *mean;
    hidden = product_at(graph, *view, ++at);
  } else {
    hidden = hidden_of_parts_at(graph, *view, at);
  }
  const std::optional<RoundedProduct> gate = hidden && at < view->count() ? product_at(graph, *view, at) : std::nullopt;
  if (!gate || at + 1 != view->count()) return std::nullopt;
  if (!has_steps(view->step(at), {ElementwiseOp::mul, ElementwiseOp::mul, ElementwiseOp::rounded}) || !view->feeds(at - 1, at, 1))
    return std::nullopt;
  const std::optional<RoundedTo> out = rounded_at(graph, *view, at, 2);
  if (!out) return std::nullopt;
  found.map = view->input(at, 0);
  found.sums = view->input(0, 0);
  found.hidden = *hidden;
  found.gate = *gate;
  found.out = *out;
  return found;
}

std::optional<ChannelSums> channel_sums_of(const Graph& graph, const ROperator& rop) {
  if (const auto* const op = std::get_if<TileSums>(&rop.attrs)) {
    const Shape& map = graph.tensor(rop.inputs[0]).shape;
    return op->tile[1] >= map[3] ? std::optional(ChannelSums{rop.inputs[0], rop.outputs[0], op->tile[0]}) : std::nullopt;
  }
  const std::optional<FusedView> view = FusedView::of(rop);
  if (!view || view->count() < 2) return std::nullopt;
  ChannelSums found;
  size_t at = 0;
  if (view->as<Conv>(0)) {
    if (rop.outputs.size() != 2) return std::nullopt;
    found.map = rop.outputs[0];
    found.sums = rop.outputs[1];
    found.conv = view->alone(0);
    found.conv->outputs = {rop.outputs[0]};
    at = 1;
    if (const std::optional<Lookup> lookup = lookup_at(graph, *view, 1)) {
      found.lookup = *lookup;
      at = 3;
    }
    if (at >= view->count() || !view->feeds(at - 1, at)) return std::nullopt;
  } else {
    found.map = view->input(0, 0);
    found.sums = rop.outputs[0];
  }
  const Shape& map = graph.tensor(found.map).shape;
  if (map.size() != 4) return std::nullopt;
  if (const auto* const op = view->as<TileSums>(at)) {
    found.rows = op->tile[0];
    return at + 1 == view->count() && op->tile[1] >= map[3] ? std::optional(found) : std::nullopt;
  }
  const auto* const sum = view->as<Reduce>(at);
  const bool squeezes = at + 3 == view->count() && sum && sum->kind == ReduceKind::sum && sum->axes == std::vector<int64_t>{2, 3} &&
                        has_steps(view->step(at + 1), {ElementwiseOp::mul, ElementwiseOp::rounded}) && view->as<ChannelSqueeze>(at + 2) &&
                        view->feeds(at, at + 1) && view->feeds(at + 1, at + 2);
  const std::optional<RoundedTo> mean = squeezes ? rounded_at(graph, *view, at + 1, 1) : std::nullopt;
  if (!mean) return std::nullopt;
  found.rows = map[2];
  found.weights = view->input(at + 2, 1);
  found.mean = *mean;
  return found;
}

FusionPattern rounded_excitations() {
  return {.title = "rounded excitation",
          .when = FusionTime::maps,
          .needs_estimate = true,
          .least_us_of_kind = 0.3,
          .regions = regions_at_each(region_at)};
}
FusionPattern summed_depthwise() {
  return {.title = "depthwise convolution with sums",
          .when = FusionTime::maps,
          .needs_estimate = true,
          .least_us_of_kind = 0.3,
          .regions = regions_at_each(summed_region_at)};
}

}  // namespace tamp::kernels
