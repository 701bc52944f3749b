#include "compiler/ir/cache_numbers.h"

#include <algorithm>
#include <utility>

#include "compiler/ir/products.h"

namespace tamp {
namespace {

// The only step of an Elementwise without an epilogue; else null.
const ElementwiseStep* only_step(const ROperator* rop) { return rop && !has_epilogue(*rop) ? single_step(*rop) : nullptr; }

// The other way round: a < b is b > a.
ElementwiseOp turned_round(ElementwiseOp op) {
  switch (op) {
    case ElementwiseOp::less: return ElementwiseOp::greater;
    case ElementwiseOp::less_equal: return ElementwiseOp::greater_equal;
    case ElementwiseOp::greater: return ElementwiseOp::less;
    case ElementwiseOp::greater_equal: return ElementwiseOp::less_equal;
    default: return op;
  }
}

// Keys n < bound, or all others.
struct Side {
  Number bound;
  bool is_prefix = true;
};

class Reader {
 public:
  Reader(const Makers& makers, int64_t extent) : makers_(makers), extent_(extent) {}

  std::optional<Number> number(TensorId id) const {
    if (!is_single(id) || tensor(id).role == Role::constant) return std::nullopt;
    Number found{id, id};
    bool is_cast = false;
    for (const ROperator* maker = makers_.maker_of(id); maker; maker = makers_.maker_of(found.root)) {
      const std::optional<std::pair<TensorId, int64_t>> sum = is_cast ? std::nullopt : sum_of(*maker);
      const bool casts =
          is_step(maker, ElementwiseOp::cast) && tensor(found.root).dtype == DType::i64 && tensor(maker->inputs[0]).dtype == DType::i32;
      const TensorId next = sum ? sum->first : casts || is_view(*maker) ? maker->inputs[0] : TensorId();
      if (!next.valid() || !is_single(next) || tensor(next).role == Role::constant) break;
      found.root = next;
      found.plus += sum ? sum->second : 0;
      is_cast = is_cast || casts;
      if (!is_cast) found.tensor = next;
    }
    return tensor(found.tensor).dtype == DType::i64 ? std::optional(found) : std::nullopt;
  }

  std::optional<Place> place(TensorId index) const {
    TensorId id = index;
    const ROperator* maker = makers_.maker_of(id);
    for (; maker && is_view(*maker) && is_single(maker->inputs[0]); maker = makers_.maker_of(id)) id = maker->inputs[0];
    Place found;
    if (is_step(maker, ElementwiseOp::where)) {
      const ROperator* const is_outside = makers_.maker_of(maker->inputs[0]);
      const std::optional<int64_t> outside = constant(maker->inputs[1]);
      const std::optional<Number> number = this->number(maker->inputs[2]);
      if (!is_step(is_outside, ElementwiseOp::less) || constant(is_outside->inputs[1]) != 0 || outside != extent_ || !number ||
          this->number(is_outside->inputs[0]) != number)
        return std::nullopt;
      found = {*number, false};
    } else {
      const std::optional<Number> number = this->number(index);
      if (!number) return std::nullopt;
      found = {*number, true};
    }
    return found.number.plus == 0 ? std::optional(found) : std::nullopt;
  }

  std::optional<PrefixMask> prefix_mask(TensorId bias) const {
    const ROperator* const where = maker_behind_views(bias);
    if (!is_step(where, ElementwiseOp::where)) return std::nullopt;
    const std::optional<Side> side = this->side(where->inputs[0]);
    const std::optional<float> first = factor(where->inputs[1]), second = factor(where->inputs[2]);
    if (!side || !first || !second) return std::nullopt;
    const auto [kept, masked] = side->is_prefix ? std::pair(*first, *second) : std::pair(*second, *first);
    return kept == 0 ? std::optional(PrefixMask{side->bound, masked}) : std::nullopt;
  }

 private:
  const Tensor& tensor(TensorId id) const { return makers_.tensor(id); }
  bool is_single(TensorId id) const { return element_count(tensor(id).shape) == 1; }

  // Whether the result has its operand's values, in another shape or another order.
  bool is_view(const ROperator& rop) const {
    if (std::holds_alternative<Reshape>(rop.attrs) || std::holds_alternative<Transpose>(rop.attrs)) return true;
    if (const auto* const slice = std::get_if<Slice>(&rop.attrs)) {  // of all, and not from the end
      const bool keeps_order = std::all_of(slice->steps.begin(), slice->steps.end(), [](int64_t step) { return step == 1; });
      return keeps_order && element_count(tensor(rop.inputs[0]).shape) == element_count(tensor(rop.outputs[0]).shape);
    }
    return is_step(&rop, ElementwiseOp::identity) && tensor(rop.inputs[0]).dtype == tensor(rop.outputs[0]).dtype;
  }
  bool is_step(const ROperator* rop, ElementwiseOp op) const {
    const ElementwiseStep* const step = only_step(rop);
    return step && step->op == op;
  }

  // The operand and the constant of a sum of both.
  std::optional<std::pair<TensorId, int64_t>> sum_of(const ROperator& rop) const {
    const bool adds = is_step(&rop, ElementwiseOp::add);
    if (!adds && !is_step(&rop, ElementwiseOp::sub)) return std::nullopt;
    if (const std::optional<int64_t> second = constant(rop.inputs[1])) return std::pair(rop.inputs[0], adds ? *second : -*second);
    const std::optional<int64_t> first = adds ? constant(rop.inputs[0]) : std::nullopt;
    return first ? std::optional(std::pair(rop.inputs[1], *first)) : std::nullopt;
  }

  // The only value of a constant.
  std::optional<int64_t> constant(TensorId id) const {
    const Tensor& found = tensor(id);
    if (found.role != Role::constant || found.dtype != DType::i64 || !is_single(id)) return std::nullopt;
    return i64_data(found)[0];
  }
  std::optional<float> factor(TensorId id) const {
    const Tensor& found = tensor(id);
    if (found.role != Role::constant || found.dtype != DType::f32 || !is_single(id)) return std::nullopt;
    return f32_data(found)[0];
  }

  // Through views whose last dimension is that of the keys, as in the operand.
  TensorId behind_views(TensorId id) const {
    const ROperator* maker = makers_.maker_of(id);
    while (is_of_keys(id) && maker && is_view(*maker) && is_of_keys(maker->inputs[0])) {
      const auto* const transpose = std::get_if<Transpose>(&maker->attrs);
      if (transpose && transpose->perm.back() + 1 != static_cast<int64_t>(transpose->perm.size())) break;
      id = maker->inputs[0];
      maker = makers_.maker_of(id);
    }
    return id;
  }
  const ROperator* maker_behind_views(TensorId id) const { return is_of_keys(id) ? makers_.maker_of(behind_views(id)) : nullptr; }
  bool is_of_keys(TensorId id) const { return !tensor(id).shape.empty() && tensor(id).shape.back() == extent_; }

  // Whether it is the constant 0, 1, .. along the keys.
  bool counts_keys(TensorId id) const {
    const TensorId source = behind_views(id);
    const Tensor& found = tensor(source);
    if (found.role != Role::constant || found.dtype != DType::i64 || !is_of_keys(source) || element_count(found.shape) != extent_)
      return false;
    const int64_t* const values = i64_data(found);
    for (int64_t n = 0; n < extent_; ++n) {
      if (values[n] != n) return false;
    }
    return true;
  }

  std::optional<Side> side(TensorId id) const {
    const ROperator* const maker = maker_behind_views(id);
    const ElementwiseStep* const step = only_step(maker);
    if (!step) return std::nullopt;
    switch (step->op) {
      case ElementwiseOp::logical_not: {
        std::optional<Side> found = side(maker->inputs[0]);
        if (found) found->is_prefix = !found->is_prefix;
        return found;
      }
      case ElementwiseOp::logical_and: return joined(*maker, /*prefixes=*/true);
      case ElementwiseOp::logical_or: return joined(*maker, /*prefixes=*/false);
      case ElementwiseOp::less:
      case ElementwiseOp::less_equal:
      case ElementwiseOp::greater:
      case ElementwiseOp::greater_equal: return compared(*maker, step->op);
      default: return std::nullopt;
    }
  }
  // Keys below two bounds, or keys that are not: the lower bound of one number. is_causal says so of the one query that there is: n <
  // length, and n <= length - 1.
  std::optional<Side> joined(const ROperator& rop, bool prefixes) const {
    std::optional<Side> first = side(rop.inputs[0]);
    const std::optional<Side> second = side(rop.inputs[1]);
    if (!first || !second || first->is_prefix != prefixes || second->is_prefix != prefixes || !first->bound.is_like(second->bound))
      return std::nullopt;
    first->bound.plus = std::min(first->bound.plus, second->bound.plus);
    return first;
  }
  std::optional<Side> compared(const ROperator& rop, ElementwiseOp op) const {
    const bool is_first = counts_keys(rop.inputs[0]);
    if (!is_first && !counts_keys(rop.inputs[1])) return std::nullopt;
    if (!is_first) op = turned_round(op);
    std::optional<Number> bound = number(rop.inputs[is_first ? 1 : 0]);
    if (!bound) return std::nullopt;
    if (op == ElementwiseOp::less_equal || op == ElementwiseOp::greater) ++bound->plus;
    return Side{*bound, op == ElementwiseOp::less || op == ElementwiseOp::less_equal};
  }

  const Makers& makers_;
  const int64_t extent_;  // of the cache
};

void append_makers(const Makers& makers, const std::vector<TensorId>& given, TensorId id, std::vector<const ROperator*>& found) {
  const ROperator* const maker = makers.maker_of(id);
  if (!maker || std::find(given.begin(), given.end(), id) != given.end() || std::find(found.begin(), found.end(), maker) != found.end())
    return;
  for (const TensorId read : reads_of(*maker)) append_makers(makers, given, read, found);
  found.push_back(maker);
}

}  // namespace

Makers makers_of(const Graph& graph, const Uses& uses) {
  const auto maker_of = [&](TensorId id) -> const ROperator* {
    const ROperatorId made = id.index() < uses.producer.size() ? uses.producer[id.index()] : ROperatorId();
    return made.valid() ? &graph.rop(made) : nullptr;
  };
  return {maker_of, [&](TensorId id) -> const Tensor& { return graph.tensor(id); }};
}

Makers makers_of(const Graph& graph, const FusedView& steps) {
  const auto tensor = [&](TensorId id) -> const Tensor& {
    const TensorId outside = steps.maker_of(id) ? TensorId() : steps.outside(id);
    return outside.valid() ? graph.tensor(outside) : steps.body().tensor(id);
  };
  return {[&](TensorId id) { return steps.maker_of(id); }, tensor};
}

Makers placed_makers_of(const Graph& graph) {
  const auto maker_of = [&](TensorId id) -> const ROperator* {
    const Tensor& wanted = graph.tensor(id);
    const bool is_single = element_count(wanted.shape) == 1;
    for (const ROperator& rop : graph.rops) {
      for (const TensorId made : rop.outputs) {
        const Tensor& tensor = graph.tensor(made);
        const bool is_here = is_single && element_count(tensor.shape) == 1 && tensor.dtype == wanted.dtype &&
                             tensor.place.buffer == wanted.place.buffer && tensor.place.offset == wanted.place.offset;
        if (made == id || is_here) return &rop;
      }
    }
    return nullptr;
  };
  return {maker_of, [&](TensorId id) -> const Tensor& { return graph.tensor(id); }};
}

std::optional<Number> number_of(const Makers& makers, TensorId id) { return Reader(makers, 0).number(id); }

std::optional<Place> place_of(const Makers& makers, TensorId index, int64_t extent) { return Reader(makers, extent).place(index); }

std::optional<PrefixMask> prefix_mask_of(const Makers& makers, TensorId bias, int64_t keys) {
  return Reader(makers, keys).prefix_mask(bias);
}

std::vector<const ROperator*> makers_behind(const Makers& makers, const std::vector<TensorId>& given,
                                            const std::vector<TensorId>& targets) {
  std::vector<const ROperator*> found;
  for (const TensorId id : targets) append_makers(makers, given, id, found);
  return found;
}

}  // namespace tamp
