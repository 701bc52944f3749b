// A Conv or a MatMul with constant weights, seen as the matrix product that the bodies of implicit_gemm and gemv compute:
//   out[m][n] = act(bias[n] + residual[m][n] + sum over k of in(m, k) * weight[k][n])
// m = (image, h, w) of the output, n = output channel of a group, k = (tap, input channel of the group). For a MatMul the rows
// of A are folded into at most three dimensions, and there is one tap.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "compiler/ir/graph.h"
#include "compiler/ir/rkernel.h"

namespace tamp::kernels {

struct Product {
  std::array<int64_t, 3> pixels = {1, 1, 1};  // extents of m: image, h, w
  int64_t groups = 1, channels = 0;           // output channels of a group
  int64_t in_channels = 0;                    // of a group

  std::array<int64_t, 2> in_extent = {1, 1}, kernel = {1, 1}, stride = {1, 1}, pad = {0, 0}, dilation = {1, 1};  // h, w

  TensorId in, out, residual;
  bool narrow_in = false, narrow_out = false;                              // in and out have 16 bits, or 8
  bool byte_in = false;                                                    // in has 8
  int64_t in_low = 0;                                                      // Buffer::low of in
  std::array<int64_t, 4> in_strides{}, out_strides{}, residual_strides{};  // image, channel, h, w
  bool residual_after_activation = false;
  bool keeps_tiles = false;  // results are asked for by tiles of rows and columns, so these stay dimensions of their own

  TensorId weights;
  int64_t weight_stride_n = 0, weight_stride_channel = 0, weight_stride_tap = 0;  // elements of the constant's row-major data
  float alpha = 1;

  // Space-to-depth along rows (staged::by_pairs): a pixel of `in` is two neighbours of a row, the channels of the right one behind those of
  // the left one, and a convolution of stride 2 has stride 1. Then in_channels, in_extent, kernel, stride and pad are those of pairs. The
  // filter still has pair_kernel columns, of which column pair_tap (0 or -1) belongs to the left half of the first pair.
  // Example: a filter of 3 columns, stride 2, padding 1, on rows of 56 pixels of 64 channels. As pairs that is rows of 28 pixels of 128
  // channels, 2 columns, stride 1, padding 1, pair_kernel 3, pair_tap -1. The first pair has columns -1 and 0 of the filter, the second
  // one 1 and 2; there is no column -1, so its 64 weights are zero. weight_at(.., k) with k = 70 is channel 70 of the first pair: its right
  // half, column 0, channel 6. k = 130 is channel 2 of the second pair: its left half, column 1, channel 2.
  bool pairs = false;
  int64_t pair_tap = 0, pair_kernel = 0;

  // A Conv with a prologue: the window above is that of the depthwise convolution, and k counts input channels only.
  bool depthwise = false;

  TensorId bias;           // the rOperator's own operand; constant of one value or one per channel; times beta
  TensorId epilogue_bias;  // one per channel
  float beta = 1;

  int64_t rows() const { return pixels[0] * pixels[1] * pixels[2]; }
  int64_t taps() const { return kernel[0] * kernel[1]; }
  int64_t k() const { return depthwise ? in_channels : taps() * in_channels; }
};

// Nothing where the rOperator is neither a Conv nor a MatMul, has an operand that the bodies cannot take, or is empty. A Conv with a
// prologue (compiler/ir/ops.h) has a product only for bodies that call product_with_prologue and compute the prologue, too. Activations
// are f32; for a body that asks for `narrow` ones, in and out may each have 16 bits as well, and a residual has out's type; for one that
// asks for `mixed` ones, the residual of f32 results may have in's type. With `bytes` each of the three may be a byte, too, and a byte may
// have been made of 0 or of another number (Buffer::low): what the products get for in's is in the bias.
enum class Activations : uint8_t { f32, narrow, mixed, bytes };
std::optional<Product> product_of(const Graph& graph, const ROperator& rop, Activations activations = Activations::f32);
std::optional<Product> product_with_prologue(const Graph& graph, const ROperator& rop, Activations activations = Activations::f32);

// The weights of output channel n of a group at one tap, by input channel of the group. Millions are read, so a read has no division.
class WeightRow {
 public:
  WeightRow() = default;  // of zeros
  // `data`: the constant's.
  WeightRow(const float* data, const Product& product, int64_t group, int64_t n, int64_t tap);
  float operator[](int64_t channel) const {
    const bool second = channel >= channels_;
    const float* const part = second ? second_ : first_;
    return part ? alpha_ * part[(channel - (second ? channels_ : 0)) * stride_] : 0;
  }
  // Its first `to.size()` channels.
  void copy(std::span<float> to) const;

 private:
  const float *first_ = nullptr, *second_ = nullptr;  // a pair's two pixels, else one; null where the filter has no such column
  int64_t channels_ = 0, stride_ = 0;                 // channels of a pixel, elements from one to the next
  float alpha_ = 1;
};
float weight_at(const float* data, const Product& product, int64_t group, int64_t n, int64_t k);
// The weights by output channel of a product with one tap and one group. Some channels are read at once, since those of one k may lie
// beside each other in memory.
class WeightColumns {
 public:
  WeightColumns(const float* data, const Product& product) : data_(data), product_(product) {}
  // Of channel n, to be asked for from 0 on in order. Good, and free to be changed, until the next is asked for.
  std::span<float> column(int64_t n);

 private:
  static constexpr int64_t kTogether = 32;
  // From one channel to the next. A power of two would bring them all to the same few lines of a cache.
  int64_t line() const { return product_.k() + 16; }
  void read(int64_t first, int64_t count);

  const float* data_;
  const Product& product_;
  std::vector<float> some_;
};

bool has_bias(const Product& product);
std::vector<float> bias_of(const Graph& graph, const Product& product);  // groups * channels values

// Whether `width` channels of one pixel are one aligned access, for every pixel and every group (of `channels`), with these strides.
bool has_vector_channels(const Tensor& tensor, const std::array<int64_t, 4>& strides, int64_t channels, int64_t width = 4);

// The elements of rows [first, last) and flat output channels [begin, end) of out or residual.
void append_rows(const Product& product, TensorId id, int64_t offset, const std::array<int64_t, 4>& strides, int64_t first, int64_t last,
                 int64_t begin, int64_t end, std::vector<Region>& regions);
// A box that holds all inputs of rows [first, last), flat input channels [begin, end).
void append_input(const Graph& graph, const Product& product, int64_t first, int64_t last, int64_t begin, int64_t end,
                  std::vector<Region>& regions);

}  // namespace tamp::kernels
