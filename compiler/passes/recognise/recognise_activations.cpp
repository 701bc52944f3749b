#include "compiler/passes/recognise/recognise_activations.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "compiler/passes/rewrite.h"

namespace tamp::passes {
namespace {

// c[0] + c[1] x + c[2] x^2 + c[3] x^3; without an x a number.
struct Cubic {
  TensorId x;
  std::array<double, 4> c{};
};

std::optional<TensorId> common_x(const Cubic& a, const Cubic& b) {
  if (a.x.valid() && b.x.valid() && a.x != b.x) return std::nullopt;
  return a.x.valid() ? a.x : b.x;
}

std::optional<Cubic> sum_of(const Cubic& a, const Cubic& b) {
  const std::optional<TensorId> x = common_x(a, b);
  if (!x) return std::nullopt;
  Cubic sum{*x, a.c};
  for (size_t i = 0; i < 4; ++i) sum.c[i] += b.c[i];
  return sum;
}

std::optional<Cubic> product_of(const Cubic& a, const Cubic& b) {
  const std::optional<TensorId> x = common_x(a, b);
  if (!x) return std::nullopt;
  Cubic product{*x, {}};
  for (size_t i = 0; i < 4; ++i) {
    for (size_t j = 0; j < 4; ++j) {
      const double term = a.c[i] * b.c[j];
      if (term != 0 && i + j > 3) return std::nullopt;
      if (term != 0) product.c[i + j] += term;
    }
  }
  return product;
}

class ActivationMatcher {
 public:
  explicit ActivationMatcher(const Graph& graph)
      : graph_(graph), uses_(uses_of(graph)), distance_(graph.output_types.empty() ? kWide : kHalf) {}

  // x, where y = gelu(x), gelu_tanh(x) or hard_swish(x) is made by `rop`; none if it is not.
  TensorId gelu_of(const ROperator& rop) const {
    return half_of_x_times(rop, [&](TensorId id) { return one_plus_erf_of(id); });
  }
  TensorId gelu_tanh_of(const ROperator& rop) const {
    return half_of_x_times(rop, [&](TensorId id) { return one_plus_tanh_of(id); });
  }

  // x, where `rop` makes 0.5 * x * (a tensor of which `x_of` says the same x).
  TensorId half_of_x_times(const ROperator& rop, auto&& x_of) const {
    std::vector<TensorId> factors = factors_of(rop);
    if (factors.size() != 3) return TensorId();
    std::sort(factors.begin(), factors.end());
    do {
      const std::optional<float> half = scalar_value(graph_, factors[0]);
      if (half && near(*half, 0.5) && x_of(factors[1]) == factors[2]) return same_shape(rop, factors[2]);
    } while (std::next_permutation(factors.begin(), factors.end()));
    return TensorId();
  }

  std::vector<std::string> origin_back_to(size_t rop, TensorId x) const { return origin_between(graph_, uses_, {x}, rop); }

  TensorId hard_swish_of(const ROperator& rop) const {
    const std::vector<TensorId> factors = factors_of(rop);
    if (factors.size() != 2) return TensorId();
    for (const auto& [x, gate] : {std::pair{factors[0], factors[1]}, std::pair{factors[1], factors[0]}}) {
      const ROperator* maker = maker_of(gate, ElementwiseOp::hard_sigmoid);
      const ElementwiseStep* step = maker ? single_step(*maker) : nullptr;
      if (step && near(step->a, 1.0 / 6) && near(step->b, 0.5) && maker->inputs[0] == x) return same_shape(rop, x);
    }
    return TensorId();
  }

 private:
  // How far a constant may be from its value: as exporters round it, and in a model of 16 bits as bf16 does, twice.
  static constexpr double kWide = 1e-4, kHalf = 4e-3;
  bool near(double value, double wanted) const { return std::abs(value - wanted) <= distance_ * std::abs(wanted); }

  TensorId same_shape(const ROperator& rop, TensorId x) const {
    return graph_.tensor(x).shape == graph_.tensor(rop.outputs[0]).shape ? x : TensorId();
  }

  // The Elementwise of one step `op` that makes a tensor which is read only once.
  const ROperator* maker_of(TensorId id, ElementwiseOp op) const {
    const ROperatorId producer = uses_.maker_for_one(id);
    if (!producer.valid()) return nullptr;
    const ROperator& rop = graph_.rop(producer);
    const ElementwiseStep* step = single_step(rop);
    return step && step->op == op ? &rop : nullptr;
  }

  // The operands of a multiplication; one that is a multiplication itself (of two operands only) is opened.
  std::vector<TensorId> factors_of(const ROperator& rop) const {
    const ElementwiseStep* step = single_step(rop);
    if (!step || step->op != ElementwiseOp::mul || rop.inputs.size() != 2) return {};
    for (size_t i = 0; i < 2; ++i) {
      const ROperator* inner = maker_of(rop.inputs[i], ElementwiseOp::mul);
      if (inner && inner->inputs.size() == 2) return {inner->inputs[0], inner->inputs[1], rop.inputs[1 - i]};
    }
    return rop.inputs;
  }

  // The maker by `op` of a tensor to which 1 is added to make this one; null if there is none.
  const ROperator* one_plus(TensorId id, ElementwiseOp op) const {
    const ROperator* const sum = maker_of(id, ElementwiseOp::add);
    for (size_t i = 0; sum && sum->inputs.size() == 2 && i < 2; ++i) {
      const ROperator* const inner = scalar_value(graph_, sum->inputs[i]) == 1.0F ? maker_of(sum->inputs[1 - i], op) : nullptr;
      if (inner) return inner;
    }
    return nullptr;
  }

  // x of 1 + erf(x / sqrt(2)).
  TensorId one_plus_erf_of(TensorId id) const {
    const ROperator* const erf = one_plus(id, ElementwiseOp::erf);
    return erf ? scaled_of(erf->inputs[0]) : TensorId();
  }

  // x of 1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)).
  TensorId one_plus_tanh_of(TensorId id) const {
    const ROperator* const tanh = one_plus(id, ElementwiseOp::tanh);
    const std::optional<Cubic> inner = tanh ? cubic_of(tanh->inputs[0], kMostSteps) : std::nullopt;
    const bool fits = inner && inner->c[0] == 0 && inner->c[2] == 0 && near(inner->c[1], kRoot) && near(inner->c[3], kRoot * 0.044715);
    return fits ? inner->x : TensorId();
  }

  // The cubic polynomial of one tensor that sums, products and powers make, each read once. At most `steps` of them are opened, one inside
  // another.
  std::optional<Cubic> cubic_of(TensorId id, int steps) const {
    if (const std::optional<float> number = scalar_value(graph_, id)) return Cubic{TensorId(), {*number, 0, 0, 0}};
    const ROperator* const sum = maker_of(id, ElementwiseOp::add);
    const ROperator* const product = maker_of(id, ElementwiseOp::mul);
    const ROperator* const power = maker_of(id, ElementwiseOp::pow);
    const ROperator* const made = sum ? sum : product ? product : power;
    if (!made || made->inputs.size() != 2 || steps == 0) return Cubic{id, {0, 1, 0, 0}};
    const std::optional<Cubic> a = cubic_of(made->inputs[0], steps - 1), b = cubic_of(made->inputs[1], steps - 1);
    if (!a || !b) return std::nullopt;
    if (sum) return sum_of(*a, *b);
    if (product) return product_of(*a, *b);
    if (b->x.valid() || (b->c[0] != 2 && b->c[0] != 3)) return std::nullopt;
    const std::optional<Cubic> square = product_of(*a, *a);
    return square && b->c[0] == 3 ? product_of(*square, *a) : square;
  }

  TensorId scaled_of(TensorId id) const {
    if (const ROperator* quotient = maker_of(id, ElementwiseOp::div); quotient && quotient->inputs.size() == 2) {
      const std::optional<float> root = scalar_value(graph_, quotient->inputs[1]);
      return root && near(*root, std::sqrt(2.0)) ? quotient->inputs[0] : TensorId();
    }
    const ROperator* product = maker_of(id, ElementwiseOp::mul);
    if (!product || product->inputs.size() != 2) return TensorId();
    for (size_t i = 0; i < 2; ++i) {
      const std::optional<float> root = scalar_value(graph_, product->inputs[i]);
      if (root && near(*root, std::sqrt(0.5))) return product->inputs[1 - i];
    }
    return TensorId();
  }

  static constexpr double kRoot = 0.79788456080286535588;  // of 2 / pi
  static constexpr int kMostSteps = 8;

  const Graph& graph_;
  Uses uses_;
  double distance_;
};

}  // namespace

Graph recognise_activations(Graph graph) {
  const Graph before = graph;
  const ActivationMatcher matcher(before);
  for (size_t i = 0; i < graph.rops.size(); ++i) {
    if (before.tensor(before.rops[i].outputs[0]).dtype != DType::f32) continue;
    ElementwiseOp found = ElementwiseOp::gelu;
    TensorId x = matcher.gelu_of(before.rops[i]);
    if (!x.valid()) found = ElementwiseOp::gelu_tanh, x = matcher.gelu_tanh_of(before.rops[i]);
    if (!x.valid()) found = ElementwiseOp::hard_swish, x = matcher.hard_swish_of(before.rops[i]);
    if (!x.valid()) continue;
    graph.rops[i].attrs = Elementwise{{{found, {0}}}};
    graph.rops[i].inputs = {x};
    graph.rops[i].origin = matcher.origin_back_to(i, x);
  }
  return remove_dead(std::move(graph));
}

}  // namespace tamp::passes
