// The list of what NAME.weights holds. codegen writes the bytes; here the bytes only decide which blobs are equal. Unrolled recurrent
// networks use one matrix in a hundred rOperators, which must not become a hundred copies.
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/ir/large_bytes.h"
#include "compiler/schedule/memory_plan.h"
#include "compiler/support/error.h"
#include "compiler/support/parallel.h"

namespace tamp::schedule {
namespace {

// The tensor whose data a placed constant or a view of one uses.
TensorId data_of(const Graph& graph, TensorId id) {
  const BufferId buffer = graph.tensor(id).place.buffer;
  if (!buffer.valid()) return id;
  const Buffer& b = graph.buffers[buffer.index()];
  return b.kind == BufferKind::constant && b.constant.valid() ? b.constant : id;
}

void constants_in(const ArgValue& value, const Graph& graph, std::vector<TensorId>& found) {
  const auto add = [&](TensorId id) {
    if (!id.valid()) return;
    const TensorId data = data_of(graph, id);
    if (graph.tensor(data).role == Role::constant) found.push_back(data);
  };
  if (const auto* arg = std::get_if<TensorArg>(&value.value)) add(arg->tensor);
  if (const auto* arg = std::get_if<WordsArg>(&value.value)) add(arg->tensor);
  if (const auto* list = std::get_if<ArgList>(&value.value)) {
    for (const ArgValue& inner : *list) constants_in(inner, graph, found);
  }
}

// Tells bytes apart, by their number and a hash. codegen compares the bytes when it writes them.
using Print = std::pair<size_t, size_t>;

Print print_of(const Bytes& bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return {bytes.size(), std::hash<std::string_view>{}(text)};
}

// A blob without its place, in the order of the file.
struct Unplaced {
  RProgram* program;
  WeightBlob blob;
};

void add_constants(RProgram& program, std::vector<Unplaced>& parts) {
  const Graph& graph = program.graph;
  std::set<TensorId> listed;
  for (const RKernel& rkernel : program.rkernels) {
    std::vector<TensorId> constants;
    for (const Phase& phase : rkernel.phases) {
      for (const Arg& arg : phase.args) constants_in(arg.value, graph, constants);
    }
    for (const TensorId data : constants) {
      if (!listed.insert(data).second) continue;
      const Tensor& tensor = graph.tensor(data);
      TAMP_CHECK(tensor.data != nullptr, "constant '" + tensor.name + "' has no data");
      parts.push_back({&program, {tensor.name, data, {}, 0, 0, 0}});
    }
  }
}

void add_packed(RProgram& program, std::vector<Unplaced>& parts) {
  for (size_t i = 0; i < program.rkernels.size(); ++i) {
    const RKernel& rkernel = program.rkernels[i];
    for (size_t p = 0; p < rkernel.phases.size(); ++p) {
      const ROperatorId rop(static_cast<int64_t>(i));
      parts.push_back({&program, {program.graph.rop(rop).name + " packed " + rkernel.name, {}, rop, static_cast<int32_t>(p), 0, 0}});
    }
  }
}

Print print_of(const Unplaced& part, const select::Families& families) {
  const Graph& graph = part.program->graph;
  if (part.blob.constant.valid()) return print_of(*graph.tensor(part.blob.constant).data.hold());
  const RKernel& rkernel = part.program->rkernels[part.blob.rop.index()];
  return print_of(*hold_large(select::family_of(families, rkernel).pack(graph, graph.rop(part.blob.rop), rkernel, part.blob.phase)));
}

// What the bytes take in memory, and those that they are made of.
size_t cost_of(const Unplaced& part) {
  const Graph& graph = part.program->graph;
  if (part.blob.constant.valid()) return graph.tensor(part.blob.constant).data.size();
  return 2 * constant_bytes(graph, graph.rop(part.blob.rop));
}

}  // namespace

void list_weights(const std::vector<RProgram*>& programs, const select::Families& families) {
  std::vector<Unplaced> parts;
  for (RProgram* program : programs) {
    program->weights.clear();
    add_constants(*program, parts);
    add_packed(*program, parts);
  }
  std::vector<size_t> costs;
  ConstantReads reads;
  for (const Unplaced& part : parts) {
    costs.push_back(cost_of(part));
    if (part.blob.rop.valid()) reads.expect(part.program->graph, part.program->graph.rop(part.blob.rop));
  }
  std::vector<Print> prints(parts.size());
  std::map<Print, int64_t> offsets;
  int64_t file_bytes = 0;
  const auto place = [&](WeightBlob& blob, const Print& print) {
    blob.bytes = static_cast<int64_t>(print.first);
    const auto [found, is_new] = offsets.emplace(print, (file_bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes);
    blob.offset = found->second;
    if (is_new) file_bytes = blob.offset + blob.bytes;
  };
  std::mutex mutex;
  make_in_order(
      costs, kPackingBytes,
      [&](size_t i) {
        const auto& [program, blob] = parts[i];
        prints[i] = print_of(parts[i], families);
        const std::scoped_lock lock(mutex);
        if (blob.rop.valid()) reads.end(program->graph, program->graph.rop(blob.rop));
      },
      [&](size_t i) {
        const auto& [program, blob] = parts[i];
        if (blob.rop.valid() && prints[i].first == 0) return;
        place(parts[i].blob, prints[i]);
        program->weights.push_back(blob);
      });
  for (RProgram* program : programs) {
    program->weight_bytes = file_bytes;
    forget_data(program->graph);
  }
}

}  // namespace tamp::schedule
