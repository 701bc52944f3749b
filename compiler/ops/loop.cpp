// LoopBegin and LoopEnd by themselves hand on values; Walk (evaluate.cpp) runs what lies between them.
#include "compiler/ops/operator.h"
#include "compiler/support/text.h"

namespace tamp::ops {
namespace {

void expect_condition(const Given& given, size_t i) {
  given.expect_shape(i, "the condition", {});
  if (given.dtype(i) != DType::boolean) throw bad_input(std::string("the condition is of ") + name_of(given.dtype(i)) + ", expected bool");
}

}  // namespace

TensorTypes infer(const LoopBegin&, const Given& given) {
  given.expect(given.count());
  expect_condition(given, 0);
  TensorTypes types;
  for (size_t i = 0; i < given.count(); ++i) types.push_back(given.type(i));
  return types;
}

TensorTypes infer(const LoopEnd&, const Given& given) {
  given.expect(given.count());
  expect_condition(given, 0);
  const size_t values = given.count() / 2;
  TensorTypes types;
  for (size_t i = 0; i < values; ++i) {
    if (given.type(i) != given.type(values + i)) throw bad_input("value " + std::to_string(i) + " has another type in the next iteration");
    types.push_back(given.type(i));
  }
  return types;
}

std::vector<Value> evaluate(const LoopBegin&, const Call& call) {
  std::vector<Value> values;
  for (size_t i = 0; i < call.rop.inputs.size(); ++i) values.push_back(call.input(i));
  return values;
}
std::vector<Value> evaluate(const LoopEnd&, const Call& call) {
  std::vector<Value> values;
  for (size_t i = call.rop.inputs.size() / 2; i < call.rop.inputs.size(); ++i) values.push_back(call.input(i));
  return values;
}

Traits traits_of(const LoopBegin&) { return {Layout::row_major, InF32::none}; }
Traits traits_of(const LoopEnd&) { return {Layout::row_major, InF32::none}; }
int64_t own_work(const LoopBegin&, const Given&, const TensorTypes&) { return 0; }
int64_t own_work(const LoopEnd&, const Given&, const TensorTypes&) { return 0; }

}  // namespace tamp::ops
