#include "compiler/cli/roundings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "compiler/cli/compare.h"
#include "compiler/cli/ports.h"
#include "compiler/support/error.h"

namespace tamp::cli {
namespace {

constexpr unsigned kTrials = 8;
constexpr double kWhole = 0.01;   // in steps: what a whole number of them may be off by, beside what floats are
constexpr double kNearTie = 0.1;  // in steps: so close to a tie an element may go the other way
constexpr double kSure = 3;       // but not if it is further from it than so many moves
constexpr double kMostL2 = 0.25;  // beyond that a comparison says nothing
constexpr double kMargin = 1.5;   // of what changed most in the trials
constexpr double kSigmas = 5;     // of what changed as often the one way as the other

bool is_small_integer(DType dtype) { return is_integer(dtype) && bytes_of(dtype) <= 2; }

// The one function of a rOperator that is one, else null.
const ElementwiseStep* function_of(const ROperator& rop) {
  const auto* chain = std::get_if<Elementwise>(&rop.attrs);
  return chain != nullptr && chain->steps.size() == 1 ? &chain->steps[0] : nullptr;
}

class Steps {
 public:
  explicit Steps(const Graph& graph) : graph_(graph), producers_(uses_of(graph).producer), known_(graph.tensors.size()) {
    // In topological order, so a tensor's operands are known.
    for (const ROperator& rop : graph.rops) {
      if (rop.outputs.size() == 1) known_[rop.outputs[0].index()] = of(rop);
    }
  }

  // The rOperator `round` behind a cast to small integers; none if it is another cast.
  ROperatorId rounding_of(const ROperator& cast) const {
    const ElementwiseStep* function = function_of(cast);
    if (function == nullptr || function->op != ElementwiseOp::cast || !is_small_integer(graph_.tensor(cast.outputs[0]).dtype)) return {};
    bool clipped = false;
    TensorId id = cast.inputs[0];
    for (int walked = 0; walked < 6; ++walked) {
      const ROperatorId maker = producers_[id.index()];
      function = maker.valid() ? function_of(graph_.rop(maker)) : nullptr;
      if (function == nullptr || graph_.tensor(id).dtype != DType::f32) return {};
      if (function->op == ElementwiseOp::round) return clipped ? maker : ROperatorId();
      if (function->op != ElementwiseOp::clip && function->op != ElementwiseOp::add) return {};
      clipped = clipped || function->op == ElementwiseOp::clip;
      id = graph_.rop(maker).inputs[0];
    }
    return {};
  }

  // What neighbouring values of the tensor differ by.
  std::optional<double> of(TensorId id) const { return known_[id.index()]; }

 private:
  std::optional<double> of(const ROperator& rop) const {
    if (rounding_of(rop).valid()) return 1.0;
    const auto* pool = std::get_if<Pool>(&rop.attrs);
    const auto* reduce = std::get_if<Reduce>(&rop.attrs);
    const bool is_largest = (pool != nullptr && pool->kind == PoolKind::max) ||
                            (reduce != nullptr && (reduce->kind == ReduceKind::max || reduce->kind == ReduceKind::min));
    if (is_largest || std::holds_alternative<Reshape>(rop.attrs) || std::holds_alternative<Transpose>(rop.attrs) ||
        std::holds_alternative<Slice>(rop.attrs) || std::holds_alternative<Gather>(rop.attrs))
      return of(rop.inputs[0]);
    if (std::holds_alternative<Concat>(rop.attrs)) {
      const std::optional<double> first = of(rop.inputs[0]);
      const bool same = std::all_of(rop.inputs.begin(), rop.inputs.end(), [&](TensorId part) { return of(part) == first; });
      return same ? first : std::nullopt;
    }
    const ElementwiseStep* function = function_of(rop);
    return function != nullptr ? behind(rop, *function) : std::nullopt;
  }

  std::optional<double> behind(const ROperator& rop, const ElementwiseStep& function) const {
    switch (function.op) {
      case ElementwiseOp::identity:
      case ElementwiseOp::cast:
      case ElementwiseOp::neg:
      case ElementwiseOp::relu:
      case ElementwiseOp::clip: return of(rop.inputs[0]);
      case ElementwiseOp::add:
      case ElementwiseOp::sub:
      case ElementwiseOp::mul:
      case ElementwiseOp::div: break;
      default: return std::nullopt;
    }
    if (rop.inputs.size() != 2) return std::nullopt;
    const std::optional<double> left = number(rop.inputs[0]), right = number(rop.inputs[1]);
    if (left.has_value() == right.has_value()) return std::nullopt;
    const std::optional<double> step = of(rop.inputs[left ? 1 : 0]);
    if (!step) return std::nullopt;
    const double factor = std::abs(left ? *left : *right);
    if (function.op == ElementwiseOp::mul) return factor > 0 ? std::optional(*step * factor) : std::nullopt;
    if (function.op == ElementwiseOp::div) return right && factor > 0 ? std::optional(*step / factor) : std::nullopt;
    return step;
  }

  // The number that all elements of a constant are; of its Reshapes and casts, too.
  std::optional<double> number(TensorId id) const {
    for (int walked = 0; walked < 6; ++walked) {
      const Tensor& tensor = graph_.tensor(id);
      if (tensor.role == Role::constant) {
        const ops::Value value{tensor.dtype, tensor.shape, tensor.data};
        if (element_count(tensor.shape) == 0) return std::nullopt;
        for (int64_t i = 1; i < element_count(tensor.shape); ++i) {
          if (number_at(value, i) != number_at(value, 0)) return std::nullopt;
        }
        return number_at(value, 0);
      }
      const ROperatorId maker = producers_[id.index()];
      if (!maker.valid()) return std::nullopt;
      const ROperator& rop = graph_.rop(maker);
      const ElementwiseStep* function = function_of(rop);
      const bool keeps = function != nullptr && (function->op == ElementwiseOp::cast || function->op == ElementwiseOp::identity);
      if (!keeps && !std::holds_alternative<Reshape>(rop.attrs)) return std::nullopt;
      id = rop.inputs[0];
    }
    return std::nullopt;
  }

  const Graph& graph_;
  std::vector<ROperatorId> producers_;
  std::vector<std::optional<double>> known_;  // by tensor
};

// The operand of a rounding, moved a little; and the element next to a tie, or one of the next few, on its other side.
ops::Value moved(const ops::Value& x, double relative, std::mt19937& random) {
  std::vector<float> values = ops::raw_numbers<float>(x);
  double squares = 0;
  int64_t finite = 0;
  for (const float value : values) {
    if (!std::isfinite(value)) continue;
    squares += static_cast<double>(value) * value;
    ++finite;
  }
  if (finite == 0) return x;
  const double most = relative * std::sqrt(squares / static_cast<double>(finite));
  std::uniform_real_distribution<double> shift(-most, most);
  const auto to_tie = [](double value) { return std::floor(value) + 0.5 - value; };  // in (-0.5, 0.5]
  const double near_tie = std::min(kNearTie, kSure * most);
  std::vector<size_t> near;
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i]) && std::abs(to_tie(values[i])) <= near_tie) near.push_back(i);
  }
  constexpr size_t kFew = 4;
  const size_t few = std::min(near.size(), kFew);
  std::partial_sort(near.begin(), near.begin() + static_cast<std::ptrdiff_t>(few), near.end(),
                    [&](size_t a, size_t b) { return std::abs(to_tie(values[a])) < std::abs(to_tie(values[b])); });
  const size_t other = few > 0 ? near[random() % few] : values.size();
  const double way = few > 0 ? to_tie(values[other]) : 0;
  const double across = few > 0 ? values[other] + way + (way >= 0 ? 1e-3 : -1e-3) : 0;
  for (float& value : values) value = static_cast<float>(value + shift(random));
  if (few > 0) values[other] = static_cast<float>(across);
  return ops::raw_value(DType::f32, x.shape, values);
}

std::vector<ops::Value> trial(const Graph& source, const Roundings& roundings, const std::vector<ops::Value>& inputs, double relative,
                              unsigned seed) {
  std::mt19937 random(seed);
  ops::Walk walk(source, inputs);
  for (size_t i = 0; !walk.is_done(); ++i) {
    if (std::find(roundings.places.begin(), roundings.places.end(), ROperatorId(static_cast<int64_t>(i))) == roundings.places.end()) {
      walk.step();
      continue;
    }
    const ROperator& rop = source.rops[i];
    const ops::Value x = moved(walk.value(rop.inputs[0]), relative, random);
    walk.step(ops::evaluate(source, rop, [&](TensorId) -> const ops::Value& { return x; }));
  }
  std::vector<ops::Value> outputs;
  for (const TensorId id : source.outputs) outputs.push_back(walk.value(id));
  return outputs;
}

}  // namespace

Roundings roundings_of(const Graph& source) {
  const Steps steps(source);
  Roundings found;
  for (const ROperator& rop : source.rops) {
    const ROperatorId place = steps.rounding_of(rop);
    if (!place.valid()) continue;
    const int bits = static_cast<int>(bytes_of(source.tensor(rop.outputs[0]).dtype)) * 8;
    found.bits = found.bits == 0 ? bits : std::min(found.bits, bits);
    found.places.push_back(place);
  }
  for (const TensorId output : source.outputs) found.steps.push_back(steps.of(output));
  return found;
}

Distance distance(const ops::Value& got, const ops::Value& expected, const std::optional<double>& step) {
  Distance found;
  found.relative_l2 = difference(got, expected).relative_l2;
  const double relative = got.dtype == DType::bf16 ? 5e-3 : 6e-4;  // what the last product with a scale is rounded to
  const int64_t count = element_count(got.shape);
  double products = 0, squares = 0, sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double a = number_at(got, i), b = number_at(expected, i), apart = distance_at(got, expected, i);
    if (std::isfinite(a) && std::isfinite(b)) {
      products += (a - b) * b;
      squares += b * b;
      sum += a - b;
    }
    if (!step || apart == 0) continue;
    const double steps = std::round(apart / *step);
    if (!(std::abs(apart / *step - steps) <= kWhole + relative * std::abs(b) / *step)) found.part = std::max(found.part, apart / *step);
    found.differ += steps > 0 ? 1 : 0;
    found.steps = std::max(found.steps, steps);
  }
  if (squares > 0) {
    found.scaled = products / squares;
    found.shifted = sum / std::sqrt(squares * static_cast<double>(count));
  }
  return found;
}

double moves(Precision precision) {
  switch (precision) {
    case Precision::fp32: return 3e-6;
    case Precision::tf32:
    case Precision::fp16: return 5e-4;
    case Precision::bf16: return 4e-3;
  }
  TAMP_CHECK(false, "precision out of range");
}

namespace {

// What Distance::scaled and shifted are at most if one element is off by a step.
double of_one_step(const ops::Value& expected, double step) {
  double squares = 0, most = 0;
  const int64_t count = element_count(expected.shape);
  for (int64_t i = 0; i < count; ++i) {
    const double b = number_at(expected, i);
    if (!std::isfinite(b)) continue;
    squares += b * b;
    most = std::max(most, std::abs(b));
  }
  return squares > 0 ? step * std::max(most / squares, 1 / std::sqrt(squares * static_cast<double>(count))) : 0;
}

}  // namespace

std::vector<Distance> allowed_distances(const Graph& source, const Roundings& roundings, const std::vector<ops::Value>& inputs,
                                        const std::vector<ops::Value>& expected, Precision precision) {
  std::vector<Distance> allowed(source.outputs.size());
  for (unsigned seed = 1; seed <= kTrials; ++seed) {
    const std::vector<ops::Value> other = trial(source, roundings, inputs, moves(precision), seed);
    for (size_t i = 0; i < allowed.size(); ++i) {
      const Distance found = distance(other[i], expected[i], roundings.steps[i]);
      allowed[i].differ = std::max(allowed[i].differ, found.differ);
      allowed[i].steps = std::max(allowed[i].steps, found.steps);
      allowed[i].relative_l2 = std::max(allowed[i].relative_l2, found.relative_l2);
      allowed[i].scaled += found.scaled * found.scaled;
      allowed[i].shifted += found.shifted * found.shifted;
    }
  }
  for (size_t i = 0; i < allowed.size(); ++i) {
    Distance& one = allowed[i];
    const double plain = tolerance(precision, expected[i].dtype);
    const auto more = static_cast<int64_t>(std::ceil(kMargin * static_cast<double>(one.differ)));
    one.differ = std::min(more + 1, element_count(expected[i].shape));
    one.steps = std::max(std::floor(kMargin * one.steps), 1.0);
    one.relative_l2 = std::max(plain, std::min(plain + kMargin * one.relative_l2, kMostL2));
    const double of_one = roundings.steps[i] ? of_one_step(expected[i], *roundings.steps[i]) : 0;
    for (double* mean : {&one.scaled, &one.shifted}) *mean = plain / kSigmas + of_one + kSigmas * std::sqrt(*mean / kTrials);
    if (!roundings.steps[i] && !is_float(expected[i].dtype)) one = {};  // an index, a comparison: there is no near
  }
  return allowed;
}

bool is_within(const Distance& found, const Distance& allowed, const std::optional<double>& step) {
  const bool is_near =
      step ? found.part == 0 && found.differ <= allowed.differ && found.steps <= allowed.steps : found.relative_l2 <= allowed.relative_l2;
  return is_near && std::abs(found.scaled) <= allowed.scaled && std::abs(found.shifted) <= allowed.shifted;
}

std::string Rounded::why_not(size_t output, const ops::Value& got, const ops::Value& expected) const {
  if (output >= allowed.size()) return "nothing of it is rounded";
  const std::optional<double>& step = roundings.steps[output];
  const Distance found = distance(got, expected, step);
  return is_within(found, allowed[output], step) ? "" : distance_text(found, allowed[output], step, element_count(got.shape));
}

Rounded rounded_of(const Graph& source, const std::vector<ops::Value>& inputs, const std::vector<ops::Value>& expected,
                   Precision precision) {
  Rounded made{roundings_of(source), {}};
  if (!made.roundings.places.empty()) made.allowed = allowed_distances(source, made.roundings, inputs, expected, precision);
  return made;
}

std::string distance_text(const Distance& found, const Distance& allowed, const std::optional<double>& step, int64_t elements) {
  const auto plural = [](double steps) { return steps == 1 ? "" : "s"; };
  std::string text;
  if (!step) {
    text = fmt::format("relative L2 {:.2e}, limit {:.1e}", found.relative_l2, allowed.relative_l2);
  } else if (found.part > 0) {
    text = fmt::format("elements differ by {:.2f} steps of {:.3g}; right ones differ by whole steps", found.part, *step);
  } else {
    text = fmt::format("{} of {} elements differ, by {:g} step{} of {:.3g} at most (limit {}, by {:g} step{})", found.differ, elements,
                       found.steps, plural(found.steps), *step, allowed.differ, allowed.steps, plural(allowed.steps));
  }
  return text + fmt::format("; all in all {:.2g} % too {} (limit {:.2g} %), shifted by {:.2g} % (limit {:.2g} %)",
                            std::abs(found.scaled) * 100, found.scaled < 0 ? "small" : "large", allowed.scaled * 100, found.shifted * 100,
                            allowed.shifted * 100);
}

std::string reason(const Roundings& roundings, Precision precision) {
  const size_t places = roundings.places.size();
  return fmt::format(
      "the model rounds to {} bits in {} place{}; limits are {} times what the reference's answers changed by in {} trials in "
      "which values moved by up to {:g} of themselves before that, as in {}",
      roundings.bits, places, places == 1 ? "" : "s", kMargin, kTrials, moves(precision), name_of(precision));
}

}  // namespace tamp::cli
