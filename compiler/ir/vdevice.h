// vDevice: a GPU as data (Rammer section 4.2). Read from JSON (compiler/ir/vdevices/NAME.json or a user's file); nothing
// in the compiler tests for a GPU by name. What is chosen for a program on it is in shaped_vdevice.h.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/dtype.h"
#include "compiler/support/strong_id.h"

namespace tamp {

// vEU: one persistent thread block. Its index is its position in RProgram::lanes.
using VEU = StrongId<struct VEUTag>;

struct ShapedVDevice;

struct VDevice {
  std::string name;         // "h200"
  std::string description;  // "NVIDIA H200 SXM, 132 SMs"
  std::string arch;         // nvcc -arch, "sm_90a"
  // The GPU products that this vDevice describes, by nvidia-smi's names without "NVIDIA", "Tesla" or "GeForce" in front. A "*" at the end
  // stands for any text.
  std::vector<std::string> gpus;
  int64_t sms = 0;
  int64_t veus_per_sm = 1;

  // Resources of one vEU.
  int64_t compute_threads = 256;  // the warps that run rKernel bodies
  int64_t smem_bytes = 0;         // shared memory of one vEU, all of it
  int64_t weight_stages = 0;      // ring of weight stages in shared memory, filled ahead by the loader warp
  int64_t weight_stage_bytes = 0;
  int64_t input_stages = 0;  // the same for boxes of input values (InputBoxes); 0: the device cannot copy boxes
  int64_t input_stage_bytes = 0;
  int64_t weight_stages_beside_inputs = 0, weight_stage_bytes_beside_inputs = 0;  // the weights' ring in programs that have both rings
  // The rings of programs of large products on wgmma (StagedDeepProduct), which hold two stages at a time; 0: as in other programs.
  int64_t input_stages_of_batches = 0, input_stage_bytes_of_batches = 0, weight_stages_of_batches = 0, weight_stage_bytes_of_batches = 0;
  // The ring of programs whose products have one row each, one token of a decoder, and that copy no boxes; 0: as in other programs.
  int64_t weight_stages_of_rows = 0, weight_stage_bytes_of_rows = 0;
  // How many SMs a launch in clusters of four blocks can have, since a cluster does not reach over groups of SMs that share hardware; 0:
  // the device has no clusters. And the weights' stages of such programs, whose bodies want more room.
  int64_t sms_in_clusters = 0;
  int64_t weight_stage_bytes_in_clusters = 0;
  // The input stages of such programs where products store sums over them (ProgramShape::products_over_inputs); 0: none do.
  int64_t input_stages_in_clusters = 0, input_stage_bytes_in_clusters = 0;
  int64_t registers_per_sm = 65536;

  // Precisions and instructions that it has.
  bool tf32 = false, fp16 = false, bf16 = false;
  Precision default_precision = Precision::fp32;

  // Measured costs; units in the names. TFLOP/s count a multiply-add as two.
  double clock_ghz = 1;
  double fp32_tflops = 1, tf32_tflops = 0, fp16_tflops = 0;
  double l2_bytes = 0, l2_gb_per_s = 1, dram_gb_per_s = 1;
  double lone_veu_shares = 3;  // fair shares of L2 or DRAM that one vEU gets at most while others are idle (limit: its loads in flight)
  double edge_us = 0.5;        // counter signal to wait seen on another vEU, where all vEUs signal
  // The edge in estimates of a finished plan (none: edge_us). Plans are chosen with edge_us, beside which the costs of bodies were fitted:
  // choices with the shorter edge of today are worse (docs/log/2026-11-27.md, "Estimates").
  std::optional<double> estimated_edge_us;
  double edge_spread_us = 0;    // edge_us is this much less where a single vEU signals; between one and all in proportion
  double kernel_edge_us = 1.0;  // the same between kernels of a CUDA graph; twice edge_us where not given
  // From a kernel to one that is launched as its programmatic dependent (docs/adr/0012); none: the device has no such launches.
  std::optional<double> dependent_kernel_edge_us;
  double same_veu_us = 0.1;  // from one rTask to the next on the same vEU
  double signal_us = 0;      // added to same_veu_us if the first of the two rTasks signals
  double rtask_us = 0.3;     // fixed cost of one rTask
  double barrier_us = 1.0;   // a grid-wide boundary between rPrograms
  double launch_us = 3.5;
  // Costs of bodies, per rKernel family: "pool.strip_turn_us", "staged_conv.64x32.fixed_cycles" (docs/vdevices.md lists the costs with
  // units and meanings). Holds only the costs that the file gives.
  std::map<std::string, double, std::less<>> costs;
  // The cost of that name, or the h200's where the file gives none. TAMP_CHECK if the h200 has none either.
  double cost(std::string_view cost_name) const;

  // As programs see it (shaped_vdevice.h):
  ShapedVDevice with_inputs() const;   // those that copy boxes of input values
  ShapedVDevice with_batches() const;  // the same for large products on wgmma
  // The same with longer stages of input, one less, and one more of weights. In fp16 and bf16 they hold tiles of more than 192 rows.
  ShapedVDevice with_long_batches() const;
  ShapedVDevice with_clusters() const;   // as with_inputs, for a launch in clusters of four vEUs; the device must have them
  ShapedVDevice without_inputs() const;  // those that copy none: all shared memory is for weights and bodies
  ShapedVDevice with_rows() const;       // the same, where all products have one row: stages for all weights of a rTask
  int64_t threads() const;               // compute_threads plus the service warps
};

// Shared memory of the control block (slots, barriers); asserted in the generated file.
inline constexpr int64_t kControlBytes = 5120;
inline constexpr int64_t kServiceThreads = 64;  // loader and waiter warps
// Besides, where compute threads take registers from a whole warpgroup (Phase::many_registers), and where values are their own flags
// (kernels/vdevice/words.cuh).
inline constexpr int64_t kIdleThreads = 64;

// All costs that exist, each with its default, the h200's.
const std::map<std::string, double, std::less<>>& default_costs();

// Names of the built-in vDevices, in the order of `tamp devices`.
std::vector<std::string> builtin_vdevices();
// The built-in vDevice for the GPU that nvidia-smi calls `product`. If several fit, the one with the longest matching name; empty if none
// fits.
std::string vdevice_of_gpu(std::string_view product);
// A built-in name, or a path that ends in .json. Error (bad input) names the file, the field, found and expected.
VDevice read_vdevice(const std::string& name_or_path);
VDevice parse_vdevice(const std::string& json_text, const std::string& source_name);

}  // namespace tamp
