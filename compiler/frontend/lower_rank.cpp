#include "compiler/frontend/lower_rank.h"

#include <utility>
#include <vector>

namespace tamp::frontend {
namespace {

constexpr int64_t kMostPlaces = int64_t{1} << 22;  // of a table

class RankLowering {
 public:
  RankLowering(Builder& builder, const Builder::Request& request, const Shape& result)
      : builder_(builder), request_(request), result_(result) {}

  std::optional<TensorId> run(const Transpose& op) {
    const Shape from = shape(request_.inputs[0]);
    size_t walked = 0;
    int64_t before = -2;
    for (const int64_t d : op.perm) {
      if (from[static_cast<size_t>(d)] == 1) continue;
      walked += d == next_wide(from, before) ? 0 : 1;
      before = d;
    }
    return walked <= kMostWalked ? std::nullopt : by_table();
  }

  std::optional<TensorId> run(const Slice& op) {
    const Shape from = shape(request_.inputs[0]);
    size_t walked = 0;
    for (size_t d = 0; d < from.size(); ++d) walked += result_[d] == 1 || (d > 0 && result_[d] == from[d] && op.steps[d] == 1) ? 0 : 1;
    return walked <= kMostWalked ? std::nullopt : by_table();
  }

  // What is padded with comes behind x's elements, as one more.
  std::optional<TensorId> run(const Pad& op) {
    const TensorId x = request_.inputs[0];
    const int64_t count = element_count(shape(x));
    if (op.mode != PadMode::constant) return by_table();
    if (count >= kMostPlaces || element_count(result_) > kMostPlaces) return std::nullopt;
    Pad places = op;
    places.value = static_cast<float>(count);  // exact: kMostPlaces is a float
    const TensorId number = constant(ops::raw_value(DType::f32, {1}, std::vector{op.value}));
    const TensorId value = emit(Elementwise{{{ElementwiseOp::cast, {0}}}, {}, builder_.dtype(x)}, {number});
    return taken(emit(Concat{0}, {reshape(x, {count}), value}), emit(places, {counted(shape(x))}));
  }

  std::optional<TensorId> run(const Elementwise& op) {
    if (walked_of(request_.inputs, result_) <= kMostWalked) return std::nullopt;
    if (request_.inputs.size() == 1 && op.steps.size() == 1 && op.steps[0].op == ElementwiseOp::identity && !op.dtype) return by_table();
    const int64_t count = element_count(result_);
    std::vector<TensorId> flat;
    for (const TensorId x : request_.inputs)
      flat.push_back(element_count(shape(x)) == 1 ? reshape(x, {}) : reshape(expanded(x, result_), {count}));
    Elementwise attrs = op;
    if (!attrs.shape.empty()) attrs.shape = {count};
    return reshape(emit(attrs, flat), result_);
  }

  // All leading dimensions as one. (Rows and columns are two more.)
  std::optional<TensorId> run(const MatMul& op) {
    const TensorId a = request_.inputs[0], b = request_.inputs[1];
    if (request_.inputs.size() > 2 && request_.inputs[2].valid()) return std::nullopt;
    if (walked_of({a, b}, result_) <= kMostWalked - 2) return std::nullopt;
    const Shape front(result_.begin(), result_.end() - 2);
    const auto batched = [&](TensorId x) {
      const Shape own = shape(x);
      Shape wanted = front;
      wanted.insert(wanted.end(), own.end() - 2, own.end());
      return reshape(own == wanted ? x : expanded(x, wanted), {element_count(front), own[own.size() - 2], own.back()});
    };
    return reshape(emit(op, {batched(a), batched(b), TensorId()}), result_);
  }

  template <class Other>
  std::optional<TensorId> run(const Other&) {
    return std::nullopt;
  }

 private:
  // The dimension behind d that has more than one element.
  static int64_t next_wide(const Shape& shape, int64_t d) {
    if (d < 0) return -1;
    for (++d; d < static_cast<int64_t>(shape.size()) && shape[static_cast<size_t>(d)] == 1;) ++d;
    return d;
  }

  // How many dimensions remain when neighbours in which the same operands repeat themselves are joined.
  size_t walked_of(const std::vector<TensorId>& operands, const Shape& out) const {
    size_t walked = 0;
    std::vector<bool> before;
    for (size_t d = 0; d < out.size(); ++d) {
      if (out[d] == 1) continue;
      std::vector<bool> repeats;
      for (const TensorId id : operands) {
        const Shape own = shape(id);
        repeats.push_back(d + own.size() < out.size() || own[d + own.size() - out.size()] == 1);
      }
      walked += repeats == before ? 0 : 1;
      before = std::move(repeats);
    }
    return walked;
  }

  // The request as it is, but of the elements' numbers: that says where each element of the result comes from.
  std::optional<TensorId> by_table() {
    const TensorId x = request_.inputs[0];
    const int64_t count = element_count(shape(x));
    if (count > kMostPlaces || element_count(result_) > kMostPlaces) return std::nullopt;
    return taken(reshape(x, {count}), emit(request_.attrs, {counted(shape(x))}));
  }

  // The result, element by element from a list at those places.
  TensorId taken(TensorId list, TensorId places) {
    return reshape(emit(Gather{0}, {list, reshape(places, {element_count(result_)})}), result_);
  }

  TensorId counted(const Shape& of) {
    builder_.charge(element_count(of) * bytes_of(DType::i64), request_.where);
    return constant(ops::raw_value(DType::i64, of, range(0, element_count(of))));
  }

  TensorId constant(ops::Value value) { return builder_.add_value(builder_.unique_tensor_name(request_.name), std::move(value)); }
  TensorId expanded(TensorId x, const Shape& to) {
    return shape(x) == to ? x : emit(Elementwise{{{ElementwiseOp::identity, {0}}}, to}, {x});
  }
  TensorId reshape(TensorId x, const Shape& to) { return shape(x) == to ? x : emit(Reshape{to}, {x}); }
  Shape shape(TensorId id) const { return builder_.graph.tensor(id).shape; }
  TensorId emit(OpAttrs attrs, std::vector<TensorId> inputs) {
    return builder_.emit({std::move(attrs), std::move(inputs), request_.name, request_.origin, request_.where});
  }

  Builder& builder_;
  const Builder::Request& request_;
  const Shape& result_;
};

}  // namespace

std::optional<TensorId> lower_rank(Builder& builder, const Builder::Request& request, const Shape& result) {
  if (result.size() <= kMostWalked || element_count(result) == 0) return std::nullopt;
  RankLowering lowering(builder, request, result);
  return std::visit([&](const auto& op) { return lowering.run(op); }, request.attrs);
}

}  // namespace tamp::frontend
