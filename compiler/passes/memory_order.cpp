#include "compiler/passes/memory_order.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "compiler/ops/ops.h"
#include "compiler/passes/view_strides.h"
#include "compiler/support/error.h"

namespace tamp::passes {
namespace {

std::vector<size_t> row_major_order(size_t rank) {
  std::vector<size_t> order(rank);
  std::iota(order.begin(), order.end(), size_t{0});
  return order;
}

std::vector<size_t> channels_last_order(size_t rank) {
  std::vector<size_t> order = row_major_order(rank);
  if (rank == 3 || rank == 4) std::rotate(order.begin() + 1, order.begin() + 2, order.end());
  return order;
}

}  // namespace

std::vector<int64_t> channels_last_strides(const Shape& shape, int64_t cell) {
  std::vector<int64_t> strides = dense_strides(shape, channels_last_order(shape.size()));
  if (shape.size() != 4 || shape[1] < kPaddedChannels) return strides;
  Shape padded = shape;
  padded[1] = (shape[1] + 3) / 4 * 4;
  if (shape[1] % 4 == 0) padded[1] = (shape[1] + cell - 1) / cell * cell;
  return dense_strides(padded, channels_last_order(shape.size()));
}

namespace {

class Preference {
 public:
  Preference(const Graph& graph, int64_t cell) : graph_(graph), cell_(cell), uses_(uses_of(graph)), strides_(graph.tensors.size()) {}

  std::vector<std::vector<int64_t>> run() {
    for (size_t i = 0; i < graph_.tensors.size(); ++i) strides_[i] = row_major_strides(graph_.tensors[i].shape);
    std::vector<bool> is_output(graph_.tensors.size(), false);
    for (const TensorId id : graph_.outputs) is_output[id.index()] = true;
    for (const ROperator& rop : graph_.rops) {
      for (size_t i = 0; i < rop.outputs.size(); ++i) {
        const TensorId id = rop.outputs[i];
        if (!is_output[id.index()]) strides_[id.index()] = of_result(rop, i, graph_.tensor(id).shape);
      }
    }
    return std::move(strides_);
  }

 private:
  std::vector<int64_t> of_result(const ROperator& rop, size_t result, const Shape& shape) {
    const auto channels_last = [&] { return channels_last_strides(shape, cell_); };
    const auto row_major = [&] { return row_major_strides(shape); };
    const auto like = [&](TensorId id) {
      const std::vector<size_t> order = order_of(graph_.tensor(id).shape, strides_[id.index()]);
      return order == channels_last_order(shape.size()) ? channels_last() : dense_strides(shape, order);
    };
    const auto view = [&] {
      const auto place = view_place(graph_, rop, {BufferId(), 0, strides_[rop.inputs[0].index()]});
      return place ? place->strides : row_major_strides(shape);
    };
    if (std::holds_alternative<Concat>(rop.attrs)) {
      if (std::optional<std::vector<int64_t>> strides = for_maps(rop.outputs[0])) return *strides;
    }
    if (std::holds_alternative<LoopBegin>(rop.attrs)) return like(rop.inputs[result]);
    const TensorId leader = largest(rop.inputs);
    switch (ops::layout_of(rop.attrs, result)) {
      case ops::Layout::row_major: return row_major();
      case ops::Layout::channels_last: return channels_last();
      case ops::Layout::like_largest: return leader.valid() ? like(leader) : row_major();
      case ops::Layout::like_equal: {
        const TensorId equal = largest(rop.inputs, &shape);  // a Fused may have weights that are larger
        return equal.valid() ? like(equal) : row_major();
      }
      case ops::Layout::view: return view();
    }
    TAMP_CHECK(false, "layout out of range");
  }

  // Whether a convolution or a pool reads the map, a part of it, or what it is a part of.
  bool is_read_as_map(TensorId id) {
    if (read_as_map_.empty()) find_maps();
    return read_as_map_[id.index()];
  }
  void find_maps() {
    read_as_map_.assign(graph_.tensors.size(), false);
    for (size_t i = graph_.rops.size(); i-- > 0;) {
      const ROperator& rop = graph_.rops[i];
      const bool is_part = std::holds_alternative<Slice>(rop.attrs) || std::holds_alternative<Concat>(rop.attrs);
      if (!(is_part ? read_as_map_[rop.outputs[0].index()] : ops::layout_of(rop.attrs) == ops::Layout::channels_last)) continue;
      for (const TensorId id : reads_of(rop)) {
        if (graph_.tensor(id).shape.size() == 4) read_as_map_[id.index()] = true;
      }
    }
  }

  // The order in which the only reader, a Reshape, makes a channels-last map of the tensor; nothing if that is not what the reader makes.
  std::optional<std::vector<int64_t>> for_maps(TensorId id) {
    const ROperatorId reader = uses_.only_reader(id);
    if (!reader.valid()) return std::nullopt;
    const ROperator& rop = graph_.rop(reader);
    if (!std::holds_alternative<Reshape>(rop.attrs) || !is_read_as_map(rop.outputs[0])) return std::nullopt;
    const std::vector<int64_t> map = channels_last_strides(graph_.tensor(rop.outputs[0]).shape, cell_);
    const std::optional<Placement> source = source_place(graph_, rop, {BufferId(), 0, map});
    return source ? std::optional(source->strides) : std::nullopt;
  }

  // The first of the largest operands, or of those of this shape; one that is made at run time goes before constants.
  TensorId largest(const std::vector<TensorId>& ids, const Shape* shape = nullptr) const {
    const auto rank = [&](TensorId id) {
      return std::pair(element_count(graph_.tensor(id).shape), graph_.tensor(id).role == Role::activation);
    };
    TensorId best;
    for (const TensorId id : ids) {
      if (!id.valid() || (shape && graph_.tensor(id).shape != *shape)) continue;
      if (!best.valid() || rank(id) > rank(best)) best = id;
    }
    return best;
  }

  const Graph& graph_;
  int64_t cell_;
  Uses uses_;
  std::vector<std::vector<int64_t>> strides_;
  std::vector<bool> read_as_map_;  // per tensor; found where a Concat asks
};

}  // namespace

std::vector<std::vector<int64_t>> preferred_strides(const Graph& graph, int64_t cell) { return Preference(graph, cell).run(); }

}  // namespace tamp::passes
