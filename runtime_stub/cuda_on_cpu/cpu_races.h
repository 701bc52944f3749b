// Stand-in, part 9: records which bytes of device memory every rTask touches, for `tamp run --races`.
//
// NAME.cu is compiled with g++ -fsanitize=thread, which calls a function for every load and store; those functions are here, in
// the place of the sanitizer's own. (-fsanitize=kernel-address would do it as well, but leaves out a store behind a load of the same
// address.) The stand-in itself reports the copies that it makes for a thread. The program's main file includes this file, once, and is
// compiled without that option.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cpu_host.h"

namespace cuda_on_cpu {

// The bytes that a rTask touched: masks of 64 bytes each, in a hash table.
class Touched {
 public:
  static constexpr uint64_t kLineBytes = 64;
  struct Line {
    uint64_t key, read, written;  // key: number of the line plus 1; 0 is an empty place
  };

  Line& line(uint64_t number) {
    if (2 * (used_ + 1) > lines_.size()) grow();
    Line& found = place(number + 1);
    used_ += found.key == 0;
    found.key = number + 1;
    return found;
  }
  std::vector<Line> sorted() const {
    std::vector<Line> all;
    std::copy_if(lines_.begin(), lines_.end(), std::back_inserter(all), [](const Line& l) { return l.key != 0; });
    std::sort(all.begin(), all.end(), [](const Line& a, const Line& b) { return a.key < b.key; });
    return all;
  }

 private:
  Line& place(uint64_t key) {
    size_t at = static_cast<size_t>(key * 0x9e3779b97f4a7c15u >> 20) & (lines_.size() - 1);
    while (lines_[at].key != 0 && lines_[at].key != key) at = (at + 1) & (lines_.size() - 1);
    return lines_[at];
  }
  void grow() {
    std::vector<Line> before(std::max<size_t>(64, 2 * lines_.size()));
    before.swap(lines_);
    for (const Line& old : before) {
      if (old.key != 0) place(old.key) = old;
    }
  }

  std::vector<Line> lines_;  // a power of two
  size_t used_ = 0;
};

class AccessLog final : public Watcher {
 public:
  // Bytes of the arena that keep what they hold from run to run.
  void keep(uint64_t begin, uint64_t end) { kept_.emplace_back(begin, end); }

  // Before each run: the arena will be all ones, which is NaN, when the first rTask begins.
  void begin_run() {
    poison_ = true;
    launches_ = 0;
  }

  void launch(bool cooperative) override { phase_ = cooperative ? -1 : launches_++; }

  void bases(const uint64_t* addresses, int count) override {
    if (addresses_.size() != static_cast<size_t>(count) || !std::equal(addresses_.begin(), addresses_.end(), addresses)) {
      addresses_.assign(addresses, addresses + count);
      find_spaces();
    }
    if (std::exchange(poison_, false)) poison();
  }

  void access(RTask rtask, const void* at, size_t bytes, bool is_write) override {
    const uint64_t address = reinterpret_cast<uint64_t>(at);
    if (address - low_ >= high_ - low_) return;
    const auto space = std::find_if(spaces_.begin(), spaces_.end(), [&](const Space& s) { return address - s.begin < s.bytes; });
    if (space == spaces_.end()) return;
    const uint64_t name = uint64_t{phase_ < 0 ? rtask.record : static_cast<uint32_t>(phase_)} << 32 | rtask.index;
    if (last_ == nullptr || name != last_name_) {
      last_ = &touched_[name];
      last_name_ = name;
    }
    const uint64_t offset = address - space->begin;
    for (uint64_t byte = offset; byte < offset + bytes;) {
      const uint64_t in_line = byte % Touched::kLineBytes, count = std::min(offset + bytes - byte, Touched::kLineBytes - in_line);
      const uint64_t mask = (count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1) << in_line;
      Touched::Line& line = last_->line(uint64_t{space->base} << kBaseShift | byte / Touched::kLineBytes);
      (is_write ? line.written : line.read) |= mask;
      byte += count;
    }
  }

  // Rows of six numbers of 8 bytes: record (launch, where each phase is one), index, base, 1 for a write, begin, end; bytes of the base.
  bool write(const char* path) const {
    std::FILE* const file = std::fopen(path, "wb");
    if (file == nullptr) return false;
    std::vector<uint64_t> names;
    for (const auto& [name, touched] : touched_) names.push_back(name);
    std::sort(names.begin(), names.end());
    for (const uint64_t name : names) {
      const std::vector<Touched::Line> lines = touched_.at(name).sorted();
      for (const bool is_write : {false, true}) write_rows(file, name, lines, is_write);
    }
    return std::fclose(file) == 0;
  }

 private:
  static constexpr int kBaseShift = 48;
  struct Space {
    uint64_t begin, bytes;
    uint32_t base;
  };

  void find_spaces() {
    spaces_.clear();
    HostState& state = host_state();
    const Lock lock(state.mutex);
    for (size_t base = 0; base < addresses_.size(); ++base) {
      const auto found = state.allocations.find(addresses_[base]);
      if (found != state.allocations.end()) spaces_.push_back({addresses_[base], found->second.bytes, static_cast<uint32_t>(base)});
    }
    low_ = ~uint64_t{0};
    high_ = 0;
    for (const Space& space : spaces_) {
      low_ = std::min(low_, space.begin);
      high_ = std::max(high_, space.begin + space.bytes);
    }
  }

  void poison() {
    constexpr uint32_t kArena = 0;
    for (const Space& space : spaces_) {
      if (space.base != kArena) continue;
      char* const arena = reinterpret_cast<char*>(space.begin);
      std::vector<std::vector<char>> kept;
      for (const auto& [begin, end] : kept_) kept.emplace_back(arena + begin, arena + end);
      std::memset(arena, 0xff, space.bytes);
      for (size_t i = 0; i < kept.size(); ++i) std::copy(kept[i].begin(), kept[i].end(), arena + kept_[i].first);
    }
  }

  static void write_rows(std::FILE* file, uint64_t name, const std::vector<Touched::Line>& lines, bool is_write) {
    uint64_t begin = 0, end = 0;  // of the current run, bytes from base 0
    const auto flush = [&] {
      const uint64_t row[] = {name >> 32, name & 0xffffffffu, begin >> kByteShift, is_write, begin & kByteMask, end - (begin & ~kByteMask)};
      if (begin != end) std::fwrite(row, sizeof row, 1, file);
    };
    for (const Touched::Line& line : lines) {
      const uint64_t mask = is_write ? line.written : line.read, first = (line.key - 1) * Touched::kLineBytes;
      for (uint64_t bit = 0; bit < Touched::kLineBytes; ++bit) {
        if ((mask >> bit & 1u) == 0) continue;
        if (first + bit != end) {
          flush();
          begin = first + bit;
        }
        end = first + bit + 1;
      }
    }
    flush();
  }
  static constexpr int kByteShift = kBaseShift + 6;
  static constexpr uint64_t kByteMask = (uint64_t{1} << kByteShift) - 1;

  std::vector<uint64_t> addresses_;
  std::vector<Space> spaces_;
  uint64_t low_ = 0, high_ = 0;
  std::vector<std::pair<uint64_t, uint64_t>> kept_;
  bool poison_ = false;
  int launches_ = 0, phase_ = -1;                  // phase_: the running launch where each is a phase
  std::unordered_map<uint64_t, Touched> touched_;  // by record and index
  uint64_t last_name_ = 0;
  Touched* last_ = nullptr;
};

inline void seen(const void* at, size_t bytes, bool is_write) {
  if (watcher != nullptr && current != nullptr && current->block != nullptr) watcher->access(current->rtask, at, bytes, is_write);
}

}  // namespace cuda_on_cpu

// --- what -fsanitize=thread calls --------------------------------------------------------------------------------------

extern "C" {
#define TAMP_SEE(bytes)                                                                \
  void __tsan_read##bytes(void* at) { cuda_on_cpu::seen(at, bytes, false); }           \
  void __tsan_write##bytes(void* at) { cuda_on_cpu::seen(at, bytes, true); }           \
  void __tsan_unaligned_read##bytes(void* at) { cuda_on_cpu::seen(at, bytes, false); } \
  void __tsan_unaligned_write##bytes(void* at) { cuda_on_cpu::seen(at, bytes, true); }
TAMP_SEE(1)
TAMP_SEE(2)
TAMP_SEE(4)
TAMP_SEE(8)
TAMP_SEE(16)
#undef TAMP_SEE
void __tsan_read_range(void* at, size_t bytes) { cuda_on_cpu::seen(at, bytes, false); }
void __tsan_write_range(void* at, size_t bytes) { cuda_on_cpu::seen(at, bytes, true); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
// The host's atomics (std::shared_ptr); device code has the stand-in's own.
#define TAMP_ATOMIC(bits, T)                                                                           \
  T __tsan_atomic##bits##_load(const volatile T* at, int) { return __atomic_load_n(at, 5); }           \
  void __tsan_atomic##bits##_store(volatile T* at, T v, int) { __atomic_store_n(at, v, 5); }           \
  T __tsan_atomic##bits##_exchange(volatile T* at, T v, int) { return __atomic_exchange_n(at, v, 5); } \
  T __tsan_atomic##bits##_fetch_add(volatile T* at, T v, int) { return __atomic_fetch_add(at, v, 5); } \
  T __tsan_atomic##bits##_fetch_sub(volatile T* at, T v, int) { return __atomic_fetch_sub(at, v, 5); }
TAMP_ATOMIC(8, uint8_t)
TAMP_ATOMIC(32, uint32_t)
TAMP_ATOMIC(64, uint64_t)
#undef TAMP_ATOMIC
}
