#include "test/support/graph_text.h"

#include <array>
#include <cstring>
#include <map>
#include <set>
#include <sstream>
#include <type_traits>

#include "test/support/of_result.h"
#include "test/support/text_line.h"

namespace tamp::test {
namespace {

template <class Enum>
Enum parse_word(Line& line) {
  const std::string word = line.name();
  const auto names = names_of(Enum{});
  for (size_t i = 0; i < names.size(); ++i) {
    if (word == names[i]) return static_cast<Enum>(i);
  }
  line.fail("a known word, not '" + word + "'");
}

DType parse_dtype(Line& line) {
  const std::string word = line.name();
  for (int i = 0; i <= static_cast<int>(DType::whole_u8); ++i) {
    if (word == name_of(static_cast<DType>(i))) return static_cast<DType>(i);
  }
  line.fail("an element type, not '" + word + "'");
}

ElementwiseOp parse_elementwise_op(Line& line) {
  const std::string word = line.name();
  for (const FunctionRow& row : function_rows()) {
    if (word == row.name) return row.op;
  }
  line.fail("an elementwise function, not '" + word + "'");
}

std::vector<ElementwiseStep> parse_steps(Line& line, const char* begin, const char* end) {
  std::vector<ElementwiseStep> steps;
  line.expect(begin);
  while (!line.take(end)) {
    ElementwiseStep step;
    step.op = parse_elementwise_op(line);
    line.expect("(");
    while (!line.take(")")) {
      if (line.take(";")) {
        step.a = static_cast<float>(line.number());
        line.expect(",");
        step.b = static_cast<float>(line.number());
        continue;
      }
      const bool is_input = line.take("i");
      if (!is_input) line.expect("s");
      const auto v = static_cast<int32_t>(line.integer());
      step.operands.push_back(is_input ? v : -1 - v);
      line.take(",");
    }
    steps.push_back(step);
    line.take(",");
  }
  return steps;
}

void read_value(Line& line, int64_t& value) { value = line.integer(); }
void read_value(Line& line, int32_t& value) { value = static_cast<int32_t>(line.integer()); }
void read_value(Line& line, float& value) { value = static_cast<float>(line.number()); }
void read_value(Line& line, bool& value) { value = line.integer() != 0; }
void read_value(Line& line, std::vector<int64_t>& value) { value = line.list(); }
void read_value(Line& line, std::vector<ElementwiseStep>& value) { value = parse_steps(line, "[", "]"); }
template <class Enum>
requires std::is_enum_v<Enum>
void read_value(Line& line, Enum& value) { value = parse_word<Enum>(line); }
void read_value(Line& line, const Pair<int64_t>& value) {
  const std::vector<int64_t> both = line.list();
  value.first = both.at(0);
  value.second = both.at(1);
}
void read_value(Line& line, const Pair<std::vector<int64_t>>& value) {
  const std::vector<int64_t> both = line.list();
  const auto middle = both.begin() + static_cast<std::ptrdiff_t>(both.size() / 2);
  value.first.assign(both.begin(), middle);
  value.second.assign(middle, both.end());
}
void read_value(Line& line, std::array<CellFunction, 3>& functions) {
  Line texts(line.name() + " ");  // "HardSigmoid:0.2:0.5/Tanh:0:0/Sigmoid:0:0"
  for (CellFunction& function : functions) {
    bool known = false;
    const auto names = names_of(CellFunctionKind{});
    for (size_t i = 0; i < names.size() && !known; ++i) {
      known = texts.take(std::string(names[i]) + ":");
      if (known) function.kind = static_cast<CellFunctionKind>(i);
    }
    if (!known) line.fail("a function of a cell");
    read_value(texts, function.a);
    texts.expect(":");
    read_value(texts, function.b);
    texts.take("/");
  }
}
template <class Part>
requires HasFields<Part>
void read_value(Line& line, std::vector<Part>& parts);

// Reads the value of "key=value" into the field of that name; see compiler/ir/fields.h.
class FieldReader {
 public:
  FieldReader(Line& line, std::string key) : line_(line), key_(std::move(key)) {}
  bool found() const { return found_; }

  template <class T, class... Rule>
  void operator()(const char* name, T&& value, const Rule&...) {
    using Value = std::remove_cvref_t<T>;
    if constexpr (HasFields<Value>) {
      read_inner(name, value);
    } else if constexpr (!(std::is_same_v<Rule, OfResult> || ...)) {
      if (found_ || key_ != name) return;
      read_value(line_, value);
      found_ = true;
    }
  }
  template <class T>
  requires HasFields<T>
  void operator()(const char* name, std::optional<T>& value) {
    T inner = value.value_or(T{});
    const bool before = found_;
    read_inner(name, inner);
    if (found_ && !before) value = inner;
  }

 private:
  template <class T>
  void read_inner(const std::string& prefix, T& value) {
    if (found_ || key_.compare(0, prefix.size(), prefix) != 0) return;
    FieldReader inner(line_, key_.substr(prefix.size()));
    T::fields(value, inner);
    found_ = inner.found();
  }

  Line& line_;
  std::string key_;
  bool found_ = false;
};

// Gives the fields that the text left out their usual values.
class FieldCompleter {
 public:
  explicit FieldCompleter(const std::set<std::string>& given, std::string prefix = "") : given_(given), prefix_(std::move(prefix)) {}

  template <class T>
  void operator()(const char* name, T& value) {
    if constexpr (HasFields<T>) T::fields(value, FieldCompleter(given_, prefix_ + name));
  }
  template <class T>
  void operator()(const char*, const Pair<T>&) {}
  template <class T>
  requires HasFields<T>
  void operator()(const char* name, std::optional<T>& value) {
    if (value) T::fields(*value, FieldCompleter(given_, prefix_ + name));
  }
  template <class T>
  void operator()(const char* name, T& value, const T& usual) {
    if (!given_.contains(prefix_ + name)) value = usual;
  }
  void operator()(const char* name, std::vector<int64_t>& value, const Each& each) {
    if (!given_.contains(prefix_ + name)) value.assign(each.count, each.usual);
  }
  void operator()(const char* name, const Pair<std::vector<int64_t>>& value, const Each& each) {
    if (given_.contains(prefix_ + name)) return;
    value.first.assign(each.count, each.usual);
    value.second.assign(each.count, each.usual);
  }
  template <class T>
  void operator()(const char*, T&, const OfResult&) {}

 private:
  const std::set<std::string>& given_;
  std::string prefix_;
};

// "key=value, .." up to `end`.
template <class T>
void read_fields(Line& line, T& op, const char* end) {
  std::set<std::string> given;
  while (!line.take(end)) {
    const std::string key = line.name();
    line.expect("=");
    FieldReader reader(line, key);
    T::fields(op, reader);
    if (!reader.found()) line.fail("another attribute than '" + key + "'");
    given.insert(key);
    line.take(",");
  }
  T::fields(op, FieldCompleter(given));
}

template <class Part>
requires HasFields<Part>
void read_value(Line& line, std::vector<Part>& parts) {
  line.expect("[");
  parts.emplace_back();
  read_fields(line, parts.back(), "]");
}

// Attributes as the name of the operator leaves them.
template <class Op>
bool take_name(const std::string& name, OpAttrs& attrs) {
  Op op;
  if constexpr (requires { Op::kNames; }) {
    for (size_t i = 0; i < Op::kNames.size(); ++i) {
      Op::which(op) = static_cast<std::remove_cvref_t<decltype(Op::which(op))>>(i);
      if (name == Op::kNames[i]) return attrs = op, true;
    }
    return false;
  } else {
    if (name != Op::kName) return false;
    attrs = op;
    return true;
  }
}

OpAttrs parse_attributes(Line& line, const std::string& name) {
  OpAttrs attrs;
#define TAMP_TAKE_NAME(Op) || take_name<Op>(name, attrs)
  const bool known = false TAMP_OPERATORS(TAMP_TAKE_NAME) TAMP_LOOP_MARKS(TAMP_TAKE_NAME);
#undef TAMP_TAKE_NAME
  if (!known) line.fail("an operator, not '" + name + "'");
  if (auto* chain = std::get_if<Elementwise>(&attrs)) {
    chain->steps = parse_steps(line, "{", "}");
    return attrs;
  }
  std::visit(
      [&]<class Op>(Op& op) {
        if constexpr (!HasFields<Op>)
          line.fail("an operator with attributes");
        else if (line.take("{"))
          read_fields(line, op, "}");
        else
          Op::fields(op, FieldCompleter(std::set<std::string>{}));
      },
      attrs);
  return attrs;
}

template <class T>
void store_number(Bytes& data, size_t i, double value) {
  const T stored = static_cast<T>(value);
  std::memcpy(data.data() + i * sizeof(T), &stored, sizeof(T));
}

void store(Bytes& data, DType dtype, size_t i, double value) {
  switch (dtype) {
    case DType::f32: return store_number<float>(data, i, value);
    case DType::f64: return store_number<double>(data, i, value);
    case DType::i8: return store_number<int8_t>(data, i, value);
    case DType::i16: return store_number<int16_t>(data, i, value);
    case DType::i32: return store_number<int32_t>(data, i, value);
    case DType::i64: return store_number<int64_t>(data, i, value);
    case DType::u8:
    case DType::boolean: return store_number<uint8_t>(data, i, value);
    case DType::u16: return store_number<uint16_t>(data, i, value);
    case DType::u32: return store_number<uint32_t>(data, i, value);
    case DType::u64: return store_number<uint64_t>(data, i, value);
    case DType::f16:
    case DType::bf16: return;  // zeros; print() does not show them
  }
}

// Equal names give equal values, whatever the platform (FNV-1a, then a linear congruential sequence).
class NameNumbers {
 public:
  explicit NameNumbers(const std::string& name) {
    for (const char c : name) state_ = (state_ ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  double next() {  // [0, 1)
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<double>(state_ >> 40) / static_cast<double>(1 << 24);
  }

 private:
  uint64_t state_ = 0xcbf29ce484222325ULL;
};

class Parser {
 public:
  Graph parse(const std::string& text) {
    std::istringstream stream(text);
    for (std::string raw; std::getline(stream, raw);) {
      Line line(raw);
      if (line.done()) continue;
      parse_line(line);
      if (!line.done()) line.fail("the end of the line");
    }
    for (size_t i = 0; i < graph_.buffers.size(); ++i) {
      if (graph_.buffers[i].kind == BufferKind::constant) graph_.buffers[i].constant = ids_.at(buffer_constants_[i]);
    }
    return std::move(graph_);
  }

 private:
  void parse_line(Line& line) {
    if (line.take("//")) {
      line.expect("graph");
      graph_.name = line.name();
    } else if (line.take("outputs(")) {
      while (!line.take(")")) {
        graph_.outputs.push_back(tensor(line));
        line.take(",");
      }
    } else {
      parse_definition(line);
    }
  }

  void parse_definition(Line& line) {
    std::vector<std::string> names = {line.name()};
    while (line.take(",")) names.push_back(line.name());
    line.expect("=");
    const std::string kind = line.name();
    if (kind == "buffer") return parse_buffer(line);
    if (kind == "input" || kind == "const" || kind == "view") {
      const Tensor made = parse_leaf(line, names[0], kind);
      const TensorId id = define(line, made);
      if (kind == "input") graph_.inputs.push_back(id);
      return;
    }
    parse_rop(line, names, kind);
  }

  void parse_buffer(Line& line) {
    Buffer buffer;
    buffer.dtype = parse_dtype(line);
    buffer.elements = line.list().at(0);
    const std::string kind = line.name();
    std::string constant;
    if (kind == "input" || kind == "output") {
      buffer.kind = kind == "input" ? BufferKind::input : BufferKind::output;
      buffer.io_index = static_cast<int32_t>(line.integer());
    } else if (kind == "constant") {
      buffer.kind = BufferKind::constant;
      constant = line.name();
    } else if (kind != "arena") {
      line.fail("a kind of buffer, not '" + kind + "'");
    }
    buffer.narrowed = line.take("narrowed");
    if (line.take("from")) buffer.low = static_cast<int32_t>(line.integer());
    graph_.buffers.push_back(buffer);
    buffer_constants_.push_back(constant);
  }

  Tensor parse_leaf(Line& line, const std::string& name, const std::string& kind) {
    Tensor leaf;
    leaf.name = name;
    leaf.role = kind == "input" ? Role::input : kind == "const" ? Role::constant : Role::activation;
    leaf.dtype = parse_dtype(line);
    leaf.shape = line.list();
    if (leaf.role == Role::constant) leaf.data = std::make_shared<const Bytes>(parse_values(line, leaf));
    parse_place(line, leaf);
    return leaf;
  }

  static Bytes parse_values(Line& line, const Tensor& constant) {
    const auto count = static_cast<size_t>(element_count(constant.shape));
    Bytes data(count * static_cast<size_t>(bytes_of(constant.dtype)));
    if (!line.take("{")) {
      NameNumbers numbers(constant.name);
      for (size_t i = 0; i < count; ++i) {
        const double u = numbers.next();
        store(data, constant.dtype, i, is_float(constant.dtype) ? 2 * u - 1 : (u < 0.5 ? 0 : 1));
      }
      return data;
    }
    size_t i = 0;
    while (!line.take("}")) {
      if (i == count) line.fail("no more values than the shape has");
      store(data, constant.dtype, i++, line.number());
      line.take(",");
    }
    if (i != count) line.fail("as many values as the shape has");
    return data;
  }

  static void parse_place(Line& line, Tensor& tensor) {
    if (!line.take("@")) return;
    line.expect("buf");
    tensor.place.buffer = BufferId(line.integer());
    line.expect("+");
    tensor.place.offset = line.integer();
    line.expect("strides");
    tensor.place.strides = line.list();
  }

  void parse_rop(Line& line, const std::vector<std::string>& results, const std::string& op) {
    ROperator rop;
    line.expect("(");
    while (!line.take(")")) {
      rop.inputs.push_back(operand(line));
      line.take(",");
    }
    rop.attrs = op == Fused::kName ? parse_fused(line, rop) : parse_attributes(line, op);
    if (line.take("epilogue{")) parse_epilogue(line, rop.epilogue);
    line.expect("->");
    for (const std::string& name : results) {
      Tensor result;
      result.name = name;
      result.dtype = parse_dtype(line);
      result.shape = line.list();
      parse_place(line, result);
      rop.outputs.push_back(define(line, result));
      line.take(",");
    }
    const Tensor& first = graph_.tensor(rop.outputs[0]);
    rop.attrs = of_result(std::move(rop.attrs), first.shape, first.dtype);
    parse_origin(line, results[0], rop);
    graph_.rops.push_back(std::move(rop));
  }

  // The operands' types are those of `rop`.
  Fused parse_fused(Line& line, const ROperator& rop) {
    Fused fused;
    line.expect("{title=");
    fused.title = line.name();
    line.expect(", steps=[");
    Parser steps;
    for (const TensorId id : rop.inputs) {
      const Tensor& from = graph_.tensor(id);
      const std::string name = "i" + std::to_string(steps.graph_.inputs.size());
      steps.graph_.inputs.push_back(steps.define(line, Tensor{name, from.dtype, from.shape, Role::input, nullptr, {}}));
    }
    while (!line.take("]}")) {
      steps.parse_line(line);
      line.take(";");
    }
    fused.body = std::make_shared<const Graph>(std::move(steps.graph_));
    return fused;
  }

  void parse_epilogue(Line& line, Epilogue& epilogue) {
    while (!line.take("}")) {
      const std::string key = line.name();
      line.expect("=");
      if (key == "bias")
        epilogue.bias = tensor(line);
      else if (key == "residual")
        epilogue.residual = tensor(line);
      else if (key == "act")
        epilogue.activation = parse_word<Activation>(line);
      else if (key == "a")
        epilogue.a = static_cast<float>(line.number());
      else if (key == "b")
        epilogue.b = static_cast<float>(line.number());
      else if (key == "residual_after_activation")
        epilogue.residual_after_activation = line.integer() != 0;
      else if (key == "scale")
        epilogue.sum = ScaledSum{static_cast<float>(line.number())};
      else if (key == "residual_scale" && epilogue.sum)
        epilogue.sum->residual_scale = static_cast<float>(line.number());
      else if (key == "low" && epilogue.sum)
        epilogue.sum->rounds = true, epilogue.sum->low = static_cast<float>(line.number());
      else if (key == "high" && epilogue.sum)
        epilogue.sum->high = static_cast<float>(line.number());
      else
        line.fail("a part of an epilogue, not '" + key + "'");
      line.take(",");
    }
  }

  static void parse_origin(Line& line, const std::string& result, ROperator& rop) {
    rop.name = line.take("//") ? line.name() : result;
    if (!line.take("(origin:")) {
      rop.origin = {rop.name};
      return;
    }
    while (!line.take(")")) {
      rop.origin.push_back(line.name());
      line.take(",");
    }
  }

  TensorId operand(Line& line) {
    const bool bare = !line.at('"');
    const std::string name = line.name();
    return bare && name == "none" ? TensorId() : tensor(line, name);
  }

  TensorId tensor(Line& line) { return tensor(line, line.name()); }
  TensorId tensor(Line& line, const std::string& name) {
    const auto found = ids_.find(name);
    if (found == ids_.end()) line.fail("the name of a tensor made above, not '" + name + "'");
    return found->second;
  }

  TensorId define(Line& line, const Tensor& made) {
    const TensorId id = add_tensor(graph_, made);
    if (!ids_.emplace(made.name, id).second) line.fail("a new name, not '" + made.name + "'");
    return id;
  }

  Graph graph_;
  std::map<std::string, TensorId> ids_;
  std::vector<std::string> buffer_constants_;
};

}  // namespace

Graph parse_graph(const std::string& text) { return Parser().parse(text); }

}  // namespace tamp::test
