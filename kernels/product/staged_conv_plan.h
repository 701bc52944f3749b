// How staged_conv (staged_conv.cuh) divides a convolution or a product: the shapes of its body, the grid of output pixels that tiles are
// cut from, groups, blocks, steps and boxes. A RKernel's config holds Config; all else follows from Config and the product.
//
// Groups of fewer than 32 input channels (64 where inputs are narrow) are merged, several into one, with weights of zero where an output
// does not belong to an input: a box has 32 (64) channels anyway, and the tensor cores have arithmetic to spare. (So an infinity in one
// merged group makes NaN in the others.) As many are merged as divide the groups, begin at multiples of 16 bytes, leave whole vectors of
// output channels, and fit a box. Example: 32 groups of 4 input channels become 4 merged groups of 32; 13 groups of 8 in bytes, of which a
// box has 128, become one. Where sums of channels are
// stored as well, as many groups as fill a shape are merged, and the last merged group may have fewer: 13 groups of 8 are 7 of 16.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "compiler/ir/rkernel.h"
#include "compiler/ir/shaped_vdevice.h"
#include "kernels/product/staged_numbers.cuh"
#include "kernels/tile/numbers.cuh"
#include "kernels/tile/product.h"

namespace tamp::kernels::staged {

// Template arguments of the body, and what follows from them.
struct Shape {
  int64_t mt, nt, warps_m, warps_n;

  int64_t channels() const { return 16 * mt * warps_m; }
  int64_t pixels() const { return 8 * nt * warps_n; }
  int64_t warps_k() const { return rk::kComputeWarps / (warps_m * warps_n); }
  // The sums of one round, or those rounded to 16 bits where there are several rounds (StagedRoundedResults).
  int64_t sum_bytes() const {
    const int m = static_cast<int>(channels()), n = static_cast<int>(pixels());
    const int pad = is_deep() ? rk::kWideSumPad : rk::kSumPad;
    const int64_t rounds = rk::staged_rounds(m, n), bytes = n / rounds * (m + pad) * 4 * warps_k();
    return rounds == 1 ? bytes : std::max<int64_t>({bytes, n / rk::rounded_rounds(m, n) * rk::rounded_pitch(m), byte_bytes()});
  }
  // Those that become bytes (StagedByteResults).
  int64_t byte_bytes() const {
    const int m = static_cast<int>(channels()), n = static_cast<int>(pixels());
    return n / rk::byte_rounds(m, n) * rk::byte_pitch(m);
  }
  bool many_registers() const { return rk::has_many_sums(static_cast<int>(channels()), static_cast<int>(pixels())); }
  bool is_deep() const { return mt == 2 && nt >= 3 && warps_m >= 2 && warps_n >= 2; }  // 64 channels or more by 64 pixels or more
  bool only_deep() const { return channels() > 64 || (pixels() > 64 && pixels() % 64 != 0); }
  // Shapes for programs that are products of one tap and little else (ProgramShape::even_stages): tiles of as many pixels as let the rTasks
  // of a product fill one round of all vEUs. In other programs they were not measured. The largest are for large products alone
  // (ProgramShape::more_tiles): vit_b_16 in tf32 took 412 us instead of 389 on an H200 where 64 x 160 was taken, whose estimate is too low.
  bool is_of_one_tap() const { return (channels() == 64 && only_deep()) || pixels() > 192; }
  bool is_of_large_products() const { return pixels() > (channels() == 64 ? 128 : 192); }
};
std::span<const Shape> shapes();

// The vDevice's costs of a rTask of a shape: its efficiency, the cycles that it takes at least, cycles for each step, and cycles for
// each byte of the input.
struct ShapeCosts {
  double efficiency, fixed_cycles, step_cycles, input_byte_cycles;
};

inline constexpr int64_t kNarrowBytes = 2;

// Everything that pack and accesses need; a RKernel's config holds it.
struct Config {
  int64_t precision = 0;  // Precision
  int64_t shape = 0, tile_w = 1, tile_h = 1, splits = 1, boxes_per_split = 0, boxes_per_chunk = 0, chunk_steps = 1, sum_rows = 0;
  int64_t team_boxes = 0;   // 1: in a step each team takes a box, else a tap of the same box
  int64_t narrow = 0;       // 1: the inputs have 16 bits; kNarrowBytes: they have 8
  int64_t deep = 0;         // 1: the body multiplies by wgmma, 8 pixels at a time (eight_rows); in tf32, tiles of 128 channels
  int64_t stage_steps = 0;  // steps of each input stage, if the body is made for that number (StageLoop); 0: any number
  int64_t pairs = 0;        // 1: the product is by_pairs
  int64_t sums = 0;         // 1 or more: the body stores sums of channels as well (summed_conv.cuh), and so many groups are merged
  int64_t normalized = 0;   // 1: the second phase also normalises, in rTasks of sum_rows whole rows (split_k_normalize.cuh)
  int64_t parts = 0;        // moments of an input's row that a thread combines, if the body normalises by moments (moment_conv.cuh)
  int64_t moments = 0;      // 1: the body keeps the moments of its results (moment_conv.cuh)
  int64_t whole = 0;        // Whole: of whole numbers, whose weights have scales; without a second phase, results are rounded as it says
  int64_t cluster = 0;      // 1: the splits of a tile are the members of a cluster, which add up their sums (cluster_conv.cuh)

  bool has_second_phase() const { return splits > 1 && cluster == 0; }  // which adds up partial sums
};
decltype(RKernel::config) to_config(const Config& c);
Config config_of(const RKernel& rkernel);

const Shape& shape_of(const Config& c);
bool is_tf32(const Config& c);
bool has_scales(const Config& c);  // of each output channel
ShapeCosts costs_of(const ShapedVDevice& vdevice, const Config& c);
static_assert(kBoxChannels == rk::kBoxChannels);
int64_t channels_of_box(const Product& p);
int64_t units_of_box(const Config& c);
int64_t teams_of(const Config& c);
int64_t tile_bytes_of(const Config& c);  // weights of 16 channels and one mma's k
int64_t step_bytes_of(const Config& c);
int64_t batch_of(const Config& c);  // steps

// A convolution of stride 2 along rows as one of stride 1: a pixel is two neighbours with the channels of both, so that wgmma's eight
// pixels are eight rows of a box. Nothing where that cannot be. Example: 3 x 3 taps, stride 2, padding 1, 64 channels, rows of 56 pixels
// become 3 x 2 taps, 128 channels, rows of 28 pairs, padding 1. Output pixel 5 reads columns 9, 10 and 11, which are the second half of
// pair 4 and both of pair 5; the weights of the first half of pair 4 are zero. So 12 multiplications are made for 9.
std::optional<Product> by_pairs(const Product& product);

// --- the product as boxes see it ---------------------------------------------------------------------------------------

// Whether every pixel of the output reads one pixel of the input: no padding, neither in front (`pad`) nor behind.
bool is_pointwise(const Product& p);

// Output pixels as the tiles divide them, and the tensor that boxes are cut from.
struct Grid {
  int64_t w = 1, h = 1, images = 1;
  std::array<int64_t, 4> extents{}, strides{};                                  // channel, w, h, image
  int64_t stride_w = 1, stride_h = 1;                                           // pixels of the tensor from an output pixel to the next
  std::array<int64_t, 4> out_strides{}, residual_strides{}, partial_strides{};  // image, channel, h, w

  Product with_grid_strides(Product p) const {
    p.residual_strides = residual_strides;
    return p;
  }
};
// With one tap and no padding, pixels that are not read are left out, and dimensions that lie evenly become one.
Grid grid_of(const Product& p);

// The groups of a product after merging.
struct Groups {
  int64_t merged = 1;  // groups of the product in a merged one
  int64_t count, in_channels, channels;
};
Groups groups_of(const Product& p, const Config& c);

// Boxes along the channels of a group, rounded up to whole steps.
int64_t all_boxes(const Product& p, const Config& c);

// How many channels are one aligned access of 16 bytes at most: 16 (of bytes), 8 (of 16 bits or less), 4, or 0.
int64_t vector_of(const Graph& graph, TensorId id, const std::array<int64_t, 4>& strides, int64_t channels);

struct Blocks {
  int64_t tiles_w, tiles_h, n, boxes, steps, last_steps, chunks;  // steps and chunks: of a rTask; last_steps: of one of the last split
  int64_t tiles(const Grid& g) const { return tiles_w * tiles_h * g.images; }
};
Blocks blocks_of(const Product& p, const Config& c);

int64_t boxes_of_step(const Config& c);
int64_t taps_of_step(const Config& c);
int64_t steps_of_boxes(const Product& p, const Config& c, int64_t boxes);

// Steps of an input chunk with all its boxes. Each step left after the last whole batch costs half a batch; more than two such steps are
// filled up to a batch, with weights of zero. (A chunk of fewer boxes is not filled up: its stage may hold anything behind the boxes.)
int64_t input_steps_of(const Product& p, const Config& c);
// Steps of a rTask whose split has `boxes` boxes.
int64_t steps_of_split(const Product& p, const Config& c, int64_t boxes);

// Rows of the box from 8 pixels of a tile to the next 8, where 8 pixels are neighbours and all such steps are equal; else 0. Example: a
// tile 8 pixels wide with a filter of 3 x 3 and stride 1 has a box 10 pixels wide: 10.
int64_t eight_rows(const Product& p, const Config& c);
// Whether the body multiplies by wgmma, in a program that uses wgmma. In tf32 this needs pixels that are neighbouring rows of a box. (64
// x 16 and 64 x 32 are slower with wgmma.)
bool is_wide(const ShapedVDevice& vdevice, const Product& p, const Config& c);
int64_t box_extent(int64_t tile, int64_t stride, int64_t kernel, int64_t dilation);
bool in_one_copy(const Product& p, const Config& c);      // see InputBoxes::boxes_per_copy
int64_t bytes_of_box(const Product& p, const Config& c);  // in a stage that holds several
InputBoxes boxes_of(const Product& p, const Config& c);

}  // namespace tamp::kernels::staged
