// The list of what NAME.weights holds. codegen writes the bytes; here the bytes only decide which blobs are equal. Unrolled recurrent
// networks use one matrix in a hundred rOperators, which must not become a hundred copies.
#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

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

std::string_view view(const Bytes& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// Gives every blob its offset; equal blobs get the same.
struct WeightsFile {
  int64_t file_bytes = 0;
  std::map<size_t, std::vector<std::pair<std::shared_ptr<const Bytes>, int64_t>>> by_hash{};

  void append(RProgram& program, WeightBlob blob, std::shared_ptr<const Bytes> bytes) {
    blob.bytes = static_cast<int64_t>(bytes->size());
    auto& equals = by_hash[std::hash<std::string_view>{}(view(*bytes))];
    for (const auto& [known, offset] : equals) {
      if (view(*known) != view(*bytes)) continue;
      blob.offset = offset;
      program.weights.push_back(std::move(blob));
      return;
    }
    blob.offset = (file_bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
    file_bytes = blob.offset + blob.bytes;
    equals.emplace_back(std::move(bytes), blob.offset);
    program.weights.push_back(std::move(blob));
  }
};

void list_weights_of(RProgram& program, const select::Families& families, WeightsFile& file) {
  const Graph& graph = program.graph;
  program.weights.clear();
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
      file.append(program, {tensor.name, data, {}, 0, 0, 0}, tensor.data);
    }
  }
  std::vector<WeightBlob> blobs;
  for (size_t i = 0; i < program.rkernels.size(); ++i) {
    const RKernel& rkernel = program.rkernels[i];
    for (size_t p = 0; p < rkernel.phases.size(); ++p)
      blobs.push_back(
          {graph.rops[i].name + " packed " + rkernel.name, {}, ROperatorId(static_cast<int64_t>(i)), static_cast<int32_t>(p), 0, 0});
  }
  // Reads some blobs at a time: where many are equal, few are kept in memory.
  const size_t some = 2 * processor_count();
  std::vector<std::shared_ptr<const Bytes>> packed(some);
  for (size_t begin = 0; begin < blobs.size(); begin += some) {
    const size_t count = std::min(some, blobs.size() - begin);
    in_parallel(count, processor_count(), [&](size_t k) {
      const WeightBlob& blob = blobs[begin + k];
      const RKernel& rkernel = program.rkernels[blob.rop.index()];
      packed[k] = std::make_shared<const Bytes>(select::family_of(families, rkernel).pack(graph, graph.rop(blob.rop), rkernel, blob.phase));
    });
    for (size_t k = 0; k < count; ++k) {
      if (!packed[k]->empty()) file.append(program, std::move(blobs[begin + k]), std::move(packed[k]));
    }
  }
}

}  // namespace

void list_weights(const std::vector<RProgram*>& programs, const select::Families& families) {
  WeightsFile file;
  for (RProgram* program : programs) list_weights_of(*program, families, file);
  for (RProgram* program : programs) program->weight_bytes = file.file_bytes;
}

}  // namespace tamp::schedule
