#include "test/support/slow_proof.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "compiler/schedule/dependencies.h"
#include "compiler/schedule/schedule.h"
#include "test/support/tiny_programs.h"

namespace tamp::test {
namespace {

struct Touch {
  size_t instruction;
  bool is_write;
};

class SlowProof {
 public:
  explicit SlowProof(const RProgram& program) : program_(program) {}

  bool accepts() { return each_rtask_once() && counts_are_right() && reaches_an_end() && memory_is_right(); }

 private:
  const Instruction& instruction(size_t n) const { return *all_[n]; }

  bool each_rtask_once() {
    std::map<std::tuple<int32_t, int32_t, int64_t>, int> seen;
    for (const auto& lane : program_.lanes) {
      for (const Instruction& i : lane) {
        if (i.rtask.rop.valid()) ++seen[{i.rtask.rop.value, i.rtask.phase, i.rtask.index}];
      }
    }
    size_t wanted = 0;
    for (const RKernel& rkernel : program_.rkernels) wanted += static_cast<size_t>(rkernel.rtasks());
    return seen.size() == wanted && std::all_of(seen.begin(), seen.end(), [](const auto& s) { return s.second == 1; });
  }

  bool counts_are_right() {
    std::vector<int64_t> signals(program_.events.size(), 0);
    for (const auto& lane : program_.lanes) {
      for (const Instruction& i : lane) {
        if (i.signal.valid()) ++signals[i.signal.index()];
      }
    }
    for (size_t e = 0; e < signals.size(); ++e) {
      if (signals[e] != program_.events[e].count) return false;
    }
    return true;
  }

  // Transitive closure of lane order and signal -> Wait; an instruction that reaches itself never runs.
  bool reaches_an_end() {
    std::vector<std::pair<size_t, size_t>> edges;
    for (const auto& lane : program_.lanes) {
      for (size_t p = 0; p < lane.size(); ++p) {
        if (p > 0) edges.emplace_back(all_.size() - 1, all_.size());
        all_.push_back(&lane[p]);
      }
    }
    for (size_t a = 0; a < all_.size(); ++a) {
      for (size_t b = 0; b < all_.size(); ++b) {
        const auto& waits = instruction(b).waits;
        if (instruction(a).signal.valid() && std::count(waits.begin(), waits.end(), instruction(a).signal) > 0) edges.emplace_back(a, b);
      }
    }
    before_.assign(all_.size(), std::vector<bool>(all_.size(), false));
    for (const auto& [a, b] : edges) before_[a][b] = true;
    for (size_t k = 0; k < all_.size(); ++k) {
      for (size_t a = 0; a < all_.size(); ++a) {
        for (size_t b = 0; before_[a][k] && b < all_.size(); ++b) {
          if (before_[k][b]) before_[a][b] = true;
        }
      }
    }
    for (size_t a = 0; a < all_.size(); ++a) {
      if (before_[a][a]) return false;
    }
    return true;
  }

  bool memory_is_right() {
    const size_t buffers = program_.graph.buffers.size();
    std::map<std::pair<size_t, int64_t>, std::vector<Touch>> elements;  // (buffer or buffers + rOperator, element)
    for (size_t n = 0; n < all_.size(); ++n) {
      const RTask& t = instruction(n).rtask;
      if (!t.rop.valid()) continue;
      const RKernel& rkernel = program_.rkernels[t.rop.index()];
      Accesses found;
      select::family_of(tiny_families(), rkernel).accesses(program_.graph, program_.graph.rop(t.rop), rkernel, t.phase, t.index, found);
      for (const bool is_write : {false, true}) {
        for (const Region& region : is_write ? found.writes : found.reads) {
          const size_t space = region.tensor.valid() ? program_.graph.tensor(region.tensor).place.buffer.index() : buffers + t.rop.index();
          for (int64_t i = 0; i < region.run.count; ++i) {
            for (int64_t j = 0; j < region.run.length; ++j) {
              elements[{space, region.run.offset + i * region.run.stride + j}].push_back({n, is_write});
            }
          }
        }
      }
    }
    return written_once_and_then_read(elements) && complete(elements) && arena_is_shared_in_order(elements) && weights_are_there(elements);
  }

  using Elements = std::map<std::pair<size_t, int64_t>, std::vector<Touch>>;

  // Nobody writes there.
  bool is_read_only(size_t space) const {
    if (space >= program_.graph.buffers.size()) return false;
    const BufferKind kind = program_.graph.buffers[space].kind;
    return kind == BufferKind::input || kind == BufferKind::constant;
  }

  // Every constant element that is read lies in a blob, and so does every byte of a ring.
  bool weights_are_there(const Elements& elements) const {
    for (const auto& [key, touches] : elements) {
      if (key.first >= program_.graph.buffers.size() || program_.graph.buffers[key.first].kind != BufferKind::constant) continue;
      const bool held = std::any_of(program_.weights.begin(), program_.weights.end(),
                                    [&, element = key.second, space = key.first](const WeightBlob& blob) {
                                      return blob.constant.valid() && blob.constant == program_.graph.buffers[space].constant &&
                                             element >= 0 && 4 * element + 4 <= blob.bytes;
                                    });
      if (!held) return false;
    }
    for (size_t i = 0; i < program_.rkernels.size(); ++i) {
      for (size_t p = 0; p < program_.rkernels[i].phases.size(); ++p) {
        const RingWeights& ring = program_.rkernels[i].phases[p].ring;
        for (int64_t byte = 0; byte < ring.chunk_bytes * ring.chunks_per_rtask * ring.blocks; ++byte) {
          const bool held = std::any_of(program_.weights.begin(), program_.weights.end(), [&](const WeightBlob& blob) {
            return blob.rop.valid() && blob.rop.index() == i && blob.phase == static_cast<int32_t>(p) && byte < blob.bytes;
          });
          if (!held) return false;
        }
      }
    }
    return true;
  }

  bool written_once_and_then_read(const Elements& elements) const {
    for (const auto& [key, touches] : elements) {
      std::vector<size_t> writers;
      for (const Touch& t : touches) {
        if (t.is_write) writers.push_back(t.instruction);
      }
      if (is_read_only(key.first)) {
        if (!writers.empty()) return false;
        continue;
      }
      if (writers.size() != 1) return false;
      for (const Touch& t : touches) {
        if (!t.is_write && !before_[writers[0]][t.instruction]) return false;
      }
    }
    return true;
  }

  bool complete(const Elements& elements) const {
    for (const ROperator& rop : program_.graph.rops) {
      const Tensor& tensor = program_.graph.tensor(rop.outputs[0]);
      for (int64_t flat = 0; flat < element_count(tensor.shape); ++flat) {
        int64_t rest = flat, at = tensor.place.offset;
        for (size_t d = tensor.shape.size(); d-- > 0;) {
          at += rest % tensor.shape[d] * tensor.place.strides[d];
          rest /= tensor.shape[d];
        }
        if (elements.count({tensor.place.buffer.index(), at}) == 0) return false;
      }
    }
    return true;
  }

  bool arena_is_shared_in_order(const Elements& elements) const {
    const size_t buffers = program_.graph.buffers.size();
    std::map<int64_t, std::vector<std::pair<size_t, const std::vector<Touch>*>>> bytes;
    for (const auto& [key, touches] : elements) {
      const auto& [space, element] = key;
      if (space < buffers && program_.graph.buffers[space].kind != BufferKind::arena) continue;
      const int64_t offset = space < buffers ? program_.memory.buffer_offset[space] : program_.memory.scratch_offset[space - buffers];
      if (offset < 0 || offset % 256 != 0) return false;
      for (int64_t b = 0; b < 4; ++b) bytes[offset + 4 * element + b].emplace_back(space, &touches);
    }
    for (const auto& [byte, tenants] : bytes) {
      if (byte >= program_.memory.arena_bytes) return false;
      for (const auto& [a, of_a] : tenants) {
        for (const auto& [b, of_b] : tenants) {
          if (a < b && !all_before(*of_a, *of_b) && !all_before(*of_b, *of_a)) return false;
        }
      }
    }
    return true;
  }

  bool all_before(const std::vector<Touch>& first, const std::vector<Touch>& second) const {
    for (const Touch& f : first) {
      for (const Touch& s : second) {
        if (!before_[f.instruction][s.instruction]) return false;
      }
    }
    return true;
  }

  const RProgram& program_;
  std::vector<const Instruction*> all_;
  std::vector<std::vector<bool>> before_;
};

}  // namespace

bool slow_proof_accepts(const RProgram& program) { return SlowProof(program).accepts(); }

}  // namespace tamp::test
