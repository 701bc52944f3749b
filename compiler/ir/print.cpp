// print(Graph): one line a tensor or rOperator, for dumps and golden files; test/support/graph_text.h reads it back.
//
//   // graph "tiny"
//   x = input f32[1,3,8,8]
//   w = const f32[8,3,3,3]
//   y = Conv(x, w) {kernel=[3,3], pads=[1,1,1,1]} epilogue{act=relu} -> f32[1,8,8,8]  // conv1 (origin: conv1, relu1)
//   outputs(y)
//
// Odd: an attribute at its default is left out; the comment of a line is data (name and origin of the rOperator) and is left
// out where both are the name of the first result; a name that two tensors share gets "%" and the tensor's number.
#include "compiler/ir/print.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>

#include "compiler/ir/graph.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp {
namespace {

constexpr int64_t kPrintedValues = 8;  // a constant with more elements is printed without them

// Names that need no quotes: what exporters write, less anything that the text form means something by.
std::string name_text(const std::string& name) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || std::strchr("_./:%-", c);
  };
  const bool bare = !name.empty() && name != "none" && name.find("//") == std::string::npos && std::all_of(name.begin(), name.end(), plain);
  return bare ? name : fmt::format("\"{}\"", printable(name, std::numeric_limits<size_t>::max()));
}

std::vector<std::string> tensor_names(const Graph& graph) {
  std::map<std::string, int> seen;
  for (const Tensor& tensor : graph.tensors) ++seen[tensor.name];
  std::vector<std::string> names;
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    const std::string& name = graph.tensors[i].name;
    names.push_back(name_text(seen[name] == 1 && !name.empty() ? name : fmt::format("{}%{}", name, i)));
  }
  return names;
}

// "key=value, key=value" with what is not at its default.
class Attributes {
 public:
  void list(const std::string& key, const std::vector<int64_t>& values) { add(key, shape_text(values)); }
  void list_unless(const std::string& key, const std::vector<int64_t>& values, int64_t usual) {
    if (std::any_of(values.begin(), values.end(), [&](int64_t v) { return v != usual; })) list(key, values);
  }
  void number(const std::string& key, double value) { add(key, fmt::format("{}", static_cast<float>(value))); }
  void number_unless(const std::string& key, double value, double usual) {
    if (value != usual) number(key, value);
  }
  void word(const std::string& key, const std::string& value) { add(key, value); }
  std::string text() const { return text_; }

 private:
  void add(const std::string& key, const std::string& value) { text_ += fmt::format("{}{}={}", text_.empty() ? "" : ", ", key, value); }
  std::string text_;
};

std::vector<int64_t> joined(std::vector<int64_t> a, const std::vector<int64_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

template <class Windowed>
void add_window(const Windowed& op, Attributes& out, const std::string& prefix = "") {
  out.list(prefix + "kernel", op.kernel);
  out.list_unless(prefix + "strides", op.strides, 1);
  out.list_unless(prefix + "pads", joined(op.pads_begin, op.pads_end), 0);
  out.list_unless(prefix + "dilations", op.dilations, 1);
}

void add_activation(const ActivationCall& call, Attributes& out, const std::string& prefix) {
  if (call.kind == Activation::none) return;
  out.word(prefix + "act", name_of(call.kind));
  out.number_unless(prefix + "a", call.a, 0);
  out.number_unless(prefix + "b", call.b, 0);
}

std::string name_of(ReduceKind kind) {
  switch (kind) {
    case ReduceKind::sum: return "sum";
    case ReduceKind::mean: return "mean";
    case ReduceKind::max: return "max";
    case ReduceKind::min: return "min";
    case ReduceKind::prod: return "prod";
    case ReduceKind::l1: return "l1";
    case ReduceKind::l2: return "l2";
    case ReduceKind::sum_square: return "sum_square";
    case ReduceKind::log_sum: return "log_sum";
    case ReduceKind::log_sum_exp: return "log_sum_exp";
  }
  TAMP_CHECK(false, "reduce kind out of range");
}

std::string name_of(PadMode mode) {
  switch (mode) {
    case PadMode::constant: return "constant";
    case PadMode::reflect: return "reflect";
    case PadMode::edge: return "edge";
    case PadMode::wrap: return "wrap";
  }
  TAMP_CHECK(false, "pad mode out of range");
}

// "add(i0, i1), clip(s0; 0, 6)": i = input, s = step; after the semicolon a and b.
std::string steps_text(const Elementwise& op) {
  std::vector<std::string> steps;
  for (const ElementwiseStep& step : op.steps) {
    std::vector<std::string> operands;
    for (const int32_t v : step.operands) operands.push_back(v >= 0 ? fmt::format("i{}", v) : fmt::format("s{}", -1 - v));
    const std::string numbers = step.a != 0 || step.b != 0 ? fmt::format("; {}, {}", step.a, step.b) : "";
    steps.push_back(fmt::format("{}({}{})", name_of(step.op), join(operands, ", "), numbers));
  }
  return join(steps, ", ");
}

// "[kind=LSTM steps=8 hidden=4 x=0 w=1 r=2 y=0]": what is none, zero or usual is left out. `functions` is left out where they
// are ONNX's defaults, else it has an entry kind:a:b for each.
std::string cell_text(const RecurrentCell& cell) {
  std::string text = fmt::format("kind={} steps={} hidden={}", name_of(cell.kind), cell.steps, cell.hidden);
  const auto flag = [&](const char* key, bool value) { text += value ? fmt::format(" {}=1", key) : ""; };
  const auto place = [&](const char* key, int32_t value) { text += value >= 0 ? fmt::format(" {}={}", key, value) : ""; };
  flag("reverse", cell.reverse);
  flag("linear_before_reset", cell.linear_before_reset);
  flag("input_forget", cell.input_forget);
  if (cell.clip != 0) text += fmt::format(" clip={}", cell.clip);
  if (cell.functions != default_functions(cell.kind)) {
    std::vector<std::string> functions;
    for (const CellFunction& f : cell.functions) functions.push_back(fmt::format("{}:{}:{}", name_of(f.kind), f.a, f.b));
    text += " functions=" + join(functions, "/");
  }
  place("x", cell.x);
  place("x_cell", cell.x_cell);
  flag("x_is_gates", cell.x_is_gates);
  place("w", cell.w);
  place("r", cell.r);
  place("bias", cell.bias);
  place("peepholes", cell.peepholes);
  place("lengths", cell.lengths);
  place("h0", cell.h0);
  place("c0", cell.c0);
  place("h0_cell", cell.h0_cell);
  place("c0_cell", cell.c0_cell);
  place("y", cell.y);
  place("y_h", cell.y_h);
  place("y_c", cell.y_c);
  return "[" + text + "]";
}

}  // namespace

std::string attributes_text(const OpAttrs& attrs) {
  Attributes out;
  std::visit(overloaded{
                 [&](const Conv& op) {
                   add_window(op, out);
                   out.number_unless("group", static_cast<double>(op.group), 1);
                   add_activation(op.input_activation, out, "input_");
                   if (!op.depthwise) return;
                   add_window(*op.depthwise, out, "depthwise_");
                   add_activation(op.depthwise->activation, out, "depthwise_");
                 },
                 [&](const MatMul& op) {
                   out.number_unless("trans_a", op.trans_a, 0);
                   out.number_unless("trans_b", op.trans_b, 0);
                   out.number_unless("alpha", op.alpha, 1);
                   out.number_unless("beta", op.beta, 1);
                 },
                 [&](const Pool& op) {
                   add_window(op, out);
                   out.number_unless("count_include_pad", op.count_include_pad, 0);
                 },
                 [&](const Reduce& op) {
                   out.word("kind", name_of(op.kind));
                   out.list("axes", op.axes);
                   out.number_unless("keepdims", op.keepdims, 1);
                 },
                 [&](const Softmax& op) {
                   out.list("axes", {op.first_axis, op.last_axis});
                 },
                 [&](const Lrn& op) {
                   out.number("size", static_cast<double>(op.size));
                   out.number("alpha", op.alpha);
                   out.number("beta", op.beta);
                   out.number("bias", op.bias);
                 },
                 [&](const BatchNorm& op) { out.number("epsilon", op.epsilon); },
                 [](const Elementwise&) {},
                 [](const Reshape&) {},
                 [&](const Transpose& op) { out.list("perm", op.perm); },
                 [&](const Slice& op) {
                   out.list("starts", op.starts);
                   out.list_unless("steps", op.steps, 1);
                 },
                 [&](const Concat& op) { out.number("axis", static_cast<double>(op.axis)); },
                 [&](const Pad& op) {
                   out.list("before", op.before);
                   out.list("after", op.after);
                   if (op.mode != PadMode::constant) out.word("mode", name_of(op.mode));
                   out.number_unless("value", op.value, 0);
                 },
                 [&](const Gather& op) { out.number("axis", static_cast<double>(op.axis)); },
                 [&](const Recurrent& op) {
                   out.number("batch", static_cast<double>(op.batch));
                   for (const RecurrentCell& cell : op.cells) out.word("cell", cell_text(cell));
                 },
             },
             attrs);
  const auto* elementwise = std::get_if<Elementwise>(&attrs);
  const std::string text = elementwise ? steps_text(*elementwise) : out.text();
  return text.empty() ? "" : " {" + text + "}";
}

namespace {

std::string epilogue_text(const Epilogue& epilogue, const std::vector<std::string>& names) {
  Attributes out;
  if (epilogue.bias.valid()) out.word("bias", names[epilogue.bias.index()]);
  if (epilogue.residual.valid()) out.word("residual", names[epilogue.residual.index()]);
  if (epilogue.activation != Activation::none) out.word("act", name_of(epilogue.activation));
  if (epilogue.a != 0 || epilogue.b != 0) {
    out.number("a", epilogue.a);
    out.number("b", epilogue.b);
  }
  if (epilogue.residual_after_activation) out.number("residual_after_activation", 1);
  return out.text().empty() ? "" : " epilogue{" + out.text() + "}";
}

std::string type_text(const Tensor& tensor) { return name_of(tensor.dtype) + shape_text(tensor.shape); }

std::string place_text(const Tensor& tensor) {
  if (!tensor.place.buffer.valid()) return "";
  return fmt::format(" @ buf{}+{} strides{}", tensor.place.buffer.value, tensor.place.offset, shape_text(tensor.place.strides));
}

template <class T>
std::string values_as(const Tensor& tensor) {
  std::vector<std::string> values;
  for (int64_t i = 0; i < element_count(tensor.shape); ++i) {
    T value;
    std::memcpy(&value, tensor.data->data() + static_cast<size_t>(i) * sizeof(T), sizeof(T));
    values.push_back(fmt::format("{}", value));
  }
  return " {" + join(values, ", ") + "}";
}

std::string values_text(const Tensor& tensor) {
  if (!tensor.data || element_count(tensor.shape) > kPrintedValues) return "";
  switch (tensor.dtype) {
    case DType::f32: return values_as<float>(tensor);
    case DType::f64: return values_as<double>(tensor);
    case DType::i8: return values_as<int8_t>(tensor);
    case DType::i16: return values_as<int16_t>(tensor);
    case DType::i32: return values_as<int32_t>(tensor);
    case DType::i64: return values_as<int64_t>(tensor);
    case DType::u8:
    case DType::boolean: return values_as<uint8_t>(tensor);
    case DType::u16: return values_as<uint16_t>(tensor);
    case DType::u32: return values_as<uint32_t>(tensor);
    case DType::u64: return values_as<uint64_t>(tensor);
    case DType::f16:
    case DType::bf16: return "";  // no C++ type to print them by
  }
  TAMP_CHECK(false, "dtype out of range");
}

std::string rop_text(const Graph& graph, const ROperator& rop, const std::vector<std::string>& names) {
  std::vector<std::string> results, operands, types, origin;
  for (const TensorId id : rop.outputs) {
    results.push_back(names[id.index()]);
    types.push_back(type_text(graph.tensor(id)) + place_text(graph.tensor(id)));
  }
  for (const TensorId id : rop.inputs) operands.push_back(id.valid() ? names[id.index()] : "none");
  for (const std::string& name : rop.origin) origin.push_back(name_text(name));

  const std::string name = name_text(rop.name);
  const bool own_origin = origin.size() == 1 && origin[0] == name;
  std::string comment;
  if (!own_origin)
    comment = fmt::format("  // {} (origin: {})", name, join(origin, ", "));
  else if (name != results[0])
    comment = fmt::format("  // {}", name);
  return fmt::format("{} = {}({}){}{} -> {}{}\n", join(results, ", "), name_of(rop.attrs), join(operands, ", "), attributes_text(rop.attrs),
                     epilogue_text(rop.epilogue, names), join(types, ", "), comment);
}

// Views of placed tensors: no rOperator makes them any more.
bool is_placed_view(const Graph& graph, const Uses& uses, size_t i) {
  const Tensor& tensor = graph.tensors[i];
  return tensor.role == Role::activation && !uses.producer[i].valid() && tensor.place.buffer.valid();
}

std::string buffer_text(const Buffer& buffer, size_t index, const std::vector<std::string>& names) {
  std::string kind;
  switch (buffer.kind) {
    case BufferKind::arena: kind = "arena"; break;
    case BufferKind::input: kind = fmt::format("input {}", buffer.io_index); break;
    case BufferKind::output: kind = fmt::format("output {}", buffer.io_index); break;
    case BufferKind::constant: kind = "constant " + names[buffer.constant.index()]; break;
  }
  return fmt::format("buf{} = buffer {}[{}] {}\n", index, name_of(buffer.dtype), buffer.elements, kind);
}

}  // namespace

std::string print(const Graph& graph) {
  const std::vector<std::string> names = tensor_names(graph);
  const Uses uses = uses_of(graph);
  std::string text = fmt::format("// graph \"{}\"\n", printable(graph.name, std::numeric_limits<size_t>::max()));
  for (size_t i = 0; i < graph.buffers.size(); ++i) text += buffer_text(graph.buffers[i], i, names);
  for (const TensorId id : graph.inputs) {
    text += fmt::format("{} = input {}{}\n", names[id.index()], type_text(graph.tensor(id)), place_text(graph.tensor(id)));
  }
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    const Tensor& tensor = graph.tensors[i];
    if (tensor.role == Role::constant)
      text += fmt::format("{} = const {}{}{}\n", names[i], type_text(tensor), values_text(tensor), place_text(tensor));
    if (is_placed_view(graph, uses, i)) text += fmt::format("{} = view {}{}\n", names[i], type_text(tensor), place_text(tensor));
  }
  for (const ROperator& rop : graph.rops) text += rop_text(graph, rop, names);
  std::vector<std::string> outputs;
  for (const TensorId id : graph.outputs) outputs.push_back(names[id.index()]);
  return text + fmt::format("outputs({})\n", join(outputs, ", "));
}

}  // namespace tamp
