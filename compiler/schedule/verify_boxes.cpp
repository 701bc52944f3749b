// Boxes of inputs (InputBoxes) are fetched by the copy engine, which checks nothing: it reads what the numbers of its map say. So these are
// compared with the tensor that they are of, with the copy engine's rules, and, rTask by rTask, with the memory that the family declares.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/schedule/verify_memory.h"
#include "compiler/support/text.h"

namespace tamp::schedule {
namespace {

constexpr int64_t kMostOfBox = 256;                     // extent of a box in any dimension
constexpr int64_t kMostExtent = int64_t{1} << 32;       // of the tensor
constexpr int64_t kMostStrideBytes = int64_t{1} << 40;  // less than that
constexpr int64_t kMostCoordinate = int64_t{1} << 30;   // the device has them in 32 bits
constexpr int64_t kCellBytes = 16;

struct Stretch {  // elements of a buffer
  int64_t begin, end;
};

// Sorted, and apart from each other.
void tidy(std::vector<Stretch>& all) {
  const auto before = [](const Stretch& a, const Stretch& b) { return a.begin < b.begin; };
  if (!std::is_sorted(all.begin(), all.end(), before)) std::sort(all.begin(), all.end(), before);
  size_t kept = 0;
  for (const Stretch& s : all) {
    if (s.begin >= s.end) continue;
    if (kept > 0 && s.begin <= all[kept - 1].end)
      all[kept - 1].end = std::max(all[kept - 1].end, s.end);
    else
      all[kept++] = s;
  }
  all.resize(kept);
}

// The first element of `parts` that is not in `whole`, or -1. Both are tidy.
int64_t first_outside(const std::vector<Stretch>& parts, const std::vector<Stretch>& whole) {
  auto at = whole.begin();
  for (const Stretch& part : parts) {
    while (at != whole.end() && at->end <= part.begin) ++at;
    if (at == whole.end() || at->begin > part.begin) return part.begin;
    if (at->end < part.end) return at->end;
  }
  return -1;
}

struct Boxes {
  const RProgram& program;
  size_t rop, phase_number;
  const Phase& phase;
  const InputBoxes& boxes;
  const select::Families& families;
  Violations& violations;

  void verify() {
    if (!verify_tensor()) return;
    verify_numbers();
    verify_rules();
    if (violations.none()) verify_reads();
  }

  const Tensor& tensor() const { return program.graph.tensor(boxes.tensor); }

  void refuse(const std::string& why) const {
    violations.add(fmt::format("'{}' ({}) phase {} has boxes {}", printable(program.graph.rops[rop].name), program.rkernels[rop].name,
                               phase_number, why));
  }

  bool verify_tensor() const {
    const std::vector<TensorId> operands = reads_of(program.graph.rops[rop]);
    const bool is_operand = std::find(operands.begin(), operands.end(), boxes.tensor) != operands.end();
    if (!is_operand) return refuse("of a tensor that is none of its operands"), false;
    const Buffer& buffer = program.graph.buffers[tensor().place.buffer.index()];
    if (buffer.kind != BufferKind::arena) return refuse("of a tensor that is not in the arena"), false;
    if (boxes.value_bytes != bytes_of(buffer.dtype))
      return refuse(fmt::format("of values of {} bytes, '{}' has {}", boxes.value_bytes, printable(tensor().name), bytes_of(buffer.dtype))),
             false;
    if (boxes.value_bytes != 1 && boxes.value_bytes != 2 && boxes.value_bytes != 4)
      return refuse("of values that have not 1, 2 or 4 bytes"), false;
    return true;
  }

  // Numbers that say which rTask has which boxes.
  void verify_numbers() const {
    const InputBoxes& b = boxes;
    const auto all = {b.box_w,    b.box_h,         b.tiles_w, b.tiles_h,         b.images,          b.splits,
                      b.n_blocks, b.blocks_beside, b.boxes,   b.boxes_per_split, b.boxes_per_chunk, b.boxes_per_copy};
    if (std::any_of(all.begin(), all.end(), [](int64_t n) { return n < 1 || n > kMostCoordinate; })) return refuse("with a number below 1");
    const int64_t of_group = b.n_blocks * b.splits * b.tiles();
    if (phase.rtasks % of_group != 0) return refuse(fmt::format("of {} rTasks in each group, and {} rTasks", of_group, phase.rtasks));
    if (b.boxes <= (b.splits - 1) * b.boxes_per_split || b.boxes > b.splits * b.boxes_per_split)
      refuse(fmt::format("of which {} splits have {} each, and there are {}", b.splits, b.boxes_per_split, b.boxes));
    if (b.boxes_per_copy != 1 && b.boxes_per_copy != b.boxes_per_chunk)
      refuse(fmt::format("of which a copy brings {}, and a chunk has {}", b.boxes_per_copy, b.boxes_per_chunk));
    const auto places = {b.begin_w, b.begin_h, b.step_w, b.step_h, b.group_channels};
    if (std::any_of(places.begin(), places.end(), [](int64_t n) { return n < -kMostCoordinate || n > kMostCoordinate; }))
      refuse("that begin too far away");
  }

  // What the copy engine asks of a map, and that all of the map's tensor lies in the buffer.
  void verify_rules() const {
    const InputBoxes& b = boxes;
    const Placement& place = tensor().place;
    const int64_t cell = kCellBytes / b.value_bytes;
    if (b.box_w > kMostOfBox || b.box_h > kMostOfBox || b.boxes_per_copy > kMostOfBox)
      refuse(
          fmt::format("of {} x {} pixels, {} in a copy; the copy engine takes up to {}", b.box_w, b.box_h, b.boxes_per_copy, kMostOfBox));
    if (place.offset % cell != 0) refuse(fmt::format("from element {}, which is not at a multiple of 16 bytes", place.offset));
    if (b.strides[0] != 1) refuse("whose channels are not side by side");
    int64_t last = place.offset;
    for (size_t d = 0; d < 4; ++d) {
      if (b.extents[d] < 1 || b.extents[d] > kMostExtent) return refuse(fmt::format("of a tensor of extent {}", b.extents[d]));
      const bool wide = d > 0 && (b.strides[d] < cell || b.strides[d] % cell != 0 || b.strides[d] * b.value_bytes >= kMostStrideBytes);
      if (wide) return refuse(fmt::format("with a stride of {} elements", b.strides[d]));
      last += (b.extents[d] - 1) * b.strides[d];
    }
    const int64_t elements = program.graph.buffers[place.buffer.index()].elements;
    if (last >= elements) refuse(fmt::format("up to element {} of a buffer of {}", last, elements));
    if (b.group_channels % cell != 0 && phase.rtasks > b.n_blocks * b.splits * b.tiles())
      refuse(fmt::format("of groups of {} channels, which do not begin at multiples of 16 bytes", b.group_channels));
    if (b.boxes_per_copy > 1 && (b.extents[0] % b.channels() != 0 || b.group_channels % b.channels() != 0))
      refuse(fmt::format("several in a copy, of {} channels a group of {}", b.group_channels, b.extents[0]));
  }

  // [from, to) of the box's extent in dimension `d` that lies in the tensor.
  Stretch inside(size_t d, int64_t from, int64_t count) const {
    return {std::clamp<int64_t>(from, 0, boxes.extents[d]), std::clamp<int64_t>(from + count, 0, boxes.extents[d])};
  }

  // What the rTask's copies read; elsewhere they write zeros.
  void find_copied(int64_t index, std::vector<Stretch>& copied) const {
    const InputBoxes& b = boxes;
    const int64_t tile = index % b.tiles(), split = index / b.tiles() % b.splits, group = index / b.tiles() / b.splits / b.n_blocks;
    const int64_t left = std::min(b.boxes_per_split, b.boxes - split * b.boxes_per_split);
    const int64_t count = (left + b.boxes_per_copy - 1) / b.boxes_per_copy * b.boxes_per_copy;
    const Stretch c = inside(0, group * b.group_channels + split * b.boxes_per_split * b.channels(), count * b.channels());
    const Stretch w = inside(1, b.begin_w + tile % b.tiles_w * b.step_w, b.box_w);
    const Stretch h = inside(2, b.begin_h + tile / b.tiles_w % b.tiles_h * b.step_h, b.box_h);
    const Stretch image = inside(3, tile / b.tiles_w / b.tiles_h, 1);
    copied.clear();
    if (image.begin == image.end || c.begin == c.end) return;
    for (int64_t y = h.begin; y < h.end; ++y) {
      const int64_t row = tensor().place.offset + image.begin * b.strides[3] + y * b.strides[2];
      for (int64_t x = w.begin; x < w.end; ++x) {
        const int64_t begin = row + x * b.strides[1] + c.begin, end = begin + c.end - c.begin;
        if (!copied.empty() && copied.back().end == begin)
          copied.back().end = end;
        else
          copied.push_back({begin, end});
      }
    }
  }

  void verify_reads() const {
    const kernels::Family& family = select::family_of(families, program.rkernels[rop]);
    std::vector<Stretch> copied, declared;
    Accesses accesses;
    for (int64_t t = 0; t < phase.rtasks; ++t) {
      accesses.reads.clear(), accesses.writes.clear();
      family.accesses(program.graph, program.graph.rops[rop], program.rkernels[rop], static_cast<int>(phase_number), t, accesses);
      find_copied(t, copied);
      tidy(copied);
      find_declared(accesses, declared);
      const int64_t outside = first_outside(copied, declared);
      if (outside >= 0)
        return refuse(
            fmt::format("that bring rTask {} element {} of '{}', which it does not declare to read", t, outside, printable(tensor().name)));
      const int64_t missing = is_read_by_boxes_alone() ? first_outside(declared, copied) : -1;
      if (missing >= 0)
        return refuse(
            fmt::format("that do not bring rTask {} element {} of '{}', which it declares to read", t, missing, printable(tensor().name)));
    }
  }

  // A residual, say, may be of the same buffer, and is loaded by the body.
  bool is_read_by_boxes_alone() const {
    const std::vector<TensorId> operands = reads_of(program.graph.rops[rop]);
    const auto is_there = [&](TensorId id) { return program.graph.tensor(id).place.buffer == tensor().place.buffer; };
    return std::count_if(operands.begin(), operands.end(), is_there) == 1;
  }

  void find_declared(const Accesses& accesses, std::vector<Stretch>& declared) const {
    declared.clear();
    for (const Region& region : accesses.reads) {
      const bool same = region.tensor.valid() && program.graph.tensor(region.tensor).place.buffer == tensor().place.buffer;
      for (int64_t i = 0; same && i < region.run.count; ++i) {
        const int64_t begin = region.run.offset + i * region.run.stride;
        declared.push_back({begin, begin + region.run.length});
      }
    }
    tidy(declared);
  }
};

}  // namespace

void verify_boxes(const RProgram& program, const select::Families& families, Violations& violations) {
  for (size_t i = 0; i < program.rkernels.size(); ++i) {
    for (size_t p = 0; p < program.rkernels[i].phases.size() && !violations.full(); ++p) {
      const Phase& phase = program.rkernels[i].phases[p];
      if (phase.boxes) Boxes{program, i, p, phase, *phase.boxes, families, violations}.verify();
    }
  }
}

}  // namespace tamp::schedule
