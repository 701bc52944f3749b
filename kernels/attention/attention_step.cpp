// Host side of attention_step.cuh. rTask t of the first phase is share t % shares of query t / shares % queries of batch t / shares /
// queries; a second phase puts shares together where a query has several.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "compiler/ir/cache_numbers.h"
#include "compiler/ir/fused.h"
#include "compiler/support/error.h"
#include "kernels/args.h"
#include "kernels/attention/numbers.cuh"
#include "kernels/family.h"
#include "kernels/loop.h"

namespace tamp::kernels {
namespace {

constexpr size_t kBatchRank = rk::kAttentionBatchRank;
// Keys are read once for each query, so that bodies with tiles of queries are better where there are many.
constexpr int64_t kMostQueries = 8;
// Places in the loop over batches; those from kQ on are the rOperator's inputs in their order. The last two are no rows, but whole numbers.
enum StepOperand : size_t { kOut, kQ, kK, kV, kBias, kPastK, kPastV, kCos, kSin, kQScale, kKScale, kLength, kPlace, kOperands };

// Of a step beside a cache of constant size (its operand kPlace): keys n < length + length_plus count, or all where kLength is left out;
// where none does, none_keeps of them; and a negative place counts from the end, or is outside.
struct StepNumbers {
  int64_t length_plus = 0, none_keeps = 0;
  bool place_wraps = false;
};

struct Step {
  std::array<TensorId, kOperands> tensors;  // none where an operand is left out
  Loop batch;                               // one stride per operand
  int64_t queries = 0, own = 0, past = 0, size = 0, values = 0;
  float epsilon = 0;  // of what normalises rows
  StepNumbers numbers;
  std::array<int64_t, kOperands> rows{}, columns{};  // strides; of the bias: of queries and of keys

  int64_t keys() const { return past + own; }
  int64_t all() const { return loop_elements(batch) * queries; }  // queries of all batches
  int64_t padded() const { return ceil_div(std::max(size, values), 32) * 32; }
  bool is_whole() const { return size == padded() && values == padded(); }
  bool turns() const { return tensors[kCos].valid(); }
  bool turns_by_halves(const Graph& graph) const { return turns() && graph.tensor(tensors[kCos]).shape.back() * 2 == size; }
  bool normalises() const { return tensors[kQScale].valid(); }
  bool is_placed() const { return tensors[kPlace].valid(); }
};

// Reads the steps of a Fused backwards: Attention of Concats of keys and values, or of Scatters of one row of each, the rows of Q and of
// the own keys normalised or not, and turned or not. `graph` has the values of constants.
class StepReader {
 public:
  StepReader(const Graph& graph, const FusedView& steps) : graph_(graph), steps_(steps) {}

  // None if it is something else.
  std::optional<std::array<TensorId, kOperands>> operands() {
    const ROperator& attention = steps_.step(steps_.count() - 1);
    if (!std::holds_alternative<Attention>(attention.attrs) || ends_at_length(attention.attrs) ||
        attention.inputs.size() > kAttentionRowTable)
      return std::nullopt;
    std::array<TensorId, kOperands> found;
    found[kOut] = outside(attention.outputs[0]);
    found[kBias] = outside(operand(attention, kAttentionBias));
    const TensorId q = normalised(turned(attention.inputs[0]), found[kQScale]),
                   k = normalised(turned(own_rows(attention.inputs[1], found[kPastK])), found[kKScale]);
    found[kV] = outside(own_rows(attention.inputs[2], found[kPastV]));
    found[kQ] = outside(q);
    found[kK] = outside(k);
    found[kCos] = outside(cos_);
    found[kSin] = outside(sin_);
    const bool all_turn = rotations_ == 0 || rotations_ == 2, alike = found[kQScale].valid() == found[kKScale].valid();
    const bool all = found[kQ].valid() && found[kK].valid() && found[kV].valid() && found[kPastK].valid() && found[kPastV].valid();
    if (!all || (!indices_.empty() && !read_numbers(attention, found))) return std::nullopt;
    return all_turn && alike && used_ == steps_.count() - 1 ? std::optional(found) : std::nullopt;
  }

  float epsilon() const { return epsilon_; }
  const StepNumbers& numbers() const { return numbers_; }

 private:
  TensorId outside(TensorId id) const { return steps_.outside(id); }

  // The step of operator Op that makes the tensor, or null. Each step is used once.
  template <class Op>
  const ROperator* made_by(TensorId id) {
    for (size_t i = 0; id.valid() && i < steps_.count(); ++i) {
      if (steps_.step(i).outputs[0] != id || !steps_.as<Op>(i)) continue;
      ++used_;
      return &steps_.step(i);
    }
    return nullptr;
  }
  // The second part of a Concat along the dimension so far from the end, and the first one.
  TensorId joined(TensorId id, size_t from_end, TensorId& first) {
    const ROperator* const concat = made_by<Concat>(id);
    const auto axis = static_cast<int64_t>(steps_.body().tensor(id).shape.size() - from_end);
    if (!concat || concat->inputs.size() != 2 || std::get<Concat>(concat->attrs).axis != axis) return TensorId();
    first = from_end == 1 ? concat->inputs[0] : outside(concat->inputs[0]);
    return concat->inputs[1];
  }
  // The step's own rows, and those before, of the Concat or Scatter of both.
  TensorId own_rows(TensorId id, TensorId& past) {
    const ROperator* const maker = steps_.maker_of(id);
    const auto* const scatter = maker ? std::get_if<Scatter>(&maker->attrs) : nullptr;
    if (!scatter) return joined(id, 2, past);
    Shape row = steps_.body().tensor(id).shape;
    const size_t axis = row.size() - 2;
    row[axis] = 1;
    if (scatter->kind != ScatterKind::none || scatter->axis != static_cast<int64_t>(axis) ||
        steps_.body().tensor(maker->inputs[2]).shape != row)
      return TensorId();
    ++used_;
    indices_.push_back(maker->inputs[1]);
    past = outside(maker->inputs[0]);
    return maker->inputs[2];
  }
  // Place and length of a step beside its cache.
  bool read_numbers(const ROperator& attention, std::array<TensorId, kOperands>& found) {
    const Makers makers = makers_of(graph_, steps_);
    const Shape& shape = steps_.body().tensor(attention.inputs[1]).shape;
    const int64_t keys = shape[shape.size() - 2];
    if (indices_.size() != 2) return false;
    const std::optional<Place> place = place_of(makers, indices_[0], keys), of_values = place_of(makers, indices_[1], keys);
    if (!place || !of_values || place->number != of_values->number || place->wraps != of_values->wraps) return false;
    numbers_.place_wraps = place->wraps;
    found[kPlace] = outside(place->number.tensor);
    std::vector<TensorId> made = indices_;
    if (const TensorId bias = operand(attention, kAttentionBias); bias.valid()) {
      const std::optional<PrefixMask> mask = prefix_mask_of(makers, bias, keys);
      if (!mask || !(mask->masked <= rk::kStepMasked)) return false;
      numbers_.length_plus = mask->length.plus;
      numbers_.none_keeps = std::isinf(mask->masked) ? 0 : keys;
      found[kLength] = outside(mask->length.tensor);
      if (!found[kLength].valid()) return false;
      made.push_back(bias);
    }
    used_ += makers_behind(makers, {}, made).size();
    return found[kPlace].valid() && numbers_.length_plus == static_cast<int32_t>(numbers_.length_plus);
  }
  const ROperator* chain(TensorId id, const std::vector<ElementwiseStep>& steps) {
    const ROperator* const rop = made_by<Elementwise>(id);
    return rop && std::get<Elementwise>(rop->attrs).steps == steps ? rop : nullptr;
  }
  bool is_half(TensorId id, TensorId x, int64_t number) {
    const ROperator* const rop = made_by<Slice>(id);
    Slice half = whole_slice(steps_.body().tensor(x).shape);
    half.extents.back() /= 2;
    half.starts.back() = number * half.extents.back();
    return rop && rop->inputs[0] == x && std::get<Slice>(rop->attrs) == half;
  }
  // x, if the tensor is x divided by its rows' root mean square, times a scale; else the tensor.
  TensorId normalised(TensorId id, TensorId& scale) {
    if (!id.valid() || outside(id).valid()) return id;
    const ROperator* const rop = made_by<Normalize>(id);
    if (!rop || rop->inputs.size() != 2 || !outside(rop->inputs[1]).valid()) return TensorId();
    const Normalize& op = std::get<Normalize>(rop->attrs);
    const Shape& shape = steps_.body().tensor(id).shape;
    const bool is_first = epsilon_ < 0;
    if (op.centered || op.axes != std::vector{static_cast<int64_t>(shape.size()) - 1} || (!is_first && op.epsilon != epsilon_))
      return TensorId();
    epsilon_ = op.epsilon;
    scale = outside(rop->inputs[1]);
    return rop->inputs[0];
  }
  // low and high, if the tensor is concat(low * cos - high * sin, low * sin + high * cos), which are the halves of what is returned.
  TensorId turned_by_halves(TensorId id) {
    TensorId first;
    const TensorId second = joined(id, 1, first);
    const std::vector<ElementwiseStep> lower = {{ElementwiseOp::mul, {0, 1}}, {ElementwiseOp::mul, {2, 3}}, {ElementwiseOp::sub, {-1, -2}}},
                                       upper = {{ElementwiseOp::mul, {0, 1}}, {ElementwiseOp::mul, {2, 3}}, {ElementwiseOp::add, {-1, -2}}};
    const ROperator *const low = chain(first, lower), *const high = chain(second, upper);
    if (!low || !high || low->inputs.size() != 4 || high->inputs.size() != 4) return TensorId();
    const TensorId half = low->inputs[0], other = low->inputs[2];
    if (high->inputs[0] != half || high->inputs[2] != other || high->inputs[1] != low->inputs[3] || high->inputs[3] != low->inputs[1])
      return TensorId();
    const auto slice_of = [&](TensorId part) {
      const ROperator* const rop = steps_.maker_of(part);
      return rop && std::holds_alternative<Slice>(rop->attrs) ? rop->inputs[0] : TensorId();
    };
    const TensorId x = slice_of(half);
    if (!x.valid() || !is_half(half, x, 0) || !is_half(other, x, 1)) return TensorId();
    return takes_factors(low->inputs[1], low->inputs[3]) ? x : TensorId();
  }
  bool takes_factors(TensorId cos, TensorId sin) {
    if (rotations_ > 0 && (cos_ != cos || sin_ != sin)) return false;
    ++rotations_;
    cos_ = cos;
    sin_ = sin;
    return true;
  }
  // x, if the tensor is x * cos + concat(-x[..,S/2:], x[..,:S/2]) * sin; else the tensor.
  TensorId turned(TensorId id) {
    if (!id.valid() || outside(id).valid()) return id;
    const ROperator* const maker = steps_.maker_of(id);
    if (maker && std::holds_alternative<Normalize>(maker->attrs)) return id;
    if (maker && std::holds_alternative<Concat>(maker->attrs)) return turned_by_halves(id);
    const ROperator* const sum = chain(id, {{ElementwiseOp::mul, {0, 1}}, {ElementwiseOp::mul, {2, 3}}, {ElementwiseOp::add, {-1, -2}}});
    if (!sum) return TensorId();
    const TensorId x = sum->inputs[0];
    TensorId negated;
    const TensorId low = joined(sum->inputs[2], 1, negated);
    const ROperator* const minus = chain(negated, {{ElementwiseOp::neg, {0}}});
    if (!minus || !is_half(low, x, 0) || !is_half(minus->inputs[0], x, 1)) return TensorId();
    return takes_factors(sum->inputs[1], sum->inputs[3]) ? x : TensorId();
  }

  const Graph& graph_;
  const FusedView& steps_;
  TensorId cos_, sin_;
  std::vector<TensorId> indices_;  // of Scatters
  StepNumbers numbers_;
  size_t used_ = 0, rotations_ = 0;
  float epsilon_ = -1;  // none yet
};

// The operands in their places, and what the steps in front of the attention say; none where there is no body for the rOperator. Windows of
// rows by a table are no keys one behind the other.
std::optional<Step> step_operands(const Graph& graph, const ROperator& rop) {
  Step step;
  if (const std::optional<FusedView> steps = FusedView::of(rop)) {
    StepReader reader(graph, *steps);
    const auto operands = reader.operands();
    if (!operands) return std::nullopt;
    step.tensors = *operands;
    step.epsilon = reader.epsilon();
    step.numbers = reader.numbers();
    return step;
  }
  const auto* const attention = std::get_if<Attention>(&rop.attrs);
  if (!attention || attention->rounding || ends_at_length(rop.attrs) || rop.inputs.size() > kAttentionRowTable) return std::nullopt;
  step.tensors[kOut] = rop.outputs[0];
  std::copy(rop.inputs.begin(), rop.inputs.end(), step.tensors.begin() + kQ);
  return step;
}

// What is known before tensors have places.
std::optional<Step> unplaced(const Graph& graph, const ROperator& rop) {
  std::optional<Step> found = step_operands(graph, rop);
  if (!found) return std::nullopt;
  Step& step = *found;
  const auto rows_of = [&](StepOperand operand) {
    const TensorId id = step.tensors[operand];
    return id.valid() ? graph.tensor(id).shape[graph.tensor(id).shape.size() - 2] : 0;
  };
  step.queries = rows_of(kQ);
  step.own = rows_of(kK);
  step.past = rows_of(kPastK);
  if (std::holds_alternative<Attention>(rop.attrs) && step.own > rk::kStepGroups) {  // in shares, like keys before
    step.tensors[kPastK] = step.tensors[kK];
    step.tensors[kPastV] = step.tensors[kV];
    step.past = std::exchange(step.own, 0);
  }
  step.size = graph.tensor(step.tensors[kQ]).shape.back();
  step.values = graph.tensor(step.tensors[kV]).shape.back();
  const Shape& out = graph.tensor(rop.outputs[0]).shape;
  for (size_t d = 0; d + 2 < out.size(); ++d) step.batch.push_back({out[d], std::vector<int64_t>(kOperands, 0)});
  if (step.turns() && (!step.is_whole() || step.padded() % 64 != 0)) return std::nullopt;
  if (step.queries > kMostQueries || step.all() == 0 || step.keys() == 0) return std::nullopt;
  if (step.size == 0 || step.values == 0 || step.padded() > rk::kAttentionLargestSize) return std::nullopt;
  if (step.normalises() && !are_f32_constants(graph, {step.tensors[kQScale], step.tensors[kKScale]})) return std::nullopt;
  return found;
}

// Whether rows are whole groups of four aligned elements.
bool is_of_vectors(const Graph& graph, const Step& step, StepOperand operand) {
  const TensorId id = step.tensors[operand];
  if (!id.valid()) return true;
  const Tensor& tensor = graph.tensor(id);
  if (step.columns[operand] != 1 || tensor.shape.back() % 4 != 0) return false;
  if (tensor.place.offset % 4 != 0 || step.rows[operand] % 4 != 0) return false;
  return std::all_of(step.batch.begin(), step.batch.end(), [&](const LoopDim& dim) { return dim.strides[operand] % 4 == 0; });
}

const char* lie_of(const Graph& graph, const Step& step) {
  for (const StepOperand operand : {kOut, kQ, kK, kV, kPastK, kPastV, kCos, kSin, kQScale, kKScale}) {
    if (!is_of_vectors(graph, step, operand)) return "rk::kElements";
  }
  return step.is_whole() ? "rk::kWholeVectors" : "rk::kVectors";
}

std::optional<Step> step_of(const Graph& graph, const ROperator& rop) {
  std::optional<Step> step = unplaced(graph, rop);
  if (!step) return std::nullopt;
  const Shape& out = graph.tensor(rop.outputs[0]).shape;
  for (size_t operand = 0; operand < kLength; ++operand) {
    const TensorId id = step->tensors[operand];
    if (!id.valid()) continue;
    const Tensor& tensor = graph.tensor(id);
    Shape shape(out.begin(), out.end() - 2);
    if (operand == kBias)
      shape.insert(shape.end(), {step->queries, step->keys()});
    else if (operand == kCos || operand == kSin || operand == kQScale || operand == kKScale)
      shape.insert(shape.end(), {step->queries, tensor.shape.back()});
    else
      shape.insert(shape.end(), tensor.shape.end() - 2, tensor.shape.end());
    const std::vector<int64_t> strides = broadcast_strides(tensor, shape);
    for (size_t d = 0; d + 2 < strides.size(); ++d) step->batch[d].strides[operand] = strides[d];
    step->rows[operand] = strides[strides.size() - 2];
    step->columns[operand] = strides.back();
  }
  step->batch = normalised(step->batch);
  if (step->batch.size() > kBatchRank) return std::nullopt;
  return step;
}

DType type_of(const Graph& graph, const Step& step, StepOperand operand) {
  return step.tensors[operand].valid() ? graph.tensor(step.tensors[operand]).dtype : DType::f32;
}

// Whether the types are those that the body takes.
bool has_types(const Graph& graph, const ROperator& rop, const Step& step) {
  for (size_t operand = kQ; operand < kOperands; ++operand) {
    const TensorId id = step.tensors[operand];
    if (id.valid() && (operand < kLength ? !is_plain_values(graph.tensor(id)) : graph.tensor(id).dtype != DType::i64)) return false;
  }
  const auto type = [&](StepOperand operand) { return type_of(graph, step, operand); };
  const bool own = type(kQ) == type(kK) && type(kQ) == type(kV), past = type(kPastK) == type(kPastV), turn = type(kCos) == type(kSin);
  return own && past && turn && is_plain_values(graph.tensor(rop.outputs[0]));
}

// Keys before in a share, whole turns of the body.
int64_t keys_of_share(const Step& step, int64_t shares) { return ceil_div(step.past, shares * rk::kStepGroups) * rk::kStepGroups; }

std::vector<Arg> arguments_of(const Request& request, const Step& step, int64_t shares) {
  const auto tensor = [&](StepOperand operand) { return tensor_arg(step.tensors[operand]); };
  const auto batch = [&](StepOperand operand) { return array_arg(strides(step.batch, operand), kBatchRank); };
  const std::optional<FusedView> steps = FusedView::of(request.rop);
  const Attention& attention = steps ? *steps->as<Attention>(steps->count() - 1) : std::get<Attention>(request.rop.attrs);
  const auto in_words = [&](StepOperand operand, int bit) { return ArgValue{WordsArg{step.tensors[operand], bit}}; };
  return {{"out_words", ArgValue{WordsArg{step.tensors[kOut], rk::kStepOutBit, /*else_null=*/true}}},
          {"out", tensor(kOut)},
          {"q", in_words(kQ, rk::kStepQBit)},
          {"k", in_words(kK, rk::kStepKBit)},
          {"v", in_words(kV, rk::kStepVBit)},
          {"past_k", tensor(kPastK)},
          {"past_v", tensor(kPastV)},
          {"bias", tensor(kBias)},
          {"cos", tensor(kCos)},
          {"sin", tensor(kSin)},
          {"q_scale", tensor(kQScale)},
          {"k_scale", tensor(kKScale)},
          {"length", tensor(kLength)},
          {"place", tensor(kPlace)},
          {"shares", shares > 1 ? ArgValue{ScratchArg{0}} : null_arg()},
          {"out_batch", batch(kOut)},
          {"q_batch", batch(kQ)},
          {"k_batch", batch(kK)},
          {"v_batch", batch(kV)},
          {"past_k_batch", batch(kPastK)},
          {"past_v_batch", batch(kPastV)},
          {"bias_batch", batch(kBias)},
          {"cos_batch", batch(kCos)},
          {"sin_batch", batch(kSin)},
          {"batch_divisors", divisors_arg(inner_extents(step.batch), kBatchRank - 1)},
          {"batch_rank", arg(static_cast<int64_t>(step.batch.size()))},
          {"queries", divisor_arg(step.queries)},
          {"share_count", divisor_arg(shares)},
          {"shares_of_query", arg(shares)},
          {"past", arg(step.past)},
          {"own", arg(step.own)},
          {"per_share", arg(keys_of_share(step, shares))},
          {"size", arg(step.size)},
          {"values", arg(step.values)},
          {"out_m", arg(step.rows[kOut])},
          {"q_m", arg(step.rows[kQ])},
          {"k_n", arg(step.rows[kK])},
          {"v_n", arg(step.rows[kV])},
          {"past_k_n", arg(step.rows[kPastK])},
          {"past_v_n", arg(step.rows[kPastV])},
          {"bias_m", arg(step.rows[kBias])},
          {"cos_m", arg(step.rows[kCos])},
          {"sin_m", arg(step.rows[kSin])},
          {"out_n", arg(step.columns[kOut])},
          {"q_k", arg(step.columns[kQ])},
          {"k_k", arg(step.columns[kK])},
          {"v_columns", arg(step.columns[kV])},
          {"past_k_k", arg(step.columns[kPastK])},
          {"past_v_columns", arg(step.columns[kPastV])},
          {"bias_n", arg(step.columns[kBias])},
          {"cos_k", arg(step.columns[kCos])},
          {"sin_k", arg(step.columns[kSin])},
          {"scale", float_arg(attention.scale)},
          {"weightless", arg(static_cast<int64_t>(attention.weightless))},
          {"inverse_size", float_arg(1.0F / static_cast<float>(step.size))},
          {"epsilon", float_arg(step.epsilon)},
          {"length_plus", arg(step.numbers.length_plus)},
          {"none_keeps", arg(step.numbers.none_keeps)},
          {"place_wraps", arg(static_cast<int64_t>(step.numbers.place_wraps))}};
}

// Most keys of a stage: more are no faster, and each is read where it is needed once.
constexpr int64_t kMostStaged = 128;

// Keys of a stage: as many as let the two stages have the keys of a share, if they fit. 0: rows are no whole cells of 16 bytes.
int64_t staged_keys(const Graph& graph, const ShapedVDevice& d, const Step& step, int64_t share, int64_t own_rows) {
  const int64_t size = step.padded(), bytes = bytes_of(type_of(graph, step, kPastK)), cell = 16 / bytes;
  const auto is_of_cells = [&](StepOperand operand) {
    if (!step.tensors[operand].valid()) return true;
    if (step.columns[operand] != 1 || step.rows[operand] % cell != 0) return false;
    return graph.tensor(step.tensors[operand]).place.offset % cell == 0 &&
           std::all_of(step.batch.begin(), step.batch.end(), [&](const LoopDim& dim) { return dim.strides[operand] % cell == 0; });
  };
  if (lie_of(graph, step) != std::string("rk::kWholeVectors") || !is_of_cells(kPastK) || !is_of_cells(kPastV)) return 0;
  const int64_t wanted = std::min(kMostStaged, ceil_div(share, 2 * rk::kStepGroups) * rk::kStepGroups);
  for (int64_t staged = wanted; staged > 0; staged -= rk::kStepGroups) {
    const int needed = rk::attention_step_work_bytes(static_cast<int>(size), step.normalises(), static_cast<int>(own_rows),
                                                     static_cast<int>(staged), static_cast<int>(bytes));
    if (needed <= d.work_beside_inputs()) return staged;
  }
  return 0;
}

// Cycles of a rTask of the first phase. Keys before that are in the first two stages are there when the rTask's inputs are; further ones
// come at L2's pace. `key_bytes`: of a key before and its value.
double cycles_of(const Step& step, const ShapedVDevice& d, int64_t shares, int64_t key_bytes) {
  const int64_t keys = step.past == 0 ? 0 : keys_of_share(step, shares);
  const int64_t early = d.work_beside_inputs() / (key_bytes * rk::kStepGroups) * rk::kStepGroups, late = std::max<int64_t>(0, keys - early);
  const int64_t more_turns = std::max<int64_t>(ceil_div(step.own, rk::kStepGroups) - 1, 0);
  return d.cost("attention_step.fixed_cycles") + static_cast<double>(more_turns) * d.cost("attention_step.turn_cycles") +
         static_cast<double>(late * key_bytes) * d.cost("attention_step.byte_cycles");
}

// Template arguments for types other than f32.
void append_types(const Graph& graph, const Step& step, Phase& phase) {
  const std::array<std::pair<const char*, StepOperand>, 5> types = {
      {{"In", kQ}, {"Past", kPastK}, {"Out", kOut}, {"Turn", kCos}, {"Bias", kBias}}};
  size_t last = types.size();
  while (last > 0 && !is_narrow(type_of(graph, step, types[last - 1].second))) --last;
  for (size_t i = 0; i < last; ++i) phase.template_args.emplace_back(types[i].first, value_type(type_of(graph, step, types[i].second)));
}

// Whether the caller gives the operand, or it is a constant.
bool is_given_by_caller(const Graph& graph, const Step& step, StepOperand operand) {
  if (!step.tensors[operand].valid()) return false;
  const BufferKind kind = graph.buffers[graph.tensor(step.tensors[operand]).place.buffer.index()].kind;
  return kind == BufferKind::input || kind == BufferKind::constant;
}

// Whether the body looks through the mask before it reads keys: of a cache that the program writes, with many of them.
constexpr int64_t kManyKeys = 128;
bool reads_by_mask(const Graph& graph, const Step& step) {
  return step.tensors[kBias].valid() && step.own == 0 && step.past > kManyKeys &&
         !(is_given_by_caller(graph, step, kPastK) && is_given_by_caller(graph, step, kPastV));
}

// How the rows of Q and of the own keys are made.
int rows_of(const Graph& graph, const Step& step) {
  const int turned = !step.turns() ? 0 : step.turns_by_halves(graph) ? rk::kStepTurnedHalves : rk::kStepTurned;
  return turned | (step.normalises() ? rk::kStepNormalised : 0);
}

Phase phase_of(const Request& request, const Step& step, int64_t shares) {
  const int64_t size = step.padded(), share = step.past == 0 ? 0 : keys_of_share(step, shares);
  const auto is_given = [&](StepOperand operand) { return is_given_by_caller(request.graph, step, operand); };
  const auto flag = [](bool value) { return std::string(value ? "true" : "false"); };
  const bool is_masked = reads_by_mask(request.graph, step);
  const char* const body = step.is_placed() ? "rk::attention_step_placed" : is_masked ? "rk::attention_step_masked" : "rk::attention_step";
  const auto comes_early = [&](StepOperand operand) { return !step.tensors[operand].valid() || is_given(operand); };
  // What says which keys to read, and they.
  const bool has_keys = is_given(kPastK) && is_given(kPastV) && comes_early(kLength) && comes_early(kPlace);
  const bool awaits_words = lie_of(request.graph, step) != std::string("rk::kElements") && step.own <= rk::kStepRowsInWords && has_keys &&
                            comes_early(kBias) && comes_early(kCos) && comes_early(kSin);
  const int64_t own_rows = awaits_words ? 1 + 2 * step.own : 0, key_bytes = bytes_of(type_of(request.graph, step, kPastK));
  const int64_t staged = staged_keys(request.graph, request.vdevice, step, share, own_rows);
  Phase phase = early_phase("kernels/attention/attention_step.cuh", body, "rk::AttentionStepArgs");
  phase.template_args = {
      {"kSize", std::to_string(size)}, {"kLie", lie_of(request.graph, step)}, {"kRows", std::to_string(rows_of(request.graph, step))},
      {"kEarly", flag(has_keys)},      {"kStaged", std::to_string(staged)},   {"WORDS", "0"}};
  const auto words = [&](StepOperand operand, int bit, const char* name) {
    return words_use(request.graph, step.tensors[operand], bit, name);
  };
  phase.awaits_all_or_none = true;
  if (awaits_words) {
    phase.may_await = {words(kQ, rk::kStepQBit, "rk::kStepQWords"), words(kK, rk::kStepKBit, "rk::kStepKWords"),
                       words(kV, rk::kStepVBit, "rk::kStepVWords")};
  }
  if (shares == 1) phase.may_publish = {words(kOut, rk::kStepOutBit, "rk::kStepOutWords")};
  append_types(request.graph, step, phase);
  phase.args = arguments_of(request, step, shares);
  phase.rtasks = step.all() * shares;
  phase.work_bytes = rk::attention_step_work_bytes(static_cast<int>(size), step.normalises(), static_cast<int>(own_rows),
                                                   static_cast<int>(staged), static_cast<int>(key_bytes));
  const auto bytes = [&](StepOperand operand, int64_t elements) {
    return static_cast<double>(elements * bytes_of(type_of(request.graph, step, operand)));
  };
  const int64_t of_key = step.size + step.values;
  phase.cost.flops = 2 * static_cast<double>((share + step.own) * of_key);
  phase.cost.activation_bytes = bytes(kPastK, share * of_key) + bytes(kQ, step.own * of_key + step.size) + bytes(kOut, step.values);
  phase.cost.early_us = request.vdevice.cost("attention_step.early_us");
  phase.cost.calibrated_cycles = cycles_of(step, request.vdevice, shares, of_key * bytes_of(type_of(request.graph, step, kPastK)));
  return phase;
}

Phase sum_phase(const Request& request, const Step& step, int64_t shares) {
  const int64_t size = step.padded();
  Phase phase = early_phase("kernels/attention/attention_step.cuh", "rk::attention_step_sum", "rk::AttentionStepArgs");
  phase.template_args = {{"kSize", std::to_string(size)}, {"WORDS", "0"}};
  phase.may_publish = {words_use(request.graph, step.tensors[kOut], rk::kStepOutBit, "rk::kStepOutWords")};
  if (is_narrow(type_of(request.graph, step, kOut)))
    phase.template_args.emplace_back("Out", value_type(type_of(request.graph, step, kOut)));
  phase.args = arguments_of(request, step, shares);
  phase.rtasks = step.all();
  phase.cost.activation_bytes = static_cast<double>(shares * rk::attention_step_words(static_cast<int>(size)) * 4);
  phase.cost.calibrated_cycles = request.vdevice.cost("attention_step.sum_cycles");
  return phase;
}

RKernel rkernel_of(const Request& request, const Step& step, int64_t shares) {
  const std::string name = fmt::format("attention_step<{}{}{}{}>", step.padded(), step.normalises() ? ", normalised" : "",
                                       step.turns() ? ", turned" : "", shares > 1 ? fmt::format(", {} shares", shares) : "");
  RKernel rkernel = one_phase(name, {{"shares", shares}}, phase_of(request, step, shares));
  if (shares > 1) {
    rkernel.phases.push_back(sum_phase(request, step, shares));
    rkernel.scratch_elements = rkernel.phases[0].rtasks * rk::attention_step_words(static_cast<int>(step.padded()));
  }
  return rkernel;
}

// Numbers of shares: one, and as many as give all vEUs a rTask. Each number has no empty share.
std::vector<int64_t> share_counts(const Step& step, const ShapedVDevice& d) {
  const int64_t most = std::min(ceil_div(step.past, rk::kStepGroups), d.veus() / std::max<int64_t>(1, step.all()));
  if (most < 2) return {1};
  return {1, ceil_div(step.past, keys_of_share(step, most))};
}

std::vector<RKernel> offers(const Request& request) {
  if (has_epilogue(request.rop)) return {};
  const std::optional<Step> step = step_of(request.graph, request.rop);
  if (!step || !has_types(request.graph, request.rop, *step)) return {};
  std::vector<RKernel> rkernels;
  for (const int64_t shares : share_counts(*step, request.vdevice)) rkernels.push_back(rkernel_of(request, *step, shares));
  return rkernels;
}

void accesses(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int phase, int64_t index, Accesses& out) {
  const Step step = known(step_of(graph, rop), "attention_step", rop);
  const int64_t shares = rkernel.config_value("shares"), words = rk::attention_step_words(static_cast<int>(step.padded()));
  const int64_t query = phase == 0 ? index / shares : index, share = index % shares;
  const int64_t batch = query / step.queries, m = query % step.queries;
  const auto append = [&](StepOperand operand, int64_t row, int64_t row_end, int64_t column_end, std::vector<Region>& regions) {
    const MatrixStrides strides{step.rows[operand], step.columns[operand]};
    const MatrixPart part{row, row_end, 0, column_end};
    if (row < row_end) append_matrix(graph, step.tensors[operand], step.batch, operand, strides, batch, part, regions);
  };
  if (phase == 1) {
    out.reads.push_back({TensorId(), {index * shares * words, shares, words, step.padded() + 2}});
    append(kOut, m, m + 1, step.values, out.writes);
    return;
  }
  const bool any = step.is_placed() || reads_by_mask(graph, step);  // the keys of a share depend on the length or the mask
  const int64_t per_share = keys_of_share(step, shares), begin = any ? 0 : share * per_share;
  const int64_t end = any ? step.past : std::min(begin + per_share, step.past);
  append(kPastK, begin, end, step.size, out.reads);
  append(kPastV, begin, end, step.values, out.reads);
  append(kQ, m, m + 1, step.size, out.reads);
  // Only the last share uses them, but all shares await them where they come as words.
  append(kK, 0, step.own, step.size, out.reads);
  append(kV, 0, step.own, step.values, out.reads);
  append(kBias, m, m + 1, step.keys(), out.reads);
  const int64_t factors = step.turns_by_halves(graph) ? step.size / 2 : step.size;
  append(kCos, 0, step.queries, factors, out.reads);
  append(kSin, 0, step.queries, factors, out.reads);
  append(kQScale, 0, 1, step.size, out.reads);
  append(kKScale, 0, 1, step.size, out.reads);
  for (const StepOperand number : {kLength, kPlace}) {
    if (step.tensors[number].valid()) append_whole(graph, step.tensors[number], out.reads);
  }
  if (shares == 1)
    append(kOut, m, m + 1, step.values, out.writes);
  else
    out.writes.push_back({TensorId(), {index * words, 1, 0, step.padded() + 2}});
}

// The whole rOperator before tensors have places.
std::optional<Estimate> estimate_unplaced(const Request& request) {
  const ShapedVDevice& d = request.vdevice;
  const std::optional<Step> step = unplaced(request.graph, request.rop);
  if (!step || step->batch.size() > kBatchRank) return std::nullopt;  // places may let more dimensions be one, or may not
  std::optional<Estimate> least;
  for (const int64_t shares : share_counts(*step, d)) {
    const double rounds = static_cast<double>(ceil_div(step->all() * shares, d.veus()));
    const double cycles = rounds * cycles_of(*step, d, shares, (step->size + step->values) * bytes_of(DType::f32)) +
                          (shares > 1 ? d.cost("attention_step.sum_cycles") : 0);
    const double us = d.edge_us * (shares > 1 ? 2 : 1) + cycles / (d.clock_ghz * 1e3);
    if (!least || us < least->us) least = Estimate{us};
  }
  return least;
}

}  // namespace

Family attention_step() { return {"attention_step", offers, no_pack, accesses, estimate_unplaced}; }

}  // namespace tamp::kernels
