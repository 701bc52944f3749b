// One phase of one rOperator as a kernel of its own (graph execution, docs/adr/0007): the same bodies as the interpreter runs,
// with the same rings of weights and of input boxes, but no events: the end of a kernel is what others wait for.
//
// Block b runs rTasks b, b + grid, ... of the phase: with 100 blocks and 250 rTasks block 7 runs rTasks 7 and 107 and 207. A kernel is
// compiled for one body and carries only that body's code, registers, shared memory and service warps. Arguments come as kernel
// parameters and are copied to shared memory, where bodies expect them.
//
// A kernel may be resident while the kernel before it runs (docs/adr/0012). Until the earlier kernel has ended, the later one touches
// nothing that a kernel writes, only its own barriers, its parameters, the descriptors of its boxes and its weights.
#pragma once

#include "kernels/vdevice/control.cuh"
#include "kernels/vdevice/dependent.cuh"

namespace rk {

// The parameters that differ from launch to launch of one body: the interpreter's Record, with the arguments themselves.
template <class Args>
struct PhaseCall {  // in tables
  uint32_t rtasks;
  uint32_t chunk_bytes, chunks_per_rtask, rtasks_per_block = 1, blocks = 1;  // weight ring, see RingWeights in compiler/ir/rkernel.h
  uint64_t weights_offset;                                                   // bytes
  InputCopy input;
  Padded<Args> args;
};

// The members of LaunchOf that a phase needs.
template <class Veu>
struct PhaseBases {
  uint64_t bases[Veu::kBases];
  const TensorMap* maps;
  uint32_t next_comes_early;  // 1: the next kernel may come when this one begins to work; 0: when its blocks end
};

// A body's Veu has as many stages as its rTasks can use. Without weights it has one weight stage of no bytes.
template <class Veu>
constexpr bool kHasWeights = Veu::kWeightStageBytes > 0;
template <class Veu>
constexpr bool kHasInputs = Veu::kInputStages > 0;
template <class Veu>
constexpr int kPhaseThreads = Veu::kComputeThreads + (kHasWeights<Veu> ? kWarp : 0) + (kHasInputs<Veu> ? kWarp : 0);

template <class Veu, class Call>
RK_INLINE void load_phase_weights(const PhaseBases<Veu>& from, const Call& call, Control<Veu>& control, char* stages) {
  if (lane_id() >= kCopyLanes) return;
  const uint64_t policy = weights_policy(0.0f);
  uint32_t chunk = 0;
#pragma unroll 1
  for (uint32_t index = blockIdx.x; index < call.rtasks; index += gridDim.x) {
    accesses_of<Veu>(control, 0, index);
    const uint64_t block = (index / call.rtasks_per_block) % call.blocks;
    const char* data =
        reinterpret_cast<const char*>(from.bases[kWeights]) + call.weights_offset + block * call.chunks_per_rtask * call.chunk_bytes;
#pragma unroll 1
    for (uint32_t c = 0; c < call.chunks_per_rtask; ++c, ++chunk, data += call.chunk_bytes) {
      const uint32_t stage = chunk % Veu::kWeightStages;
      const uint32_t round = chunk / Veu::kWeightStages;
      if (round > 0) wait_to_copy(control.empty[stage], (round - 1) & 1u);
      copy_weights(stages + stage * Veu::kWeightStageBytes, data, call.chunk_bytes, control.full[stage], policy);
    }
  }
  // Until the last chunk has been used, for the limit that this wait has: a loop of products has none (wait_warp_for_both).
  if (chunk > 0) wait_to_copy(control.empty[(chunk - 1) % Veu::kWeightStages], ((chunk - 1) / Veu::kWeightStages) & 1u);
}

template <class Veu, class Call>
RK_INLINE void copy_phase_inputs(const PhaseBases<Veu>& from, const Call& call, Control<Veu>& control, char* stages) {
  const TensorMap* const map = from.maps + call.input.map;
  uint32_t chunk = 0;
  if (lane_id() != 0) return;
  Boxes<Veu>::prefetch(map);
  wait_for_kernel_before();
#pragma unroll 1
  for (uint32_t index = blockIdx.x; index < call.rtasks; index += gridDim.x) {
    accesses_of<Veu>(control, 0, index);
    const auto place = Boxes<Veu>::first(call.input, index);
    const auto copies = Boxes<Veu>::begin(map, call.input, place, chunk, control, stages);
    chunk = Boxes<Veu>::copy(call.input, place, copies, chunk);
  }
}

template <class Body, class Call>
RK_INLINE void compute_phase(const Call& call, Control<typename Body::Veu>& control, char* stages, char* input_stages, char* work) {
  using Veu = typename Body::Veu;
  uint32_t chunk = 0, input_chunk = 0;
#pragma unroll 1
  for (uint32_t index = blockIdx.x; index < call.rtasks; index += gridDim.x) {
    Task<Veu> task;
    task.index = index;
    task.args = control.slots[0].args;
    task.work = work;
    task.bases = control.bases;
    task.launch = nullptr;  // gangs only, which have no graph execution
    task.epoch = 0;
    task.record = 0;
    task.weights = WeightPipe<Veu>{stages, control.full, control.empty, chunk};
    task.inputs = InputRing{input_stages, control.input_full, control.input_empty, input_chunk};
    accesses_of<Veu>(control, task.record, task.index);
    Body::run(task);
    if (index + gridDim.x >= call.rtasks) return;
    sync_compute<Veu>();
    chunk += call.chunks_per_rtask;
    if constexpr (kHasInputs<Veu>) {
      const uint32_t boxes = Boxes<Veu>::first(call.input, index).boxes;
      input_chunk += (boxes + call.input.boxes_per_chunk - 1) / call.input.boxes_per_chunk;
    }
  }
}

template <class Body>
__global__ void __launch_bounds__(kPhaseThreads<typename Body::Veu>)
    phase_kernel(const __grid_constant__ PhaseBases<typename Body::Veu> from, const __grid_constant__ PhaseCall<typename Body::Args> call) {
  using Veu = typename Body::Veu;
  constexpr int kThreads = kPhaseThreads<Veu>, kCompute = Veu::kComputeThreads / kWarp;
  static_assert(sizeof(Control<Veu>) <= kControlBytes, "the control block does not fit");
  static_assert(Veu::kInputStageBytes % 1024 == 0, "boxes are 1024-byte aligned");
  static_assert((sizeof from + 15) / 16 * 16 + sizeof call <= kMaxParameterBytes, "the parameters of a phase's kernel are too large");
  char* const shared = shared_memory();
  Control<Veu>& control = *reinterpret_cast<Control<Veu>*>(shared);
  char* const input_stages = shared + kControlBytes;
  char* const stages = input_stages + Veu::kInputStages * Veu::kInputStageBytes;
  char* const work = stages + Veu::kWeightStages * Veu::kWeightStageBytes;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    for (int s = 0; s < Veu::kWeightStages; ++s) {
      init(control.full[s], kCopyLanes);
      init(control.empty[s], kWarpsArrive<Veu>);
    }
    for (int s = 0; s < Veu::kInputStages; ++s) {
      init(control.input_full[s], 1);
      init(control.input_empty[s], kWarpsArrive<Veu>);
    }
  }
  for (int w = thread; w < static_cast<int>(sizeof(call.args) / 16); w += kThreads)
    reinterpret_cast<uint4*>(control.slots[0].args)[w] = reinterpret_cast<const uint4*>(&call.args)[w];
  share_bases<Veu>(control, from.bases, thread, kThreads);
  sync_all();
  if (warp_id() < kCompute) {
    wait_for_kernel_before();
    if (thread == 0 && from.next_comes_early != 0) let_next_kernel_come();
    compute_phase<Body>(call, control, stages, input_stages, work);
    if (thread == 0) let_next_kernel_come();
  } else if (kHasWeights<Veu> && warp_id() == kCompute) {
    load_phase_weights<Veu>(from, call, control, stages);
  } else if constexpr (kHasInputs<Veu>) {
    copy_phase_inputs<Veu>(from, call, control, input_stages);
  }
}

}  // namespace rk
