// The table of elementwise functions, as the compiler sees it. Host and device share its rows: kernels/shared/functions.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "kernels/shared/functions.h"

namespace tamp {

// The elementwise functions: the rows of kernels/shared/functions.h, which says what they are. `a` and `b` are attributes.
enum class ElementwiseOp : uint8_t {
#define TAMP_ROW(name, arity, attributes, types, result, speed, price, onnx, formula) name,
  RK_FUNCTIONS(TAMP_ROW)
#undef TAMP_ROW
};

// A row without its formula.
struct FunctionRow {
  struct Attributes {
    int count = 0;
    std::array<const char*, 2> names{};
    std::array<float, 2> defaults{};
    constexpr Attributes() = default;
    constexpr Attributes(const char* name, float value) : count(1), names{name}, defaults{value} {}
    constexpr Attributes(const char* name, float value, const char* name2, float value2)
        : count(2), names{name, name2}, defaults{value, value2} {}
  };
  struct Onnx {
    const char* name = nullptr;  // none: no operator is this function and nothing else
    std::array<int, 8> versions{};
    size_t version_count = 0;
    constexpr Onnx() = default;
    constexpr Onnx(const char* name_, std::initializer_list<int> list) : name(name_) {
      for (const int version : list) versions[version_count++] = version;
    }
  };
  ElementwiseOp op;
  const char* name;
  int arity;
  Attributes attributes;
  rk::functions::Types types;
  rk::functions::Result result;
  rk::functions::Speed speed;
  double price;
  Onnx onnx;
};
std::span<const FunctionRow> function_rows();
const FunctionRow& row_of(ElementwiseOp op);
const char* name_of(ElementwiseOp op);
int arity_of(ElementwiseOp op);

}  // namespace tamp
