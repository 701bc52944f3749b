#include "kernels/first/patch_conv_plan.h"

#include <algorithm>
#include <bit>
#include <string>

#include "kernels/args.h"
#include "kernels/tile/numbers.cuh"
#include "kernels/tile/product_phases.h"

namespace tamp::kernels {
namespace {

// How the warps share a block of channels, a tile of pixels, and k: m_tiles, n_tiles, warps_m, warps_k.
constexpr PatchPlan kShares[] = {{1, 1, 1, 1}, {1, 2, 1, 1}, {1, 2, 1, 4}, {2, 1, 1, 1}, {2, 2, 1, 1}, {2, 3, 1, 1},
                                 {2, 4, 1, 1}, {2, 4, 1, 4}, {3, 1, 1, 1}, {3, 2, 1, 1}, {2, 1, 2, 1}, {2, 2, 2, 1},
                                 {2, 4, 2, 1}, {2, 7, 2, 2}, {3, 1, 2, 1}, {3, 2, 2, 1}, {3, 4, 2, 1}};

}  // namespace

int64_t patch_extent(const Product& p, size_t d, int64_t tile) { return (tile - 1) * p.stride[d] + (p.kernel[d] - 1) * p.dilation[d] + 1; }
int64_t patch_rows(const Product& p, const PatchPlan& c) { return p.in_channels * patch_extent(p, 0, c.tile_h); }
int64_t patch_cells(const Product& p, const PatchPlan& c) { return ceil_div(patch_extent(p, 1, c.tile_w) + c.cell - 1, c.cell); }
int64_t patch_row_shift(const Product& p, const PatchPlan& c) { return std::bit_width(static_cast<uint64_t>(patch_cells(p, c) - 1)); }
int64_t patch_tiles(const Product& p, const PatchPlan& c, size_t d) { return ceil_div(p.pixels[d + 1], d == 0 ? c.tile_h : c.tile_w); }
int64_t patch_blocks(const Product& p, const PatchPlan& c) { return ceil_div(p.channels, c.block()); }
int64_t patch_steps(const Product& p) {
  return ceil_div(p.in_channels * p.kernel[0] * ceil_div(p.kernel[1], kPatchGranule), kPatchStepK / kPatchGranule);
}
int64_t patch_chunks(const Product& p, const PatchPlan& c) { return ceil_div(patch_steps(p), c.chunk_steps); }

namespace {

int64_t rtasks(const Product& p, const PatchPlan& c) {
  return patch_blocks(p, c) * p.pixels[0] * patch_tiles(p, c, 0) * patch_tiles(p, c, 1);
}

// The sums of each group of warps, of part_pixels pixels.
int64_t sum_bytes(const PatchPlan& c) { return c.warps_k * c.part_pixels * (c.block() + rk::kSumPad) * 4; }

}  // namespace

// The patch; later the sums lie in the same place.
int64_t patch_work_bytes(const Product& p, const PatchPlan& c) { return std::max(patch_rows(p, c) * c.pitch * 4, sum_bytes(c)); }

double patch_start_us(const ShapedVDevice& vdevice) { return std::max(0.0, vdevice.cost("patch_conv.start_us") - vdevice.rtask_us); }

namespace {

// Shared memory accesses that the loads of one k of 8 pixels take, on average: lanes that meet in a bank wait.
double accesses_per_load(const Product& p, const PatchPlan& c) {
  int64_t accesses = 0, loads = 0;
  for (int64_t first = 0; first < c.tile_h * c.tile_w; first += 8, ++loads) {
    std::array<std::vector<int64_t>, 32> banks;
    for (int64_t lane = 0; lane < 32; ++lane) {
      const int64_t pixel = first + lane / 4, h = pixel / c.tile_w, w = pixel % c.tile_w;
      const int64_t column = std::min(lane % 4, p.kernel[1] - 1) * p.dilation[1];
      const int64_t at = h >= c.tile_h ? column : h * p.stride[0] * c.pitch + w * p.stride[1] + column;
      std::vector<int64_t>& bank = banks[static_cast<size_t>(at % 32)];
      if (std::find(bank.begin(), bank.end(), at) == bank.end()) bank.push_back(at);
    }
    size_t most = 0;
    for (const std::vector<int64_t>& bank : banks) most = std::max(most, bank.size());
    accesses += static_cast<int64_t>(most);
  }
  return static_cast<double>(accesses) / static_cast<double>(loads);
}

// Chooses the pitch with the fewest bank conflicts.
void choose_pitch(const Product& p, PatchPlan& c) {
  const int64_t least = patch_cells(p, c) * c.cell;
  double best = 1e9;
  PatchPlan trial = c;
  for (int64_t more = 0; more < 32; more += c.cell) {
    trial.pitch = least + more;
    const double accesses = accesses_per_load(p, trial);
    if (accesses < best) best = accesses, c.pitch = trial.pitch;
  }
}

// Microseconds of all rTasks with a tile, less what is the same for all tiles; only good for comparing tiles.
double tile_us(const ShapedVDevice& vdevice, const Product& p, const PatchPlan& c, double start_us, double pass_us) {
  const double rounds = static_cast<double>(ceil_div(rtasks(p, c), vdevice.veus()));
  const double bytes_per_us = vdevice.l2_gb_per_s * 1e3 / static_cast<double>(vdevice.veus());
  const double patch = elements(patch_rows(p, c), patch_cells(p, c) * c.cell);
  const double passes = static_cast<double>(ceil_div(patch_rows(p, c), vdevice.compute_threads >> patch_row_shift(p, c)));
  const double outputs = elements(c.tile_h * c.tile_w, c.block());
  return rounds * (vdevice.rtask_us + start_us + 4 * (patch + outputs) / bytes_per_us + pass_us * passes);
}

// What a tile's bank conflicts add to tile_us. All warps' loads of pixels go through one shared memory.
double conflicts_us(const ShapedVDevice& vdevice, const Product& p, const PatchPlan& c) {
  const double rounds = static_cast<double>(ceil_div(rtasks(p, c), vdevice.veus()));
  const double loads = elements(patch_steps(p) * 2 * c.n_tiles, kPatchWarps / c.warps_k);
  return rounds * loads * (accesses_per_load(p, c) - 1) / (vdevice.clock_ghz * 1e3);
}

// False if no tile fits.
bool choose_tile(const ShapedVDevice& vdevice, const Product& p, PatchPlan& c) {
  const double start_us = patch_start_us(vdevice), pass_us = vdevice.cost("patch_conv.copy_pass_us");
  double best = 0;
  PatchPlan trial = c;
  for (int64_t h = 1; h <= std::min(p.pixels[1], c.most_pixels()); ++h) {
    for (int64_t w = 1; w <= std::min(p.pixels[2], c.most_pixels() / h); ++w) {
      trial.tile_h = h;
      trial.tile_w = w;
      trial.pitch = patch_cells(p, trial) * c.cell + 32;  // the widest
      if (patch_cells(p, trial) > vdevice.compute_threads || patch_work_bytes(p, trial) > vdevice.work_bytes()) continue;
      double us = tile_us(vdevice, p, trial, start_us, pass_us);
      if (best != 0 && us >= best) continue;
      choose_pitch(p, trial);
      us += conflicts_us(vdevice, p, trial);
      if (best == 0 || us < best) best = us, c = trial;
    }
  }
  return best != 0;
}

// False if the shape is not for this convolution.
bool fits(const ShapedVDevice& vdevice, const Product& p, PatchPlan& c) {
  if (c.block() - 16 >= p.channels && c.block() > 16) return false;  // a whole tile of channels that do not exist
  if (c.n_tiles > 1 && c.most_pixels() / 2 >= p.rows()) return false;
  const int64_t steps = patch_steps(p), most = vdevice.weight_stage_bytes / c.step_bytes();
  if (most < c.warps_k || steps < 4 * c.warps_k - 3) return false;
  for (c.part_pixels = c.most_pixels(); sum_bytes(c) > vdevice.work_bytes(); c.part_pixels /= 2) {
    if (c.part_pixels == 8 * c.n_tiles) return false;  // of one warp
  }
  c.chunk_steps = std::max(c.warps_k, ceil_div(steps, ceil_div(steps, most)));
  return choose_tile(vdevice, p, c);
}

}  // namespace

// From the cycles of one warp's step: those of its products and those of its loads from the patch, which take longer if lanes meet in a
// bank. A step takes at least as long as its lines of 128 bytes take to come from shared memory.
double patch_efficiency(const ShapedVDevice& vdevice, const Product& p, const PatchPlan& c) {
  const auto cost = [&](const char* name) { return vdevice.cost(std::string("patch_conv.") + name); };
  const double products = elements(c.m_tiles, c.n_tiles), loads = 2 * static_cast<double>(c.n_tiles) * accesses_per_load(p, c);
  const double issued = cost("product_cycles") * products + cost("load_cycles") * loads;
  const double delivered = cost("shared_line_cycles") * (4 * static_cast<double>(c.m_tiles) + loads + 1);
  return cost("peak_product_cycles") * products / std::max(issued, delivered);
}

std::vector<PatchPlan> patch_plans(const ShapedVDevice& vdevice, const Product& product, int64_t cell) {
  std::vector<PatchPlan> plans;
  for (PatchPlan plan : kShares) {
    plan.cell = cell;
    if (fits(vdevice, product, plan)) plans.push_back(plan);
  }
  return plans;
}

bool has_vector_rows(const Graph& graph, const Product& p) {
  const std::array<int64_t, 4>& s = p.in_strides;
  return s[3] == 1 && p.in_extent[1] % 4 == 0 && s[0] % 4 == 0 && s[1] % 4 == 0 && s[2] % 4 == 0 &&
         graph.tensor(p.in).place.offset % 4 == 0;
}

void add_map_args(const Product& p, int64_t tile_h, int64_t tile_w, Phase& phase) {
  add_args(phase, {{"in_strides", array_arg(to_vector(p.in_strides))},
                   {"out_strides", array_arg(to_vector(p.out_strides))},
                   {"in_h", arg(p.in_extent[0])},
                   {"in_w", arg(p.in_extent[1])},
                   {"out_h", arg(p.pixels[1])},
                   {"out_w", arg(p.pixels[2])},
                   {"channels", arg(p.channels)},
                   {"stride_h", arg(p.stride[0])},
                   {"stride_w", arg(p.stride[1])},
                   {"pad_h", arg(p.pad[0])},
                   {"pad_w", arg(p.pad[1])},
                   {"tile_h", arg(tile_h)},
                   {"tile_w", arg(tile_w)}});
}

}  // namespace tamp::kernels
