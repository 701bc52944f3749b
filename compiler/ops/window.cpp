#include "compiler/ops/window.h"

#include "compiler/support/text.h"

namespace tamp::ops {

void expect_spatial(const Given& given, size_t most, const char* what) {
  const Shape& x = given.shape(0);
  if (x.size() < 3) throw bad_input("input X has shape {}, expected [N,C,spatial...]", shape_text(x));
  if (x.size() > most + 2) throw unsupported("{}-D {} (X has shape {}), supported: 1-D to {}-D", x.size() - 2, what, shape_text(x), most);
}

int64_t slid_extent(int64_t in, int64_t reach, int64_t stride, int64_t pad_begin, int64_t pad_end, bool ceil_mode, size_t dimension) {
  const int64_t free = in + pad_begin + pad_end - reach;
  if (free < 0) throw bad_input("the window spans {} elements of dimension {}, which has {} with its pads", reach, dimension, free + reach);
  if (!ceil_mode) return free / stride + 1;
  const int64_t out = (free + stride - 1) / stride + 1;
  return (out - 1) * stride >= in + pad_begin ? out - 1 : out;  // the last would begin in the end pad
}

int64_t window_elements(const std::vector<int64_t>& kernel) {
  int64_t elements = 1;
  for (const int64_t extent : kernel) elements = saturating_product({elements, extent});
  return elements;
}

}  // namespace tamp::ops
