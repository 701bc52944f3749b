#include "compiler/passes/recognise/step_attention.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "compiler/ir/cache_numbers.h"
#include "compiler/ir/fused.h"
#include "compiler/passes/rewrite.h"

namespace tamp::passes {
namespace {

// The two operands of a Concat, or views of them. Or those of a Scatter that puts one row into a cache, at `index`.
struct KeyParts {
  TensorId past, own;
  TensorId index{};
};

// What is known of a step beside its cache: at which place its row belongs there, and how many keys count (none: all), as numbers that the
// caller gives; and the rOperators that make the Scatter's index and the attention's mask of them.
struct Beside {
  TensorId place, length;
  std::vector<ROperator> steps;
};

// x, where a tensor is x * cos + concat(-x[..,S/2:], x[..,:S/2]) * sin. With `by_halves` cos and sin have S/2 columns, and the tensor is
// concat(low * cos - high * sin, low * sin + high * cos) of the halves of x.
struct Rotation {
  TensorId x, cos, sin;
  bool by_halves = false;
};

// x, where a tensor is x with rows divided by their root mean square, times a scale.
struct RowNorm {
  TensorId x, scale;
  Normalize op;
};

bool repeats(const ROperator& rop) {
  const ElementwiseStep* const step = single_step(rop);
  return step && step->op == ElementwiseOp::identity && rop.inputs.size() == 1;
}

class StepMaker {
 public:
  StepMaker(Graph graph, const Estimator& estimator) : graph_(std::move(graph)), estimator_(estimator), uses_(uses_of(graph_)) {}

  Graph run() {
    std::vector<ROperator> rops;
    for (const ROperator& rop : graph_.rops) {
      std::optional<ROperator> step = step_of(rop);
      for (ROperator& view : made_) rops.push_back(std::move(view));
      rops.push_back(step ? *std::move(step) : rop);
      made_.clear();
    }
    graph_.rops = std::move(rops);
    return remove_dead(std::move(graph_));
  }

 private:
  // A view and its tensor, which are forgotten if the step is not made.
  TensorId add(const ROperator& view, TensorId from, const std::string& name, const Shape& shape) {
    return append_view(graph_, made_, graph_.tensor(view.outputs[0]).name + name, view.attrs, from, shape, view.origin);
  }

  // The parts of the tensor along dimension `axis`, seen through the views between it and the Concat or Scatter.
  std::optional<KeyParts> parts_of(TensorId id, size_t axis, const std::string& name) {
    const ROperator* const maker = maker_of(graph_, uses_, id);
    if (!maker || graph_.tensor(id).dtype != DType::f32) return std::nullopt;
    if (const auto* concat = std::get_if<Concat>(&maker->attrs)) {
      if (static_cast<size_t>(concat->axis) != axis || maker->inputs.size() != 2) return std::nullopt;
      return KeyParts{maker->inputs[0], maker->inputs[1]};
    }
    if (const auto* scatter = std::get_if<Scatter>(&maker->attrs)) {
      Shape row = graph_.tensor(id).shape;
      row[axis] = 1;
      if (scatter->kind != ScatterKind::none || static_cast<size_t>(scatter->axis) != axis || graph_.tensor(maker->inputs[2]).shape != row)
        return std::nullopt;
      return KeyParts{maker->inputs[0], maker->inputs[2], maker->inputs[1]};
    }
    const std::optional<size_t> before = axis_before(*maker, axis);
    if (!before) return std::nullopt;
    const ROperator view = *maker;  // parts_of adds to the graph
    const std::optional<KeyParts> parts = parts_of(view.inputs[0], *before, name);
    if (!parts) return std::nullopt;
    // A copy that repeats the cache would read it beside the Scatter, which could not stay in place.
    if (parts->index.valid() && repeats(view) && graph_.tensor(view.inputs[0]).shape != graph_.tensor(view.outputs[0]).shape)
      return std::nullopt;
    return KeyParts{view_of(view, parts->past, *before, axis, name + ".past"), view_of(view, parts->own, *before, axis, name + ".own"),
                    parts->index};
  }

  // Which dimension of a view's operand is dimension `axis` of its result; none if it is no such dimension, or no view.
  std::optional<size_t> axis_before(const ROperator& view, size_t axis) const {
    const Shape &from = graph_.tensor(view.inputs[0]).shape, &to = graph_.tensor(view.outputs[0]).shape;
    if (const auto* transpose = std::get_if<Transpose>(&view.attrs)) return static_cast<size_t>(transpose->perm[axis]);
    if (repeats(view) && from.size() == to.size() && from[axis] == to[axis]) return axis;
    if (!std::holds_alternative<Reshape>(view.attrs)) return std::nullopt;
    const auto in_front = [](const Shape& shape, size_t end) {
      return element_count(Shape(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(end)));
    };
    for (size_t d = 0; d < from.size(); ++d) {
      if (from[d] == to[axis] && from[d] > 1 && in_front(from, d) == in_front(to, axis)) return d;
    }
    return std::nullopt;
  }

  // The view of a part.
  TensorId view_of(ROperator view, TensorId part, size_t before, size_t axis, const std::string& name) {
    Shape shape = graph_.tensor(view.outputs[0]).shape;
    shape[axis] = graph_.tensor(part).shape[before];
    if (auto* reshape = std::get_if<Reshape>(&view.attrs)) reshape->shape = shape;
    if (auto* repeated = std::get_if<Elementwise>(&view.attrs)) repeated->shape = shape;
    return add(view, part, name, shape);
  }

  // Looks for a rotation behind views of the tensor; x is seen through the same views.
  std::optional<Rotation> rotation_of(TensorId id, const std::string& name) {
    const ROperator* const maker = maker_or_made(id);
    if (!maker) return std::nullopt;
    if (std::optional<Rotation> found = rotation_by(*maker)) return found;
    if (std::optional<Rotation> found = rotation_by_halves(*maker)) return found;
    if (!std::holds_alternative<Reshape>(maker->attrs) && !std::holds_alternative<Transpose>(maker->attrs)) return std::nullopt;
    const Shape &from = graph_.tensor(maker->inputs[0]).shape, &to = graph_.tensor(id).shape;
    if (from.size() < 2 || to.size() < 2 || from.back() != to.back()) return std::nullopt;
    const ROperator view = *maker;
    const auto* const transpose = std::get_if<Transpose>(&view.attrs);
    const auto stays = [&](size_t from_end) {  // a dimension, so far from the end
      const size_t d = to.size() - from_end;
      return transpose ? transpose->perm[d] == static_cast<int64_t>(d) : from[from.size() - from_end] == to[d];
    };
    std::optional<Rotation> found = stays(1) ? rotation_of(view.inputs[0], name) : std::nullopt;
    if (!found) return std::nullopt;
    // Heads that share keys may be rows of one matrix in the result; they are turned alike where the factors are of one row.
    if (!stays(2) && !(is_one_row(found->cos) && is_one_row(found->sin))) return std::nullopt;
    found->x = add(view, found->x, name, graph_.tensor(id).shape);
    return found;
  }
  const ROperator* maker_or_made(TensorId id) const {
    const auto found = std::find_if(made_.begin(), made_.end(), [&](const ROperator& rop) { return rop.outputs[0] == id; });
    return found == made_.end() ? maker_of(graph_, uses_, id) : &*found;
  }

  std::optional<Rotation> rotation_by(const ROperator& rop) const {
    const ElementwiseStep* const step = single_step(rop);
    if (!step || step->op != ElementwiseOp::add || rop.inputs.size() != 2) return std::nullopt;
    for (const size_t i : {size_t{0}, size_t{1}}) {
      const ROperator* const straight = maker_by(graph_, uses_, rop.inputs[i], ElementwiseOp::mul);
      const ROperator* const crossed = maker_by(graph_, uses_, rop.inputs[1 - i], ElementwiseOp::mul);
      if (!straight || !crossed || straight->inputs.size() != 2 || crossed->inputs.size() != 2) continue;
      for (const size_t x : {size_t{0}, size_t{1}}) {
        for (const size_t turned : {size_t{0}, size_t{1}}) {
          const Rotation found{straight->inputs[x], straight->inputs[1 - x], crossed->inputs[1 - turned]};
          if (is_half_turned(crossed->inputs[turned], found.x) && is_of_rows(found.cos, found.x) && is_of_rows(found.sin, found.x))
            return found;
        }
      }
    }
    return std::nullopt;
  }

  // The factors of a sum or difference of two products with halves: half `first` of x times one, half 1 - `first` times the other.
  std::optional<Rotation> halves_of(TensorId id, ElementwiseOp op) const {
    const ROperator* const made = maker_by(graph_, uses_, id, op);
    if (!made || made->inputs.size() != 2) return std::nullopt;
    Rotation found;
    for (const size_t term : {size_t{0}, size_t{1}}) {
      const ROperator* const product = maker_by(graph_, uses_, made->inputs[term], ElementwiseOp::mul);
      if (!product || product->inputs.size() != 2) return std::nullopt;
      for (const size_t part : {size_t{0}, size_t{1}}) {
        const ROperator* const slice = maker_of(graph_, uses_, product->inputs[part]);
        if (!slice || !std::holds_alternative<Slice>(slice->attrs)) continue;
        const TensorId x = slice->inputs[0];
        const int64_t half = graph_.tensor(x).shape.back() / 2;
        if (found.x.valid() && x != found.x) continue;
        const bool is_low = is_half(product->inputs[part], x, 0);
        if (!is_low && !is_half(product->inputs[part], x, half)) continue;
        found.x = x;
        (is_low ? found.cos : found.sin) = product->inputs[1 - part];
        if (term == 0 && !is_low && op == ElementwiseOp::sub) return std::nullopt;
        break;
      }
    }
    return found.x.valid() && found.cos.valid() && found.sin.valid() ? std::optional(found) : std::nullopt;
  }

  std::optional<Rotation> rotation_by_halves(const ROperator& rop) const {
    const auto* const concat = std::get_if<Concat>(&rop.attrs);
    if (!concat || rop.inputs.size() != 2 || concat->axis != static_cast<int64_t>(graph_.tensor(rop.outputs[0]).shape.size()) - 1)
      return std::nullopt;
    // low * cos - high * sin; low * sin + high * cos.
    std::optional<Rotation> lower = halves_of(rop.inputs[0], ElementwiseOp::sub);
    const std::optional<Rotation> upper = halves_of(rop.inputs[1], ElementwiseOp::add);
    if (!lower || !upper || lower->x != upper->x || lower->cos != upper->sin || lower->sin != upper->cos) return std::nullopt;
    lower->by_halves = true;
    const auto is_row = [&](TensorId id) {
      return are_factors(id, graph_.tensor(lower->x).shape, graph_.tensor(lower->x).shape.back() / 2);
    };
    return graph_.tensor(lower->x).shape.back() % 2 == 0 && is_row(lower->cos) && is_row(lower->sin) ? lower : std::nullopt;
  }

  // Looks for a normalisation of rows behind views of the tensor; x is seen through the same views.
  std::optional<RowNorm> norm_of(TensorId id, const std::string& name) {
    const ROperator* const maker = maker_or_made(id);
    if (!maker) return std::nullopt;
    if (const auto* op = std::get_if<Normalize>(&maker->attrs)) {
      const Shape& shape = graph_.tensor(id).shape;
      const bool takes = !op->centered && op->axes == std::vector{static_cast<int64_t>(shape.size()) - 1} && maker->inputs.size() == 2 &&
                         is_f32_constant(graph_, maker->inputs[1]) && graph_.tensor(maker->inputs[1]).shape == Shape{shape.back()} &&
                         graph_.tensor(maker->inputs[0]).dtype == DType::f32;
      return takes ? std::optional(RowNorm{maker->inputs[0], maker->inputs[1], *op}) : std::nullopt;
    }
    if (!std::holds_alternative<Reshape>(maker->attrs) && !std::holds_alternative<Transpose>(maker->attrs)) return std::nullopt;
    const Shape &from = graph_.tensor(maker->inputs[0]).shape, &to = graph_.tensor(id).shape;
    if (from.empty() || to.empty() || from.back() != to.back()) return std::nullopt;
    const ROperator view = *maker;
    std::optional<RowNorm> found = norm_of(view.inputs[0], name);
    if (!found) return std::nullopt;
    if (const auto* transpose = std::get_if<Transpose>(&view.attrs);
        transpose && transpose->perm.back() + 1 != static_cast<int64_t>(to.size()))
      return std::nullopt;
    found->x = add(view, found->x, name, graph_.tensor(id).shape);
    return found;
  }

  // Whether the tensor is concat(-x[..,S/2:], x[..,:S/2]).
  bool is_half_turned(TensorId id, TensorId x) const {
    const ROperator* const maker = maker_of(graph_, uses_, id);
    const auto* const concat = maker ? std::get_if<Concat>(&maker->attrs) : nullptr;
    const Shape& shape = graph_.tensor(x).shape;
    if (!concat || maker->inputs.size() != 2 || concat->axis != static_cast<int64_t>(shape.size()) - 1 || shape.back() % 2 != 0)
      return false;
    const ROperator* const negated = maker_by(graph_, uses_, maker->inputs[0], ElementwiseOp::neg);
    return negated && is_half(negated->inputs[0], x, shape.back() / 2) && is_half(maker->inputs[1], x, 0);
  }
  bool is_half(TensorId id, TensorId x, int64_t start) const {
    const ROperator* const maker = maker_of(graph_, uses_, id);
    const auto* const slice = maker ? std::get_if<Slice>(&maker->attrs) : nullptr;
    if (!slice || maker->inputs[0] != x) return false;
    const Shape& whole = graph_.tensor(x).shape;
    Shape half = whole;
    half.back() /= 2;
    std::vector<int64_t> starts(whole.size(), 0);
    starts.back() = start;
    return slice->starts == starts && all_are(slice->steps, 1) && graph_.tensor(id).shape == half;
  }
  // Whether all matrices of x have the same factors.
  bool is_of_rows(TensorId factors, TensorId x) const {
    return are_factors(factors, graph_.tensor(x).shape, graph_.tensor(x).shape.back());
  }
  bool are_factors(TensorId factors, const Shape& rows, int64_t columns) const {
    const Shape& shape = graph_.tensor(factors).shape;
    if (graph_.tensor(factors).dtype != DType::f32 || shape.empty() || shape.back() != columns || shape.size() > rows.size()) return false;
    if (shape.size() > 1 && !is_one_row(factors) && shape[shape.size() - 2] != rows[rows.size() - 2]) return false;
    const auto matrix = static_cast<std::ptrdiff_t>(std::min<size_t>(2, shape.size()));
    return std::all_of(shape.begin(), shape.end() - matrix, [](int64_t extent) { return extent == 1; });
  }
  bool is_one_row(TensorId factors) const {
    const Shape& shape = graph_.tensor(factors).shape;
    return shape.size() < 2 || shape[shape.size() - 2] == 1;
  }
  // Whether the tensors are one, or Reshapes of one to the same shape.
  bool are_alike(TensorId a, TensorId b) const {
    const auto source = [&](TensorId id) {
      const ROperator* const maker = maker_of(graph_, uses_, id);
      return maker && std::holds_alternative<Reshape>(maker->attrs) ? maker->inputs[0] : id;
    };
    return a == b || (source(a) == source(b) && graph_.tensor(a).shape == graph_.tensor(b).shape);
  }
  // The factors without dimensions in front of the matrix, so that they broadcast to x behind any view.
  TensorId as_matrix(TensorId id, const std::string& name) {
    const Shape shape = graph_.tensor(id).shape;
    if (shape.size() <= 2) return id;
    const Shape matrix(shape.end() - 2, shape.end());
    return append_view(graph_, made_, graph_.tensor(id).name + name, Reshape{matrix}, id, matrix);
  }

  // Of an attention whose keys and values come from Scatters with one index. None where the numbers are others than the body takes.
  std::optional<Beside> beside_of(const ROperator& attention, const KeyParts& k, const KeyParts& v) const {
    const Makers makers = makers_of(graph_, uses_);
    const int64_t keys = graph_.tensor(k.past).shape[graph_.tensor(k.past).shape.size() - 2];
    const std::optional<Place> place = place_of(makers, k.index, keys), of_values = place_of(makers, v.index, keys);
    if (!place || !of_values || !place->number.is_like(of_values->number) || place->wraps != of_values->wraps || !is_given(place->number))
      return std::nullopt;
    Beside beside{place->number.tensor, {}, {}};
    std::vector<TensorId> made = {k.index};
    if (const TensorId bias = operand(attention, kAttentionBias); bias.valid()) {
      const std::optional<PrefixMask> mask = prefix_mask_of(makers, bias, keys);
      if (!mask || !is_given(mask->length)) return std::nullopt;
      beside.length = mask->length.tensor;
      made.push_back(bias);
    }
    for (const ROperator* step : makers_behind(makers, {beside.place, beside.length}, made)) {
      beside.steps.push_back(*step);
      beside.steps.back().origin.clear();
    }
    return beside;
  }
  // Whether the caller gives the number.
  bool is_given(const Number& number) const { return graph_.tensor(number.root).role == Role::input; }

  std::optional<ROperator> step_of(const ROperator& rop) {
    const auto* const attention = std::get_if<Attention>(&rop.attrs);
    if (!attention || attention->end || attention->rounding) return std::nullopt;
    const size_t tensors = graph_.tensors.size();
    std::optional<ROperator> step = made_step(rop);
    if (step) return step;
    graph_.tensors.resize(tensors);
    made_.clear();
    return std::nullopt;
  }

  std::optional<ROperator> made_step(const ROperator& rop) {
    const size_t rank = graph_.tensor(rop.inputs[1]).shape.size(), v_rank = graph_.tensor(rop.inputs[2]).shape.size();
    const std::string name = "." + rop.name;
    const std::optional<KeyParts> k = parts_of(rop.inputs[1], rank - 2, name), v = parts_of(rop.inputs[2], v_rank - 2, name);
    if (!k || !v || graph_.tensor(k->own).shape[rank - 2] != graph_.tensor(v->own).shape[v_rank - 2]) return std::nullopt;
    if (k->index.valid() != v->index.valid() || rop.inputs.size() > kAttentionRowTable) return std::nullopt;
    const std::optional<Beside> beside = k->index.valid() ? beside_of(rop, *k, *v) : Beside();
    if (!beside) return std::nullopt;
    ROperator step = fused(rop, rop.inputs[0], *k, *v, {}, *beside);
    if (!estimator_(graph_, step)) return std::nullopt;
    // How the rows of Q and K are made, if both are made alike and a rKernel takes it: turned, and before that normalised.
    RowSteps made;
    TensorId q = rop.inputs[0], own = k->own;
    const auto take = [&](auto find) {
      const size_t tensors = graph_.tensors.size(), views = made_.size();
      const RowSteps before = made;
      const std::pair<TensorId, TensorId> rows = {q, own};
      if (find()) {
        ROperator other = fused(rop, q, {k->past, own, k->index}, *v, made, *beside);
        if (estimator_(graph_, other)) return void(step = std::move(other));
      }
      made = before;
      std::tie(q, own) = rows;
      graph_.tensors.resize(tensors);
      made_.resize(views);
    };
    take([&] {
      const std::optional<Rotation> turned_q = rotation_of(q, name + ".straight"), turned_k = rotation_of(own, name + ".straight");
      if (!turned_q || !turned_k || turned_q->by_halves != turned_k->by_halves || !are_alike(turned_q->cos, turned_k->cos) ||
          !are_alike(turned_q->sin, turned_k->sin))
        return false;
      made.rotation = Rotation{{}, as_matrix(turned_q->cos, name + ".cos"), as_matrix(turned_q->sin, name + ".sin"), turned_q->by_halves};
      q = turned_q->x, own = turned_k->x;
      return true;
    });
    take([&] {
      const std::optional<RowNorm> q_norm = norm_of(q, name + ".plain"), k_norm = norm_of(own, name + ".plain");
      if (!q_norm || !k_norm || q_norm->op.epsilon != k_norm->op.epsilon) return false;
      made.q_norm = q_norm, made.k_norm = k_norm;
      q = q_norm->x, own = k_norm->x;
      return true;
    });
    return step;
  }

  // What is done to the rows of Q and of the own keys before they meet. Rotation::x and RowNorm::x are not used.
  struct RowSteps {
    std::optional<Rotation> rotation;
    std::optional<RowNorm> q_norm, k_norm;
  };

  // The steps from the parts of keys and values on, behind those of `rows`.
  ROperator fused(const ROperator& rop, TensorId q, const KeyParts& k, const KeyParts& v, const RowSteps& rows, const Beside& beside) {
    const size_t tensors = graph_.tensors.size();
    std::vector<ROperator> steps = beside.steps;
    const auto add_step = [&](OpAttrs attrs, const std::vector<TensorId>& inputs, Shape shape) {
      const TensorId made = add_like(graph_, inputs[0], "", std::move(shape));
      steps.push_back({rop.name, std::move(attrs), {}, inputs, {made}, {}});
      return made;
    };
    const auto elementwise = [&](std::vector<ElementwiseStep> chain, const std::vector<TensorId>& inputs) {
      return add_step(Elementwise{std::move(chain)}, inputs, graph_.tensor(inputs[0]).shape);
    };
    const auto joined = [&](TensorId first, TensorId second, size_t axis) {
      Shape shape = graph_.tensor(first).shape;
      shape[axis] += graph_.tensor(second).shape[axis];
      return add_step(Concat{static_cast<int64_t>(axis)}, {first, second}, shape);
    };
    const auto half = [&](TensorId x, int64_t number) {
      Slice slice = whole_slice(graph_.tensor(x).shape);
      slice.extents.back() /= 2;
      slice.starts.back() = number * slice.extents.back();
      return add_step(slice, {x}, slice.extents);
    };
    const std::optional<Rotation>& rotation = rows.rotation;
    const auto turned = [&](TensorId x) {
      if (!rotation) return x;
      if (rotation->by_halves) {
        const TensorId low = half(x, 0), high = half(x, 1);
        const TensorId lower = elementwise({{ElementwiseOp::mul, {0, 1}}, {ElementwiseOp::mul, {2, 3}}, {ElementwiseOp::sub, {-1, -2}}},
                                           {low, rotation->cos, high, rotation->sin});
        const TensorId upper = elementwise({{ElementwiseOp::mul, {0, 1}}, {ElementwiseOp::mul, {2, 3}}, {ElementwiseOp::add, {-1, -2}}},
                                           {low, rotation->sin, high, rotation->cos});
        return joined(lower, upper, graph_.tensor(x).shape.size() - 1);
      }
      const TensorId high = half(x, 1), negated = elementwise({{ElementwiseOp::neg, {0}}}, {high});
      const TensorId crossed = joined(negated, half(x, 0), graph_.tensor(x).shape.size() - 1);
      return elementwise({{ElementwiseOp::mul, {0, 1}}, {ElementwiseOp::mul, {2, 3}}, {ElementwiseOp::add, {-1, -2}}},
                         {x, rotation->cos, crossed, rotation->sin});
    };
    const auto keys = [&](const KeyParts& parts, TensorId own) {
      const size_t rank = graph_.tensor(own).shape.size();
      if (!k.index.valid()) return joined(parts.past, own, rank - 2);
      const Shape one(rank, 1);
      const TensorId index = graph_.tensor(k.index).shape == one ? k.index : add_step(Reshape{one}, {k.index}, one);
      return add_step(Scatter{static_cast<int64_t>(rank) - 2, ScatterKind::none}, {parts.past, index, own},
                      graph_.tensor(parts.past).shape);
    };
    const auto normalised = [&](TensorId x, const std::optional<RowNorm>& norm) {
      if (!norm) return x;
      Normalize op = norm->op;
      op.axes = {static_cast<int64_t>(graph_.tensor(x).shape.size()) - 1};
      return add_step(op, {x, norm->scale}, graph_.tensor(x).shape);
    };
    ROperator attention = rop;
    attention.inputs[0] = turned(normalised(q, rows.q_norm));
    attention.inputs[1] = keys(k, turned(normalised(k.own, rows.k_norm)));
    attention.inputs[2] = keys(v, v.own);
    steps.push_back(std::move(attention));
    const TensorId bias = k.index.valid() ? beside.length : operand(rop, kAttentionBias);
    std::vector<TensorId> operands = {q, k.own, v.own, bias, k.past, v.past, beside.place};
    if (rotation) operands.insert(operands.end(), {rotation->cos, rotation->sin});
    ROperator whole = fuse(graph_, "attention of a step", steps, rop.outputs, operands);
    graph_.tensors.resize(tensors);
    return whole;
  }

  Graph graph_;
  const Estimator& estimator_;
  Uses uses_;
  std::vector<ROperator> made_;  // views in front of the rOperator at hand
};

}  // namespace

Graph step_attention(Graph graph, const Estimator& estimator) { return estimator ? StepMaker(std::move(graph), estimator).run() : graph; }

}  // namespace tamp::passes
