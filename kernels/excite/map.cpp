#include "kernels/excite/map.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/args.h"
#include "kernels/excite/numbers.cuh"
#include "kernels/loop.h"
#include "kernels/narrow.h"
#include "kernels/vectors.h"

namespace tamp::kernels {

static_assert(kSqueezeBlock == rk::kExciteChannels);

int64_t ChannelMap::blocks() const { return ceil_div(channels, kSqueezeBlock); }

ChannelMap map_of(const Tensor& tensor) { return {tensor.shape[0], tensor.shape[1], tensor.shape[2], tensor.shape[3]}; }

bool has_vector_pixels(const Tensor& tensor) {
  const std::vector<int64_t>& s = tensor.place.strides;
  return s[1] == 1 && s[0] % 4 == 0 && s[2] % 4 == 0 && s[3] % 4 == 0 && tensor.place.offset % 4 == 0 &&
         ends_in_padding({s[0], s[1], s[2], s[3]}, tensor.shape[1]);
}

ArgValue map_strides(const Tensor& tensor) { return array_arg(tensor.place.strides, 4); }

void append_map(const Graph& graph, TensorId id, int64_t image, int64_t block, int64_t row, int64_t row_end, bool vector,
                std::vector<Region>& regions) {
  const ChannelMap map = map_of(graph.tensor(id));
  const int64_t end = std::min((block + 1) * kSqueezeBlock, map.channels);
  append_box(graph, id, {image, block * kSqueezeBlock, row, 0}, {image + 1, vector ? whole_vectors(end) : end, row_end, map.width},
             regions);
}

int64_t loads_ahead(const Tensor& map, int64_t pixels) {
  return map.dtype != DType::f32 && pixels >= rk::kSqueezeLongAhead ? rk::kSqueezeLongAhead : rk::kExciteAhead;
}
double sum_turns_us(const Tensor& map, int64_t pixels, const ShapedVDevice& vdevice) {
  const int64_t ahead = loads_ahead(map, pixels);
  return static_cast<double>(ceil_div(pixels, ahead) - 1) *
         vdevice.cost(ahead == rk::kExciteAhead ? "squeeze.turn_us" : "squeeze.long_turn_us");
}

bool has_square_filter(const std::vector<int64_t>& kernel, const std::vector<int64_t>& strides, const std::vector<int64_t>& dilations) {
  const auto both = [](const std::vector<int64_t>& values) { return values.size() == 2 && values[0] == values[1]; };
  const int64_t taps = kernel[0], stride = strides[0];
  return both(kernel) && both(strides) && both(dilations) && dilations[0] == 1 && (taps == 3 || taps == 5 || taps == 7) &&
         (stride == 1 || stride == 2);
}

float pack_weights(const std::vector<float>& weights, bool narrow, std::byte* to) {
  const float scale = narrow ? half_scale(weights) : 1;
  const float up = 1 / scale;
  for (size_t i = 0; i < weights.size(); ++i) {
    const uint16_t half = narrow ? half_of(weights[i] * up) : uint16_t{0};
    const size_t bytes = static_cast<size_t>(weight_bytes_of(narrow));
    std::memcpy(to + i * bytes, narrow ? static_cast<const void*>(&half) : &weights[i], bytes);
  }
  return scale;
}

bool takes_map(const Tensor& tensor, Precision precision, bool bytes) {
  if (bytes && is_whole_byte(tensor.dtype)) return is_plain_values_or_bytes(tensor);
  return is_plain_values(tensor) && (!is_narrow(tensor.dtype) || has_narrow_activations(precision));
}

}  // namespace tamp::kernels
