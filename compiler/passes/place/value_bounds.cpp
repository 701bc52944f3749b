#include "compiler/passes/place/value_bounds.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <variant>

#include "compiler/ir/fused.h"
#include "compiler/ir/products.h"
#include "compiler/passes/rewrite.h"

namespace tamp::passes {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();
constexpr double kLargest = 32768;  // half of fp16's largest number, since sums are rounded
constexpr double kSmallestWeight =
    0x1p-10;                               // of the largest weights of rows; below 2^-14 halves lose bits, which such a row does not notice
constexpr double kLostBelow = 0x1p-25;     // the most by which fp16 misses a value below 2^-14
constexpr double kShareOfTerms = 0x1p-13;  // about a quarter of what rounding to tf32 costs beside the terms of a sum
constexpr double kMostOffset = 2;  // rows that lie so far beside 0 lose at most sqrt(5) times as much as rows around 0 (docs/adr/0045)

// Of a tensor or a buffer.
//  - `magnitude` bounds the values from above. `length` bounds the length of a row of `elements` that lie next to each other; 0 elements:
//    not known.
//  - `terms` says how large, at least, the terms are whose sum a value is: errors of tf32 are about 2^-12 of that, however small the sum
//    may come out. 0: nothing is known, or an activation has made values small together with their errors. `terms` is of each element,
//    `row_terms` the root mean square over a row. Both speak of rows that were normalised as if they were spread over all columns.
//    `assumed_terms` is the same if all of which nothing is known, as a model's inputs, has large terms.
//  - `offset` is the root mean square, at most, of what constants add to a row.
//  - `normalised`: rows that were normalised, and nothing since but moved. `rounded`: of_rounded().
struct Bound {
  double magnitude = kUnbounded;
  double length = kUnbounded;
  int64_t elements = 0;
  double terms = 0, row_terms = 0, assumed_terms = kUnbounded;
  double offset = kUnbounded;
  bool normalised = false, rounded = false;
};

Bound joined(const Bound& a, const Bound& b) {
  Bound both;
  both.magnitude = std::max(a.magnitude, b.magnitude);
  both.terms = std::min(a.terms, b.terms);
  both.row_terms = std::min(a.row_terms, b.row_terms);
  both.assumed_terms = std::min(a.assumed_terms, b.assumed_terms);
  both.offset = std::max(a.offset, b.offset);
  both.normalised = a.normalised && b.normalised;
  both.rounded = a.rounded || b.rounded;
  return both;
}
// Of the sum with other values: its terms are those of both.
void add(Bound& bound, const Bound& other) {
  bound.magnitude += other.magnitude;
  bound.length += other.length;
  bound.terms = std::max(bound.terms, other.terms);
  bound.row_terms = std::max(bound.row_terms, other.row_terms);
  bound.assumed_terms = std::max(bound.assumed_terms, other.assumed_terms);
  bound.offset += other.offset;
}
// A slope or a value that no longer says how large the terms were.
void limit_terms(Bound& bound, double most) {
  bound.terms = std::min(bound.terms, most);
  bound.row_terms = std::min(bound.row_terms, most);
  bound.assumed_terms = std::min(bound.assumed_terms, most);
}
void scale_terms(Bound& bound, double factor) {
  bound.terms *= factor;
  bound.row_terms *= factor;
  if (std::isfinite(bound.assumed_terms)) bound.assumed_terms *= factor;
}

// Whether the function has values that are as small as one likes where its slope is, too.
bool may_vanish(ElementwiseOp op) {
  switch (op) {
    case ElementwiseOp::sigmoid:
    case ElementwiseOp::exp:
    case ElementwiseOp::softplus:
    case ElementwiseOp::gelu:
    case ElementwiseOp::gelu_tanh:
    case ElementwiseOp::swish:
    case ElementwiseOp::mish:
    case ElementwiseOp::pow: return true;
    default: return false;
  }
}

// What an activation makes of it. sigmoid, silu and gelu fall off so fast that values far below 0 vanish together with their errors.
void activate(Bound& bound, Activation activation, double a, double b) {
  switch (activation) {
    case Activation::none:
    case Activation::relu: break;  // at most the magnitude of x
    case Activation::hard_swish: scale_terms(bound, 0.5); break;
    case Activation::silu:
    case Activation::gelu:
    case Activation::gelu_tanh: limit_terms(bound, 0); break;
    case Activation::leaky_relu:
      bound.magnitude *= std::max(1.0, a);
      bound.length *= std::max(1.0, a);
      scale_terms(bound, std::min(1.0, a));
      break;
    case Activation::sigmoid:
      bound.magnitude = 1;
      bound.length = kUnbounded;
      limit_terms(bound, 0);
      break;
    case Activation::tanh:
      bound.magnitude = 1;
      limit_terms(bound, 0.5);
      break;
    case Activation::hard_sigmoid:
      bound.magnitude = 1;
      bound.length = kUnbounded;
      scale_terms(bound, a);
      limit_terms(bound, 0.5);
      break;
    case Activation::clip:  // one of its ends may be infinite
      bound.length = kUnbounded;
      bound.magnitude = std::min(std::max(a, b), std::max({bound.magnitude, std::isfinite(a) ? a : 0, std::isfinite(b) ? b : 0}));
      for (const double end : {a, b}) limit_terms(bound, end > 0 ? end : kUnbounded);
      break;
    case Activation::rounded:  // whole numbers: nothing of them is small
      bound.length = kUnbounded;
      bound.magnitude = std::max(std::abs(a), std::abs(b));
      bound.terms = bound.row_terms = bound.assumed_terms = bound.magnitude;
      break;
  }
}
// `by_columns`: the weights lie as [K, M].
WeightNorms norms_of(const Tensor& weights, int64_t rows, bool by_columns) {
  const std::shared_ptr<const Bytes> held = weights.data.hold();
  const auto* const data = reinterpret_cast<const float*>(held->data());
  const int64_t length = rows == 0 ? 0 : element_count(weights.shape) / rows;
  const auto count = static_cast<size_t>(rows);
  std::vector<double> sums(count), squares(count), largest(count), means(count);
  WeightNorms norms;
  norms.fits_half = true;
  const auto add = [&](size_t row, float x) {
    const double magnitude = std::abs(static_cast<double>(x));
    if (magnitude > 0) norms.least = std::min(norms.least, magnitude);
    sums[row] += magnitude;
    means[row] += static_cast<double>(x) / static_cast<double>(length);
    squares[row] += magnitude * magnitude;
    largest[row] = std::max(largest[row], magnitude);
  };
  if (by_columns) {
    for (int64_t k = 0; k < length; ++k)
      for (int64_t m = 0; m < rows; ++m) add(static_cast<size_t>(m), data[k * rows + m]);
  } else {
    for (int64_t m = 0; m < rows; ++m)
      for (int64_t k = 0; k < length; ++k) add(static_cast<size_t>(m), data[m * length + k]);
  }
  double all = 0, around = 0;
  for (size_t row = 0; row < sums.size(); ++row) {
    norms.largest = std::isfinite(sums[row]) ? std::max(norms.largest, largest[row]) : kUnbounded;
    if (norms.largest == kUnbounded) return WeightNorms{kUnbounded, kUnbounded, kUnbounded, 0, 0, 0, 0, false, false};
    norms.largest_sum = std::max(norms.largest_sum, sums[row]);
    norms.largest_length = std::max(norms.largest_length, std::sqrt(squares[row]));
    if (squares[row] > 0) norms.least_length = std::min(norms.least_length, std::sqrt(squares[row]));
    all += squares[row];
    around += std::max(0.0, squares[row] - static_cast<double>(length) * means[row] * means[row]);
    norms.may_vanish |= largest[row] != 0 && largest[row] < kSmallestWeight;
    norms.fits_half &= largest[row] <= kLargest;
  }
  norms.usual_length = rows == 0 ? 0 : std::sqrt(all / static_cast<double>(rows));
  norms.usual_around_mean = rows == 0 ? 0 : std::sqrt(around / static_cast<double>(rows));
  for (double* const least : {&norms.least, &norms.least_length}) *least = std::isfinite(*least) ? *least : 0;
  return norms;
}

// The constant weights of a product on tensor cores, [M, K] or, `by_columns`, [K, M]. A convolution in groups is none: depthwise ones
// multiply in fp32.
struct Weights {
  TensorId id;
  int64_t rows = 0;
  bool by_columns = false;
  double alpha = 1;
  TensorId bias;
};
std::optional<Weights> weights_of(const Graph& graph, const ROperator& rop) {
  const auto usual = [&](TensorId id, bool trans_b, double alpha, TensorId bias) -> std::optional<Weights> {
    const Shape& shape = graph.tensor(id).shape;
    if (!is_f32_constant(graph, id) || shape.size() != 2) return std::nullopt;
    return Weights{id, shape[trans_b ? 0 : 1], !trans_b, alpha, bias};
  };
  if (const auto* op = std::get_if<MatMul>(&rop.attrs)) {
    if (rop.inputs.size() > 2) return std::nullopt;
    return usual(rop.inputs[1], op->trans_b, op->alpha, rop.epilogue.bias);
  }
  if (const auto* op = std::get_if<Conv>(&rop.attrs)) {
    if (has_prologue(*op) || op->group != 1 || rop.inputs.size() > 2 || !is_f32_constant(graph, rop.inputs[1])) return std::nullopt;
    return Weights{rop.inputs[1], graph.tensor(rop.inputs[1]).shape[0], false, 1, rop.epilogue.bias};
  }
  return std::nullopt;
}

}  // namespace

namespace {

// The one product of rows among a Fused's steps, if there is no other product: its place, and what makes its rows.
struct ProductOfRows {
  FusedView steps;
  size_t at;
  const ROperator* maker;  // the step that makes its rows; null: they are an operand

  const NormalizeBy* by_moments() const { return maker ? std::get_if<NormalizeBy>(&maker->attrs) : nullptr; }
  // The operand that is rounded: the rows, or what a normalisation by moments reads of them; none where the rows are made in between.
  TensorId rounded() const {
    if (!maker) return steps.input(at, 0);
    if (!by_moments()) return {};
    const TensorId beside = steps.outside(operand(*maker, 2));
    return beside.valid() ? beside : steps.outside(maker->inputs[0]);
  }
};
std::optional<ProductOfRows> product_of_rows(const ROperator& rop) {
  const std::optional<FusedView> steps = FusedView::of(rop);
  std::optional<ProductOfRows> found;
  for (size_t i = 0; steps && i < steps->count(); ++i) {
    const OpAttrs& attrs = steps->step(i).attrs;
    const bool is_other = std::holds_alternative<Conv>(attrs) || std::holds_alternative<Attention>(attrs);
    if (is_other || (found && std::holds_alternative<MatMul>(attrs))) return std::nullopt;
    if (std::holds_alternative<MatMul>(attrs)) found = ProductOfRows{*steps, i, steps->maker_of(steps->step(i).inputs[0])};
  }
  return found;
}

}  // namespace

std::vector<TensorId> rounded_operands(const Graph& graph, const ROperator& rop) {
  if (const std::optional<ProductOfRows> product = product_of_rows(rop)) {
    const TensorId rounded = product->rounded(), weights = product->steps.input(product->at, 1);
    const bool is_plain = rounded.valid() && weights.valid() && is_f32_constant(graph, weights) && graph.tensor(weights).shape.size() == 2;
    return is_plain ? std::vector{rounded} : std::vector<TensorId>();
  }
  if (std::holds_alternative<Attention>(rop.attrs)) return {rop.inputs.begin(), rop.inputs.begin() + 3};
  if (!weights_of(graph, rop)) return {};
  return {rop.inputs[0]};
}

namespace {

// The residual of a product, or none.
TensorId residual_of(const ROperator& rop) {
  if (const std::optional<ProductOfRows> product = product_of_rows(rop)) return product->steps.residual(product->at);
  return std::holds_alternative<MatMul>(rop.attrs) || std::holds_alternative<Conv>(rop.attrs) ? rop.epilogue.residual : TensorId();
}

// Whether the tensor's last dimension is rows of so many elements of its buffer.
bool lies_in_rows(const Tensor& tensor, int64_t elements) {
  return !tensor.shape.empty() && tensor.shape.back() == elements && elements > 0 && is_row_major(tensor) &&
         tensor.place.offset % elements == 0;
}

// Whether the rOperator multiplies on tensor cores, or may, or keeps values from step to step.
bool is_product(const ROperator& rop) {
  const auto is_any = [&]<class... Ops>(std::variant<Ops...>*) { return (std::holds_alternative<Ops>(rop.attrs) || ...); };
  return is_any(static_cast<std::variant<Conv, MatMul, Attention, Fused, ChannelSqueeze, ChannelExcite, Recurrent>*>(nullptr));
}

// Whether the rOperator only puts values elsewhere.
bool moves(const ROperator& rop) {
  if (const auto* op = std::get_if<Elementwise>(&rop.attrs))
    return op->steps.size() == 1 && op->steps[0].op == ElementwiseOp::identity && rop.inputs.size() == 1;
  return std::holds_alternative<Pad>(rop.attrs) || std::holds_alternative<Gather>(rop.attrs) ||
         std::holds_alternative<Reshape>(rop.attrs) || std::holds_alternative<Transpose>(rop.attrs) ||
         std::holds_alternative<Slice>(rop.attrs) || std::holds_alternative<Concat>(rop.attrs);
}

class Bounds {
 public:
  // `known`: bounds of tensors that no rOperator makes, by number.
  Bounds(const Graph& graph, WeightNormsCache& norms, std::vector<std::optional<Bound>> known = {})
      : graph_(graph), norms_(norms), tensors_(std::move(known)), buffers_(graph.buffers.size()) {
    tensors_.resize(graph.tensors.size());
    // What iterations of a loop make of a value is not followed: it has no bound from the beginning.
    std::vector<bool> changes(graph.buffers.size(), false);
    for (const ROperator& rop : graph_.rops) {
      if (rop.ends_iteration) changes[graph_.tensor(rop.outputs[0]).place.buffer.index()] = true;
    }
    // Views that placement has dropped have no rOperator; what they show is what was written to their buffer.
    for (const ROperator& rop : graph_.rops) {
      for (size_t i = 0; i < rop.outputs.size(); ++i) {
        const TensorId id = rop.outputs[i];
        const BufferId buffer = graph_.tensor(id).place.buffer;
        if (!buffer.valid()) continue;
        const Bound bound = changes[buffer.index()]                    ? Bound()
                            : std::holds_alternative<Fused>(rop.attrs) ? bound_of_steps(rop, i)
                                                                       : bound_of(rop, i);
        tensors_[id.index()] = bound;
        std::optional<Bound>& all = buffers_[buffer.index()];
        all = all ? joined(*all, bound) : bound;
      }
    }
  }

  double magnitude(size_t buffer) const { return buffers_[buffer] ? buffers_[buffer]->magnitude : kUnbounded; }
  // None where values are not proven to be bounded: rounded rows, whose reader looks at them.
  double proven(size_t buffer) const { return buffers_[buffer] && !buffers_[buffer]->rounded ? buffers_[buffer]->magnitude : 0; }
  // Whether the values lose as little as operands of products do, though tf32 would not round them.
  bool may_be_residual(size_t buffer) const {
    return buffers_[buffer] && buffers_[buffer]->normalised && keeps(buffers_[buffer]->row_terms) && lies_around_0(*buffers_[buffer]);
  }
  // Whether a product may round its operands and its weights to fp16.
  bool may_compute(const ROperator& rop) {
    if (std::holds_alternative<Fused>(rop.attrs)) return steps_may_compute(rop);
    if (!is_product(rop)) return true;
    const std::vector<TensorId> operands = rounded_operands(graph_, rop);
    const auto holds = [&](TensorId id) { return fp16_holds(rop, id); };
    if (operands.empty() || !std::all_of(operands.begin(), operands.end(), holds)) return false;
    const std::optional<Weights> weights = weights_of(graph_, rop);
    return !weights ||
           fp16_holds_weights(*weights, multiplied(rop), rop.epilogue.residual_after_activation ? TensorId() : residual_of(rop));
  }

 private:
  // The steps of a Fused, with rows between them that lie one behind the other, and their bounds.
  struct Inside {
    Graph steps;
    std::unique_ptr<Bounds> bounds;
  };
  Inside inside(const ROperator& rop) {
    Inside in{steps_of(graph_, rop), nullptr};
    for (Tensor& tensor : in.steps.tensors) {
      if (tensor.place.buffer.valid() || tensor.role != Role::activation) continue;
      tensor.place = {BufferId(static_cast<int64_t>(in.steps.buffers.size())), 0, row_major_strides(tensor.shape)};
      in.steps.buffers.push_back({});
    }
    std::vector<std::optional<Bound>> known(in.steps.tensors.size());
    const Graph& body = *std::get<Fused>(rop.attrs).body;
    for (size_t i = 0; i < rop.inputs.size(); ++i) known[body.inputs[i].index()] = of(rop.inputs[i]);
    in.bounds = std::make_unique<Bounds>(in.steps, norms_, std::move(known));
    return in;
  }
  Bound bound_of_steps(const ROperator& rop, size_t output) {
    const Graph& body = *std::get<Fused>(rop.attrs).body;
    const ROperator& maker = *FusedView::of(rop)->maker_of(body.outputs[output]);
    if (moves(maker) && std::find(body.outputs.begin(), body.outputs.end(), maker.inputs[0]) != body.outputs.end()) return of_rounded();
    return inside(rop).bounds->of(body.outputs[output]);
  }
  bool steps_may_compute(const ROperator& rop) {
    const auto is_map_step = [](const ROperator& step) {
      const auto* const conv = std::get_if<Conv>(&step.attrs);
      return (conv && conv->group == 1) || std::holds_alternative<TileSums>(step.attrs);
    };
    const auto is_row_step = [](const ROperator& step) {
      return std::holds_alternative<MatMul>(step.attrs) || std::holds_alternative<Attention>(step.attrs);
    };
    const std::vector<ROperator>& all = std::get<Fused>(rop.attrs).body->rops;
    if (std::any_of(all.begin(), all.end(), is_map_step)) return false;
    const auto products = std::count_if(all.begin(), all.end(), is_row_step);
    if (products == 0) return true;  // depthwise convolutions multiply in fp32
    const std::optional<ProductOfRows> only = product_of_rows(rop);
    if (products == 1 && (!only || !only->rounded().valid())) return false;
    const Inside in = inside(rop);
    if (only) {
      const ROperator& product = in.steps.rops[only->at];
      const auto makes_rows = [&](const ROperator& step) { return step.outputs[0] == product.inputs[0]; };
      const auto maker = std::find_if(in.steps.rops.begin(), in.steps.rops.end(), makes_rows);
      return in.bounds->may_compute_step(product, maker == in.steps.rops.end() ? nullptr : &*maker);
    }
    for (const ROperator& step : in.steps.rops) {
      if (!is_row_step(step)) continue;
      const bool is_inside = std::any_of(in.steps.rops.begin(), in.steps.rops.end(),
                                         [&](const ROperator& other) { return other.outputs[0] == step.inputs[0]; });
      if (!is_inside) return true;  // bodies look at their weights
      if (!in.bounds->may_compute_step(step, nullptr)) return false;
    }
    return true;
  }
  // Of a product among steps. `by`: what normalises its rows by moments, or null. Rows between steps are read whole.
  bool may_compute_step(const ROperator& step, const ROperator* by) {
    const std::optional<Weights> weights = weights_of(graph_, step);
    if (!weights) return may_compute(step);  // attention
    const Bound rows = of(step.inputs[0]);
    if (by) {
      const Bound read = of(operand(*by, 2).valid() ? by->inputs[2] : by->inputs[0]);
      if (read.magnitude > kLargest || !keeps(read.row_terms) || !lies_around_0(read)) return false;
    } else if (!fp16_holds(step, step.inputs[0])) {
      return false;
    }
    const bool is_between = graph_.tensor(step.inputs[0]).role == Role::activation;
    return fp16_holds_weights(*weights, is_between ? rows : multiplied(step),
                              step.epilogue.residual_after_activation ? TensorId() : residual_of(step));
  }

  // Whether what halves lose of values of such terms is little beside the errors that the terms have in tf32.
  static bool keeps(double terms) { return kLostBelow <= kShareOfTerms * terms; }
  static bool lies_around_0(const Bound& bound) { return bound.offset <= kMostOffset * bound.row_terms; }

  // Whether fp16 holds all that the product's result gets from the operand: the operand loses little, or what it loses is little beside
  // the other terms of the result.
  bool fp16_holds(const ROperator& rop, TensorId id) {
    const Bound bound = of(id);
    if (bound.magnitude > kLargest) return false;
    if (keeps(reads_whole_rows(rop, id, bound) ? bound.row_terms : bound.terms)) return true;
    const std::optional<Weights> weights = weights_of(graph_, rop);
    return weights && loses_little(*weights, sum_of(rop, *weights));
  }
  // The same of the weights, beside what is added to the product. With a factor for a residual block they may be tiny (ConvNeXt begins to
  // learn with 1e-6).
  bool fp16_holds_weights(const Weights& weights, const Bound& in, TensorId residual) {
    const WeightNorms& norm = norms(weights);
    if (!norm.fits_half || !norm.may_vanish) return norm.fits_half;
    const double count = static_cast<double>(element_count(graph_.tensor(weights.id).shape)) / static_cast<double>(weights.rows);
    const double length = std::min(in.length, in.magnitude * std::sqrt(count));
    Bound added;
    add_term(added, weights.bias);
    add_term(added, residual);
    return kLostBelow * std::abs(weights.alpha) * length <= kShareOfTerms * added.row_terms;
  }
  bool loses_little(const Weights& weights, const Bound& sum) {
    return kLostBelow * std::abs(weights.alpha) * norms(weights).largest_length <= kShareOfTerms * sum.row_terms;
  }
  bool reads_whole_rows(const ROperator& rop, TensorId id, const Bound& bound) const {
    const Tensor& tensor = graph_.tensor(id);
    if (bound.elements == 0) return false;
    if (std::holds_alternative<Conv>(rop.attrs) && tensor.shape.size() == 4)
      return tensor.shape[1] == bound.elements && tensor.place.strides[1] == 1 && tensor.place.offset % bound.elements == 0;
    const auto* const matmul = std::get_if<MatMul>(&rop.attrs);
    return lies_in_rows(tensor, bound.elements) && !(matmul && matmul->trans_a);
  }
  // Of a constant, as if it were one row.
  Bound of_constant(TensorId id) {
    const Tensor& tensor = graph_.tensor(id);
    const WeightNorms& norm = norms_.of(tensor, 1, /*by_columns=*/false);
    Bound bound;
    bound.magnitude = norm.largest;
    bound.length = norm.largest_length;
    bound.terms = norm.least;
    bound.row_terms = norm.usual_length / root_of_count(tensor.shape);
    bound.assumed_terms = bound.row_terms;
    bound.offset = norm.largest == kUnbounded ? kUnbounded : bound.row_terms;
    return bound;
  }
  // Of a constant counts what a normalisation does not take away again. A 0 among its values is no term of the element that it is added to.
  void add_term(Bound& bound, TensorId id) {
    if (!id.valid()) return;
    Bound term = of(id);
    if (is_f32_constant(graph_, id)) {
      term.terms = 0;
      term.row_terms = term.assumed_terms = terms_around_mean(id);
    }
    add(bound, term);
  }
  double terms_around_mean(TensorId constant) {
    const Tensor& tensor = graph_.tensor(constant);
    return norms_.of(tensor, 1, /*by_columns=*/false).usual_around_mean / root_of_count(tensor.shape);
  }
  static double root_of_count(const Shape& shape) { return std::sqrt(static_cast<double>(std::max<int64_t>(1, element_count(shape)))); }
  Bound of(TensorId id) {
    const Tensor& tensor = graph_.tensor(id);
    if (is_f32_constant(graph_, id)) return of_constant(id);
    if (tensors_[id.index()]) return *tensors_[id.index()];
    const BufferId buffer = tensor.place.buffer;
    if (!buffer.valid() || !buffers_[buffer.index()]) return {};
    return *buffers_[buffer.index()];
  }

  const WeightNorms& norms(const Weights& weights) { return norms_.of(graph_.tensor(weights.id), weights.rows, weights.by_columns); }

  // Rows of `extent` values that are scaled and shifted after `from` was normalised. Of a row that is known to be smaller than the root of
  // epsilon, it makes one that is small, too.
  Bound normalised(double extent, const Bound& from, double epsilon, TensorId scale = {}, TensorId shift = {}) {
    Bound scales, shifts;  // where there are none: 1 and 0
    scales.magnitude = scales.terms = scales.row_terms = 1;
    shifts.magnitude = shifts.length = shifts.offset = 0;
    if (scale.valid()) scales = is_f32_constant(graph_, scale) ? of_constant(scale) : Bound();
    if (shift.valid()) shifts = is_f32_constant(graph_, shift) ? of_constant(shift) : Bound();
    Bound bound;
    bound.magnitude = std::sqrt(extent) * scales.magnitude + shifts.magnitude;
    const double size = epsilon > 0 ? std::min(1.0, from.assumed_terms / std::sqrt(epsilon)) : 1;
    bound.terms = size * scales.terms;
    bound.row_terms = size * scales.row_terms;
    if (shift.valid() && is_f32_constant(graph_, shift)) bound.row_terms = std::max(bound.row_terms, terms_around_mean(shift));
    bound.assumed_terms = bound.row_terms;
    bound.offset = shifts.offset;
    bound.length = std::sqrt(extent) * scales.magnitude + shifts.length;
    bound.elements = static_cast<int64_t>(extent);
    bound.normalised = true;
    return bound;
  }
  Bound of_normalize(const ROperator& rop, const Normalize& op) {
    const Tensor& in = graph_.tensor(rop.inputs[0]);
    double extent = 1;
    for (const int64_t axis : op.axes) {
      if (axis >= static_cast<int64_t>(in.shape.size())) return {};
      extent *= static_cast<double>(in.shape[static_cast<size_t>(axis)]);
    }
    Bound bound = normalised(extent, of(rop.inputs[0]), op.epsilon, operand(rop, 1), operand(rop, 2));
    const Tensor& out = graph_.tensor(rop.outputs[0]);
    const bool last = op.axes.size() == 1 && op.axes[0] + 1 == static_cast<int64_t>(out.shape.size());
    if (!last || !lies_in_rows(out, bound.elements)) bound.elements = 0;
    return bound;
  }

  // The rows that a product multiplies.
  Bound multiplied(const ROperator& rop) {
    Bound in = of(rop.inputs[0]);
    // A window is several rows, and so may a row of a view be.
    if (std::holds_alternative<Conv>(rop.attrs) || !reads_whole_rows(rop, rop.inputs[0], in)) in.length = kUnbounded;
    return in;
  }
  Bound of_product(const ROperator& rop, const Weights& weights) {
    const Bound in = multiplied(rop);
    const bool rows = reads_whole_rows(rop, rop.inputs[0], in);
    const WeightNorms& norm = norms(weights);
    const double alpha = std::abs(weights.alpha), terms = alpha * (rows ? in.row_terms : in.terms);
    Bound out;
    out.magnitude = alpha * in.magnitude * norm.largest_sum;
    if (rows) out.magnitude = std::min(out.magnitude, alpha * in.length * norm.largest_length);
    out.length = rows ? alpha * in.length * norm.usual_length * std::sqrt(static_cast<double>(weights.rows)) : kUnbounded;
    out.terms = terms * norm.least_length;
    out.row_terms = terms * norm.usual_length;
    out.assumed_terms = norm.usual_length > 0 ? alpha * in.assumed_terms * norm.usual_length : 0;
    out.offset = 0;
    add_term(out, weights.bias);
    if (std::isnan(out.magnitude)) out.magnitude = kUnbounded;
    if (std::isnan(out.length)) out.length = kUnbounded;
    return out;
  }
  // With what is added before an activation or a normalisation.
  Bound sum_of(const ROperator& rop, const Weights& weights) {
    Bound sum = of_product(rop, weights);
    if (!rop.epilogue.residual_after_activation && !rop.epilogue.sum) add_term(sum, residual_of(rop));
    return sum;
  }

  // What a product, an activation and a residual make.
  Bound with_activation(const ROperator& rop, const Weights& weights, const ActivationCall& activation) {
    Bound bound = sum_of(rop, weights);
    activate(bound, activation.kind, std::abs(static_cast<double>(activation.a)), std::abs(static_cast<double>(activation.b)));
    if (const std::optional<ScaledSum>& scaled = rop.epilogue.sum) {
      bound = {};
      if (scaled->rounds) activate(bound, Activation::rounded, scaled->low, scaled->high);
      return bound;
    }
    if (rop.epilogue.residual_after_activation) add_term(bound, residual_of(rop));
    return bound;
  }

  // Rows that their reader knows to be rounded, and reads otherwise where that loses something.
  static Bound of_rounded() {
    Bound bound;
    bound.magnitude = kLargest;
    bound.terms = bound.row_terms = 1;
    bound.offset = 0;
    bound.rounded = true;
    return bound;
  }

  Bound bound_of(const ROperator& rop, size_t output) {
    if (graph_.tensor(rop.outputs[output]).dtype != DType::f32) return {};
    if (const auto* op = std::get_if<Normalize>(&rop.attrs)) return of_normalize(rop, *op);
    if (const auto* op = std::get_if<NormalizeBy>(&rop.attrs)) {
      const Tensor& rows = graph_.tensor(rop.inputs[0]);
      Bound bound = normalised(static_cast<double>(rows.shape.back()), of(rop.inputs[0]), op->epsilon);
      if (!lies_in_rows(rows, bound.elements)) bound.elements = 0;
      return bound;
    }
    if (const auto* op = std::get_if<Attention>(&rop.attrs); op && op->rounding) {
      Bound bound;
      const RoundedTo& to = op->rounding->results;
      if (to.rounds()) activate(bound, Activation::rounded, to.low, to.high);
      return bound;
    }
    if (std::holds_alternative<Attention>(rop.attrs)) {  // a mean of the rows of V
      Bound bound = of(rop.inputs[2]);
      const TensorId windows = operand(rop, kAttentionRowTable);
      const Shape& rows = graph_.tensor(rop.inputs[2]).shape;
      const int64_t keys = windows.valid() ? graph_.tensor(windows).shape[1] : rows[rows.size() - 2];
      scale_terms(bound, 1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, keys))));
      bound.row_terms = bound.terms;  // of a head
      bound.elements = 0;
      bound.normalised = false;
      return bound;
    }
    if (std::holds_alternative<MatMul>(rop.attrs) || std::holds_alternative<Conv>(rop.attrs)) {
      const std::optional<Weights> weights = weights_of(graph_, rop);
      return weights ? with_activation(rop, *weights, {rop.epilogue.activation, rop.epilogue.a, rop.epilogue.b}) : Bound{};
    }
    if (const auto* op = std::get_if<Elementwise>(&rop.attrs); op && !moves(rop)) return of_chain(rop, *op);
    if (moves(rop)) {
      Bound bound = of(rop.inputs[0]);
      for (size_t i = 1; i < rop.inputs.size() && std::holds_alternative<Concat>(rop.attrs); ++i) bound = joined(bound, of(rop.inputs[i]));
      if (const auto* pad = std::get_if<Pad>(&rop.attrs))
        bound.magnitude = std::max(bound.magnitude, std::abs(static_cast<double>(pad->value)));
      if (!moves_whole_rows(rop, bound.elements)) bound.elements = 0;
      return bound;
    }
    return {};
  }
  bool moves_whole_rows(const ROperator& rop, int64_t elements) const {
    const auto* const gather = std::get_if<Gather>(&rop.attrs);
    const Tensor &from = graph_.tensor(rop.inputs[0]), &to = graph_.tensor(rop.outputs[0]);
    const bool keeps_rows =
        std::holds_alternative<Elementwise>(rop.attrs) || (gather && gather->axis + 1 < static_cast<int64_t>(from.shape.size()));
    return keeps_rows && lies_in_rows(from, elements) && lies_in_rows(to, elements);
  }
  // Of a chain of steps; nothing is said of its magnitude, and little of its terms where it does more than add and subtract.
  Bound of_chain(const ROperator& rop, const Elementwise& op) {
    Bound sum;
    sum.offset = sum.assumed_terms = 0;
    for (const TensorId id : rop.inputs) add_term(sum, id);
    sum.magnitude = kUnbounded;
    const auto is_sum = [](const ElementwiseStep& step) { return step.op == ElementwiseOp::add || step.op == ElementwiseOp::sub; };
    if (std::all_of(op.steps.begin(), op.steps.end(), is_sum)) return sum;
    Bound other;
    const bool vanishes = std::any_of(op.steps.begin(), op.steps.end(), [](const ElementwiseStep& step) { return may_vanish(step.op); });
    other.assumed_terms = vanishes ? 0 : sum.assumed_terms;
    return other;
  }

  const Graph& graph_;
  WeightNormsCache& norms_;
  std::vector<std::optional<Bound>> tensors_, buffers_;
};

}  // namespace

const WeightNorms& WeightNormsCache::of(const Tensor& weights, int64_t rows, bool by_columns) {
  const std::lock_guard lock(mutex_);
  const auto [at, is_new] = norms_.try_emplace({weights.data, rows, by_columns});
  if (is_new) at->second = norms_of(weights, rows, by_columns);
  return at->second;
}

namespace {

// As reads_of, but an operand counts as often as steps of a Fused read it: rows may be multiplied, and added to the product as well.
std::vector<TensorId> all_reads_of(const ROperator& rop) {
  const std::optional<FusedView> steps = FusedView::of(rop);
  if (!steps) return reads_of(rop);
  std::vector<TensorId> reads;
  for (const ROperator& step : steps->body().rops) {
    for (const TensorId id : reads_of(step)) {
      if (steps->maker_of(id) == nullptr) reads.push_back(steps->outside(id));
    }
  }
  return reads;
}

}  // namespace

HalfUse half_use(const Graph& placed, WeightNormsCache& norms) {
  Bounds bounds(placed, norms);
  HalfUse use;
  for (const ROperator& rop : placed.rops) use.rops.push_back(bounds.may_compute(rop));
  for (size_t b = 0; b < placed.buffers.size(); ++b)
    use.buffers.push_back(placed.buffers[b].kind == BufferKind::arena && placed.buffers[b].dtype == DType::f32 &&
                          bounds.magnitude(b) <= kLargest);
  for (size_t b = 0; b < placed.buffers.size(); ++b) use.largest.push_back(use.buffers[b] ? bounds.proven(b) : 0);
  // Takes away what something reads that does not round it.
  const auto may = [&](TensorId id) {
    const BufferId buffer = placed.tensor(id).place.buffer;
    return buffer.valid() && use.buffers[buffer.index()];
  };
  const std::vector<bool> by_moments = normalized_by_moments(placed);
  for (bool changes = true; changes;) {
    changes = false;
    for (size_t i = 0; i < placed.rops.size(); ++i) {
      const ROperator& rop = placed.rops[i];
      const std::vector<TensorId> rounded = rounded_operands(placed, rop);
      const bool beside = std::holds_alternative<Normalize>(rop.attrs) && may(rop.inputs[0]) && may(rop.outputs[0]) &&
                          by_moments[placed.tensor(rop.inputs[0]).place.buffer.index()];
      const bool carries = (moves(rop) && may(rop.outputs[0])) || beside;
      std::vector<TensorId> reads = all_reads_of(rop);
      if (carries) reads.clear();
      if (use.rops[i]) {
        for (const TensorId id : rounded) reads.erase(std::find(reads.begin(), reads.end(), id));
        const TensorId residual = residual_of(rop);
        if (residual.valid() && may(residual) && bounds.may_be_residual(placed.tensor(residual).place.buffer.index()))
          reads.erase(std::find(reads.begin(), reads.end(), residual));
      }
      for (const TensorId id : reads) {
        if (!may(id)) continue;
        use.buffers[placed.tensor(id).place.buffer.index()] = false;
        changes = true;
      }
    }
  }
  return use;
}

bool has_bounds(const Graph& placed) {
  return std::any_of(placed.buffers.begin(), placed.buffers.end(), [](const Buffer& buffer) { return buffer.largest > 0; });
}

}  // namespace tamp::passes
