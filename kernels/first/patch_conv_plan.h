// How patch_conv (patch_conv.cuh) divides a convolution: the shapes of the product that there are, and for each the tile of
// output pixels and the patch of input that the tile reads; and what patch_strip has in common with it.
#pragma once

#include "compiler/ir/shaped_vdevice.h"
#include "kernels/first/numbers.cuh"
#include "kernels/tile/product.h"

namespace tamp::kernels {

constexpr int64_t kPatchGranule = 4;  // columns of the filter that lie together in k
constexpr int64_t kPatchStepK = 8;
constexpr int64_t kPatchWarps = rk::kComputeWarps, kPatchTableBytes = rk::kPatchTableBytes, kPatchTileBytes = rk::kPatchTileBytes;

// Everything that pack and accesses need; a RKernel's config holds it.
struct PatchPlan {
  int64_t m_tiles = 1, n_tiles = 1, warps_m = 1, warps_k = 1, cell = 1, plain = 0;
  int64_t tile_h = 1, tile_w = 1, pitch = 0, chunk_steps = 1, part_pixels = 8;

  int64_t block() const { return 16 * m_tiles * warps_m; }  // channels
  int64_t warps_n() const { return kPatchWarps / (warps_m * warps_k); }
  int64_t most_pixels() const { return 8 * n_tiles * warps_n(); }
  int64_t step_bytes() const { return kPatchTableBytes + warps_m * m_tiles * kPatchTileBytes; }
};

// One for every shape that suits the convolution and fits the vDevice. `cell`: floats that a copy of input takes.
std::vector<PatchPlan> patch_plans(const ShapedVDevice& vdevice, const Product& product, int64_t cell);

int64_t patch_extent(const Product& p, size_t d, int64_t tile);       // of h or w
int64_t patch_rows(const Product& p, const PatchPlan& c);             // of all channels
int64_t patch_cells(const Product& p, const PatchPlan& c);            // copies of a row; the first begins where memory is aligned
int64_t patch_row_shift(const Product& p, const PatchPlan& c);        // log2 of the threads that copy one row
int64_t patch_tiles(const Product& p, const PatchPlan& c, size_t d);  // of an image, along h or w
int64_t patch_blocks(const Product& p, const PatchPlan& c);           // of channels
int64_t patch_steps(const Product& p);                                // of 8 of k
int64_t patch_chunks(const Product& p, const PatchPlan& c);
int64_t patch_work_bytes(const Product& p, const PatchPlan& c);

// Of both. Rows of the input are aligned vectors: 16 bytes are inside or outside of the image together.
bool has_vector_rows(const Graph& graph, const Product& p);
// The arguments from `in_strides` to `tile_w`.
void add_map_args(const Product& p, int64_t tile_h, int64_t tile_w, Phase& phase);
inline double elements(int64_t a, int64_t b) { return static_cast<double>(a) * static_cast<double>(b); }

// Terms of Cost.
double patch_efficiency(const ShapedVDevice& vdevice, const Product& p, const PatchPlan& c);
double patch_start_us(const ShapedVDevice& vdevice);  // on top of what every rTask costs

}  // namespace tamp::kernels
