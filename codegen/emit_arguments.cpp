// Prints the argument structs of the bodies: {name, value} pairs become designated initialisers, tensors become places
// in the arena, the weights, or the caller's buffers.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "codegen/emit.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::codegen {
namespace {

constexpr size_t kMostOrigins = 12;  // named in a comment; NAME.rprogram.json has all of them

// One record's view of the plan.
class Printer {
 public:
  Printer(const Plan& plan, size_t record) : plan_(plan), record_(record) {}

  std::string print(const ArgValue& value) const {
    return std::visit(overloaded{
                          [](int64_t v) { return fmt::format("{}", v); },
                          [](double v) { return float_text(v); },
                          [&](const TensorArg& t) { return tensor(t); },
                          [&](const ScratchArg& s) { return place("rk::kArena", scratch_offset() + s.offset * 4); },
                          [&](const ExchangeArg& e) { return place("rk::kArena", exchange_offset() + e.offset * 8); },
                          [&](const PackedArg& p) { return place("rk::kWeights", packed_offset() + p.offset_bytes); },
                          [](const DivisorArg& d) { return divisor_text(d.divisor); },
                          [](const NoTensorArg&) { return std::string("{rk::kNullBase, 0, 0}"); },
                          [&](const ArgList& list) { return braces(list); },
                      },
                      value.value);
  }

 private:
  static std::string float_text(double v) {
    const auto f = static_cast<float>(v);
    if (std::isinf(f)) return f > 0 ? "INFINITY" : "-INFINITY";
    if (std::isnan(f)) return "NAN";
    const std::string text = fmt::format("{}", f);
    return text.find_first_of(".e") == std::string::npos ? text + ".0f" : text + "f";
  }

  static std::string place(const std::string& base, int64_t bytes) { return fmt::format("{{{}, 0, {}}}", base, bytes); }

  int64_t scratch_offset() const {
    const int64_t offset = plan_.program.memory.scratch_offset[plan_.records[record_].rop.index()];
    TAMP_CHECK(offset >= 0, "scratch of '" + plan_.records[record_].text + "' has no place");
    return offset;
  }

  int64_t exchange_offset() const {
    const int64_t offset = plan_.program.memory.exchange_offset[plan_.records[record_].rop.index()];
    TAMP_CHECK(offset >= 0, "exchange of '" + plan_.records[record_].text + "' has no place");
    return offset;
  }

  int64_t packed_offset() const {
    TAMP_CHECK(plan_.blob_of_record[record_].size() == 1, "packed weights of '" + plan_.records[record_].text + "'");
    return plan_.program.weights[static_cast<size_t>(plan_.blob_of_record[record_][0])].offset;
  }

  std::string tensor(const TensorArg& arg) const {
    const Graph& graph = plan_.program.graph;
    const Tensor& t = graph.tensor(arg.tensor);
    const Buffer& buffer = graph.buffers[t.place.buffer.index()];
    const int64_t bytes = (t.place.offset + arg.extra) * bytes_of(buffer.dtype);
    switch (buffer.kind) {
      case BufferKind::arena: return place("rk::kArena", plan_.program.memory.buffer_offset[t.place.buffer.index()] + bytes);
      case BufferKind::input: return place(fmt::format("rk::kFirstPort + {}", buffer.io_index), bytes);
      case BufferKind::output:
        return place(fmt::format("rk::kFirstPort + {}", static_cast<int64_t>(graph.inputs.size()) + buffer.io_index), bytes);
      case BufferKind::constant: {
        const int64_t blob = plan_.blob_of_constant[buffer.constant.index()];
        TAMP_CHECK(blob >= 0, "constant '" + t.name + "' is not among the weights");
        return place("rk::kWeights", plan_.program.weights[static_cast<size_t>(blob)].offset + bytes);
      }
    }
    TAMP_CHECK(false, "buffer kind");
  }

  std::string braces(const ArgList& list) const {
    std::vector<std::string> parts;
    for (const ArgValue& value : list) parts.push_back(print(value));
    return fmt::format("{{{}}}", join(parts, ", "));
  }

  const Plan& plan_;
  size_t record_;
};

// "conv1: Conv (relu)  f32[1,3,224,224], f32[64,3,7,7] -> f32[1,64,112,112]"
std::string headline(const Graph& graph, const ROperator& rop) {
  std::vector<std::string> inputs, outputs;
  for (const TensorId id : rop.inputs) {
    if (id.valid()) inputs.push_back(describe(graph.tensor(id)));
  }
  for (const TensorId id : rop.outputs) outputs.push_back(describe(graph.tensor(id)));
  std::string extras;
  if (rop.epilogue.bias.valid()) extras += " + bias";
  if (rop.epilogue.residual.valid()) extras += " + residual";
  if (rop.epilogue.activation != Activation::none) extras += fmt::format(" + {}", name_of(rop.epilogue.activation));
  if (const auto* chain = std::get_if<Elementwise>(&rop.attrs)) {
    std::vector<std::string> steps;
    for (const ElementwiseStep& step : chain->steps) steps.push_back(name_of(step.op));
    extras += fmt::format(" ({})", join(steps, ", "));
  }
  return fmt::format("{}: {}{}  {} -> {}", comment(rop.name), name_of(rop.attrs), extras, join(inputs, ", "), join(outputs, ", "));
}

}  // namespace

Magic magic_of(int64_t divisor) {
  TAMP_CHECK(divisor >= 1 && divisor < (int64_t{1} << 31), "divisor out of range");
  if (divisor == 1) return {0, 0};
  const int p = 31 + static_cast<int>(std::bit_width(static_cast<uint64_t>(divisor - 1)));
  const uint64_t multiplier = ((uint64_t{1} << p) + static_cast<uint64_t>(divisor) - 1) / static_cast<uint64_t>(divisor);
  return {static_cast<uint32_t>(multiplier), static_cast<uint32_t>(p - 32)};
}

void emit_arguments(SourceWriter& w, const Plan& plan) {
  w.section("rOperators: what each body is told");
  const RProgram& program = plan.program;
  for (size_t r = 0; r < plan.records.size(); ++r) {
    const RecordName& record = plan.records[r];
    const ROperator& rop = program.graph.rop(record.rop);
    const Phase& phase = plan.phase(r);
    if (record.phase == 0) {
      w.line("// {}", headline(program.graph, rop));
      std::vector<std::string> origin;
      for (size_t i = 0; i < std::min(rop.origin.size(), kMostOrigins); ++i) origin.push_back(comment(rop.origin[i]));
      if (rop.origin.size() > kMostOrigins) origin.push_back(fmt::format("and {} more", rop.origin.size() - kMostOrigins));
      w.line("// rKernel {}, {} rTasks (onnx: {})", comment(program.rkernels[record.rop.index()].name),
             program.rkernels[record.rop.index()].rtasks(), join(origin, ", "));
    }
    const Printer printer(plan, r);
    if (program.launches)
      open_call(w, plan, r);
    else
      w.open(fmt::format("__device__ const rk::Padded<{}> {} = {{", phase.args_type, record.symbol));
    for (const Arg& arg : phase.args) w.line(".{} = {},", arg.name, printer.print(arg.value));
    w.close(program.launches ? "}};" : "};");
  }
}

}  // namespace tamp::codegen
