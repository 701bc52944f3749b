// Sums that are normalised, as normalize_rows.cuh does it, and quantised once more:
//   sums = chain(x0, x1, ..)    behind a product its bias and a residual, each with a rounding mostly
//   out  = rounded((normalised(sums) * scale + bias) / divisor; low, high) * step
// The chain's steps are template arguments. Where bit i of kNear is set, input i is one row of fp32 for all rows; the others are rows of
// type In that lie as those of the sums do. kKeeps: somebody else reads the sums, so they are stored, in type Sum.
// normalize_rows_summed_bytes (normalize_sums_bytes.cuh): inputs, sums and the result may be whole numbers in bytes.
// Code that runs once costs six cycles an instruction, so a thread's vectors go around in short loops, and what they need between these
// lies in shared memory: the constants for all rows (scale, bias, near inputs), and for each thread and vector what asynchronous copies
// bring of the inputs, of which the first makes room for the sums. sums_work_bytes of numbers.cuh says how much.
#pragma once

#include "kernels/reduce/normalize_rows.cuh"
#include "kernels/tile/static_steps.cuh"

namespace rk {

struct NormalizeSumsArgs {  // in tables
  NormalizeRowsArgs rows;   // `in` is the first input that is no near one
  TensorRef sums;           // null unless kKeeps
  TensorRef inputs[kSummedInputs];
  float constants[kLongConstants];
  float step;
  float lows[kSummedInputs]{}, sums_low{};  // the numbers that bytes of 0 stand for, in Unsigned8; that of the result is in `rows`
};

// Inputs of one type in memory.
template <class In>
struct SummedInputs {
  template <int kInput>
  using Type = In;
  RK_INLINE static constexpr int value_bytes(int) { return sizeof(In); }
  // Calls `load` with where input `i` begins.
  template <class Veu, class Load>
  RK_INLINE static void at(const Task<Veu>& task, const TensorRef& input, int, const Load& load) {
    load(values_at<const In>(task, input));
  }
  // What the loaded values stand for.
  template <int kGroups>
  RK_INLINE static void raise_by(float, int, float4 (&)[kGroups]) {}
};

// Calls `with` for 0 to kCount - 1, as constants.
template <int kCount, int kFirst = 0, class With>
RK_INLINE void each_constant(const With& with) {
  if constexpr (kFirst < kCount) {
    with.template operator()<kFirst>();
    each_constant<kCount, kFirst + 1>(with);
  }
}

// Where a thread's vectors of the inputs lie in shared memory, in bytes from its own place on.
template <class Veu, int kEach, class Inputs, uint32_t kNear>
struct SummedSlots {
  // Of a vector of input `k`; the first one that is not near has room for floats.
  RK_INLINE static constexpr int bytes(int k) { return is_first(k) ? 16 : 4 * Inputs::value_bytes(k); }
  RK_INLINE static constexpr bool is_first(int k) { return (kNear >> k & 1u) == 0 && (~kNear & ((1u << k) - 1)) == 0; }
  RK_INLINE static constexpr int first() {
    int k = 0;
    while (!is_first(k)) ++k;
    return k;
  }
  RK_INLINE static constexpr int begin(int k) {  // of all threads' vectors of input k
    int at = 0;
    for (int before = 0; before < k; ++before) at += (kNear >> before & 1u) != 0 ? 0 : bytes(before) * kEach * Veu::kComputeThreads;
    return at;
  }
  RK_INLINE static constexpr int constant(int k) {  // among the rows of constants
    int row = 2;
    for (int before = 0; before < k; ++before) row += (kNear >> before & 1u) != 0 ? 1 : 0;
    return row;
  }
  // Vector i of this thread's.
  template <int kInput>
  RK_INLINE static int place(int i) {
    constexpr int kBegin = begin(kInput), kBytes = bytes(kInput);
    return kBegin + (i * Veu::kComputeThreads + static_cast<int>(threadIdx.x)) * kBytes;
  }
};

// Copies four values to shared memory.
template <class Value>
RK_INLINE void copy_vector(char* to, const Value* from) {
  if constexpr (sizeof(Value) == 4) {
    cp_async16(to, from, true);
  } else {
    cp_async4(to, from, true);
    if constexpr (sizeof(Value) == 2) cp_async4(to + 4, from + 2, true);
  }
}
template <class Value>
RK_INLINE float4 copied_vector(const char* from) {
  if constexpr (sizeof(Value) == 4)
    return load_shared4(from, 0);
  else if constexpr (sizeof(Value) == 2) {
    const float2 low = floats_of<Value>(load_shared_word(from, 0)), high = floats_of<Value>(load_shared_word(from, 4));
    return {low.x, low.y, high.x, high.y};
  } else {
    return Raw4<Value>{{load_shared_word(from, 0)}}.floats();
  }
}

// The rows of constants: scale, bias and near inputs. A barrier follows.
template <class Veu, int kInputs, uint32_t kNear, class Slots>
RK_INLINE void store_constants(const Task<Veu>& task, const NormalizeSumsArgs& all, char* constants) {
  const int vectors = static_cast<int>(all.rows.vectors);
  const float* const scales = task.address(all.rows.scale);
  const float* const biases = task.address(all.rows.bias);
#pragma unroll 1
  for (int vector = static_cast<int>(threadIdx.x); vector < vectors; vector += Veu::kComputeThreads) {
    float4 of[2 + kInputs] = {float4{1, 1, 1, 1}, float4{0, 0, 0, 0}};
    if (scales != nullptr) of[0] = load4(scales + vector * 4);
    if (biases != nullptr) of[1] = load4(biases + vector * 4);
    each_constant<kInputs>([&]<int kInput>() {
      constexpr int kRow = Slots::constant(kInput);
      if constexpr ((kNear >> kInput & 1u) != 0) of[kRow] = load4(values_at<const float>(task, all.inputs[kInput]) + vector * 4);
    });
    constexpr int kRows = Slots::constant(kInputs);
#pragma unroll
    for (int row = 0; row < kRows; ++row) store_shared4(constants, (row * vectors + vector) * 16, of[row]);
  }
}

template <class Veu, int kEach, class Inputs, class Sum, class Out, int kInputs, uint32_t kNear, int kTemporaries, bool kKeeps,
          uint64_t... kSteps>
RK_INLINE void normalize_some_sums(const Task<Veu>& caller) {
  using Slots = SummedSlots<Veu, kEach, Inputs, kNear>;
  constexpr int kWarps = Veu::kComputeThreads / kWarp, kBytes = Slots::begin(kInputs), kSums = Slots::first();
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const NormalizeSumsArgs& all = task.template arguments<NormalizeSumsArgs>();
  const NormalizeRowsArgs& args = all.rows;
  float* const shared = task.template work_as<float>();
  char* const slots = reinterpret_cast<char*>(shared + 2 * kWarps);
  char* const constants = slots + kBytes;
  const uint32_t log2 = args.threads_log2, group = threadIdx.x >> log2;
  const int first = static_cast<int>(threadIdx.x & ((1u << log2) - 1)), vectors = static_cast<int>(args.vectors);
  const uint32_t end = min((task.index + 1) * args.rows_per_rtask, args.rows);
  const float reciprocal = 1.0f / args.divisor;
  store_constants<Veu, kInputs, kNear, Slots>(task, all, constants);  // which do not wait for the inputs
  task.await_inputs();
  sync_compute<Veu>();
#pragma unroll 1
  for (uint32_t row = task.index * args.rows_per_rtask + group; row - group < end; row += Veu::kComputeThreads >> log2) {
    uint32_t rest = row;
    int32_t from = first * 4, to = first * 4;  // enough within a tensor
#pragma unroll 1
    for (int d = static_cast<int>(args.kept_rank) - 1; d >= 0; --d) {
      uint32_t at = rest;
      if (d > 0) rest = divide(rest, args.kept_divisors[d - 1], at);
      from += static_cast<int32_t>(at) * args.kept_in[d];
      to += static_cast<int32_t>(at) * args.kept_out[d];
    }
    const int left = row < end ? vectors - first : 0;  // vectors up to the end
    each_constant<kInputs>([&]<int kInput>() {
      if constexpr ((kNear >> kInput & 1u) == 0) {
        Inputs::at(task, all.inputs[kInput], kInput, [&](const auto* values_of) {
#pragma unroll 1
          for (int i = 0; i < kEach; ++i) {
            if (i << log2 < left) copy_vector(slots + Slots::template place<kInput>(i), values_of + (from + (i * 4 << log2)));
          }
        });
      }
    });
    cp_async_commit();
    cp_async_wait<0>();
    float sum = 0.0f;
#pragma unroll 1
    for (int i = 0; i < kEach; ++i) {
      const bool exists = i << log2 < left;
      const int vector = exists ? first + (i << log2) : 0;
      StaticValues<kInputs, kTemporaries, 1> values;
      each_constant<kInputs>([&]<int kInput>() {
        constexpr int kRow = Slots::constant(kInput);
        if constexpr ((kNear >> kInput & 1u) != 0)
          values.inputs[kInput][0] = load_shared4(constants, (kRow * vectors + vector) * 16);
        else
          values.inputs[kInput][0] = copied_vector<typename Inputs::template Type<kInput>>(slots + Slots::template place<kInput>(i));
        Inputs::raise_by(all.lows[kInput], kInput, values.inputs[kInput]);
      });
      (static_step<kSteps, 1>(all, values), ...);
      float4& x = values.acc[0];
      if (kKeeps && exists) store4(values_at<Sum>(task, all.sums) + (from + (i * 4 << log2)), above_low4<Sum>(x, -all.sums_low));
      if (!exists) x = float4{0, 0, 0, 0};
      store_shared4(slots, Slots::template place<kSums>(i), x);
      sum += sum_of4(x);
    }
    // First the mean, then the squares around it: see center_row.
    float total = 0.0f;
#pragma unroll 1
    for (int pass = args.centered != 0 ? 0 : 1; pass < 2; ++pass) {
      if (pass == 1) {
        const float mean = total * args.inverse_count;
        sum = 0.0f;
#pragma unroll 1
        for (int i = 0; i < kEach; ++i) {
          float4 x = load_shared4(slots, Slots::template place<kSums>(i));
          if (i << log2 < left) x = float4{x.x - mean, x.y - mean, x.z - mean, x.w - mean};
          store_shared4(slots, Slots::template place<kSums>(i), x);
          sum += sum_of4(float4{x.x * x.x, x.y * x.y, x.z * x.z, x.w * x.w});
        }
      }
      total = sum_of_row<Veu>(shared + pass * kWarps, log2, sum);
    }
    const float factor = rsqrtf(total * args.inverse_count + args.epsilon);
    Out* const out = values_at<Out>(task, args.out) + to;
#pragma unroll 1
    for (int i = 0; i << log2 < left && i < kEach; ++i) {
      const int vector = (first + (i << log2)) * 16;
      const float4 scale = load_shared4(constants, vector), bias = load_shared4(constants, vectors * 16 + vector);
      const float4 y = quantised4(args, reciprocal, scaled4(load_shared4(slots, Slots::template place<kSums>(i)), factor, scale, bias));
      store4(out + (i * 4 << log2), above_low4<Out>(float4{y.x * all.step, y.y * all.step, y.z * all.step, y.w * all.step}, -args.out_low));
    }
    if (log2 > kWarpLog2 && args.centered == 0) sync_compute<Veu>();  // see center_row
  }
}

template <class Veu, int kEach, class In, class Sum, class Out, int kInputs, uint32_t kNear, int kTemporaries, bool kKeeps,
          uint64_t... kSteps>
RK_BODY void normalize_rows_summed(const Task<Veu>& caller) {
  normalize_some_sums<Veu, kEach, SummedInputs<In>, Sum, Out, kInputs, kNear, kTemporaries, kKeeps, kSteps...>(caller);
}

}  // namespace rk
