#include "compiler/schedule/dependencies.h"

#include <algorithm>
#include <numeric>

#include "compiler/ir/rkernel.h"
#include "compiler/support/error.h"

namespace tamp::schedule {
namespace {

constexpr int32_t kNobody = -1;  // not written yet
constexpr int32_t kCaller = -2;  // the unit is an input's or a constant's

struct Use {
  int32_t rop;
  TensorId tensor;
  bool is_write;
};

bool is_read_only(const Buffer& buffer) { return buffer.kind == BufferKind::input || buffer.kind == BufferKind::constant; }

// Calls f(begin, end) for each piece of memory that the tensor's elements take, in units of `unit` elements, which divides all of them.
void for_each_span(const Tensor& tensor, int64_t unit, auto f) {
  for (const Run& run : whole_runs(tensor)) {
    for (int64_t i = 0; i < run.count; ++i) {
      const int64_t begin = run.offset + i * run.stride;
      f(begin / unit, (begin + run.length) / unit);
    }
  }
}

// The most elements that a buffer can be looked at in, so that every use of it begins and ends between two such units. Example: a buffer of
// 192 channels a pixel, of which one rOperator writes the first 64 and another the others, has units of 64 elements. A buffer that is only
// written and read whole is one unit.
int64_t unit_of(const Graph& graph, const Buffer& buffer, const std::vector<Use>& uses) {
  int64_t unit = buffer.elements;
  for (const Use& use : uses) {
    for (const Run& run : whole_runs(graph.tensor(use.tensor)))
      unit = std::gcd(std::gcd(unit, run.length), std::gcd(run.offset, run.count > 1 ? run.stride : 0));
  }
  return std::max<int64_t>(1, unit);
}

// The uses of every buffer but the constants, in the order of the rOperators, reads before writes.
std::vector<std::vector<Use>> uses_by_buffer(const Graph& graph) {
  std::vector<std::vector<Use>> uses(graph.buffers.size());
  const auto add = [&](size_t rop, TensorId id, bool is_write) {
    const Tensor& tensor = graph.tensor(id);
    if (tensor.role == Role::constant) return;
    const BufferId buffer = tensor.place.buffer;
    TAMP_CHECK(buffer.valid() && buffer.index() < graph.buffers.size(), "'" + tensor.name + "' is not placed");
    uses[buffer.index()].push_back({static_cast<int32_t>(rop), id, is_write});
  };
  for (size_t i = 0; i < graph.rops.size(); ++i) {
    for (const TensorId id : reads_of(graph.rops[i])) add(i, id, /*is_write=*/false);
    for (const TensorId id : graph.rops[i].outputs) add(i, id, /*is_write=*/true);
  }
  return uses;
}

}  // namespace

Dependencies find_dependencies(const Graph& graph) {
  Dependencies found;
  found.producers.resize(graph.rops.size());
  std::vector<bool> writes_something(graph.rops.size(), false);
  const auto all_uses = uses_by_buffer(graph);
  std::vector<int32_t> writer;                               // of a unit of the buffer: the first rOperator that writes it
  std::vector<int32_t> seen_by(graph.rops.size(), kNobody);  // per producer: the last reader that has this producer in its list
  for (size_t b = 0; b < all_uses.size(); ++b) {
    const Buffer& buffer = graph.buffers[b];
    if (all_uses[b].empty()) continue;
    const int64_t unit = unit_of(graph, buffer, all_uses[b]), units = buffer.elements / unit;
    writer.assign(static_cast<size_t>(units), is_read_only(buffer) ? kCaller : kNobody);
    for (const Use& use : all_uses[b]) {
      const Tensor& tensor = graph.tensor(use.tensor);
      const auto rop = static_cast<size_t>(use.rop);
      for_each_span(tensor, unit, [&](int64_t begin, int64_t end) {
        TAMP_CHECK(begin >= 0 && end <= units, "'" + tensor.name + "' leaves its buffer");
        if (use.is_write) {
          for (int64_t e = begin; e < end; ++e) {
            if (writer[static_cast<size_t>(e)] != kNobody && !graph.rops[rop].ends_iteration) continue;
            writer[static_cast<size_t>(e)] = use.rop;
            writes_something[rop] = true;
          }
          return;
        }
        int32_t last = kNobody;
        for (int64_t e = begin; e < end; ++e) {
          const int32_t w = writer[static_cast<size_t>(e)];
          if (w == last || w == kCaller) continue;
          TAMP_CHECK(w != kNobody, "'" + graph.rops[rop].name + "' reads '" + tensor.name + "' before it is made");
          last = w;
          if (seen_by[static_cast<size_t>(w)] == use.rop) continue;
          seen_by[static_cast<size_t>(w)] = use.rop;
          found.producers[rop].push_back(ROperatorId(w));
        }
      });
    }
  }
  for (auto& producers : found.producers) {
    std::sort(producers.begin(), producers.end());
    producers.erase(std::unique(producers.begin(), producers.end()), producers.end());
  }
  found.is_view = writes_something;
  found.is_view.flip();
  return found;
}

int64_t depth_of(const Dependencies& dependencies) {
  std::vector<int64_t> depth;
  int64_t most = 0;
  for (size_t i = 0; i < dependencies.producers.size(); ++i) {
    int64_t before = 0;
    for (const ROperatorId producer : dependencies.producers[i]) before = std::max(before, depth[producer.index()]);
    depth.push_back(before + (dependencies.is_view[i] ? 0 : 1));
    most = std::max(most, depth.back());
  }
  return most;
}

}  // namespace tamp::schedule
