// A rTask's results are the elements that its family says it writes. For a phase that leaves scratch to a later one they are the results of
// the rTasks that read what it leaves: with a sum in four splits, a split has nothing to do when the sum has not.
#include "compiler/schedule/guards.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include "compiler/support/error.h"

namespace tamp::schedule {
namespace {

constexpr int64_t kMostBegin = 0xffff;      // rk::Instruction has 16 bits
constexpr size_t kMostGuardedExtents = 15;  // and as many numbers of extents

bool overlap(const Run& a, const Run& b) {
  const auto end = [](const Run& run) { return run.offset + (run.count - 1) * run.stride + run.length; };
  return a.offset < end(b) && b.offset < end(a);
}

// The end that all results of the rOperator have.
std::optional<tamp::Extent> common_end(const Graph& graph, const ROperator& rop) {
  const auto ends_there = [&](TensorId id, const tamp::Extent& extent) {
    const LengthAxes& ends = graph.tensor(id).ends;
    return std::any_of(ends.begin(), ends.end(), [&](const LengthAxis& axis) { return axis.extent == extent; });
  };
  for (const LengthAxis& axis : graph.tensor(rop.outputs[0]).ends) {
    if (std::all_of(rop.outputs.begin(), rop.outputs.end(), [&](TensorId id) { return ends_there(id, axis.extent); })) return axis.extent;
  }
  return std::nullopt;
}

// No element of the run lies before this coordinate along the dimension; 0 where that is not to be seen.
int64_t first_coordinate(const Tensor& tensor, const Run& run, int64_t dim) {
  // Dimensions from the largest stride to the smallest, as an offset is taken apart.
  std::vector<size_t> order;
  for (size_t d = 0; d < tensor.shape.size(); ++d) {
    if (tensor.shape[d] > 1) order.push_back(d);
  }
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return tensor.place.strides[a] > tensor.place.strides[b]; });
  const auto coordinate = [&](int64_t offset, bool& is_same_block, int64_t first_offset) {
    int64_t rest = offset - tensor.place.offset, rest_of_first = first_offset - tensor.place.offset;
    for (const size_t d : order) {
      const int64_t stride = tensor.place.strides[d];
      if (stride <= 0 || rest < 0) return int64_t{-1};
      if (static_cast<int64_t>(d) == dim) return rest / stride;
      is_same_block = is_same_block && rest / stride == rest_of_first / stride;
      rest %= stride;
      rest_of_first %= stride;
    }
    return int64_t{-1};
  };
  int64_t least = kMostBegin;
  for (int64_t i = 0; i < run.count; ++i) {
    const int64_t from = run.offset + i * run.stride;
    bool is_same_block = true;
    const int64_t first = coordinate(from, is_same_block, from), last = coordinate(from + run.length - 1, is_same_block, from);
    if (first < 0 || last < 0) return 0;
    least = std::min(least, is_same_block ? first : 0);
  }
  return least;
}

class Guards {
 public:
  Guards(RProgram& program, const select::Families& families) : program_(program), families_(families) {}

  void run() {
    program_.guards.resize(program_.graph.rops.size());
    for (size_t i = 0; i < program_.graph.rops.size(); ++i) guard(i);
    for (const RKernel& rkernel : program_.rkernels) {
      for (const Phase& phase : rkernel.phases) {
        for (const Arg& arg : phase.args) note(arg.value);
      }
    }
  }

 private:
  void note(const tamp::Extent& extent) {
    if (std::find(program_.extents.begin(), program_.extents.end(), extent) == program_.extents.end()) program_.extents.push_back(extent);
  }
  void note(const ArgValue& value) {
    if (const auto* list = std::get_if<ArgList>(&value.value)) {
      for (const ArgValue& part : *list) note(part);
    } else if (const auto* arg = std::get_if<ExtentArg>(&value.value)) {
      for (const tamp::Extent& extent : arg->extents) note(extent);
    }
  }

  void guard(size_t i) {
    const ROperator& rop = program_.graph.rops[i];
    const RKernel& rkernel = program_.rkernels[i];
    program_.guards[i].resize(rkernel.phases.size());
    const std::optional<tamp::Extent> end = common_end(program_.graph, rop);
    if (rkernel.phases.empty() || rkernel.gang || !end) return;
    const tamp::Extent extent = *end;
    const kernels::Family& family = select::family_of(families_, rkernel);
    std::vector<Accesses> later;  // of the rTasks of all phases behind
    std::vector<int64_t> later_begins;
    for (size_t p = rkernel.phases.size(); p-- > 0;) {
      const Phase& phase = rkernel.phases[p];
      std::vector<Accesses> own(static_cast<size_t>(phase.rtasks));
      std::vector<int64_t> begins;
      for (int64_t t = 0; t < phase.rtasks; ++t) {
        family.accesses(program_.graph, rop, rkernel, static_cast<int>(p), t, own[static_cast<size_t>(t)]);
        begins.push_back(begin_of(own[static_cast<size_t>(t)], extent, later, later_begins));
      }
      // Members of a cluster exchange their sums, so all of them work or none.
      if (phase.cluster > 1) {
        std::vector<int64_t> of_tile(begins.size(), kMostBegin);
        for (int64_t t = 0; t < phase.rtasks; ++t) {
          int64_t& least = of_tile[static_cast<size_t>(phase.shared_tile_of(t))];
          least = std::min(least, begins[static_cast<size_t>(t)]);
        }
        for (int64_t t = 0; t < phase.rtasks; ++t) begins[static_cast<size_t>(t)] = of_tile[static_cast<size_t>(phase.shared_tile_of(t))];
      }
      const bool has_number = std::find(program_.extents.begin(), program_.extents.end(), extent) != program_.extents.end() ||
                              program_.extents.size() < kMostGuardedExtents;
      if (has_number && std::any_of(begins.begin(), begins.end(), [](int64_t begin) { return begin > 0; })) {
        note(extent);
        program_.guards[i][p] = Guard{extent, begins};
      }
      later.insert(later.end(), own.begin(), own.end());
      later_begins.insert(later_begins.end(), begins.begin(), begins.end());
    }
  }

  int64_t begin_of(const Accesses& accesses, const tamp::Extent& extent, const std::vector<Accesses>& later,
                   const std::vector<int64_t>& later_begins) const {
    int64_t begin = kMostBegin;
    for (const Region& write : accesses.writes) {
      if (!write.tensor.valid()) {
        for (size_t t = 0; t < later.size(); ++t) {
          const bool is_read = std::any_of(later[t].reads.begin(), later[t].reads.end(),
                                           [&](const Region& read) { return !read.tensor.valid() && overlap(read.run, write.run); });
          if (is_read) begin = std::min(begin, later_begins[t]);
        }
        continue;
      }
      const Tensor& tensor = program_.graph.tensor(write.tensor);
      int64_t own = 0;
      for (const LengthAxis& axis : tensor.ends) {
        if (axis.extent == extent) own = std::max(own, first_coordinate(tensor, write.run, axis.dim));
      }
      begin = std::min(begin, own);
    }
    return accesses.writes.empty() ? 0 : begin;
  }

  RProgram& program_;
  const select::Families& families_;
};

}  // namespace

void set_guards(RProgram& program, const select::Families& families) {
  if (!program.graph.lengths.empty()) Guards(program, families).run();
}

}  // namespace tamp::schedule
