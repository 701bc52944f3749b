// Prints the argument structs of the bodies: {name, value} pairs become designated initialisers, tensors become places
// in the arena, the weights, or the caller's buffers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "codegen/emit.h"
#include "compiler/ir/fused.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::codegen {
namespace {

constexpr size_t kMostOrigins = 12;  // of origins named in a comment; NAME.rprogram.json has all of them

// One record's view of the plan.
class Printer {
 public:
  Printer(const Plan& plan, size_t record) : plan_(plan), record_(record) {}

  std::string print(const ArgValue& value) const {
    return std::visit(overloaded{
                          [&](int64_t v) { return value.names.empty() ? fmt::format("{}", v) : value.names[0]; },
                          [](double v) { return float_text(v); },
                          [&](const TensorArg& t) { return tensor(t); },
                          [&](const ScratchArg& s) { return place("arena", scratch_offset() + s.offset * 4); },
                          [&](const ExchangeArg& e) { return place("arena", exchange_offset() + e.offset * 8); },
                          [&](const WordsArg& arg) { return words(arg); },
                          [&](const PackedArg& p) { return place("weights", packed_blob().offset + p.offset_bytes); },
                          [](const DivisorArg& d) { return fmt::format("rk::divisor({})", d.divisor); },
                          [&](const ExtentArg& e) { return fmt::format("{}", largest_value(plan_.program.graph, e)); },
                          [](const NoTensorArg&) { return std::string("nothing()"); },
                          [&](const ArgList& list) { return value.names.empty() ? braces(list) : braces(list, value.names); },
                      },
                      value.value);
  }

  // Whether a field has this value without being named.
  bool is_default(const ArgValue& value) const {
    return std::visit(
        overloaded{
            [](int64_t v) { return v == 0; },
            [](double v) { return v == 0 && !std::signbit(v); },
            [&](const WordsArg& arg) { return !is_in_words(arg) && arg.else_null; },
            [](const DivisorArg& d) { return d.divisor == 1; },
            [](const NoTensorArg&) { return true; },
            [&](const ArgList& list) { return std::all_of(list.begin(), list.end(), [&](const auto& v) { return is_default(v); }); },
            [](const auto&) { return false; },
        },
        value.value);
  }

  // For a comment: which tensors the addresses of a value belong to; empty if there are no addresses.
  std::string what(const ArgValue& value) const {
    std::vector<std::string> names;
    collect(value, names);
    return join(names, ", ");
  }

 private:
  static std::string float_text(double v) {
    const auto f = static_cast<float>(v);
    if (std::isinf(f)) return f > 0 ? "INFINITY" : "-INFINITY";
    if (std::isnan(f)) return "NAN";
    const std::string text = fmt::format("{}", f);
    return text.find_first_of(".e") == std::string::npos ? text + ".0f" : text + "f";
  }

  static std::string place(const char* base, int64_t bytes) { return fmt::format("{}({})", base, bytes); }
  // A position in an input or output; byte 0 is not written.
  static std::string port(const char* kind, int64_t number, int64_t bytes) {
    return bytes == 0 ? fmt::format("{}({})", kind, number) : fmt::format("{}({}, {})", kind, number, bytes);
  }

  void collect(const ArgValue& value, std::vector<std::string>& names) const {
    if (const auto* list = std::get_if<ArgList>(&value.value)) {
      for (const ArgValue& part : *list) collect(part, names);
    } else if (const auto* arg = std::get_if<TensorArg>(&value.value)) {
      const Tensor& t = plan_.program.graph.tensor(arg->tensor);
      names.push_back(fmt::format("{} {}", comment(t.name), describe(t)));
    } else if (std::holds_alternative<ScratchArg>(value.value)) {
      names.emplace_back("scratch");
    } else if (std::holds_alternative<ExchangeArg>(value.value)) {
      names.emplace_back("exchange of the gang");
    } else if (const auto* in_words = std::get_if<WordsArg>(&value.value)) {
      const Tensor& t = plan_.program.graph.tensor(in_words->tensor);
      if (is_in_words(*in_words) || !in_words->else_null)
        names.push_back(fmt::format("{}{} {}", is_in_words(*in_words) ? "words of " : "", comment(t.name), describe(t)));
    } else if (std::holds_alternative<PackedArg>(value.value)) {
      names.push_back(comment(packed_blob().name));
    }
  }

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

  bool is_in_words(const WordsArg& arg) const { return (plan_.phase(record_).words >> arg.bit & 1U) != 0; }

  std::string words(const WordsArg& arg) const {
    if (!is_in_words(arg)) return arg.else_null ? "nothing()" : tensor({arg.tensor});
    const auto& at = plan_.program.graph.tensor(arg.tensor).place;
    const int64_t offset = plan_.program.memory.words_offset[at.buffer.index()];
    TAMP_CHECK(offset >= 0, "words of '" + plan_.program.graph.tensor(arg.tensor).name + "' have no place");
    return place("arena", offset + at.offset * 4);
  }

  const WeightBlob& packed_blob() const {
    TAMP_CHECK(plan_.blob_of_record[record_].size() == 1, "packed weights of '" + plan_.records[record_].text + "'");
    return plan_.program.weights[static_cast<size_t>(plan_.blob_of_record[record_][0])];
  }

  std::string tensor(const TensorArg& arg) const {
    const Graph& graph = plan_.program.graph;
    const Tensor& t = graph.tensor(arg.tensor);
    const Buffer& buffer = graph.buffers[t.place.buffer.index()];
    const int64_t bytes = (t.place.offset + arg.extra) * bytes_of(buffer.dtype);
    switch (buffer.kind) {
      case BufferKind::arena: return place("arena", plan_.program.memory.buffer_offset[t.place.buffer.index()] + bytes);
      case BufferKind::input: return port("input", buffer.io_index, bytes);
      case BufferKind::output: return port("output", buffer.io_index, bytes);
      case BufferKind::constant: {
        const int64_t blob = plan_.blob_of_constant[buffer.constant.index()];
        TAMP_CHECK(blob >= 0, "constant '" + t.name + "' is not among the weights");
        return place("weights", plan_.program.weights[static_cast<size_t>(blob)].offset + bytes);
      }
    }
    TAMP_CHECK(false, "buffer kind");
  }

  std::string braces(const ArgList& list) const {
    std::vector<std::string> parts;
    for (const ArgValue& value : list) parts.push_back(print(value));
    for (size_t i = list.size(); i > 0 && is_default(list[i - 1]); --i) parts.pop_back();
    return fmt::format("{{{}}}", join(parts, ", "));
  }

  std::string braces(const ArgList& fields, const std::vector<std::string>& names) const {
    std::vector<std::string> parts;
    for (size_t i = 0; i < fields.size(); ++i) {
      if (!is_default(fields[i])) parts.push_back(fmt::format(".{} = {}", names[i], print(fields[i])));
    }
    return fmt::format("{{{}}}", join(parts, ", "));
  }

  const Plan& plan_;
  size_t record_;
};

// The fields of an argument struct, but for those that have the value that they would have without being named. A field with addresses has
// a line, a struct of more than a line has several, and others share lines.
void emit_fields(SourceWriter& w, const Printer& printer, const std::vector<Arg>& fields) {
  constexpr size_t kMostColumns = 120;
  std::string shared;
  const auto end_line = [&] {
    if (!shared.empty()) w.text(shared);
    shared.clear();
  };
  for (const auto& [name, value] : fields) {
    if (printer.is_default(value)) continue;
    const std::string text = fmt::format(".{} = {},", name, printer.print(value)), what = printer.what(value);
    const auto* parts = std::get_if<ArgList>(&value.value);
    const bool is_long = parts != nullptr && !value.names.empty() && text.size() > kMostColumns;
    if (is_long || !what.empty() || shared.size() + text.size() > kMostColumns) end_line();
    if (is_long) {
      std::vector<Arg> own;
      for (size_t i = 0; i < parts->size(); ++i) own.push_back({value.names[i], (*parts)[i]});
      w.open(fmt::format(".{} =", name));
      emit_fields(w, printer, own);
      w.close(",");
    } else if (!what.empty()) {
      w.line("{}  // {}", text, what);
    } else {
      shared += (shared.empty() ? "" : " ") + text;
    }
  }
  end_line();
}

}  // namespace

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
  return fmt::format("{}: {}{}  {} -> {}", comment(rop.name), title_of(rop), extras, join(inputs, ", "), join(outputs, ", "));
}

void emit_places(SourceWriter& w, const Plan& plan) {
  w.section("addresses: a base and a byte from there");
  w.line("constexpr rk::TensorRef arena(int64_t byte) {{ return {{rk::kArena, 0, byte}}; }}");
  w.line("constexpr rk::TensorRef weights(int64_t byte) {{ return {{rk::kWeights, 0, byte}}; }}");
  w.line("constexpr rk::TensorRef input(uint32_t number, int64_t byte = 0) {{ return {{rk::kFirstPort + number, 0, byte}}; }}");
  w.line("constexpr rk::TensorRef output(uint32_t number, int64_t byte = 0) {{ return {{rk::kFirstPort + {} + number, 0, byte}}; }}",
         plan.program.graph.inputs.size());
  w.line("constexpr rk::TensorRef nothing() {{ return {{}}; }}");
}

void emit_arguments(SourceWriter& w, const Plan& plan, SourceLines& lines) {
  w.section("rOperators: what each body is told");
  w.line("// What is not said is zero, of an address nothing(), of a divisor 1.");
  w.blank();
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
    lines.arguments.push_back(w.next_line());
    if (program.launches)
      open_call(w, plan, r);
    else
      w.open(fmt::format("__device__ const rk::Padded<{}> {} = {{", phase.args_type, record.symbol));
    emit_fields(w, printer, phase.args);
    w.close(program.launches ? "}};" : "};");
  }
}

}  // namespace tamp::codegen
