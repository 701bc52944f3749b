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
#include <type_traits>

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

std::vector<int64_t> joined(std::vector<int64_t> a, const std::vector<int64_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

template <class T>
requires std::is_arithmetic_v<T> std::string text_of(T value) { return fmt::format("{}", value); }
std::string text_of(bool value) { return value ? "1" : "0"; }
template <class Enum>
requires std::is_enum_v<Enum> std::string text_of(Enum value) { return name_of(value); }
const std::string& text_of(const std::string& text) { return text; }
std::string text_of(const std::vector<int64_t>& values) { return shape_text(values); }
std::string text_of(const Pair<const std::vector<int64_t>>& values) { return shape_text(joined(values.first, values.second)); }
std::string text_of(const Pair<const int64_t>& values) { return shape_text({values.first, values.second}); }

// "add(i0, i1), clip(s0; 0, 6)": i = input, s = step; after the semicolon a and b.
std::string text_of(const std::vector<ElementwiseStep>& chain) {
  std::vector<std::string> steps;
  for (const ElementwiseStep& step : chain) {
    std::vector<std::string> operands;
    for (const int32_t v : step.operands) operands.push_back(v >= 0 ? fmt::format("i{}", v) : fmt::format("s{}", -1 - v));
    const std::string numbers = step.a != 0 || step.b != 0 ? fmt::format("; {}, {}", step.a, step.b) : "";
    steps.push_back(fmt::format("{}({}{})", name_of(step.op), join(operands, ", "), numbers));
  }
  return join(steps, ", ");
}

// "Sigmoid:0:0/Tanh:0:0/Tanh:0:0", an entry kind:a:b for each.
std::string text_of(const std::array<CellFunction, 3>& functions) {
  std::vector<std::string> texts;
  for (const CellFunction& f : functions) texts.push_back(fmt::format("{}:{}:{}", name_of(f.kind), f.a, f.b));
  return join(texts, "/");
}

bool all_are(const std::vector<int64_t>& values, int64_t wanted) {
  return std::all_of(values.begin(), values.end(), [&](int64_t v) { return v == wanted; });
}

// "key=value, key=value" with what is not at its usual value; see fields.h.
class Attributes {
 public:
  explicit Attributes(const char* separator = ", ", std::string prefix = "") : separator_(separator), prefix_(std::move(prefix)) {}

  template <class T>
  void operator()(const char* key, const T& value) {
    if constexpr (HasFields<T>) {
      if (value != T{}) add_inner(key, value);
    } else {
      add(key, text_of(value));
    }
  }
  template <class T>
  requires HasFields<T>
  void operator()(const char* key, const std::optional<T>& value) {
    if (value) add_inner(key, *value);
  }
  template <class T>
  requires HasFields<T>
  void operator()(const char* key, const std::vector<T>& parts) {
    for (const T& part : parts) {
      Attributes inner(" ");
      T::fields(part, inner);
      add(key, "[" + inner.text() + "]");
    }
  }
  template <class T>
  void operator()(const char* key, const T& value, const T& usual) {
    if (value != usual) add(key, text_of(value));
  }
  void operator()(const char* key, const std::vector<ElementwiseStep>& steps, const std::vector<ElementwiseStep>& usual) {
    if (steps != usual) add(key, "[" + text_of(steps) + "]");
  }
  void operator()(const char* key, const std::vector<int64_t>& values, const Each& each) {
    if (!all_are(values, each.usual)) add(key, text_of(values));
  }
  void operator()(const char* key, const Pair<const std::vector<int64_t>>& values, const Each& each) {
    if (!all_are(values.first, each.usual) || !all_are(values.second, each.usual)) add(key, text_of(values));
  }
  template <class T>
  void operator()(const char*, const T&, const OfResult&) {}

  const std::string& text() const { return text_; }

 private:
  template <class T>
  void add_inner(const char* prefix, const T& value) {
    Attributes inner(separator_, prefix_ + prefix);
    T::fields(value, inner);
    append(inner.text());
  }
  void add(const char* key, const std::string& value) { append(*key == '\0' ? value : fmt::format("{}{}={}", prefix_, key, value)); }
  void append(const std::string& text) {
    if (!text_.empty() && !text.empty()) text_ += separator_;
    text_ += text;
  }

  const char* separator_;
  std::string prefix_, text_;
};

}  // namespace

std::string attributes_text(const OpAttrs& attrs) {
  if (const auto* fused = std::get_if<Fused>(&attrs))
    return fmt::format(" {{title={}, steps=[{}]}}", name_text(fused->title), steps_text(*fused));
  Attributes out;
  std::visit(
      [&]<class Op>(const Op& op) {
        if constexpr (HasFields<Op>) Op::fields(op, out);
      },
      attrs);
  return out.text().empty() ? "" : " {" + out.text() + "}";
}

namespace {

std::string epilogue_text(const Epilogue& epilogue, const std::vector<std::string>& names) {
  Attributes out;
  if (epilogue.bias.valid()) out("bias", names[epilogue.bias.index()]);
  if (epilogue.residual.valid()) out("residual", names[epilogue.residual.index()]);
  out("act", epilogue.activation, Activation::none);
  if (epilogue.a != 0 || epilogue.b != 0) {
    out("a", epilogue.a);
    out("b", epilogue.b);
  }
  out("residual_after_activation", epilogue.residual_after_activation, false);
  if (epilogue.sum) {
    out("scale", epilogue.sum->scale);
    out("residual_scale", epilogue.sum->residual_scale);
    if (epilogue.sum->rounds) {
      out("low", epilogue.sum->low);
      out("high", epilogue.sum->high);
    }
  }
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
    case DType::bf16:
    case DType::whole_i8:
    case DType::whole_u8: return "";  // no C++ type to print them by
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
  return fmt::format("{} = {}({}){}{} -> {}{}", join(results, ", "), name_of(rop.attrs), join(operands, ", "), attributes_text(rop.attrs),
                     epilogue_text(rop.epilogue, names), join(types, ", "), comment);
}

std::string outputs_text(const Graph& graph, const std::vector<std::string>& names) {
  std::vector<std::string> outputs;
  for (const TensorId id : graph.outputs) outputs.push_back(names[id.index()]);
  return fmt::format("outputs({})", join(outputs, ", "));
}

// Views, in a placed graph: tensors that no rOperator makes any more.
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
  const std::string low = buffer.low != 0 ? fmt::format(" from {}", buffer.low) : "";
  return fmt::format("buf{} = buffer {}[{}] {}{}{}\n", index, name_of(buffer.dtype), buffer.elements, kind,
                     buffer.narrowed ? " narrowed" : "", low);
}

enum class Values { few, none };  // of constants

std::string body_text(const Graph& graph, Values values) {
  const std::vector<std::string> names = tensor_names(graph);
  const Uses uses = uses_of(graph);
  std::string text;
  for (size_t i = 0; i < graph.buffers.size(); ++i) text += buffer_text(graph.buffers[i], i, names);
  for (const TensorId id : graph.inputs) {
    text += fmt::format("{} = input {}{}\n", names[id.index()], type_text(graph.tensor(id)), place_text(graph.tensor(id)));
  }
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    const Tensor& tensor = graph.tensors[i];
    if (tensor.role == Role::constant)
      text += fmt::format("{} = const {}{}{}\n", names[i], type_text(tensor), values == Values::few ? values_text(tensor) : "",
                          place_text(tensor));
    if (is_placed_view(graph, uses, i)) text += fmt::format("{} = view {}{}\n", names[i], type_text(tensor), place_text(tensor));
  }
  for (const ROperator& rop : graph.rops) text += rop_text(graph, rop, names) + "\n";
  return text + outputs_text(graph, names) + "\n";
}

}  // namespace

std::string print(const Graph& graph) {
  return fmt::format("// graph \"{}\"\n", printable(graph.name, std::numeric_limits<size_t>::max())) + body_text(graph, Values::few);
}

std::string steps_text(const Fused& fused) {
  const std::vector<std::string> names = tensor_names(*fused.body);
  std::string text;
  for (const ROperator& step : fused.body->rops) text += rop_text(*fused.body, step, names) + "; ";
  return text + outputs_text(*fused.body, names);
}

std::string structure_text(const Graph& graph) { return body_text(graph, Values::none); }

}  // namespace tamp
