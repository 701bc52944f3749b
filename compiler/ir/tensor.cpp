#include "compiler/ir/tensor.h"

#include "compiler/support/error.h"

namespace tamp {

int64_t element_count(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

std::vector<int64_t> range(int64_t begin, int64_t end) {
  std::vector<int64_t> numbers;
  for (int64_t i = begin; i < end; ++i) numbers.push_back(i);
  return numbers;
}

std::vector<int64_t> row_major_strides(const Shape& shape) {
  std::vector<int64_t> strides(shape.size(), 0);
  int64_t step = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1) strides[i] = step;
    step *= shape[i];
  }
  return strides;
}

bool is_row_major(const Tensor& tensor) { return tensor.place.strides == row_major_strides(tensor.shape); }

bool lies_for_boxes(const Tensor& tensor) {
  const Placement& place = tensor.place;
  if (place.strides.size() != 4 || (tensor.shape[1] > 1 && place.strides[1] != 1)) return false;
  const int64_t cell = 16 / bytes_of(tensor.dtype);  // elements
  return place.offset % cell == 0 && place.strides[0] % cell == 0 && place.strides[2] % cell == 0 && place.strides[3] % cell == 0;
}

const float* f32_data(const Tensor& tensor) {
  TAMP_CHECK(tensor.role == Role::constant && tensor.data != nullptr && tensor.dtype == DType::f32,
             "'" + tensor.name + "' is not an f32 constant");
  return reinterpret_cast<const float*>(tensor.data->data());
}

const int64_t* i64_data(const Tensor& tensor) {
  TAMP_CHECK(tensor.role == Role::constant && tensor.data != nullptr && tensor.dtype == DType::i64,
             "'" + tensor.name + "' is not an i64 constant");
  return reinterpret_cast<const int64_t*>(tensor.data->data());
}

}  // namespace tamp
