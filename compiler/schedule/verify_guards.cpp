// Lengths of run time: that an rTask which does nothing in some runs would have made nothing that those need. Waits and signals are the
// same for each length, so nothing else of the proof depends on them.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "compiler/schedule/verify_memory.h"
#include "compiler/support/text.h"

namespace tamp::schedule {
namespace {

class GuardVerifier {
 public:
  GuardVerifier(const RProgram& program, const select::Families& families, Violations& violations)
      : program_(program), families_(families), violations_(violations) {}

  void run() {
    const size_t wanted = program_.graph.lengths.empty() ? 0 : program_.graph.rops.size();
    const bool has_guards = !program_.guards.empty();  // a bucket of one value has none
    if (has_guards && program_.guards.size() != wanted)
      return violations_.add("the list of guards has another length than that of rOperators");
    for (const tamp::Extent& extent : program_.extents) verify_extent(extent, "the list of extents");
    for (size_t i = 0; i < program_.rkernels.size() && !violations_.full(); ++i) {
      for (const Phase& phase : program_.rkernels[i].phases) {
        for (const Arg& arg : phase.args) verify_number(i, arg.value);
      }
      if (has_guards) verify_rop(i);
    }
    if (has_guards && !program_.graph.loops.empty()) verify_values();
  }

 private:
  std::string name(size_t rop) const { return fmt::format("'{}'", printable(program_.graph.rops[rop].name)); }
  bool verify_extent(const tamp::Extent& extent, const std::string& who) {
    const auto count = extent.length >= 0 ? program_.graph.lengths.size() : program_.graph.products.size();
    const bool exists = static_cast<size_t>(extent.length >= 0 ? extent.length : -1 - extent.length) < count && extent.over > 0 &&
                        std::find(program_.extents.begin(), program_.extents.end(), extent) != program_.extents.end();
    if (!exists) violations_.add(fmt::format("{} has an extent that no run says", who));
    return exists;
  }
  void verify_number(size_t rop, const ArgValue& value) {
    if (const auto* list = std::get_if<ArgList>(&value.value)) {
      for (const ArgValue& part : *list) verify_number(rop, part);
    } else if (const auto* number = std::get_if<ExtentArg>(&value.value)) {
      for (const tamp::Extent& extent : number->extents) verify_extent(extent, name(rop));
    }
  }

  // An rTask of a later phase of the same rOperator.
  struct Later {
    Accesses accesses;
    size_t phase, rtask;
    tamp::Extent extent;
    int64_t begin;
  };

  void verify_rop(size_t i) {
    const RKernel& rkernel = program_.rkernels[i];
    const auto& guards = program_.guards[i];
    if (guards.size() != rkernel.phases.size()) return violations_.add(fmt::format("{} has guards for other phases than its own", name(i)));
    if (std::none_of(guards.begin(), guards.end(), [](const auto& guard) { return guard.has_value(); })) return;
    if (rkernel.gang) return violations_.add(fmt::format("{} is a gang, all of whose rTasks must run", name(i)));
    std::vector<Later> later;
    for (size_t p = guards.size(); p-- > 0;) {
      std::vector<Accesses> own(static_cast<size_t>(rkernel.phases[p].rtasks));
      for (size_t t = 0; t < own.size(); ++t) {
        select::family_of(families_, rkernel)
            .accesses(program_.graph, program_.graph.rops[i], rkernel, static_cast<int>(p), static_cast<int64_t>(t), own[t]);
      }
      if (guards[p] && verify_phase(i, p)) {
        for (size_t t = 0; t < own.size() && !violations_.full(); ++t) verify_rtask(i, p, t, own[t], later);
      }
      for (size_t t = 0; t < own.size(); ++t) {
        const bool has_own = guards[p] && t < guards[p]->begins.size();
        later.push_back({std::move(own[t]), p, t, has_own ? guards[p]->extent : tamp::Extent(), has_own ? guards[p]->begins[t] : 0});
      }
    }
  }

  bool verify_phase(size_t i, size_t p) {
    const Guard& guard = *program_.guards[i][p];
    const Phase& phase = program_.rkernels[i].phases[p];
    if (!verify_extent(guard.extent, name(i))) return false;
    if (static_cast<int64_t>(guard.begins.size()) != phase.rtasks) {
      violations_.add(fmt::format("{} has a guard for {} rTasks, it has {}", name(i), guard.begins.size(), phase.rtasks));
      return false;
    }
    for (int64_t t = 0; t < phase.rtasks; ++t) {
      for (int64_t other = 0; phase.cluster > 1 && other < t; ++other) {
        if (phase.shared_tile_of(t) == phase.shared_tile_of(other) &&
            guard.begins[static_cast<size_t>(t)] != guard.begins[static_cast<size_t>(other)])
          violations_.add(fmt::format("{}: rTasks {} and {} of a cluster have different guards", name(i), other, t));
      }
    }
    return true;
  }

  void verify_rtask(size_t i, size_t p, size_t t, const Accesses& accesses, const std::vector<Later>& later) {
    const Guard& guard = *program_.guards[i][p];
    const int64_t begin = guard.begins[t];
    if (begin == 0) return;
    const auto wrong = [&](const std::string& why) {
      violations_.add(fmt::format("{} phase {} rTask {} does nothing in runs of up to {}, but {}", name(i), p, t, begin, why));
    };
    for (const Region& write : accesses.writes) {
      if (write.tensor.valid()) {
        const Tensor& tensor = program_.graph.tensor(write.tensor);
        if (!lies_behind(tensor, write.run, guard.extent, begin))
          return wrong(fmt::format("writes elements of '{}' that such a run needs", printable(tensor.name)));
        continue;
      }
      for (const Later& reader : later) {
        const bool is_alive = reader.extent != guard.extent || reader.begin < begin;
        if (is_alive && reads_scratch(reader.accesses, write.run))
          return wrong(fmt::format("rTask {} of phase {} reads what it leaves", reader.rtask, reader.phase));
      }
    }
  }

  // A value of a loop lies where it was made before, and is read there in the next iteration: what one of its makers leaves out is needed
  // by no reader of the tensors in that place.
  void verify_values() {
    const Graph& graph = program_.graph;
    std::set<BufferId> values;
    std::set<TensorId> read;
    for (const ROperator& rop : graph.rops) {
      if (rop.ends_iteration) values.insert(graph.tensor(rop.outputs[0]).place.buffer);
      for (const TensorId id : reads_of(rop)) read.insert(id);
    }
    for (const ROperator& rop : graph.rops) {
      const Tensor& made = graph.tensor(rop.outputs[0]);
      if (made.ends.empty() || !values.contains(made.place.buffer)) continue;
      for (const TensorId id : read) {
        const Tensor& other = graph.tensor(id);
        const bool is_there = other.place.buffer == made.place.buffer && other.place.offset == made.place.offset &&
                              other.place.strides == made.place.strides && other.shape == made.shape;
        for (const LengthAxis& axis : made.ends) {
          if (is_there && std::find(other.ends.begin(), other.ends.end(), axis) == other.ends.end())
            violations_.add(fmt::format("'{}' ends where '{}', which is the same value of a loop, does not", printable(made.name),
                                        printable(other.name)));
        }
      }
    }
  }

  static bool reads_scratch(const Accesses& accesses, const Run& written) {
    const auto end = [](const Run& run) { return run.offset + (run.count - 1) * run.stride + run.length; };
    return std::any_of(accesses.reads.begin(), accesses.reads.end(), [&](const Region& read) {
      return !read.tensor.valid() && read.run.offset < end(written) && written.offset < end(read.run);
    });
  }

  // Whether each element of the run is at `begin` or behind it along a dimension that is marked to end there.
  static bool lies_behind(const Tensor& tensor, const Run& run, const tamp::Extent& extent, int64_t begin) {
    return std::any_of(tensor.ends.begin(), tensor.ends.end(), [&](const LengthAxis& axis) {
      const size_t rank = tensor.shape.size();
      if (axis.extent != extent || axis.dim < 0 || static_cast<size_t>(axis.dim) >= rank || tensor.place.strides.size() != rank)
        return false;
      // From the largest stride to that of the dimension.
      std::vector<std::pair<int64_t, int64_t>> dims;  // stride, extent
      const int64_t own = tensor.place.strides[static_cast<size_t>(axis.dim)];
      for (size_t d = 0; d < rank; ++d) {
        if (tensor.shape[d] > 1 && tensor.place.strides[d] >= own) dims.emplace_back(tensor.place.strides[d], tensor.shape[d]);
      }
      std::sort(dims.rbegin(), dims.rend());
      if (own < 1 || dims.empty() || dims.back().first != own) return false;
      for (int64_t part = 0; part < run.count; ++part) {
        for (int64_t e = 0, rest = 0; e < run.length; e += own - rest) {  // up to where the coordinate changes
          rest = run.offset + part * run.stride + e - tensor.place.offset;
          int64_t at = -1;
          for (const auto& [stride, count] : dims) {
            at = rest / stride;
            if (rest < 0 || at >= count) return false;
            rest -= at * stride;
          }
          if (at < begin) return false;
        }
      }
      return true;
    });
  }

  const RProgram& program_;
  const select::Families& families_;
  Violations& violations_;
};

}  // namespace

void verify_guards(const RProgram& program, const select::Families& families, Violations& violations) {
  GuardVerifier(program, families, violations).run();
}

}  // namespace tamp::schedule
