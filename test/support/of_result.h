// Attributes that the text form leaves to the result's type (OfResult in compiler/ir/fields.h), taken from there.
#pragma once

#include <type_traits>

#include "compiler/ir/ops.h"
#include "compiler/ir/tensor.h"

namespace tamp::test {

struct OfResultSetter {
  const Shape& shape;
  DType dtype;

  template <class... Arguments>
  void operator()(const char*, Arguments&&...) const {}
  void operator()(const char*, std::vector<int64_t>& value, OfResult rule) const {
    if (rule.wanted) value = shape;
  }
  void operator()(const char*, std::optional<DType>& value, OfResult rule) const {
    if (rule.wanted) value = dtype;
  }
};

inline OpAttrs of_result(OpAttrs attrs, const Shape& shape, DType dtype = DType::f32) {
  std::visit(
      [&]<class Op>(Op& op) {
        if constexpr (HasFields<Op>) Op::fields(op, OfResultSetter{shape, dtype});
      },
      attrs);
  return attrs;
}

}  // namespace tamp::test
