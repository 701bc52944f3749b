// How the attributes of an operator are visited. Every struct of attributes has
//
//   static void fields(auto& op, auto&& f)
//
// which calls f(name, attribute) or f(name, attribute, rule) for each of them, in the order of the text form. Printing (print.cpp),
// reading (test/support/graph_text.cpp) and the signature under which measurements are kept (select/records.cpp) follow from it.
//
//   f("axis", op.axis)                                   stands always in the text
//   f("beta", op.beta, 1.0F)                             is left out at its usual value
//   f("strides", op.strides, Each{1, op.kernel.size()})  a list that is left out where every entry is 1, and then has so many
//   f("pads", Pair{op.pads_begin, op.pads_end}, ...)     two attributes that are one list in the text
//   f("shape", op.shape, OfResult{})                     the result's type says it, so the text does not
//   f("input_", op.input_activation)                     a struct (or an optional one) with fields of its own, whose names get this
//                                                        prefix; left out where all of it is as it begins
#pragma once

#include <cstddef>
#include <cstdint>

namespace tamp {

struct Each {
  int64_t usual = 0;
  size_t count = 0;
};

template <class T>
struct Pair {
  T& first;
  T& second;
};
template <class T>
Pair(T&, T&) -> Pair<T>;

// Marks an attribute that repeats a property of the first result: the result's shape if the attribute is a list, its element type if the
// attribute is a type. `wanted` is false where this operator has no such attribute.
struct OfResult {
  bool wanted = true;
};

struct IgnoreField {
  template <class... Arguments>
  void operator()(Arguments&&...) const {}
};
template <class T>
concept HasFields = requires(T& op) {
  T::fields(op, IgnoreField{});
};

}  // namespace tamp
