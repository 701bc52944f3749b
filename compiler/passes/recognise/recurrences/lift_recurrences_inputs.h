// Where the inputs of a chain come from: slices of one tensor over time, or single tensors. Internal to lift_recurrences.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "compiler/passes/recognise/recurrences/lift_recurrences_chains.h"
#include "compiler/passes/recognise/recurrences/lift_recurrences_emit.h"

namespace tamp::passes::lift {

// Steps [begin, end) of a chain, which become one rOperator. Row t of x and y belongs to step begin + t, or end - 1 - t if it runs
// backwards.
struct Segment {
  const Chain& chain;
  size_t begin = 0, end = 0;
  bool is_reverse = false;

  int64_t steps() const { return static_cast<int64_t>(end - begin); }
  size_t step_of(size_t row) const { return is_reverse ? end - 1 - row : begin + row; }
  size_t row_of(size_t step) const { return is_reverse ? end - 1 - step : step - begin; }
};

class Inputs {
 public:
  Inputs(const Graph& graph, const std::vector<Cell>& cells, Emitter& emitter) : graph_(graph), cells_(cells), emitter_(emitter) {}

  // From now on `h` is row `row` of y.
  void lifted(TensorId h, TensorId y, int64_t row) { states_[h.index()] = {y, row}; }
  struct State {
    TensorId sequence;
    int64_t row = 0;
  };
  // Nothing if the matrix is not all of a lifted hidden state.
  std::optional<State> state_of(const Rows& rows) const;

  // The end of the longest run of steps from `begin` whose inputs are evenly spaced parts of one tensor each.
  size_t evenly_spaced(const Chain& chain, size_t begin, size_t end) const;
  // Whether the inputs run from the end of their tensor to its beginning.
  bool runs_backwards(const Chain& chain, size_t begin) const;
  // x of [T,B,I]: views of one tensor; nothing if that cannot be said with views.
  std::optional<TensorId> views(const Segment& segment);
  // The first step from `begin` whose inputs depend on states that the chain makes in [begin, end), or `end`.
  size_t independent_end(const Chain& chain, size_t begin, size_t end);
  // x of [T,B,I], put together of as many tensors as it takes.
  std::optional<TensorId> gathered(const Segment& segment);

 private:
  struct Run {  // input `number` in steps [begin, end)
    size_t number = 0, begin = 0, end = 0;
  };
  const Part& part(const Chain& chain, size_t step, size_t number) const;
  Rows rows(const Chain& chain, size_t step, size_t number) const;
  int64_t distance(const Chain& chain, size_t step, size_t number) const;  // in elements, to the next step
  bool continues(const Chain& chain, const Run& run, size_t step) const;
  std::optional<TensorId> view(const Segment& segment, const Run& run);

  void note_states(const Chain& chain);

  const Graph& graph_;
  const std::vector<Cell>& cells_;
  Emitter& emitter_;
  std::unordered_map<size_t, State> states_;
  const Chain* noted_ = nullptr;
  std::unordered_map<int32_t, size_t> steps_;  // of the noted chain, by the states that they make
  int64_t searched_ = 0;                       // tensors looked at by independent_end, in all
};

}  // namespace tamp::passes::lift
