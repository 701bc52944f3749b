// Where DynamicQuantizeLinear has become two reductions, steps of single numbers and a chain that reads these.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "compiler/passes/rewrite.h"
#include "kernels/reduce/quantise.h"

namespace tamp::kernels {
namespace {

bool reduces_all(const Graph& graph, const ROperator& rop, ReduceKind kind) {
  const auto* const reduce = std::get_if<Reduce>(&rop.attrs);
  return reduce && reduce->kind == kind && reduce->axes.size() == graph.tensor(rop.inputs[0]).shape.size();
}

// What the steps of chains compute, as text: x, most and least, which are the tensor and its largest and smallest element, and numbers.
class Formula {
 public:
  Formula(const Graph& graph, const Uses& uses, TensorId x) : graph_(graph), uses_(uses), x_(x) {}

  std::string of_chain(size_t rop) {
    const auto& steps = std::get<Elementwise>(graph_.rops[rop].attrs).steps;
    std::vector<std::string> made;
    for (const ElementwiseStep& step : steps) {
      std::string operands;
      for (const int32_t v : step.operands) {
        operands += (operands.empty() ? "" : ",") +
                    (v >= 0 ? of_tensor(graph_.rops[rop].inputs[static_cast<size_t>(v)]) : made[static_cast<size_t>(-1 - v)]);
      }
      if (step.op == ElementwiseOp::clip || step.op == ElementwiseOp::rounded) operands += fmt::format(";{:g},{:g}", step.a, step.b);
      made.push_back(fmt::format("{}({})", name_of(step.op), operands));
      constexpr size_t kLongest = 2000;  // far more than what is looked for
      if (made.back().size() > kLongest) made.back() = kElse;
    }
    makers.insert(rop);
    return made.back();
  }
  std::string of_tensor(TensorId id) {
    if (id == x_) return "x";
    if (const std::optional<float> number = passes::scalar_value(graph_, id)) return fmt::format("{:g}", *number);
    const auto known = texts.find(id);
    if (known != texts.end()) return known->second;
    const ROperatorId maker = id.index() < uses_.producer.size() ? uses_.producer[id.index()] : ROperatorId();
    if (!maker.valid() || element_count(graph_.tensor(id).shape) != 1) return kElse;
    const ROperator& rop = graph_.rop(maker);
    std::string text = kElse;
    if (std::holds_alternative<Elementwise>(rop.attrs)) {
      text = of_chain(maker.index());
    } else if (std::holds_alternative<Reduce>(rop.attrs) && rop.inputs[0] == x_) {
      text = reduces_all(graph_, rop, ReduceKind::max) ? "most" : reduces_all(graph_, rop, ReduceKind::min) ? "least" : kElse;
      makers.insert(maker.index());
    }
    texts[id] = text;
    return text;
  }

  std::set<size_t> makers;                // rOperators that were asked
  std::map<TensorId, std::string> texts;  // of single numbers

 private:
  static constexpr const char* kElse = "?";
  const Graph& graph_;
  const Uses& uses_;
  TensorId x_;
};

// As frontend/import_quantized.cpp writes them, and what the passes make of that.
struct WantedTexts {
  std::string scale, whole, scaled;

  WantedTexts() {
    const std::string low = "min(least,0)", range = fmt::format("sub(max(most,0),{})", low);
    scale = fmt::format("where(equal({0},0),1,div({0},255))", range);
    const std::string point = fmt::format("rounded(div(neg({}),{});0,255)", low, scale);
    whole = fmt::format("sub(clip(add(round(div(x,{0})),{1});0,255),{1})", scale, point);
    scaled = fmt::format("mul({},{})", whole, scale);
  }
};

// Whether the chain may be one: it takes off a zero point or multiplies with a scale at last.
bool may_quantise(const ROperator& rop) {
  const auto* const chain = std::get_if<Elementwise>(&rop.attrs);
  if (!chain || chain->steps.empty() || (chain->steps.back().op != ElementwiseOp::sub && chain->steps.back().op != ElementwiseOp::mul))
    return false;
  const auto clips = [](const ElementwiseStep& step) { return step.op == ElementwiseOp::clip && step.a == 0 && step.b == 255; };
  return std::any_of(chain->steps.begin(), chain->steps.end(), clips);
}

// The chain and all that makes its numbers, which nobody else reads but for the scale.
std::optional<FusionRegion> region_at(const Graph& graph, const Uses& uses, size_t at) {
  const auto found = dynamic_quantisation_of(graph, uses, at);
  if (!found || graph.tensor(found->in).dtype != DType::f32 || graph.tensor(found->out).dtype != DType::f32) return std::nullopt;
  const std::vector<size_t>& rops = found->makers;
  std::vector<TensorId> results = {found->out};
  for (const size_t rop : rops) {
    const TensorId made = graph.rops[rop].outputs[0];
    const auto is_inside = [&](ROperatorId reader) { return std::find(rops.begin(), rops.end(), reader.index()) != rops.end(); };
    const std::vector<ROperatorId>& readers = uses.consumers[made.index()];
    if (made == found->out || (!uses.is_output[made.index()] && std::all_of(readers.begin(), readers.end(), is_inside))) continue;
    if (made != found->scale) return std::nullopt;
    results.push_back(made);
  }
  const auto join = [rops, results](Graph& from) {
    RegionSteps region;
    for (const size_t rop : rops) region.steps.push_back(from.rops[rop]);
    region.results = results;
    return region;
  };
  const int64_t elements = element_count(graph.tensor(found->in).shape);
  return FusionRegion{{elements, found->scaled, static_cast<int64_t>(results.size())}, rops, join};
}

}  // namespace

std::optional<DynamicQuantisation> dynamic_quantisation_of(const Graph& graph, const Uses& uses, size_t at) {
  static const WantedTexts wanted;
  const ROperator& chain = graph.rops[at];
  if (!may_quantise(chain)) return std::nullopt;
  const Shape& shape = graph.tensor(chain.outputs[0]).shape;
  for (const TensorId x : chain.inputs) {
    if (graph.tensor(x).shape != shape || graph.tensor(x).role == Role::constant || element_count(shape) == 0) continue;
    Formula formula(graph, uses, x);
    const std::string text = formula.of_chain(at);
    if (text != wanted.whole && text != wanted.scaled) continue;
    DynamicQuantisation found{x, chain.outputs[0], {}, text == wanted.scaled};
    for (const auto& [id, of] : formula.texts) {
      if (of == wanted.scale) found.scale = id;
    }
    found.makers.assign(formula.makers.begin(), formula.makers.end());
    return found;
  }
  return std::nullopt;
}

FusionPattern dynamic_quantisations() {
  return {.title = "dynamic quantisation", .when = FusionTime::rows, .least_us_of_kind = 0.3, .regions = regions_at_each(region_at)};
}

}  // namespace tamp::kernels
