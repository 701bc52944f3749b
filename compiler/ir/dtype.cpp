#include "compiler/ir/dtype.h"

#include "compiler/support/error.h"

namespace tamp {

int64_t bytes_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
    case DType::i64:
    case DType::u64: return 8;
    case DType::f32:
    case DType::i32:
    case DType::u32: return 4;
    case DType::f16:
    case DType::bf16:
    case DType::i16:
    case DType::u16: return 2;
    case DType::i8:
    case DType::u8:
    case DType::boolean:
    case DType::whole_i8:
    case DType::whole_u8: return 1;
  }
  TAMP_CHECK(false, "dtype out of range");
}

const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return "f32";
    case DType::f64: return "f64";
    case DType::f16: return "f16";
    case DType::bf16: return "bf16";
    case DType::i8: return "i8";
    case DType::i16: return "i16";
    case DType::i32: return "i32";
    case DType::i64: return "i64";
    case DType::u8: return "u8";
    case DType::u16: return "u16";
    case DType::u32: return "u32";
    case DType::u64: return "u64";
    case DType::boolean: return "bool";
    case DType::whole_i8: return "whole_i8";
    case DType::whole_u8: return "whole_u8";
  }
  TAMP_CHECK(false, "dtype out of range");
}

bool is_whole_byte(DType dtype) { return dtype == DType::whole_i8 || dtype == DType::whole_u8; }

bool is_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::f16 || dtype == DType::bf16 || is_whole_byte(dtype);
}

bool is_integer(DType dtype) { return !is_float(dtype) && dtype != DType::boolean; }

const char* name_of(Precision precision) {
  switch (precision) {
    case Precision::fp32: return "fp32";
    case Precision::tf32: return "tf32";
    case Precision::fp16: return "fp16";
    case Precision::bf16: return "bf16";
  }
  TAMP_CHECK(false, "precision out of range");
}

}  // namespace tamp
