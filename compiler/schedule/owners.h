// Which instruction writes which elements of a space, for one window of the space at a time. Long pieces are kept as pieces, so that a
// tensor of 2^31 elements takes as much memory as its rTasks. Where pieces are short, each element of the window has a number.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "compiler/ir/rkernel.h"

namespace tamp::schedule {

// Calls f(begin, end) for each piece of the run within [low, high).
void for_each_span(Run run, int64_t low, int64_t high, auto f) {
  if (run.stride < 0) run.offset += (run.count - 1) * run.stride, run.stride = -run.stride;
  if (run.stride == run.length) run.length *= run.count, run.count = 1;
  int64_t first = 0, last = run.count;
  if (run.stride > 0) {
    if (run.offset + run.length <= low) first = (low - run.offset - run.length) / run.stride + 1;
    last = run.offset < high ? std::min(last, (high - run.offset - 1) / run.stride + 1) : 0;
  }
  for (int64_t i = first; i < last; ++i) {
    const int64_t begin = run.offset + i * run.stride;
    if (begin < high && begin + run.length > low) f(std::max(low, begin), std::min(high, begin + run.length));
  }
}

inline int64_t spans_of(const Run& run) { return run.stride == run.length ? 1 : run.count; }

class Owners {
 public:
  static constexpr int32_t kNobody = -1;

  // For a space of so many elements, which are written in so many pieces.
  void begin_space(int64_t elements, int64_t spans) {
    by_element_ = spans > elements / kElementsOfSpan;
    const int64_t windows = by_element_ ? (elements + kMostElements - 1) / kMostElements : (spans + kMostSpans - 1) / kMostSpans;
    window_ = std::max<int64_t>(1, windows > 1 ? (elements + windows - 1) / windows : elements);
  }
  int64_t window() const { return window_; }  // elements of each but the last

  void begin_window(int64_t low, int64_t high) {
    low_ = low, high_ = high;
    spans_.clear();
    owner_.assign(by_element_ ? static_cast<size_t>(high - low) : 0, kNobody);
  }
  void add(const Run& run, int32_t owner) {
    bool clean = true;
    for_each_span(run, low_, high_, [&](int64_t begin, int64_t end) {
      if (by_element_)
        paint(begin, end, owner, clean);
      else
        spans_.push_back({begin, end, owner});
    });
  }
  // Behind the last `add`: f(element, owner, owner) of pieces that are written twice. Returns how many elements of the window have an
  // owner.
  int64_t settle(auto f) {
    if (by_element_) {
      for (const Conflict& c : conflicts_) f(c.element, c.first, c.second);
      conflicts_.clear();
      return (high_ - low_) - std::count(owner_.begin(), owner_.end(), kNobody);
    }
    std::stable_sort(spans_.begin(), spans_.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
    int64_t owned = 0;
    size_t kept = 0;
    for (Span span : spans_) {
      if (kept > 0 && span.begin < spans_[kept - 1].end) {
        f(span.begin, spans_[kept - 1].owner, span.owner);
        span.begin = spans_[kept - 1].end;
        if (span.begin >= span.end) continue;
      }
      owned += span.end - span.begin;
      if (kept > 0 && span.begin == spans_[kept - 1].end && span.owner == spans_[kept - 1].owner)
        spans_[kept - 1].end = span.end;
      else
        spans_[kept++] = span;
    }
    spans_.resize(kept);
    return owned;
  }

  // Behind settle: f(begin, owner) of the pieces of [begin, end), which is within the window, in order, those without an owner too, until
  // it returns false.
  void for_each(int64_t begin, int64_t end, auto f) const {
    if (by_element_) {
      for (int64_t e = begin; e < end; ++e) {
        if (!f(e, owner_[static_cast<size_t>(e - low_)])) return;
      }
      return;
    }
    auto at = std::upper_bound(spans_.begin(), spans_.end(), begin, [](int64_t e, const Span& span) { return e < span.end; });
    while (begin < end) {
      const bool owned = at != spans_.end() && at->begin <= begin;
      if (!f(begin, owned ? at->owner : kNobody)) return;
      begin = owned ? (at++)->end : at != spans_.end() ? std::min(end, at->begin) : end;
    }
  }

 private:
  struct Span {
    int64_t begin = 0, end = 0;
    int32_t owner = kNobody;
  };
  struct Conflict {
    int64_t element = 0;
    int32_t first = kNobody, second = kNobody;
  };
  static constexpr int64_t kElementsOfSpan = 6;  // a Span is as large as so many elements' numbers
  static constexpr int64_t kMostElements = int64_t{1} << 24, kMostSpans = int64_t{1} << 22;

  // The first conflict of each `add` is kept; then it is not `clean` any more.
  void paint(int64_t begin, int64_t end, int32_t owner, bool& clean) {
    for (int64_t e = begin; e < end; ++e) {
      int32_t& known = owner_[static_cast<size_t>(e - low_)];
      if (known == kNobody) {
        known = owner;
      } else if (clean) {
        clean = false;
        conflicts_.push_back({e, known, owner});
      }
    }
  }

  bool by_element_ = false;
  int64_t window_ = 1, low_ = 0, high_ = 0;
  std::vector<Span> spans_;
  std::vector<int32_t> owner_;
  std::vector<Conflict> conflicts_;
};

}  // namespace tamp::schedule
