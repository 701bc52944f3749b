#include "compiler/passes/fuse/fuse_sums.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "compiler/ops/number.h"
#include "compiler/passes/rewrite.h"

namespace tamp::passes {
namespace {

// first * a + second * b of two operands of a chain; a number without them.
struct Combination {
  double first = 0, second = 0, number = 0;
  bool is_number() const { return first == 0 && second == 0; }
};

constexpr int64_t kMostBiasBytes = int64_t{256} << 10;  // a bias that is repeated for all rows takes no more

// The largest number of which all of these are whole multiples, up to 255 of it; none if there is none.
std::optional<double> common_step(const std::vector<float>& values) {
  constexpr double kNear = 1e-4;
  double most = 0;
  for (const float value : values) most = std::max(most, std::abs(static_cast<double>(value)));
  if (most == 0 || !std::isfinite(most)) return std::nullopt;
  for (int steps = 1; steps <= 255; ++steps) {
    const double step = most / steps;
    if (std::all_of(values.begin(), values.end(), [&](float value) { return std::abs(value / step - std::rint(value / step)) < kNear; }))
      return step;
  }
  return std::nullopt;
}

class SumFuser {
 public:
  // `biases`: a constant row that is added may be the residual, in a type of 16 or 32 bits; none: it may not.
  SumFuser(Graph graph, std::optional<DType> biases)
      : graph_(std::move(graph)), uses_(uses_of(graph_)), biases_(biases), dead_(graph_.rops.size(), false) {}

  // The rOperators that can be fused with the product that makes one of their operands, by kind: the shape of the result, and whether the
  // product has a depthwise convolution in front. Bodies differ in whether they have such sums, and so do the types of a graph.
  std::map<std::vector<int64_t>, std::vector<size_t>> places() {
    std::map<std::vector<int64_t>, std::vector<size_t>> found;
    for (size_t i = 0; i < graph_.rops.size(); ++i) {
      if (!fuse(i)) continue;
      const auto* const conv = std::get_if<Conv>(&graph_.rops[i].attrs);
      std::vector<int64_t> kind = graph_.tensor(graph_.rops[i].outputs[0]).shape;
      kind.push_back(conv && conv->depthwise);
      found[kind].push_back(i);
    }
    return found;
  }
  Graph run(const std::vector<size_t>& places) {
    for (const size_t i : places) fuse(i);
    return remove_dead(erase_rops(std::move(graph_), dead_));
  }

 private:
  struct Chain {
    TensorId first, second;  // second: none where nothing is added
    ScaledSum sum;           // of `first`, with `second` as its residual
  };

  bool fuse(size_t at) {
    const std::optional<Chain> chain = read(graph_.rops[at]);
    if (!chain) return false;
    Chain other = *chain;
    std::swap(other.first, other.second);
    std::swap(other.sum.scale, other.sum.residual_scale);
    const ROperatorId of_first = product_of(chain->first), of_second = product_of(other.first);
    const bool takes_first = of_first.valid() && (!of_second.valid() || of_first.index() > of_second.index());
    if (!takes_first && !of_second.valid()) return false;
    const ROperatorId product = takes_first ? of_first : of_second;
    const Chain& taken = takes_first ? *chain : other;
    ROperator fused = graph_.rop(product);
    fused.epilogue.sum = taken.sum;
    fused.epilogue.residual = taken.second;
    if (is_bias(taken.second, graph_.tensor(graph_.rops[at].outputs[0]).shape) && !take_bias(at, fused.epilogue)) return false;
    fused.outputs = graph_.rops[at].outputs;
    fused.origin.insert(fused.origin.end(), graph_.rops[at].origin.begin(), graph_.rops[at].origin.end());
    dead_[product.index()] = true;
    uses_.producer[fused.outputs[0].index()] = ROperatorId(static_cast<int64_t>(at));
    graph_.rops[at] = std::move(fused);
    return true;
  }

  bool is_bias(TensorId id, const Shape& shape) const {
    const Tensor& tensor = graph_.tensor(id);
    return biases_ && is_f32_constant(graph_, id) && !tensor.shape.empty() && !shape.empty() && tensor.shape != shape &&
           element_count(tensor.shape) == shape.back() && tensor.shape.back() == shape.back() &&
           element_count(shape) * bytes_of(*biases_) <= kMostBiasBytes;
  }
  // The residual, a row of whole multiples of a step, becomes these whole numbers for all rows. False if it is none.
  bool take_bias(size_t at, Epilogue& epilogue) {
    const Tensor row = graph_.tensor(epilogue.residual);
    const Shape shape = graph_.tensor(graph_.rops[at].outputs[0]).shape;
    const std::vector<float> values(f32_data(row), f32_data(row) + element_count(row.shape));
    const std::optional<double> step = common_step(values);
    if (!step) return false;
    const auto each = static_cast<size_t>(bytes_of(*biases_)), count = static_cast<size_t>(element_count(shape));
    Bytes bytes(count * each);
    for (size_t i = 0; i < count; ++i) {
      const float whole = static_cast<float>(std::rint(values[i % values.size()] / *step));
      const ops::Half half = ops::half_of(static_cast<double>(whole));
      std::memcpy(bytes.data() + i * each, each == 2 ? static_cast<const void*>(&half) : &whole, each);
    }
    epilogue.sum->residual_scale = static_cast<float>(epilogue.sum->residual_scale * *step);
    epilogue.residual = add_constant(graph_, graph_.rops[at].name + ".bias", *biases_, shape, std::move(bytes));
    return true;
  }

  // The product that makes whole numbers for this reader alone. One row has bodies of its own.
  ROperatorId product_of(TensorId id) const {
    const ROperatorId maker = id.valid() ? uses_.maker_for_one(id) : ROperatorId();
    if (!maker.valid() || dead_[maker.index()]) return {};
    const ROperator& rop = graph_.rop(maker);
    const auto* const conv = std::get_if<Conv>(&rop.attrs);
    if (!(conv && conv->group == 1) && !std::holds_alternative<MatMul>(rop.attrs)) return {};
    const Shape& shape = graph_.tensor(id).shape;
    const int64_t channels = shape.empty() ? 1 : shape[conv ? 1 : shape.size() - 1];
    const bool has_rows = element_count(shape) > channels;
    const Epilogue& e = rop.epilogue;
    return has_rows && e.activation == Activation::rounded && !e.residual.valid() && !e.sum ? maker : ROperatorId();
  }

  std::optional<Chain> read(const ROperator& rop) const {
    const auto* const steps = std::get_if<Elementwise>(&rop.attrs);
    const Tensor& out = graph_.tensor(rop.outputs[0]);
    if (!steps || out.dtype != DType::f32) return std::nullopt;
    Chain chain;
    std::vector<Combination> inputs, made;
    for (const TensorId id : rop.inputs) {
      const std::optional<float> number = scalar_value(graph_, id);
      Combination value;
      if (number) {
        value.number = *number;
      } else {
        if (graph_.tensor(id).dtype != DType::f32 || !(graph_.tensor(id).shape == out.shape || is_bias(id, out.shape))) return std::nullopt;
        if (!chain.first.valid() || chain.first == id)
          chain.first = id, value.first = 1;
        else if (!chain.second.valid() || chain.second == id)
          chain.second = id, value.second = 1;
        else
          return std::nullopt;
      }
      inputs.push_back(value);
    }
    if (!chain.first.valid()) return std::nullopt;
    for (size_t i = 0; i < steps->steps.size(); ++i) {
      const ElementwiseStep& step = steps->steps[i];
      const auto value = [&](size_t k) {
        const int32_t operand = step.operands[k];
        return operand >= 0 ? inputs[static_cast<size_t>(operand)] : made[static_cast<size_t>(-1 - operand)];
      };
      if (step.op == ElementwiseOp::rounded && i + 1 == steps->steps.size()) {
        chain.sum.rounds = true;
        chain.sum.low = step.a;
        chain.sum.high = step.b;
        made.push_back(value(0));
        continue;
      }
      const std::optional<Combination> next =
          combined(step.op, step.operands.size() == 2 ? std::pair(value(0), value(1)) : std::pair<Combination, Combination>());
      if (!next) return std::nullopt;
      made.push_back(*next);
    }
    const Combination all = made.back();
    if (all.number != 0 || all.first == 0 || all.second == 0 || !chain.sum.rounds) return std::nullopt;
    chain.sum.scale = static_cast<float>(all.first);
    chain.sum.residual_scale = static_cast<float>(all.second);
    return chain;
  }

  static std::optional<Combination> combined(ElementwiseOp op, const std::pair<Combination, Combination>& of) {
    const auto& [a, b] = of;
    const auto scaled = [](const Combination& c, double by) { return Combination{c.first * by, c.second * by, c.number * by}; };
    if (op == ElementwiseOp::add) return Combination{a.first + b.first, a.second + b.second, a.number + b.number};
    if (op == ElementwiseOp::mul && b.is_number()) return scaled(a, b.number);
    if (op == ElementwiseOp::mul && a.is_number()) return scaled(b, a.number);
    if (op == ElementwiseOp::div && b.is_number() && b.number != 0) return scaled(a, 1 / b.number);
    return std::nullopt;
  }

  Graph graph_;
  Uses uses_;
  std::optional<DType> biases_;
  std::vector<bool> dead_;
};

}  // namespace

Graph fuse_sums(Graph graph, const GraphEstimator& graphs) {
  if (!graphs) return graph;
  std::optional<double> now_us;
  // With constants that are added, in the type of the results, or without.
  for (const std::optional<DType> biases : {std::optional(DType::f16), std::optional(DType::f32), std::optional<DType>()}) {
    const auto kinds = SumFuser(graph, biases).places();
    if (kinds.empty()) continue;
    const auto with = [&](std::vector<size_t> places) {
      std::sort(places.begin(), places.end());  // a sum may be the operand of a later one
      return SumFuser(graph, biases).run(places);
    };
    std::vector<size_t> all, chosen;
    for (const auto& [kind, places] : kinds) all.insert(all.end(), places.begin(), places.end());
    if (!now_us) now_us = graphs(graph);
    Graph made = with(all);
    if (graphs(made) < *now_us) return made;
    double best_us = *now_us;
    for (const auto& [kind, places] : kinds) {
      if (kinds.size() == 1) break;  // that was all of them
      std::vector<size_t> tried = chosen;
      tried.insert(tried.end(), places.begin(), places.end());
      const double us = graphs(with(tried));
      if (!(us < best_us)) continue;
      best_us = us;
      chosen = std::move(tried);
    }
    if (!chosen.empty()) return with(chosen);
  }
  return graph;
}

}  // namespace tamp::passes
