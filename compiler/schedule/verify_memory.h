// The verifier's part about memory; verify.cpp is the whole.
#pragma once

#include <string>
#include <vector>

#include "compiler/schedule/clocks.h"
#include "compiler/select/select.h"

namespace tamp::schedule {

// Violations as sentences, at most `limit`.
class Violations {
 public:
  explicit Violations(size_t limit) : limit_(limit) {}
  void add(std::string sentence) {
    if (!full()) sentences_.push_back(std::move(sentence));
  }
  bool full() const { return sentences_.size() >= limit_; }
  bool none() const { return sentences_.empty(); }
  std::vector<std::string> take() { return std::move(sentences_); }

 private:
  size_t limit_;
  std::vector<std::string> sentences_;
};

// schedule::verify of a program whose lanes may have no order in themselves.
std::vector<std::string> verify_in(LaneOrder lane_order, const RProgram& program, size_t limit, const select::Families& families);

// "'conv1' phase 0 rTask 3 (vEU 5)"
std::string describe(const RProgram& program, At at);

// Every element that is needed is written exactly once and before it is read, nothing leaves its buffer or the arena, and
// memory that several buffers share is theirs one after another. Ids are in range, and all instructions run.
void verify_memory(const RProgram& program, const Clocks& clocks, const select::Families& families, Violations& violations);

// Of every gang: each of its rTasks has a vEU of its own, each word that one awaits is published by exactly one of them, no
// word is outside the exchange, and the exchange is nobody else's memory. Ids are in range.
void verify_exchanges(const RProgram& program, const select::Families& families, Violations& violations);

}  // namespace tamp::schedule
