// Elementwise chains. The output is made a strip of some hundred elements at a time: every input's strip is read with
// its broadcast, every step makes a strip, the last one is stored. Each step's result is rounded to its element type, so
// that a fused chain gives the same bits as its steps one by one.
//
// Element types of results: comparisons and logical functions give bool, `cast` gives the output tensor's type, `where`
// the type of its second operand, all others the type of their first. The last result is converted to the output's type.
#include "compiler/ops/elementwise.h"

#include <algorithm>

#include "compiler/ops/operator.h"

namespace tamp::ops {
namespace {

constexpr int64_t kStrip = 512;

void resize(Strip& strip, DType dtype, int64_t count) {
  strip.dtype = dtype;
  const bool real = is_float(dtype);
  strip.real.resize(real ? static_cast<size_t>(count) : 0);
  strip.whole.resize(real ? 0 : static_cast<size_t>(count));
}

// Reads an input in the order of the output's elements.
class Reader {
 public:
  Reader(const Value& value, const Shape& out)
      : value_(value), strides_(broadcast_strides(value.shape, out)), out_(out), index_(out.size(), 0) {}

  void read(int64_t count, Strip& strip) {
    resize(strip, value_.dtype, count);
    for (int64_t done = 0; done < count;) {
      const int64_t run = out_.empty() ? 1 : std::min(count - done, out_.back() - index_.back());
      copy_run(strip, done, run);
      done += run;
      advance(run);
    }
  }

 private:
  void copy_run(Strip& strip, int64_t to, int64_t run) const {
    const int64_t stride = out_.empty() ? 0 : strides_.back();
    with_storage(value_.dtype, [&](auto tag) {
      const auto* stored = reinterpret_cast<const decltype(tag)*>(value_.data->data()) + offset_;
      for (int64_t i = 0; i < run; ++i) {
        if (is_float(value_.dtype)) {
          strip.real[static_cast<size_t>(to + i)] = decode<double>(stored[i * stride]);
        } else {
          strip.whole[static_cast<size_t>(to + i)] = decode<int64_t>(stored[i * stride]);
        }
      }
    });
  }

  void advance(int64_t run) {
    if (out_.empty()) return;
    size_t d = out_.size() - 1;
    index_[d] += run;
    offset_ += run * strides_[d];
    for (; d > 0 && index_[d] == out_[d]; --d) {
      offset_ += strides_[d - 1] - index_[d] * strides_[d];
      index_[d] = 0;
      ++index_[d - 1];
    }
  }

  const Value& value_;
  std::vector<int64_t> strides_;
  const Shape& out_;
  std::vector<int64_t> index_;
  int64_t offset_ = 0;
};

// Millions of numbers pass through here, most of them f32.
void round_all(std::vector<double>& numbers, DType to) {
  if (to == DType::f32) {
    for (double& x : numbers) x = static_cast<double>(static_cast<float>(x));
  } else if (to != DType::f64) {
    for (double& x : numbers) x = round_real(x, to);
  }
}

// from's elements as elements of type `to`.
void convert(const Strip& from, DType to, Strip& out) {
  resize(out, to, static_cast<int64_t>(std::max(from.real.size(), from.whole.size())));  // one of them is empty
  if (is_float(to) && is_float(from.dtype)) {
    out.real = from.real;
    if (to != from.dtype) round_all(out.real, to);
    return;
  }
  for (size_t i = 0; i < out.real.size(); ++i) out.real[i] = real_of_whole(from.whole[i], from.dtype, to);
  for (size_t i = 0; i < out.whole.size(); ++i) {
    out.whole[i] = is_float(from.dtype) ? whole_of_real(from.real[i], to) : wrap_whole(from.whole[i], to);
  }
}

void round_to_dtype(Strip& strip) {
  round_all(strip.real, strip.dtype);
  for (int64_t& x : strip.whole) x = wrap_whole(x, strip.dtype);
}

// The type that operand `position` of a function is computed as. Only pow and where have operands of several types.
DType operand_type(const FunctionRow& row, const Operands& operands, size_t position) {
  if (row.types == rk::functions::Types::truths) return DType::boolean;
  if (row.op == ElementwiseOp::where) return operands[1]->dtype;  // the condition as 0 or 1 of that type
  if (row.op != ElementwiseOp::pow) return operands[0]->dtype;
  if (is_float(operands[0]->dtype) || is_float(operands[1]->dtype)) return DType::f64;
  return operands[position]->dtype;
}

// The operands of `where`: a condition is true whatever it is, as long as it is not 0.
const Strip* as_condition(const Strip* condition, DType to, Strip& truth, Strip& converted) {
  if (condition->dtype != DType::boolean) {
    convert(*condition, DType::boolean, truth);
    condition = &truth;
  }
  convert(*condition, to, converted);
  return &converted;
}

// Runs one step; `converted` holds operands that had to change their type.
void run_step(const Call& call, const ElementwiseStep& step, Operands operands, std::vector<Strip>& converted, Strip& out) {
  const int64_t count = static_cast<int64_t>(std::max(operands[0]->real.size(), operands[0]->whole.size()));
  if (step.op == ElementwiseOp::cast) return convert(*operands[0], call.output().dtype, out);

  const FunctionRow& row = row_of(step.op);
  const DType first = operands[step.op == ElementwiseOp::where ? 1 : 0]->dtype;
  const DType result = row.result == rk::functions::Result::truth ? DType::boolean : first;
  const Operands given = operands;
  for (size_t i = 0; i < given.size(); ++i) {
    const DType wanted = operand_type(row, given, i);
    if (given[i]->dtype == wanted) continue;
    if (step.op == ElementwiseOp::where && i == 0) {
      operands[i] = as_condition(given[i], wanted, converted[3], converted[0]);
      continue;
    }
    convert(*given[i], wanted, converted[i]);
    operands[i] = &converted[i];
  }
  // A float function with a result that is none (a comparison, an integer to a float power) is converted afterwards, and so is
  // an integer one with a result that is a float.
  const DType computed = operands.back()->dtype;
  const bool same_kind = is_float(computed) == is_float(result);
  Strip& target = same_kind ? out : converted.back();
  resize(target, same_kind ? result : is_float(computed) ? DType::f64 : DType::i64, count);
  run_function(step, operands, where(call.rop), target);
  if (!same_kind) convert(target, result, out);
  round_to_dtype(out);
}

void store(const Strip& strip, DType dtype, Bytes& bytes, int64_t at) {
  with_storage(dtype, [&](auto tag) {
    using Stored = decltype(tag);
    auto* stored = reinterpret_cast<Stored*>(bytes.data()) + at;
    for (size_t i = 0; i < strip.real.size(); ++i) stored[i] = encode<Stored>(strip.real[i], dtype);
    for (size_t i = 0; i < strip.whole.size(); ++i) stored[i] = encode<Stored>(strip.whole[i], dtype);
  });
}

bool is_plain_copy(const Call& call, const Elementwise& attrs) {
  return attrs.steps.size() == 1 && attrs.steps[0].op == ElementwiseOp::identity && call.input(0).dtype == call.output().dtype &&
         call.input(0).shape == call.output().shape;
}

}  // namespace

std::vector<Value> evaluate(const Elementwise& attrs, const Call& call) {
  if (is_plain_copy(call, attrs)) return {call.input(0)};
  const Tensor& output = call.output();
  std::vector<Reader> readers;
  for (size_t i = 0; i < call.rop.inputs.size(); ++i) readers.emplace_back(call.input(i), output.shape);

  std::vector<Strip> inputs(readers.size()), results(attrs.steps.size()), converted(5);
  Strip stored;
  const int64_t count = element_count(output.shape);
  Bytes bytes(static_cast<size_t>(count * bytes_of(output.dtype)));
  for (int64_t begin = 0; begin < count; begin += kStrip) {
    const int64_t length = std::min(kStrip, count - begin);
    for (size_t i = 0; i < readers.size(); ++i) readers[i].read(length, inputs[i]);
    for (size_t s = 0; s < attrs.steps.size(); ++s) {
      Operands operands;
      for (const int32_t v : attrs.steps[s].operands) {
        operands.push_back(v >= 0 ? &inputs[static_cast<size_t>(v)] : &results[static_cast<size_t>(-1 - v)]);
      }
      run_step(call, attrs.steps[s], operands, converted, results[s]);
    }
    convert(results.back(), output.dtype, stored);
    store(stored, output.dtype, bytes, begin);
  }
  return {Value{output.dtype, output.shape, std::make_shared<const Bytes>(std::move(bytes))}};
}

}  // namespace tamp::ops
