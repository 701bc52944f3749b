#include "compiler/passes/narrow_activations.h"

#include <algorithm>
#include <vector>

#include "compiler/support/error.h"

namespace tamp::passes {
namespace {

class Narrowing {
 public:
  Narrowing(Graph graph, DType to, const Takes& takes, const std::vector<bool>& may)
      : graph_(std::move(graph)), takes_(takes), tensors_(graph_.buffers.size()) {
    TAMP_CHECK(to == DType::f16 || to == DType::bf16, "activations of other types than f16 and bf16");
    for (size_t i = 0; i < graph_.tensors.size(); ++i) {
      const BufferId buffer = graph_.tensors[i].place.buffer;
      if (buffer.valid()) tensors_[buffer.index()].push_back(i);
    }
    for (size_t b = 0; b < graph_.buffers.size(); ++b) {
      const Buffer& buffer = graph_.buffers[b];
      const auto is_f32 = [&](size_t i) { return graph_.tensors[i].dtype == DType::f32; };
      if (buffer.kind != BufferKind::arena || buffer.dtype != DType::f32) continue;
      if (!std::all_of(tensors_[b].begin(), tensors_[b].end(), is_f32)) continue;
      tried_.push_back(b);
      if (may.empty() || may[b]) set(b, to);
    }
  }

  Graph run() {
    // A buffer is widened once at most, so this ends.
    for (bool changes = true; changes;) {
      changes = false;
      for (const ROperator& rop : graph_.rops) changes |= settle(rop);
    }
    int64_t all = 0, narrow = 0;
    for (const size_t b : tried_) {
      all += graph_.buffers[b].elements;
      narrow += graph_.buffers[b].narrowed ? graph_.buffers[b].elements : 0;
    }
    if (narrow * 2 < all) {
      for (const size_t b : tried_) set(b, DType::f32);
    }
    return std::move(graph_);
  }

 private:
  void set(size_t b, DType dtype) {
    graph_.buffers[b].dtype = dtype;
    graph_.buffers[b].narrowed = dtype != DType::f32;
    for (const size_t i : tensors_[b]) graph_.tensors[i].dtype = dtype;
  }
  std::vector<size_t> narrowed(const std::vector<TensorId>& ids) const {
    std::vector<size_t> found;
    for (const TensorId id : ids) {
      const BufferId buffer = graph_.tensor(id).place.buffer;
      if (buffer.valid() && graph_.buffers[buffer.index()].narrowed) found.push_back(buffer.index());
    }
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
    return found;
  }
  // Widens buffers until `rop` has a body. Returns whether any buffer was widened.
  bool settle(const ROperator& rop) {
    const std::vector<size_t> out = narrowed(rop.outputs), in = narrowed(reads_of(rop));
    if ((out.empty() && in.empty()) || takes_(graph_, rop)) return false;
    for (const size_t b : out) {  // one of several results
      const DType was = graph_.buffers[b].dtype;
      if (out.size() == 1) break;
      set(b, DType::f32);
      if (takes_(graph_, rop)) return true;
      set(b, was);
    }
    const auto widen_one_operand = [&] {
      for (const size_t b : in) {
        const DType was = graph_.buffers[b].dtype;
        set(b, DType::f32);
        if (takes_(graph_, rop)) return true;
        set(b, was);
      }
      return false;
    };
    for (const std::vector<size_t>* some : {&out, &in}) {
      if (some->empty()) continue;
      if (some == &in && in.size() > 1 && widen_one_operand()) return true;
      const DType was = graph_.buffers[some->front()].dtype;
      for (const size_t b : *some) set(b, DType::f32);
      if (takes_(graph_, rop)) return true;
      if (some == &out)  // next try: widen only its operands
        for (const size_t b : *some) set(b, was);
    }
    for (const size_t b : out) set(b, DType::f32);
    return true;
  }

  Graph graph_;
  const Takes& takes_;
  std::vector<std::vector<size_t>> tensors_;  // of each buffer
  std::vector<size_t> tried_;                 // buffers
};

}  // namespace

Graph narrow_activations(Graph graph, DType to, const Takes& takes, const std::vector<bool>& may) {
  return Narrowing(std::move(graph), to, takes, may).run();
}

}  // namespace tamp::passes
