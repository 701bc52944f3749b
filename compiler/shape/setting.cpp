#include "compiler/shape/setting.h"

#include <algorithm>
#include <cstddef>
#include <variant>

#include "compiler/support/error.h"
#include "compiler/support/nearest.h"
#include "compiler/support/text.h"

namespace tamp::shape {

std::optional<Precision> asked_precision(const std::string& name, const VDevice& vdevice) {
  if (name.empty()) return std::nullopt;
  if (name == "fp32") return Precision::fp32;
  if (name == "tf32") {
    if (!vdevice.tf32) throw unsupported("precision tf32: vDevice '{}' has no tf32 units; supported there: fp32", printable(vdevice.name));
    return Precision::tf32;
  }
  if (name == "fp16" || name == "bf16") {
    if (!(name == "fp16" ? vdevice.fp16 : vdevice.bf16))
      throw unsupported("precision {}: vDevice '{}' has no {} units", name, printable(vdevice.name), name);
    return name == "fp16" ? Precision::fp16 : Precision::bf16;
  }
  throw bad_input("precision '{}' is not known; known: fp32, tf32, fp16, bf16{}", printable(name),
                  did_you_mean(name, {"fp32", "tf32", "fp16", "bf16"}));
}

bool is_of_bytes(const Graph& model) {
  const auto is_byte = [](const Tensor& tensor) {
    return tensor.role == Role::activation && (tensor.dtype == DType::i8 || tensor.dtype == DType::u8);
  };
  const auto multiplies = [](const ROperator& rop) {
    return std::holds_alternative<MatMul>(rop.attrs) || std::holds_alternative<Conv>(rop.attrs);
  };
  const auto bytes = std::count_if(model.tensors.begin(), model.tensors.end(), is_byte);
  const auto products = std::count_if(model.rops.begin(), model.rops.end(), multiplies);
  return bytes > 0 && products > 0 && 2 * bytes >= products;
}

// The frontend computes operators that exist in f32 only between casts, so that a third to a half of such a model's results have 16 bits.
Precision own_precision(const Graph& model, const VDevice& vdevice) {
  if (vdevice.default_precision == Precision::fp32) return Precision::fp32;
  constexpr size_t kShare = 4;
  size_t all = 0, f16 = 0, bf16 = 0;
  for (const Tensor& tensor : model.tensors) {
    if (tensor.role != Role::activation || !is_float(tensor.dtype)) continue;
    ++all;
    f16 += tensor.dtype == DType::f16 ? 1 : 0;
    bf16 += tensor.dtype == DType::bf16 ? 1 : 0;
  }
  if (f16 > 0 && kShare * f16 >= all && f16 >= bf16 && vdevice.fp16) return Precision::fp16;
  if (bf16 == 0 && is_of_bytes(model) && vdevice.fp16) return Precision::fp16;
  return bf16 > 0 && kShare * bf16 >= all && vdevice.bf16 ? Precision::bf16 : vdevice.default_precision;
}

}  // namespace tamp::shape
