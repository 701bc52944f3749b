#include "test/support/graph_text.h"

#include <array>
#include <cstring>
#include <map>
#include <sstream>

#include "test/support/cell_text.h"
#include "test/support/text_line.h"

namespace tamp::test {
namespace {

template <class Enum, size_t kCount>
Enum word_in(Line& line, const std::array<const char*, kCount>& words) {
  const std::string word = line.name();
  for (size_t i = 0; i < kCount; ++i) {
    if (word == words[i]) return static_cast<Enum>(i);
  }
  line.fail("a known word, not '" + word + "'");
}

DType parse_dtype(Line& line) {
  const std::string word = line.name();
  for (int i = 0; i <= static_cast<int>(DType::boolean); ++i) {
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

Activation parse_activation(Line& line) {
  const std::string word = line.name();
  for (int i = 0; i <= static_cast<int>(Activation::gelu); ++i) {
    if (word == name_of(static_cast<Activation>(i))) return static_cast<Activation>(i);
  }
  line.fail("an activation, not '" + word + "'");
}

Elementwise parse_steps(Line& line) {
  Elementwise op;
  line.expect("{");
  while (!line.take("}")) {
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
    op.steps.push_back(step);
    line.take(",");
  }
  return op;
}

constexpr std::array kReduceKinds = {"sum", "mean", "max", "min", "prod", "l1", "l2", "sum_square", "log_sum", "log_sum_exp"};
constexpr std::array kPadModes = {"constant", "reflect", "edge", "wrap"};

void split(const std::vector<int64_t>& pads, std::vector<int64_t>& begin, std::vector<int64_t>& end) {
  const auto middle = pads.begin() + static_cast<std::ptrdiff_t>(pads.size() / 2);
  begin.assign(pads.begin(), middle);
  end.assign(middle, pads.end());
}

template <class Windowed>
bool parse_window(Windowed& op, const std::string& key, Line& line) {
  if (key == "kernel") {
    op.kernel = line.list();
    op.strides.assign(op.kernel.size(), 1);
    op.dilations = op.strides;
    op.pads_begin.assign(op.kernel.size(), 0);
    op.pads_end = op.pads_begin;
  } else if (key == "strides") {
    op.strides = line.list();
  } else if (key == "dilations") {
    op.dilations = line.list();
  } else if (key == "pads") {
    split(line.list(), op.pads_begin, op.pads_end);
  } else {
    return false;
  }
  return true;
}

bool parse_activation_call(ActivationCall& call, const std::string& key, Line& line) {
  if (key == "act") return call.kind = parse_activation(line), true;
  if (key == "a") return call.a = static_cast<float>(line.number()), true;
  if (key == "b") return call.b = static_cast<float>(line.number()), true;
  return false;
}

// "input_act" is the key "act" of what is in front of a Conv, "depthwise_kernel" the key "kernel".
bool parse_prologue(Conv& conv, const std::string& key, Line& line) {
  const auto rest = [&](const std::string& prefix) { return key.compare(0, prefix.size(), prefix) == 0 ? key.substr(prefix.size()) : ""; };
  if (const std::string inner = rest("input_"); !inner.empty()) return parse_activation_call(conv.input_activation, inner, line);
  const std::string inner = rest("depthwise_");
  if (inner.empty()) return false;
  if (!conv.depthwise) conv.depthwise.emplace();
  return parse_window(*conv.depthwise, inner, line) || parse_activation_call(conv.depthwise->activation, inner, line);
}

// One "key=value" of any operator; the operators do not share a key with different meanings.
void parse_attribute(OpAttrs& attrs, const std::string& key, Line& line) {
  if (auto* conv = std::get_if<Conv>(&attrs)) {
    if (parse_window(*conv, key, line) || parse_prologue(*conv, key, line)) return;
    if (key == "group") return void(conv->group = line.integer());
  } else if (auto* matmul = std::get_if<MatMul>(&attrs)) {
    if (key == "trans_a") return void(matmul->trans_a = line.integer() != 0);
    if (key == "trans_b") return void(matmul->trans_b = line.integer() != 0);
    if (key == "alpha") return void(matmul->alpha = static_cast<float>(line.number()));
    if (key == "beta") return void(matmul->beta = static_cast<float>(line.number()));
  } else if (auto* pool = std::get_if<Pool>(&attrs)) {
    if (parse_window(*pool, key, line)) return;
    if (key == "count_include_pad") return void(pool->count_include_pad = line.integer() != 0);
  } else if (auto* reduce = std::get_if<Reduce>(&attrs)) {
    if (key == "kind") return void(reduce->kind = word_in<ReduceKind>(line, kReduceKinds));
    if (key == "axes") return void(reduce->axes = line.list());
    if (key == "keepdims") return void(reduce->keepdims = line.integer() != 0);
  } else if (auto* softmax = std::get_if<Softmax>(&attrs)) {
    if (key == "axes") {
      const std::vector<int64_t> axes = line.list();
      softmax->first_axis = axes.at(0);
      softmax->last_axis = axes.at(1);
      return;
    }
  } else if (auto* lrn = std::get_if<Lrn>(&attrs)) {
    if (key == "size") return void(lrn->size = line.integer());
    if (key == "alpha") return void(lrn->alpha = static_cast<float>(line.number()));
    if (key == "beta") return void(lrn->beta = static_cast<float>(line.number()));
    if (key == "bias") return void(lrn->bias = static_cast<float>(line.number()));
  } else if (auto* norm = std::get_if<BatchNorm>(&attrs)) {
    if (key == "epsilon") return void(norm->epsilon = static_cast<float>(line.number()));
  } else if (auto* transpose = std::get_if<Transpose>(&attrs)) {
    if (key == "perm") return void(transpose->perm = line.list());
  } else if (auto* slice = std::get_if<Slice>(&attrs)) {
    if (key == "starts") {
      slice->starts = line.list();
      slice->steps.assign(slice->starts.size(), 1);
      return;
    }
    if (key == "steps") return void(slice->steps = line.list());
  } else if (auto* concat = std::get_if<Concat>(&attrs)) {
    if (key == "axis") return void(concat->axis = line.integer());
  } else if (auto* pad = std::get_if<Pad>(&attrs)) {
    if (key == "before") return void(pad->before = line.list());
    if (key == "after") return void(pad->after = line.list());
    if (key == "mode") return void(pad->mode = word_in<PadMode>(line, kPadModes));
    if (key == "value") return void(pad->value = static_cast<float>(line.number()));
  } else if (auto* gather = std::get_if<Gather>(&attrs)) {
    if (key == "axis") return void(gather->axis = line.integer());
  } else if (auto* recurrent = std::get_if<Recurrent>(&attrs)) {
    if (key == "batch") return void(recurrent->batch = line.integer());
    if (key == "cell") return recurrent->cells.push_back(parse_cell(line));
  }
  line.fail("another attribute than '" + key + "'");
}

OpAttrs empty_attrs(Line& line, const std::string& op) {
  if (op == "Conv") return Conv{};
  if (op == "MatMul") return MatMul{};
  if (op == "MaxPool" || op == "AveragePool") {
    Pool pool;
    pool.kind = op == "MaxPool" ? PoolKind::max : PoolKind::average;
    return pool;
  }
  if (op == "Reduce") return Reduce{};
  if (op == "Softmax") return Softmax{};
  if (op == "LogSoftmax") return Softmax{0, 0, /*log=*/true};
  if (op == "LRN") return Lrn{};
  if (op == "BatchNorm") return BatchNorm{};
  if (op == "Reshape") return Reshape{};
  if (op == "Transpose") return Transpose{};
  if (op == "Slice") return Slice{};
  if (op == "Concat") return Concat{};
  if (op == "Pad") return Pad{};
  if (op == "Gather") return Gather{};
  if (op == "Recurrent") return Recurrent{};
  line.fail("an operator, not '" + op + "'");
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
    if (op == "Elementwise") {
      rop.attrs = parse_steps(line);
    } else {
      rop.attrs = empty_attrs(line, op);
      if (line.take("{")) {
        while (!line.take("}")) {
          const std::string key = line.name();
          line.expect("=");
          parse_attribute(rop.attrs, key, line);
          line.take(",");
        }
      }
    }
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
    parse_origin(line, results[0], rop);
    graph_.rops.push_back(std::move(rop));
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
        epilogue.activation = parse_activation(line);
      else if (key == "a")
        epilogue.a = static_cast<float>(line.number());
      else if (key == "b")
        epilogue.b = static_cast<float>(line.number());
      else if (key == "residual_after_activation")
        epilogue.residual_after_activation = line.integer() != 0;
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
