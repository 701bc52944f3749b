#include "compiler/passes/recognise/recurrences/lift_recurrences_inputs.h"

#include <unordered_set>

namespace tamp::passes::lift {
namespace {

constexpr int64_t kSearchesPerRop = 16;  // bounds independent_end in graphs that are made to be slow

}  // namespace

const Part& Inputs::part(const Chain& chain, size_t step, size_t number) const {
  return cells_[chain.cells[step]].parts[chain.roles[step].inputs[number]];
}

Rows Inputs::rows(const Chain& chain, size_t step, size_t number) const {
  Rows rows = part(chain, step, number).operand;
  if (const auto state = states_.find(rows.root.index()); state != states_.end()) {
    rows.offset += state->second.row * count_of(graph_, rows.root);
    rows.root = state->second.sequence;
  }
  return rows;
}

std::optional<Inputs::State> Inputs::state_of(const Rows& rows) const {
  const auto state = states_.find(rows.root.index());
  return state != states_.end() && is_all(graph_, rows) ? std::optional(state->second) : std::nullopt;
}

int64_t Inputs::distance(const Chain& chain, size_t step, size_t number) const {
  return rows(chain, step + 1, number).offset - rows(chain, step, number).offset;
}

bool Inputs::continues(const Chain& chain, const Run& run, size_t step) const {
  Rows first = rows(chain, run.begin, run.number);
  const Rows next = rows(chain, step, run.number);
  if (step > run.begin + 1) first.offset += static_cast<int64_t>(step - run.begin) * distance(chain, run.begin, run.number);
  if (step == run.begin + 1) first.offset = next.offset;
  return first == next;
}

size_t Inputs::evenly_spaced(const Chain& chain, size_t begin, size_t end) const {
  for (size_t step = begin + 1; step < end; ++step) {
    for (size_t number = 0; number < chain.roles[begin].inputs.size(); ++number) {
      if (!continues(chain, {number, begin, step}, step)) return step;
    }
  }
  return end;
}

bool Inputs::runs_backwards(const Chain& chain, size_t begin) const {
  for (size_t number = 0; number < chain.roles[begin].inputs.size(); ++number) {
    if (!continues(chain, {number, begin, begin + 1}, begin + 1)) continue;
    const int64_t step = distance(chain, begin, number);
    if (step != 0) return step < 0;
  }
  return false;
}

std::optional<TensorId> Inputs::view(const Segment& segment, const Run& run) {
  const Rows first = rows(segment.chain, segment.is_reverse ? run.end - 1 : run.begin, run.number);
  const auto steps = static_cast<int64_t>(run.end - run.begin);
  int64_t step = steps == 1 ? 0 : distance(segment.chain, run.begin, run.number);
  if (segment.is_reverse) step = -step;
  const bool is_repeated = steps > 1 && step == 0;
  const int64_t distinct = is_repeated ? 1 : steps;
  const Shape shape = {distinct, first.rows, first.cols};
  const std::optional<TensorId> x = emitter_.add_view(first.root, {first.offset, shape, {step, first.row_stride, first.col_stride}}, shape);
  return x && is_repeated ? emitter_.repeated(*x, steps) : x;
}

std::optional<TensorId> Inputs::views(const Segment& segment) {
  std::vector<TensorId> inputs;
  for (size_t number = 0; number < segment.chain.roles[segment.begin].inputs.size(); ++number) {
    const std::optional<TensorId> x = view(segment, {number, segment.begin, segment.end});
    if (!x) return std::nullopt;
    inputs.push_back(*x);
  }
  return emitter_.concat(inputs, 2);
}

std::optional<TensorId> Inputs::gathered(const Segment& segment) {
  std::vector<TensorId> inputs;
  for (size_t number = 0; number < segment.chain.roles[segment.begin].inputs.size(); ++number) {
    std::vector<TensorId> runs;
    for (Run run{number, segment.begin, segment.begin}; run.begin < segment.end; run.begin = run.end) {
      run.end = run.begin + 1;
      while (run.end < segment.end && continues(segment.chain, run, run.end)) ++run.end;
      std::optional<TensorId> x = view(segment, run);
      if (!x) {
        run.end = run.begin + 1;
        x = view(segment, run);
      }
      if (!x) return std::nullopt;
      runs.insert(segment.is_reverse ? runs.begin() : runs.end(), *x);
    }
    inputs.push_back(emitter_.concat(runs, 0));
  }
  return emitter_.concat(inputs, 2);
}

// Chains that have been lifted are single rOperators here, so each of their results depends on all that one of their inputs depends on.
size_t Inputs::independent_end(const Chain& chain, size_t begin, size_t end) {
  note_states(chain);
  std::unordered_set<int32_t> seen;
  std::vector<TensorId> open;
  for (size_t step = begin; step < end; ++step) {
    for (size_t number = 0; number < chain.roles[step].inputs.size(); ++number) open.push_back(rows(chain, step, number).root);
    while (!open.empty()) {
      const TensorId next = open.back();
      open.pop_back();
      const auto made = steps_.find(next.value);
      if (made != steps_.end() && made->second >= begin && made->second < end) return step;
      if (!seen.insert(next.value).second) continue;
      if (++searched_ > kSearchesPerRop * static_cast<int64_t>(graph_.rops.size())) return step;
      const ROperator* maker = emitter_.maker(next);
      if (!maker) continue;
      for (const TensorId id : reads_of(*maker)) open.push_back(id);
    }
  }
  return end;
}

void Inputs::note_states(const Chain& chain) {
  if (noted_ == &chain) return;
  noted_ = &chain;
  steps_.clear();
  for (size_t step = 0; step < chain.cells.size(); ++step) {
    const Cell& cell = cells_[chain.cells[step]];
    steps_[cell.h.value] = step;
    if (cell.c.valid()) steps_[cell.c.value] = step;
  }
}

}  // namespace tamp::passes::lift
