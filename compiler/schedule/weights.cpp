// The list of what NAME.weights holds. Bytes are written by codegen; only the sizes are needed here.
#include <set>

#include "compiler/schedule/memory_plan.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::schedule {
namespace {

void constants_in(const ArgValue& value, const Graph& graph, std::vector<TensorId>& found) {
  std::visit(overloaded{
                 [&](const TensorArg& arg) {
                   if (arg.tensor.valid() && graph.tensor(arg.tensor).role == Role::constant) found.push_back(arg.tensor);
                 },
                 [&](const ArgList& list) {
                   for (const ArgValue& inner : list) constants_in(inner, graph, found);
                 },
                 [](int64_t) {},
                 [](double) {},
                 [](const ScratchArg&) {},
                 [](const PackedArg&) {},
                 [](const DivisorArg&) {},
                 [](const NoTensorArg&) {},
             },
             value.value);
}

// The tensor whose data a placed constant lies in: views share it.
TensorId data_of(const Graph& graph, TensorId id) {
  const BufferId buffer = graph.tensor(id).place.buffer;
  if (!buffer.valid()) return id;
  const Buffer& b = graph.buffers[buffer.index()];
  return b.kind == BufferKind::constant && b.constant.valid() ? b.constant : id;
}

void append(RProgram& program, WeightBlob blob) {
  blob.offset = (program.weight_bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
  program.weight_bytes = blob.offset + blob.bytes;
  program.weights.push_back(std::move(blob));
}

}  // namespace

void list_weights(RProgram& program, const select::Families& families) {
  const Graph& graph = program.graph;
  program.weights.clear();
  program.weight_bytes = 0;
  std::set<TensorId> listed;
  for (const RKernel& rkernel : program.rkernels) {
    std::vector<TensorId> constants;
    for (const Phase& phase : rkernel.phases) {
      for (const Arg& arg : phase.args) constants_in(arg.value, graph, constants);
    }
    for (const TensorId id : constants) {
      const TensorId data = data_of(graph, id);
      if (!listed.insert(data).second) continue;
      const Tensor& tensor = graph.tensor(data);
      TAMP_CHECK(tensor.data != nullptr, "constant '" + tensor.name + "' has no data");
      append(program, {tensor.name, data, {}, 0, 0, static_cast<int64_t>(tensor.data->size())});
    }
  }
  for (size_t i = 0; i < program.rkernels.size(); ++i) {
    const RKernel& rkernel = program.rkernels[i];
    const ROperator& rop = graph.rops[i];
    for (size_t p = 0; p < rkernel.phases.size(); ++p) {
      const Bytes packed = select::family_of(families, rkernel).pack(graph, rop, rkernel, static_cast<int>(p));
      if (packed.empty()) continue;
      const std::string name = rop.name + " packed " + rkernel.name;
      append(program, {name, {}, ROperatorId(static_cast<int64_t>(i)), static_cast<int32_t>(p), 0, static_cast<int64_t>(packed.size())});
    }
  }
}

}  // namespace tamp::schedule
