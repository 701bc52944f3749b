#include "compiler/passes/value_bounds.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <variant>

#include "compiler/passes/memory_order.h"

namespace tamp::passes {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();
constexpr double kLargest = 32768;     // half of fp16's largest number, since sums are rounded
constexpr double kSmallest = 0x1p-10;  // below 2^-14 halves lose bits, which does not matter beside values so much larger

// Of a tensor or a buffer. `magnitude` is a bound, `usual` about the root mean square. `length` bounds the length of a row of `elements`
// that lie next to each other; 0 elements: not known. `normalised`: rows that were normalised, and nothing since but moved.
struct Bound {
  double magnitude = kUnbounded, usual = 0;
  double length = kUnbounded;
  int64_t elements = 0;
  bool normalised = false;
};

Bound joined(const Bound& a, const Bound& b) {
  Bound both;
  both.magnitude = std::max(a.magnitude, b.magnitude);
  both.usual = std::min(a.usual, b.usual);
  both.normalised = a.normalised && b.normalised;
  return both;
}
// `by_columns`: the weights lie as [K, M].
WeightNorms norms_of(const Tensor& weights, int64_t rows, bool by_columns) {
  const float* const data = f32_data(weights);
  const int64_t length = rows == 0 ? 0 : element_count(weights.shape) / rows;
  std::vector<double> sums(static_cast<size_t>(rows)), squares(static_cast<size_t>(rows)), largest(static_cast<size_t>(rows));
  const auto add = [&](size_t row, float x) {
    const double magnitude = std::abs(static_cast<double>(x));
    sums[row] += magnitude;
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
  WeightNorms norms;
  norms.data = weights.data;
  norms.fits_half = true;
  double all = 0;
  for (size_t row = 0; row < sums.size(); ++row) {
    norms.largest = std::isfinite(sums[row]) ? std::max(norms.largest, largest[row]) : kUnbounded;
    if (norms.largest == kUnbounded) return WeightNorms{norms.data, kUnbounded, kUnbounded, kUnbounded};
    norms.largest_sum = std::max(norms.largest_sum, sums[row]);
    norms.largest_length = std::max(norms.largest_length, std::sqrt(squares[row]));
    all += squares[row];
    norms.fits_half &= largest[row] == 0 || (largest[row] >= kSmallest && largest[row] <= kLargest);
  }
  norms.usual_length = rows == 0 ? 0 : std::sqrt(all / static_cast<double>(rows));
  return norms;
}

bool is_f32_constant(const Graph& graph, TensorId id) {
  return graph.tensor(id).role == Role::constant && graph.tensor(id).dtype == DType::f32;
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
  if (const auto* op = std::get_if<NormalizedMatMul>(&rop.attrs))
    return usual(rop.inputs[1], op->trans_b, op->alpha, operand(rop, kNormalizedBias));
  if (const auto* op = std::get_if<MomentMatMul>(&rop.attrs))
    return usual(rop.inputs[1], op->trans_b, op->alpha, operand(rop, kMomentBias));
  if (std::holds_alternative<SelfAttention>(rop.attrs)) return usual(rop.inputs[kSelfWeights], false, 1, operand(rop, kSelfBias));
  if (const auto* op = std::get_if<Conv>(&rop.attrs)) {
    if (has_prologue(*op) || op->group != 1 || rop.inputs.size() > 2 || !is_f32_constant(graph, rop.inputs[1])) return std::nullopt;
    return Weights{rop.inputs[1], graph.tensor(rop.inputs[1]).shape[0], false, 1, rop.epilogue.bias};
  }
  return std::nullopt;
}

}  // namespace

std::vector<TensorId> rounded_operands(const Graph& graph, const ROperator& rop) {
  if (std::holds_alternative<Attention>(rop.attrs)) return {rop.inputs.begin(), rop.inputs.begin() + 3};
  if (std::holds_alternative<SelfAttention>(rop.attrs)) return {};  // it normalises its rows before it rounds them
  if (!weights_of(graph, rop)) return {};
  const TensorId rounded = std::holds_alternative<MomentMatMul>(rop.attrs) ? operand(rop, kMomentRounded) : TensorId();
  return {rounded.valid() ? rounded : rop.inputs[0]};
}

namespace {

// The residual of a product, or none.
TensorId residual_of(const ROperator& rop) {
  if (std::holds_alternative<NormalizedMatMul>(rop.attrs)) return operand(rop, kNormalizedResidual);
  if (std::holds_alternative<MomentMatMul>(rop.attrs)) return operand(rop, kMomentResidual);
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
  return is_any(static_cast<std::variant<Conv, MatMul, NormalizedMatMul, MomentMatMul, FeedForward, Attention, SelfAttention, StepAttention,
                                         SummedConv, MomentConv, NormalizedConv, PooledMatMul, PrologueMatMul, PointwisePair,
                                         ChannelSqueeze, ChannelExcite, Recurrent>*>(nullptr));
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
  Bounds(const Graph& graph, WeightNormsCache& norms)
      : graph_(graph), norms_(norms), tensors_(graph.tensors.size()), buffers_(graph.buffers.size()) {
    // Views that placement has dropped have no rOperator; what they show is what was written to their buffer.
    for (const ROperator& rop : graph_.rops) {
      for (size_t i = 0; i < rop.outputs.size(); ++i) {
        const TensorId id = rop.outputs[i];
        const BufferId buffer = graph_.tensor(id).place.buffer;
        if (!buffer.valid()) continue;
        const Bound bound = bound_of(rop, i);
        tensors_[id.index()] = bound;
        std::optional<Bound>& all = buffers_[buffer.index()];
        all = all ? joined(*all, bound) : bound;
      }
    }
  }

  bool fits(size_t buffer) const { return buffers_[buffer] && fits(*buffers_[buffer]); }
  bool is_normalised(size_t buffer) const { return buffers_[buffer] && buffers_[buffer]->normalised; }
  // Whether a product may round its operands and its weights to fp16.
  bool may_compute(const ROperator& rop) {
    // A MomentConv multiplies in fp32, and bodies of a FeedForward look at its weights themselves.
    if (!is_product(rop) || std::holds_alternative<MomentConv>(rop.attrs) || std::holds_alternative<FeedForward>(rop.attrs)) return true;
    const std::vector<TensorId> operands = rounded_operands(graph_, rop);
    const auto fits_half = [&](TensorId id) { return fits(of(id)); };
    const bool normalizes = std::holds_alternative<SelfAttention>(rop.attrs);
    if (normalizes && !fits(of_self_attention(rop).qkv)) return false;
    if ((operands.empty() && !normalizes) || !std::all_of(operands.begin(), operands.end(), fits_half)) return false;
    const std::optional<Weights> weights = weights_of(graph_, rop);
    return !weights || norms(*weights).fits_half;
  }

 private:
  static bool fits(const Bound& bound) { return bound.magnitude <= kLargest && bound.usual >= kSmallest; }

  // Of a constant, as if it were one row.
  Bound of_constant(TensorId id) {
    const Tensor& tensor = graph_.tensor(id);
    const WeightNorms& norm = norms_.of(tensor, 1, /*by_columns=*/false);
    Bound bound;
    bound.magnitude = norm.largest;
    bound.length = norm.largest_length;
    bound.usual = norm.usual_length / std::sqrt(static_cast<double>(std::max<int64_t>(1, element_count(tensor.shape))));
    return bound;
  }
  Bound of(TensorId id) {
    const Tensor& tensor = graph_.tensor(id);
    if (is_f32_constant(graph_, id)) return of_constant(id);
    if (tensors_[id.index()]) return *tensors_[id.index()];
    const BufferId buffer = tensor.place.buffer;
    if (!buffer.valid() || !buffers_[buffer.index()]) return {};
    return *buffers_[buffer.index()];
  }

  const WeightNorms& norms(const Weights& weights) { return norms_.of(graph_.tensor(weights.id), weights.rows, weights.by_columns); }

  // Rows of `extent` values that are scaled and shifted after they were normalised.
  Bound normalised(double extent, TensorId scale, TensorId shift) {
    Bound scales, shifts;  // where there are none: 1 and 0
    scales.magnitude = scales.usual = 1;
    shifts.magnitude = shifts.length = 0;
    if (scale.valid()) scales = is_f32_constant(graph_, scale) ? of_constant(scale) : Bound();
    if (shift.valid()) shifts = is_f32_constant(graph_, shift) ? of_constant(shift) : Bound();
    Bound bound;
    bound.magnitude = std::sqrt(extent) * scales.magnitude + shifts.magnitude;
    bound.usual = scales.usual;
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
    Bound bound = normalised(extent, operand(rop, 1), operand(rop, 2));
    const Tensor& out = graph_.tensor(rop.outputs[0]);
    const bool last = op.axes.size() == 1 && op.axes[0] + 1 == static_cast<int64_t>(out.shape.size());
    if (!last || !lies_in_rows(out, bound.elements)) bound.elements = 0;
    return bound;
  }

  Bound of_product(const ROperator& rop, const Weights& weights) {
    const Tensor& tensor = graph_.tensor(rop.inputs[0]);
    const auto* const matmul = std::get_if<MatMul>(&rop.attrs);
    const auto* const moments = std::get_if<MomentMatMul>(&rop.attrs);
    Bound in = of(rop.inputs[0]);
    if (moments && moments->normalize) {
      in = normalised(static_cast<double>(tensor.shape.back()), TensorId(), TensorId());
      if (!lies_in_rows(tensor, in.elements)) in.elements = 0;
    }
    const WeightNorms& norm = norms(weights);
    const bool rows = in.elements > 0 && lies_in_rows(tensor, in.elements) && ((matmul && !matmul->trans_a) || moments);
    const double alpha = std::abs(weights.alpha);
    Bound out;
    out.magnitude = alpha * in.magnitude * norm.largest_sum;
    if (rows) out.magnitude = std::min(out.magnitude, alpha * in.length * norm.largest_length);
    out.usual = alpha * in.usual * norm.usual_length;
    if (weights.bias.valid()) out.magnitude += of(weights.bias).magnitude;
    if (std::isnan(out.magnitude)) out.magnitude = kUnbounded;
    return out;
  }

  // Of the rows of Q, K and V, and of what attention makes of them: a mean of the rows of V.
  struct OfSelfAttention {
    Bound qkv, made;
  };
  OfSelfAttention of_self_attention(const ROperator& rop) {
    const std::optional<Weights> weights = weights_of(graph_, rop);
    if (!weights) return {};
    const WeightNorms& norm = norms(*weights);
    const Bound rows = normalised(static_cast<double>(graph_.tensor(rop.inputs[0]).shape.back()), TensorId(), TensorId());
    OfSelfAttention found;
    found.qkv.magnitude = rows.length * norm.largest_length + (weights->bias.valid() ? of(weights->bias).magnitude : 0);
    if (std::isnan(found.qkv.magnitude)) found.qkv.magnitude = kUnbounded;
    found.qkv.usual = rows.usual * norm.usual_length;
    found.made = found.qkv;
    const TensorId windows = operand(rop, kSelfRowTable);
    const int64_t keys = windows.valid() ? graph_.tensor(windows).shape[1] : graph_.tensor(rop.outputs[0]).shape[1];
    found.made.usual /= std::sqrt(static_cast<double>(std::max<int64_t>(1, keys)));
    return found;
  }

  // What an activation and a residual make of it.
  Bound with_epilogue(Bound bound, const Epilogue& epilogue) {
    const double residual = epilogue.residual.valid() ? of(epilogue.residual).magnitude : 0;
    const double a = std::abs(static_cast<double>(epilogue.a)), b = std::abs(static_cast<double>(epilogue.b));
    if (!epilogue.residual_after_activation) bound.magnitude += residual;
    switch (epilogue.activation) {
      case Activation::none:
      case Activation::relu:
      case Activation::hard_swish:
      case Activation::silu:
      case Activation::gelu:
      case Activation::gelu_tanh: break;  // at most the magnitude of x
      case Activation::leaky_relu: bound.magnitude *= std::max(1.0, a); break;
      case Activation::sigmoid:
      case Activation::tanh:
      case Activation::hard_sigmoid: bound.magnitude = 1; break;
      case Activation::clip:  // one of its ends may be infinite
        bound.magnitude = std::min(std::max(a, b), std::max({bound.magnitude, std::isfinite(a) ? a : 0, std::isfinite(b) ? b : 0}));
        break;
    }
    if (epilogue.residual_after_activation) bound.magnitude += residual;
    return bound;
  }

  // Rows that their reader knows to be rounded, and reads otherwise where that loses something.
  static Bound of_rounded() {
    Bound bound;
    bound.magnitude = kLargest;
    bound.usual = 1;
    return bound;
  }

  Bound bound_of(const ROperator& rop, size_t output) {
    if (graph_.tensor(rop.outputs[output]).dtype != DType::f32) return {};
    const bool gives_rounded = std::holds_alternative<MomentConv>(rop.attrs) || std::holds_alternative<MomentMatMul>(rop.attrs);
    if (gives_rounded && output == kKeptRounded) return of_rounded();
    if (const auto* op = std::get_if<Normalize>(&rop.attrs)) return of_normalize(rop, *op);
    if (std::holds_alternative<NormalizedConv>(rop.attrs)) {
      const Tensor& map = graph_.tensor(rop.outputs[0]);
      const int64_t channels = map.shape[1];
      Bound bound = normalised(static_cast<double>(channels), operand(rop, kPatchScale), operand(rop, kPatchShift));
      if (map.place.strides != channels_last_strides(map.shape, 1) || map.place.offset % channels != 0) bound.elements = 0;
      return bound;
    }
    if (const auto* op = std::get_if<FeedForward>(&rop.attrs)) {
      if (!op->normalize_result) return {};
      const Tensor& z = graph_.tensor(rop.outputs[0]);
      Bound bound = normalised(static_cast<double>(z.shape.back()), operand(rop, kFeedScale), operand(rop, kFeedShift));
      if (!lies_in_rows(z, bound.elements)) bound.elements = 0;
      return bound;
    }
    if (std::holds_alternative<NormalizedMatMul>(rop.attrs)) {
      if (output != 0) return {};
      Bound bound = normalised(static_cast<double>(graph_.tensor(rop.outputs[0]).shape.back()), operand(rop, kNormalizedScale),
                               operand(rop, kNormalizedShift));
      if (!lies_in_rows(graph_.tensor(rop.outputs[0]), bound.elements)) bound.elements = 0;
      return bound;
    }
    if (std::holds_alternative<Attention>(rop.attrs)) {  // a mean of the rows of V
      Bound bound = of(rop.inputs[2]);
      const TensorId windows = operand(rop, kAttentionRowTable);
      const Shape& rows = graph_.tensor(rop.inputs[2]).shape;
      const int64_t keys = windows.valid() ? graph_.tensor(windows).shape[1] : rows[rows.size() - 2];
      bound.usual /= std::sqrt(static_cast<double>(std::max<int64_t>(1, keys)));
      bound.elements = 0;
      bound.normalised = false;
      return bound;
    }
    if (std::holds_alternative<SelfAttention>(rop.attrs)) return of_self_attention(rop).made;
    if (std::holds_alternative<MatMul>(rop.attrs) || std::holds_alternative<Conv>(rop.attrs)) {
      const std::optional<Weights> weights = weights_of(graph_, rop);
      return weights ? with_epilogue(of_product(rop, *weights), rop.epilogue) : Bound{};
    }
    if (const auto* op = std::get_if<MomentMatMul>(&rop.attrs)) {
      const std::optional<Weights> weights = weights_of(graph_, rop);
      if (output != 0 || !weights) return {};
      Epilogue epilogue;
      epilogue.residual = residual_of(rop);
      epilogue.activation = op->activation.kind;
      epilogue.a = op->activation.a;
      epilogue.b = op->activation.b;
      return with_epilogue(of_product(rop, *weights), epilogue);
    }
    if (moves(rop)) {
      Bound bound = of(rop.inputs[0]);
      for (size_t i = 1; i < rop.inputs.size() && std::holds_alternative<Concat>(rop.attrs); ++i) bound = joined(bound, of(rop.inputs[i]));
      if (const auto* pad = std::get_if<Pad>(&rop.attrs))
        bound.magnitude = std::max(bound.magnitude, std::abs(static_cast<double>(pad->value)));
      bound.elements = 0;
      return bound;
    }
    return {};
  }

  const Graph& graph_;
  WeightNormsCache& norms_;
  std::vector<std::optional<Bound>> tensors_, buffers_;
};

}  // namespace

const WeightNorms& WeightNormsCache::of(const Tensor& weights, int64_t rows, bool by_columns) {
  const std::lock_guard lock(mutex_);
  const auto [at, is_new] = norms_.try_emplace({weights.data.get(), by_columns});
  if (is_new) at->second = norms_of(weights, rows, by_columns);
  return at->second;
}

HalfUse half_use(const Graph& placed, WeightNormsCache& norms) {
  Bounds bounds(placed, norms);
  HalfUse use;
  for (const ROperator& rop : placed.rops) use.rops.push_back(bounds.may_compute(rop));
  for (size_t b = 0; b < placed.buffers.size(); ++b)
    use.buffers.push_back(placed.buffers[b].kind == BufferKind::arena && placed.buffers[b].dtype == DType::f32 && bounds.fits(b));
  // Takes away what something reads that does not round it.
  const auto may = [&](TensorId id) {
    const BufferId buffer = placed.tensor(id).place.buffer;
    return buffer.valid() && use.buffers[buffer.index()];
  };
  std::vector<bool> by_moments(placed.buffers.size(), false);  // rows that a product normalises itself
  for (const ROperator& rop : placed.rops) {
    const auto* const op = std::get_if<MomentMatMul>(&rop.attrs);
    if (op && op->normalize) by_moments[placed.tensor(rop.inputs[0]).place.buffer.index()] = true;
  }
  for (bool changes = true; changes;) {
    changes = false;
    for (size_t i = 0; i < placed.rops.size(); ++i) {
      const ROperator& rop = placed.rops[i];
      const std::vector<TensorId> rounded = rounded_operands(placed, rop);
      const bool beside = std::holds_alternative<Normalize>(rop.attrs) && may(rop.inputs[0]) && may(rop.outputs[0]) &&
                          by_moments[placed.tensor(rop.inputs[0]).place.buffer.index()];
      const bool carries = (moves(rop) && may(rop.outputs[0])) || beside;
      std::vector<TensorId> reads = reads_of(rop);
      if (carries) reads.clear();
      if (use.rops[i]) {
        for (const TensorId id : rounded) reads.erase(std::find(reads.begin(), reads.end(), id));
        const TensorId residual = residual_of(rop);
        if (residual.valid() && may(residual) && bounds.is_normalised(placed.tensor(residual).place.buffer.index()))
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

}  // namespace tamp::passes
