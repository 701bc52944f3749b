// The part of the verifier that looks at memory; verify.cpp has the whole verifier.
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

// schedule::verify of a program; `lane_order` says whether the instructions of a lane are ordered.
std::vector<std::string> verify_in(LaneOrder lane_order, const RProgram& program, size_t limit, const select::Families& families);

// "'conv1' phase 0 rTask 3 (vEU 5)"
std::string describe(const RProgram& program, At at);

// Proves that the graph is whole, that its tensors lie in their buffers, and that inputs and outputs are where callers have them.
void verify_graph(const RProgram& program, Violations& violations);

// Proves that operators have operands and results that fit together, and that each rKernel is one that its family lists for the rOperator,
// in every field but costs and the words that were chosen. Families that are not the catalogue's are believed.
void verify_rkernels(const RProgram& program, const select::Families& families, Violations& violations);

// Proves of the boxes of inputs that they are of an operand, keep the copy engine's rules, lie in the operand's buffer, and bring each
// rTask the memory that it declares to read. Requires that ids are in range.
void verify_boxes(const RProgram& program, const select::Families& families, Violations& violations);

// Proves that every needed element is written exactly once and before it is read, that nothing leaves its buffer or the arena, and that
// buffers that share memory use it one after another. Requires that ids are in range and that all instructions run.
void verify_memory(const RProgram& program, const Clocks& clocks, const select::Families& families, Violations& violations);

// Proves that iterations of loops follow each other: see verify_loops.cpp. Requires that ids are in range and that all instructions run.
void verify_loops(const RProgram& program, const Clocks& clocks, Violations& violations);

// Proves of a program that makes tokens that its runs follow each other, and that what changes between two of them lies in its ports: see
// verify_generation.cpp. Requires that ids are in range.
void verify_generation(const RProgram& program, Violations& violations);

// Proves that what rTasks leave undone in runs of smaller lengths is needed by none of those: see verify_guards.cpp. Requires that ids are
// in range.
void verify_guards(const RProgram& program, const select::Families& families, Violations& violations);

// Proves for every gang: each of its rTasks has a vEU of its own, each word that one of them awaits is published by exactly one of them, no
// word is outside the exchange, and no other data uses the exchange's memory. For every buffer with words: each of its writers publishes
// them, and no other data uses their memory. Requires that ids are in range.
void verify_exchanges(const RProgram& program, const select::Families& families, Violations& violations);

}  // namespace tamp::schedule
