// The product of staged_conv.cuh whose k is shared by the four vEUs of a cluster: split s of a tile is computed by member s, at the same
// time as the others. Each member has sums of the whole tile over its share of k. It keeps those of every fourth row of threads' pixels
// and sends the others to the members that keep them (kernels/vdevice/cluster.cuh). So there is no second phase that adds partial sums, as
// with split_k_sum, and each member makes a quarter of the tile's results.
//
// What comes for the first pixel that a thread keeps lies behind the member's own sums, or behind the input stages where sums lie in these:
// a member may send when this one still multiplies. What comes for further ones lies in their place, so it is sent when its receiver has
// its own sums in registers, which it says while the first ones are on their way.
//
// KEEPS: the moments of the results are stored, as by moment_conv.cuh. ROUNDS: the results are stored a second time, in fp16.
//
// Example: 64 channels by 64 rows, k = 3072, 256 threads. Member 2 multiplies k 1536 to 2303. A row of threads' pixels are 16 (256 threads
// of 4 channels each), so a thread has sums of four pixels: thread 37 those of rows 2, 18, 34 and 50, channels 20 to 23. Member 2 keeps row
// 34, sends row 2 to member 0, 18 to 1 and 50 to 3, and gets three sums of row 34.
#pragma once

#include "kernels/product/moment_conv.cuh"
#include "kernels/vdevice/cluster.cuh"

namespace rk {

template <class Veu, class Product, bool KEEPS, bool ROUNDS>
struct ClusterResults {
  static constexpr int kMembers = kClusterMembers;
  static constexpr int kThreads = Veu::kComputeThreads, kChannelThreads = Product::kChannels / 4,
                       kPixelThreads = kThreads / kChannelThreads;
  static constexpr int kRounds = Product::kRounds, kOutputs = Product::kPixels / kPixelThreads;
  static constexpr int kOwn = kept_outputs(kOutputs);
  static constexpr bool kOverSums = kOwn > 1;
  static constexpr int kReceivedAt = Product::kSumBytes * Product::kWarpsK;
  static constexpr int kReceivedBytes = received_bytes(kThreads);  // for an output
  static_assert((kOwn - 1) * kReceivedBytes <= kReceivedAt);
  static_assert(kMembers == 4 && Veu::kCluster == kMembers && kRounds == 1 && Product::kPixels % kPixelThreads == 0 &&
                !Product::Of::kScales);
  static_assert(!Product::kSwaps || kPixelThreads % 8 == 0, "of all pixels of a thread, or of none");
  static_assert(!KEEPS || (kChannelThreads % 8 == 0 && Product::kChannels % kMomentColumns == 0));

  using Value = typename Product::Of::Out;
  using Added = typename Product::Of::Added;
  static_assert(!ROUNDS || (KEEPS && sizeof(Value) == 4));

  float4 bias;
  Raw4<Added> residual[kOwn];
  float low, high;
  Value* out;
  int to[kOwn];  // as StagedResults::to
  int channel, left, kept_parts;
  int outputs;  // of kOutputs, those with a pixel of the tile for any thread: the others are not sent
  char* work;
  const Added* added;
  float2* kept;
  Half* rounded;
  ClusterExchange<Veu> exchange;

  // Of output i of the thread, where member m keeps m, m + 4, ..
  RK_INLINE static int pixel(int i) { return static_cast<int>(threadIdx.x) / kChannelThreads + i * kPixelThreads; }
  RK_INLINE static int column() { return static_cast<int>(threadIdx.x) % kChannelThreads * 4; }

  RK_INLINE void start(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile) {
    const int member = static_cast<int>(tile.split);
    outputs = min((args.pixels + kPixelThreads - 1) / kPixelThreads, kOutputs);
    exchange.begin(member, (outputs - member + kMembers - 1) / kMembers * kReceivedBytes);
    channel = static_cast<int>(tile.n_block) * Product::kChannels + column();
    left = args.channels - channel;
    bias = load_bias4(task, args, channel);
    const PixelStrides strides = args.out_strides;
    out = values_at<Value>(task, args.out) + (offset_of(tile.first(), strides) + channel * strides.channel);
    staged_offsets<kMembers * kPixelThreads>(to, args, tile, pixel(member), left);
#pragma unroll
    for (Raw4<Added>& r : residual) r.clear_now();
    low = args.clip.low;
    high = args.clip.high;
    work = task.work;
    added = args.way == kAddedWay ? staged_residual<Added>(task, args, tile, channel) : nullptr;
    if constexpr (KEEPS) {
      const MomentConvArgs& own = task.template arguments<MomentConvArgs>();
      if constexpr (ROUNDS) rounded = values_at<Half>(task, own.rounded) + (out - values_at<Value>(task, args.out));
      kept_parts = own.kept_parts;
      kept = reinterpret_cast<float2*>(task.address(own.kept)) +
             ((static_cast<int>(tile.w) + pixel(member)) * kept_parts + channel / kMomentColumns);
    }
  }
  RK_INLINE void fetch(const Task<Veu>&, const StagedConvArgs&, const StagedTile&) {
    if (added == nullptr) return;
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
      if (to[k] >= 0) residual[k] = load_raw4(added + to[k]);
    }
  }
  RK_INLINE void meanwhile() const {}
  RK_INLINE void share(const Task<Veu>&, const StagedConvArgs&, const StagedTile&, const Product& product, int round) const {
    product.store(work, round);
  }
  // Where a member gets sums of its output k from member own ^ other.
  RK_INLINE char* received(int k, int other) const {
    char* const first = Veu::kProductsOverInputs ? behind_inputs<Veu>() : work + kReceivedAt;
    return (k == 0 ? first : work + (k - 1) * kReceivedBytes) + ((other - 1) * kThreads + static_cast<int>(threadIdx.x)) * 16;
  }
  // Members are taken in the order own, own ^ 1, own ^ 2, own ^ 3. So each place is the same in all of them, and nothing is asked about
  // `own`. The values lie in shared memory as the product stores them until they are added up.
  RK_INLINE void finish(const Task<Veu>&, const StagedConvArgs&, const StagedTile&, const char* sums, int) {
    float4 v[kOwn][kMembers];
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
#pragma unroll
      for (int other = 0; other < kMembers; ++other)
        v[k][other] = staged_sum_as_stored<Product>(sums, pixel(min(output(k, other), kOutputs - 1)), column());
    }
    exchange.await_members();
    if constexpr (kOverSums) exchange.has_read();
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
      if (k == 1) exchange.await_readers();
#pragma unroll
      for (int other = 1; other < kMembers; ++other) {
        if (output(k, other) < outputs) exchange.send(other, received(k, other), v[k][other]);
      }
    }
    exchange.template sent<kOverSums>();
    exchange.await_received();
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
      if (output(k, 0) >= outputs) continue;
      const float4 sum = exchange.add_received(v[k][0], [&](int other) { return received(k, other); });
      finish_one(k, in_order<Product>(sum, (pixel(0) & 4) != 0));
    }
  }

 private:
  // The thread's output that is number k of member own ^ other.
  RK_INLINE int output(int k, int other) const { return k * kMembers + (exchange.own ^ other); }
  RK_INLINE void finish_one(int k, const float4& sum) const {
    const float4 v = clamp4(add4(add4(sum, bias), residual[k].floats()), low, high);
    if constexpr (KEEPS) {
      const float4 stored = as_stored<Value>(v);
      const float2 moments = moments_of(stored);
      if (to[k] < 0) return;
      store4(out + to[k], stored);
      if constexpr (ROUNDS) store4(rounded + to[k], stored);
      if (threadIdx.x % 8 == 0) *as_global(kept + k * (kMembers * kPixelThreads * kept_parts)) = moments;
    } else {
      if (to[k] >= 0) store4(out + to[k], v);
    }
  }
};

template <bool KEEPS, bool ROUNDS>
struct ClusterKind {
  template <class Veu, class Product>
  using Results = ClusterResults<Veu, Product, KEEPS, ROUNDS>;
};

template <class Veu, class Math, int MT, int NT, int WARPS_M, int WARPS_N, int STAGE_STEPS, bool KEEPS, bool ROUNDS = false>
RK_INLINE void cluster_conv(const Task<Veu>& task) {
  StagedWay<Veu, Math, MT, NT, WARPS_M, WARPS_N, STAGE_STEPS, ClusterKind<KEEPS, ROUNDS>>::run(task);
}

}  // namespace rk
