#include "kernels/product/staged_conv_cluster.h"

#include <algorithm>
#include <string>

#include "compiler/support/error.h"
#include "kernels/product/staged_conv_moments.h"

namespace tamp::kernels::staged {
namespace {

// The body wants the compute threads that it was made for.
constexpr int kThreads = rk::kComputeWarps * rk::kWarp;

// Threads that have pixels of the same channels.
int64_t pixel_threads_of(const Shape& s) { return kThreads / (s.channels() / 4); }

constexpr int kReceivedBytes = rk::received_bytes(kThreads);

// What a member gets, a part of it where its own sums were.
int exchanged_bytes_of(const Shape& s) { return rk::kept_outputs(static_cast<int>(s.pixels() / pixel_threads_of(s))) * kReceivedBytes; }

}  // namespace

bool may_share_in_cluster(const ShapedVDevice& vdevice, const Product& p, const Config& c) {
  const Shape& s = shape_of(c);
  const Grid g = grid_of(p);
  const bool is_plain = c.sums == 0 && c.normalized == 0 && c.parts == 0;
  const bool is_row_product = p.taps() == 1 && p.groups == 1 && g.h == 1 && g.images == 1;
  return vdevice.cluster_veus == rk::kClusterMembers && c.deep != 0 && c.narrow != 0 && is_plain && is_row_product &&
         rk::staged_rounds(static_cast<int>(s.channels()), static_cast<int>(s.pixels())) == 1 && s.pixels() % pixel_threads_of(s) == 0 &&
         exchanged_bytes_of(s) - kReceivedBytes <= s.sum_bytes() && s.sum_bytes() + kReceivedBytes <= vdevice.work_bytes();
}

int64_t room_of_sums(const ShapedVDevice& vdevice) {
  return vdevice.products_over_inputs ? vdevice.input_stages * vdevice.input_stage_bytes : vdevice.work_bytes();
}

void lie_over_inputs(const ShapedVDevice& vdevice, const Config& c, Phase& phase) {
  const int64_t room = room_of_sums(vdevice);
  TAMP_CHECK(phase.work_bytes <= room, "sums of " + std::to_string(phase.work_bytes) + " bytes are longer than the input stages");
  phase.stores_behind_boxes = true;
  phase.work_bytes = room + (c.parts != 0 ? shape_of(c).pixels() * 8 : 0);
}

void share_in_cluster(const Request& request, const Product& p, const Config& c, Phase& phase) {
  take_moment_args(request, p, c, phase);
  phase.header = "kernels/product/cluster_conv.cuh";
  phase.body = "rk::cluster_conv";
  if (c.stage_steps == 0) phase.template_args.emplace_back("STAGE_STEPS", "0");
  phase.template_args.emplace_back("KEEPS", c.moments != 0 ? "true" : "false");
  if (keeps_rounded(request.rop)) phase.template_args.emplace_back("ROUNDS", "true");
  phase.cluster = rk::kClusterMembers;
  phase.work_bytes += kReceivedBytes;
  const auto cost = [&](const char* name) { return request.vdevice.cost(std::string("staged_conv.") + name); };
  const int exchanged = exchanged_bytes_of(shape_of(c));
  phase.cost.calibrated_cycles += cost("cluster_cycles") + cost("cluster_byte_cycles") * exchanged;
  if (exchanged > kReceivedBytes) phase.cost.calibrated_cycles += cost("cluster_again_cycles");
}

std::vector<std::pair<int64_t, int64_t>> kept_rows(const Config& c, int64_t member, int64_t first, int64_t last) {
  const int64_t rows = pixel_threads_of(shape_of(c));
  std::vector<std::pair<int64_t, int64_t>> pieces;
  for (int64_t row = first + member * rows; row < last; row += rk::kClusterMembers * rows)
    pieces.emplace_back(row, std::min(row + rows, last));
  return pieces;
}

}  // namespace tamp::kernels::staged
