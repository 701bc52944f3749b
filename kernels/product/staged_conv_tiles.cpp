#include "kernels/product/staged_conv_tiles.h"

#include <algorithm>

#include "compiler/support/error.h"
#include "kernels/args.h"

namespace tamp::kernels::staged {
namespace {

constexpr int64_t kMostBox = 256;  // elements of a box along one dimension: a limit of the copy engine

// Cycles of the compute warps in a rTask's loop, apart from waiting.
double loop_cycles(const Product& p, const Config& c, double step_cycles, double change_cycles) {
  const int64_t batch = batch_of(c), input_steps = input_steps_of(p, c);
  int64_t left = steps_of_split(p, c, c.boxes_per_split), input_left = input_steps, weight_left = c.chunk_steps;
  int64_t changes = 0, half_steps = 0;
  while (left > 0) {  // the same loop as in the body
    const int64_t n = std::min({left, input_left, weight_left});
    half_steps += n / batch * batch * 2 + n % batch * std::max<int64_t>(batch, 2);  // a single step takes as long as half a batch
    left -= n;
    input_left -= n;
    weight_left -= n;
    if (input_left == 0) input_left = input_steps, ++changes;
    if (weight_left == 0) weight_left = c.chunk_steps, ++changes;
  }
  return step_cycles * static_cast<double>(half_steps) / 2 + change_cycles * static_cast<double>(changes);
}

}  // namespace

bool choose_tile(const ShapedVDevice& vdevice, const Product& p, Config& c) {
  const double rows_of_rtask = vdevice.cost("staged_conv.rtask_box_rows");  // what a rTask costs beside its input, as rows of a box
  const Shape& s = shape_of(c);
  const Grid g = grid_of(p);
  double best = 0;
  const int64_t most_w =
      c.deep != 0 && p.taps() > 1 ? std::max<int64_t>(g.w, 8) : g.w;  // wgmma takes 8 pixels in a row, even if there are fewer
  for (int64_t w = 1; w <= std::min(most_w, s.pixels()); ++w) {
    for (int64_t h = std::min(g.h, s.pixels() / w); h >= 1; --h) {
      const int64_t box_w = box_extent(w, g.stride_w, p.kernel[1], p.dilation[1]),
                    box_h = box_extent(h, g.stride_h, p.kernel[0], p.dilation[0]);
      const int64_t bytes = ceil_div(box_w * box_h * 128, 1024) * 1024 * boxes_of_step(c);
      if (box_w > kMostBox || box_h > kMostBox || bytes > vdevice.input_stage_bytes) continue;
      const double cost = static_cast<double>(ceil_div(g.w, w) * ceil_div(g.h, h)) * (static_cast<double>(box_w * box_h) + rows_of_rtask);
      if (best != 0 && cost >= best) continue;
      Config tile = c;
      tile.tile_w = w;
      tile.tile_h = h;
      if (c.deep != 0 && eight_rows(p, tile) == 0) continue;
      best = cost;
      c = tile;
    }
  }
  return best != 0;
}

bool take_tile(const ShapedVDevice& vdevice, const TileSums& sums, const Product& p, Config& c) {
  const Shape& s = shape_of(c);
  const Grid g = grid_of(p);
  c.tile_h = std::min(sums.tile[0], g.h);
  c.tile_w = std::min(sums.tile[1], g.w);
  const int64_t box_w = box_extent(c.tile_w, g.stride_w, p.kernel[1], p.dilation[1]),
                box_h = box_extent(c.tile_h, g.stride_h, p.kernel[0], p.dilation[0]);
  return rk::staged_rounds(static_cast<int>(s.channels()), static_cast<int>(s.pixels())) == 1 && c.tile_h * c.tile_w <= s.pixels() &&
         box_w <= kMostBox && box_h <= kMostBox && bytes_of_box(p, c) * boxes_of_step(c) <= vdevice.input_stage_bytes;
}

namespace {

// For StageLoop: as many boxes to a stage as divide the boxes of all splits, and as many whole stages of inputs to a stage of weights
// as fit. Two numbers of steps in a stage are not worth a body of their own. Returns false where that cannot be.
bool choose_even_chunks(const ShapedVDevice& vdevice, const Product& p, Config& c) {
  if (!vdevice.even_stages || c.deep == 0 || c.narrow == 0 || p.taps() > 1) return false;
  const int64_t last = all_boxes(p, c) - (c.splits - 1) * c.boxes_per_split, box_bytes = bytes_of_box(p, c);
  for (int64_t steps = 4; steps > 1; --steps) {
    if (c.boxes_per_split % steps != 0 || last % steps != 0 || steps * box_bytes > vdevice.input_stage_bytes) continue;
    const int64_t fitting = vdevice.weight_stage_bytes / step_bytes_of(c) / steps;
    if (fitting == 0) continue;
    c.boxes_per_chunk = c.stage_steps = steps;
    c.chunk_steps = std::min(fitting * steps, c.boxes_per_split);
    return true;
  }
  return false;
}

}  // namespace

void choose_chunks(const ShapedVDevice& vdevice, const Product& p, Config& c) {
  c.stage_steps = 0;
  if (choose_even_chunks(vdevice, p, c)) return;
  const double copy_bytes_per_cycle = vdevice.cost("staged_conv.copy_bytes_per_cycle"),
               change_cycles = vdevice.cost("staged_conv.stage_change_cycles"), step_cycles = costs_of(vdevice, c).step_cycles;
  const int64_t box_bytes = bytes_of_box(p, c), most = vdevice.weight_stage_bytes / step_bytes_of(c), batch = batch_of(c);
  const auto copy = [&](int64_t boxes) { return static_cast<double>(boxes * box_bytes) / copy_bytes_per_cycle; };
  Config best;
  double least = 0;
  const int64_t pair = boxes_of_step(c), fitting = std::min(vdevice.input_stage_bytes / box_bytes, c.boxes_per_split);
  for (c.boxes_per_chunk = pair; c.boxes_per_chunk <= fitting; c.boxes_per_chunk += pair) {
    if (input_steps_of(p, c) * teams_of(c) > rk::kMostSteps) break;
    const int64_t steps = steps_of_split(p, c, c.boxes_per_split), input_steps = input_steps_of(p, c);
    for (const int64_t chunk :
         {most, most / batch * batch, most / input_steps * input_steps, ceil_div(input_steps, ceil_div(input_steps, most))}) {
      if (chunk == 0) continue;
      c.chunk_steps = std::min(chunk, steps);
      const double all = loop_cycles(p, c, step_cycles, change_cycles),
                   chunks = static_cast<double>(c.boxes_per_split) / static_cast<double>(c.boxes_per_chunk);
      const double cycles = std::max(copy(c.boxes_per_chunk) + all, copy(c.boxes_per_split) + all / chunks);
      if (best.boxes_per_chunk != 0 && cycles >= least) continue;
      best = c;
      least = cycles;
    }
  }
  TAMP_CHECK(best.boxes_per_chunk > 0, "not a step's boxes fit a stage");
  c = best;
}

}  // namespace tamp::kernels::staged
