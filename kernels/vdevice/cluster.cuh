// What the vEUs of a cluster do for each other. A program whose Veu::kCluster is above 1 is launched in clusters of so many blocks; vEU v
// is member v % kCluster of cluster v / kCluster. Members store into each other's shared memory, in some 0.6 us, without a trip through
// L2 (docs/adr/0038).
//
// One rTask of each member works on the same tile at the same time (Phase::cluster), and its work begins at the same place in each. Such a
// body says that it has begun, since from then on its work is its own; by the time the members send, all of them have. A member waits for
// what is sent to it before its body ends. So nobody stores into memory that is used for something else, or that is no more.
#pragma once

#include "kernels/vdevice/control.cuh"
#include "kernels/vdevice/memory.cuh"

namespace rk {

// Behind the control block. `uses`: how often the members have exchanged something; its parity is that of the barriers. `read` counts in
// those exchanges alone that need it, so it has a parity of its own.
struct ClusterLink {
  Barrier entered, read, received;
  uint16_t uses, reads;
};
constexpr int kClusterLinkAt = kControlBytes - 32;
static_assert(sizeof(ClusterLink) <= 32);

RK_INLINE ClusterLink& cluster_link() { return *as_shared(reinterpret_cast<ClusterLink*>(shared_memory() + kClusterLinkAt)); }

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
// The same place in the shared memory of another member.
RK_INLINE uint32_t of_member(const void* own, int member) {
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(smem_address(own)), "r"(member));
  return there;
}
#endif

// All threads of all members, once, when each has made its barriers.
template <class Veu>
RK_INLINE void begin_cluster(const Control<Veu>&) {
  static_assert(sizeof(Control<Veu>) <= kClusterLinkAt, "the control block leaves no room for a cluster's barriers");
  if (threadIdx.x == 0) {
    ClusterLink& link = cluster_link();
    link.uses = link.reads = 0;
    init(link.entered, Veu::kCluster - 1);
    init(link.read, (Veu::kCluster - 1) * (Veu::kComputeThreads / kWarp));
#if defined(TAMP_CUDA_ON_CPU)
    init(link.received, (Veu::kCluster - 1) * Veu::kComputeThreads);
#else
    init(link.received, 1);
#endif
  }
#if defined(TAMP_CUDA_ON_CPU)
  cuda_on_cpu::named_barrier(0, blockDim.x);
  cuda_on_cpu::cluster_barrier(Veu::kCluster);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;" ::: "memory");
#endif
}

// One exchange among the members of a cluster, by all compute threads of each.
template <class Veu>
struct ClusterExchange {
  static constexpr int kMembers = Veu::kCluster;
  uint32_t parity;       // of `entered` and `received`
  uint32_t read_parity;  // of `read`; known from the beginning, since thread 0 counts on when it has received all
  int own;               // which member this vEU is
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  uint32_t links[kMembers];  // of member own ^ i; the first is not used
#endif

  // `bytes`: how many the others will send to this member.
  RK_INLINE void begin(int member, int bytes) {
    own = member;
    ClusterLink& link = cluster_link();
    parity = link.uses & 1u;
    read_parity = link.reads & 1u;
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < kMembers && thread != own) arrive_at(cluster_link().entered, thread);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#pragma unroll
    for (int i = 1; i < kMembers; ++i) links[i] = of_member(&cluster_link(), own ^ i);
    if (thread == 0)
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_address(&link.received)), "r"(bytes) : "memory");
#else
    (void)bytes;
#endif
  }
  // From here on send() may be called: all members have begun.
  RK_INLINE void await_members() const { wait_for(cluster_link().entered, parity); }
  // This warp has read what lies where the members may store from await_readers() on. Behind await_members(): the arrival counts for this
  // exchange, so the receiver must be done with the one before.
  RK_INLINE void has_read() const {
    __syncwarp();
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    if (lane < kMembers && lane != own) arrive_at(cluster_link().read, lane);
  }
  // From here on send() may be called for what all warps of the other members have read.
  RK_INLINE void await_readers() const { wait_for(cluster_link().read, read_parity); }
  // To member own ^ other. `to`: a place in this member's shared memory, 16-byte aligned; the value goes to the same place of the other.
  RK_INLINE void send(int other, char* to, const float4& v) const {
#if defined(TAMP_CUDA_ON_CPU)
    cuda_on_cpu::store_at_member(to, &v, sizeof v, static_cast<uint32_t>(own ^ other), kMembers);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    const uint32_t there = links[other] + (smem_address(to) - smem_address(&cluster_link()));
    const uint32_t barrier = links[other] + static_cast<uint32_t>(offsetof(ClusterLink, received));
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(there), "f"(v.x),
                 "f"(v.y), "f"(v.z), "f"(v.w), "r"(barrier)
                 : "memory");
#endif
  }
  // This thread has sent all that it will send. The exchange is counted here, behind a barrier since begin(); the numbers are read next
  // in another body, behind a barrier.
  template <bool HAS_READERS>
  RK_INLINE void sent() const {
    ClusterLink& counted = cluster_link();
#if defined(TAMP_CUDA_ON_CPU)
    for (int member = 0; member < kMembers; ++member) {
      if (member != own) cuda_on_cpu::arrive_at_member(counted.received, static_cast<uint32_t>(member), kMembers);
    }
#endif
    if (threadIdx.x != 0) return;
    ++counted.uses;
    if constexpr (HAS_READERS) ++counted.reads;
  }
  // From here on what was sent to this member may be read.
  RK_INLINE void await_received() const { wait_for(cluster_link().received, parity); }
  // A sum of this member and those that came from members own ^ 1, own ^ 2 and own ^ 3, to place(1), place(2) and place(3). The same sum,
  // whoever adds: (0 + 1) + (2 + 3), or for member 3 (3 + 2) + (1 + 0).
  template <class Place>
  RK_INLINE float4 add_received(const float4& own_sum, const Place& place) const {
    static_assert(kMembers == 4);
    const auto received = [&](int other) { return load_shared4(place(other), 0); };
    return add4(add4(own_sum, received(1)), add4(received(2), received(3)));
  }

 private:
  // The barrier at the same place in another member.
  RK_INLINE static void arrive_at(Barrier& own_barrier, int member) {
#if defined(TAMP_CUDA_ON_CPU)
    cuda_on_cpu::arrive_at_member(own_barrier, static_cast<uint32_t>(member), kMembers);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(of_member(&own_barrier, member)) : "memory");
#else
    (void)own_barrier, (void)member;
#endif
  }
  RK_INLINE static void wait_for(Barrier& barrier, uint32_t parity) {
#if defined(TAMP_CUDA_ON_CPU)
    cuda_on_cpu::wait(barrier, parity);
    __syncwarp();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile(
        "{\n\t.reg .pred done, more;\n\t.reg .u32 left;\n\tmov.u32 left, 0xffffffff;\n\t"
        "AGAIN:\n\tmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n\t"
        "vote.sync.all.pred done, done, 0xffffffff;\n\t@done bra DONE;\n\t"
        "sub.u32 left, left, 1;\n\tsetp.ne.u32 more, left, 0;\n\t@more bra AGAIN;\n\ttrap;\n\tDONE:\n\t}" ::"r"(smem_address(&barrier)),
        "r"(parity)
        : "memory");
#else
    (void)barrier, (void)parity;
#endif
  }
};

}  // namespace rk
