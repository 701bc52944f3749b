#include "compiler/passes/place/narrow_activations.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/ir/fused.h"
#include "compiler/ir/products.h"
#include "compiler/support/error.h"

namespace tamp::passes {
namespace {

// Of a program with lengths of run time, numbers made of these stay exact.
constexpr int64_t kFewElements = 64;

// Buffers that were made smaller, and are made what they were where a rOperator has no body for that.
class Settling {
 public:
  Settling(Graph graph, const Takes& takes)
      : graph_(std::move(graph)), takes_(takes), tensors_(graph_.buffers.size()), small_(graph_.buffers.size(), false) {
    for (size_t i = 0; i < graph_.tensors.size(); ++i) {
      const BufferId buffer = graph_.tensors[i].place.buffer;
      if (buffer.valid()) tensors_[buffer.index()].push_back(i);
    }
    for (const Buffer& buffer : graph_.buffers) was_.push_back(buffer);
  }

 protected:
  void settle_all() {
    // A buffer is widened once at most, so this ends.
    for (bool changes = true; changes;) {
      changes = false;
      for (const ROperator& rop : graph_.rops) changes |= settle(rop);
    }
  }
  void make_small(size_t b, DType dtype, int64_t low = 0) { set(b, dtype, /*narrowed=*/true, static_cast<int32_t>(low)); }
  void make_wide(size_t b) { set(b, was_[b].dtype, was_[b].narrowed, was_[b].low); }

  Graph graph_;
  const Takes& takes_;
  std::vector<std::vector<size_t>> tensors_;  // of each buffer
  std::vector<bool> small_;                   // buffers

 private:
  void set(size_t b, DType dtype, bool narrowed, int32_t low) {
    Buffer& buffer = graph_.buffers[b];
    small_[b] = dtype != was_[b].dtype;
    buffer.dtype = dtype;
    buffer.narrowed = narrowed;
    buffer.low = low;
    for (const size_t i : tensors_[b]) graph_.tensors[i].dtype = dtype;
  }
  std::vector<size_t> small_of(const std::vector<TensorId>& ids) const {
    std::vector<size_t> found;
    for (const TensorId id : ids) {
      const BufferId buffer = graph_.tensor(id).place.buffer;
      if (buffer.valid() && small_[buffer.index()]) found.push_back(buffer.index());
    }
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
    return found;
  }
  // Widens buffers until `rop` has a body. Returns whether any buffer was widened.
  bool settle(const ROperator& rop) {
    const std::vector<size_t> out = small_of(rop.outputs), in = small_of(reads_of(rop));
    if ((out.empty() && in.empty()) || takes_(graph_, rop)) return false;
    if (out.size() > 1 && widen_one(rop, out)) return true;  // one of several results
    for (const std::vector<size_t>* some : {&out, &in}) {
      if (some->empty()) continue;
      if (some == &in && in.size() > 1 && widen_one(rop, in)) return true;
      std::vector<Buffer> before;
      for (const size_t b : *some) before.push_back(graph_.buffers[b]);
      for (const size_t b : *some) make_wide(b);
      if (takes_(graph_, rop)) return true;
      if (some == &in) break;
      // Next try: widen only its operands.
      for (size_t i = 0; i < some->size(); ++i) set((*some)[i], before[i].dtype, before[i].narrowed, before[i].low);
    }
    for (const size_t b : out) make_wide(b);
    return true;
  }
  // Whether one of the buffers alone will do; it is wide then.
  bool widen_one(const ROperator& rop, const std::vector<size_t>& some) {
    for (const size_t b : some) {
      const Buffer was = graph_.buffers[b];
      make_wide(b);
      if (takes_(graph_, rop)) return true;
      set(b, was.dtype, was.narrowed, was.low);
    }
    return false;
  }

  std::vector<Buffer> was_;
};

class Narrowing : Settling {
 public:
  Narrowing(Graph graph, DType to, const Takes& takes, const std::vector<bool>& may) : Settling(std::move(graph), takes) {
    TAMP_CHECK(to == DType::f16 || to == DType::bf16, "activations of other types than f16 and bf16");
    for (size_t b = 0; b < graph_.buffers.size(); ++b) {
      const Buffer& buffer = graph_.buffers[b];
      const auto is_f32 = [&](size_t i) { return graph_.tensors[i].dtype == DType::f32; };
      if (port_type(buffer) == to) make_small(b, to);
      if (buffer.kind != BufferKind::arena || buffer.dtype != DType::f32) continue;
      if (buffer.elements < kFewElements && !graph_.lengths.empty()) continue;
      if (buffer.elements == 1) continue;  // the scale of a tensor, say: nothing is gained, and a small one would be lost
      if (!std::all_of(tensors_[b].begin(), tensors_[b].end(), is_f32)) continue;
      tried_.push_back(b);
      if (may.empty() || may[b]) make_small(b, to);
    }
  }

  Graph run() {
    settle_all();
    int64_t all = 0, narrow = 0;
    for (const size_t b : tried_) {
      all += graph_.buffers[b].elements;
      narrow += graph_.buffers[b].narrowed ? graph_.buffers[b].elements : 0;
    }
    for (const ROperator& rop : graph_.rops) {
      const int64_t kept = kept_to_itself(rop);
      all += kept;
      narrow += kept;
    }
    if (narrow * 2 < all) {
      for (const size_t b : tried_) make_wide(b);
      settle_all();  // ports may be narrow still
    }
    cast_ports();
    return std::move(graph_);
  }

 private:
  // Elements of rows that the products of an rOperator hand on in shared memory, where they have 16 bits. As results of rOperators of their
  // own they would be narrow, too.
  static int64_t kept_to_itself(const ROperator& rop) {
    const std::optional<FusedView> steps = FusedView::of(rop);
    if (!steps || !keeps_rows_of_16_bits(rop)) return 0;
    int64_t kept = 0;
    for (const ROperator& step : steps->body().rops) {
      if (!std::holds_alternative<MatMul>(step.attrs) && !std::holds_alternative<Attention>(step.attrs)) continue;
      for (const TensorId id : step.inputs) {
        const bool is_between = id.valid() && !steps->outside(id).valid();
        kept += is_between ? element_count(steps->body().tensor(id).shape) : 0;
      }
    }
    return kept;
  }

  // The type of an input or output for callers, where it is not the tensor's; else f32.
  DType port_type(const Buffer& buffer) const {
    if (buffer.kind != BufferKind::input && buffer.kind != BufferKind::output) return DType::f32;
    const std::vector<DType>& types = buffer.kind == BufferKind::input ? graph_.input_types : graph_.output_types;
    const bool is_of_callers = !types.empty() && buffer.dtype == DType::f32;
    return is_of_callers ? types[static_cast<size_t>(buffer.io_index)] : DType::f32;
  }

  // Gives ports that are f32 still their type for callers: what was in the port's buffer lies in memory of its own, and is cast.
  void cast_ports() {
    std::vector<ROperator> first, last;
    const size_t buffers = graph_.buffers.size();
    for (size_t b = 0; b < buffers; ++b) {
      const DType type = port_type(graph_.buffers[b]);
      if (type == DType::f32) continue;
      const bool is_input = graph_.buffers[b].kind == BufferKind::input;
      TensorId& port = (is_input ? graph_.inputs : graph_.outputs)[static_cast<size_t>(graph_.buffers[b].io_index)];
      const TensorId inside = add_tensor(graph_, graph_.tensor(port));
      if (!is_input) graph_.tensor(inside).role = Role::activation;
      std::vector<size_t> moved = tensors_[b];
      moved.push_back(inside.index());
      Buffer memory = graph_.buffers[b];
      memory.kind = BufferKind::arena;
      memory.io_index = -1;
      graph_.buffers[b].dtype = type;
      const BufferId own(static_cast<int64_t>(graph_.buffers.size()));
      graph_.buffers.push_back(memory);
      const Placement place = graph_.tensor(port).place;
      for (const size_t i : moved) graph_.tensors[i].place.buffer = own;
      graph_.tensor(port).place = place;
      graph_.tensor(port).dtype = type;
      swap_uses(port, inside);
      std::string name = graph_.tensor(port).name + ".cast";
      while (std::any_of(graph_.rops.begin(), graph_.rops.end(), [&](const ROperator& rop) { return rop.name == name; })) name += "_";
      graph_.tensor(inside).name = graph_.tensor(port).name + ".f32";
      if (is_input) graph_.tensor(inside).role = Role::activation;
      const auto [from, to] = is_input ? std::pair(port, inside) : std::pair(inside, port);
      (is_input ? first : last)
          .push_back({name, Elementwise{{{ElementwiseOp::cast, {0}}}, {}, graph_.tensor(to).dtype}, {}, {from}, {to}, {}});
    }
    graph_.rops.insert(graph_.rops.begin(), std::make_move_iterator(first.begin()), std::make_move_iterator(first.end()));
    graph_.rops.insert(graph_.rops.end(), std::make_move_iterator(last.begin()), std::make_move_iterator(last.end()));
  }
  void swap_uses(TensorId from, TensorId to) {
    const auto swap = [&](TensorId& id) { id = id == from ? to : id; };
    for (ROperator& rop : graph_.rops) {
      std::for_each(rop.inputs.begin(), rop.inputs.end(), swap);
      std::for_each(rop.outputs.begin(), rop.outputs.end(), swap);
      swap(rop.epilogue.bias);
      swap(rop.epilogue.residual);
    }
  }

  std::vector<size_t> tried_;  // buffers
};

class InBytes : Settling {
 public:
  InBytes(Graph graph, const Takes& takes) : Settling(std::move(graph), takes) {
    constexpr int64_t kFewElements = 256;  // nothing is gained
    for (size_t b = 0; b < graph_.buffers.size(); ++b) {
      const Buffer& buffer = graph_.buffers[b];
      if (buffer.kind != BufferKind::arena || buffer.dtype != DType::f16 || !buffer.narrowed || buffer.elements < kFewElements) continue;
      if (tensors_[b].empty()) continue;
      const std::optional<WholeRange> range = whole_range(graph_, TensorId(static_cast<int64_t>(tensors_[b].front())));
      if (!range || range->high - range->low > 255) continue;
      if (range->low >= -128 && range->high <= 127 && range->low < 0)
        make_small(b, DType::whole_i8);
      else
        make_small(b, DType::whole_u8, range->low >= 0 && range->high <= 255 ? 0 : range->low);
    }
  }
  Graph run() {
    settle_all();
    return std::move(graph_);
  }
};

}  // namespace

Graph narrow_activations(Graph graph, DType to, const Takes& takes, const std::vector<bool>& may) {
  return Narrowing(std::move(graph), to, takes, may).run();
}

Graph whole_numbers_in_bytes(Graph graph, const Takes& takes) { return InBytes(std::move(graph), takes).run(); }

}  // namespace tamp::passes
