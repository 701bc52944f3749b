// If, Loop and Scan. Where conditions and trip counts are known at import, the branch that an If takes replaces the node, and a body is
// written out once for each iteration. Those that are known only at run time, or depend on a length, become loops of the program
// (run_time_loops.h).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler/frontend/graph_import.h"
#include "compiler/frontend/importers.h"
#include "compiler/frontend/run_time_loops.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

constexpr size_t kAnyNumber = std::numeric_limits<size_t>::max();

// A condition that must be known to go on.
bool is_true(const NodeImport& n, TensorId id, const std::string& what) {
  if (n.dtype(id) != DType::boolean || element_count(n.shape(id)) != 1) {
    throw n.bad(fmt::format("{} is {}{}, expected one bool", what, name_of(n.dtype(id)), shape_text(n.shape(id))));
  }
  return n.value(id).data->front() != std::byte{0};
}

// One result that is made piece by piece, along a dimension of its own.
struct Stack {
  std::vector<TensorId> pieces;

  // The result of no iteration, which has the shape that `example`, a piece of one, leads to.
  static TensorId of_none(NodeImport& n, int64_t given_axis, TensorId example) {
    Shape shape = n.shape(example);
    const int64_t axis = n.axis(given_axis, static_cast<int64_t>(shape.size()) + 1, "the axis of a scan output");
    shape.insert(shape.begin() + axis, 0);
    return n.expand(n.cast(n.constant_f32(0), n.dtype(example)), shape);
  }

  TensorId join(NodeImport& n, int64_t given_axis, size_t number, bool last_first = false) {
    if (last_first) std::reverse(pieces.begin(), pieces.end());
    for (const TensorId piece : pieces) {
      if (n.is_sequence(piece)) throw n.bad(fmt::format("result {} is a sequence in each iteration, expected a tensor", number));
    }
    const Shape one = n.shape(pieces[0]);
    const int64_t axis = n.axis(given_axis, static_cast<int64_t>(one.size()) + 1, "the axis of a scan output");
    Shape part = one;
    part.insert(part.begin() + axis, 1);
    std::vector<TensorId> parts;
    for (const TensorId piece : pieces) {
      if (n.shape(piece) != one || n.dtype(piece) != n.dtype(pieces[0])) {
        throw n.bad(fmt::format("result {} is {}{} in one iteration and {}{} in another", number, name_of(n.dtype(pieces[0])),
                                shape_text(one), name_of(n.dtype(piece)), shape_text(n.shape(piece))));
      }
      parts.push_back(n.reshape(piece, part));
    }
    if (parts.size() == 1) return parts[0];
    return n.add(Concat{axis}, parts);
  }
};

void expect_results(const NodeImport& n, size_t found, size_t least) {
  if (found < least) throw n.bad(fmt::format("attribute 'body' has {} outputs, expected at least {}", found, least));
  if (n.output_count() > found) throw n.bad(fmt::format("has {} outputs, attribute 'body' gives {}", n.output_count(), found));
}

// One of Scan's lists with an entry for each scan input or output; all `fallback` if it is absent.
Ints list_of(NodeImport& n, std::string_view name, size_t count) {
  const Ints list = n.find_ints(name).value_or(Ints(count, 0));
  if (list.size() != count) throw n.bad(fmt::format("attribute '{}' has {} values, expected {}", name, list.size(), count));
  return list;
}

std::vector<bool> directions_of(NodeImport& n, std::string_view name, size_t count) {
  std::vector<bool> backward;
  for (const int64_t direction : list_of(n, name, count)) {
    if (direction != 0 && direction != 1) throw n.bad(fmt::format("attribute '{}' has the value {}, expected 0 or 1", name, direction));
    backward.push_back(direction == 1);
  }
  return backward;
}

// x[.., i, ..] along `axis`.
TensorId piece_of(NodeImport& n, TensorId x, int64_t axis, int64_t i) {
  Shape shape = n.shape(x);
  const auto d = static_cast<size_t>(axis);
  Slice slice = whole_slice(shape);
  slice.starts[d] = i;
  slice.extents[d] = 1;
  const TensorId piece = shape[d] == 1 ? x : n.add(slice, {x});
  shape.erase(shape.begin() + axis);
  return n.reshape(piece, shape);
}

// A piece of an x that has none.
TensorId zeros_like_piece(NodeImport& n, TensorId x, int64_t axis) {
  Shape shape = n.shape(x);
  shape.erase(shape.begin() + axis);
  return n.expand(n.cast(n.constant_f32(0), n.dtype(x)), shape);
}

}  // namespace

void import_if(NodeImport& n) {
  n.expect_inputs(1, 1);
  n.expect_graph("then_branch");
  n.expect_graph("else_branch");
  if (!n.is_constant(n.in(0))) return import_run_time_if(n);
  const std::vector<TensorId> results = n.run_body(is_true(n, n.in(0), "the condition") ? "then_branch" : "else_branch", {});
  if (n.output_count() > results.size()) {
    throw n.bad(fmt::format("has {} outputs, the branch gives {}", n.output_count(), results.size()));
  }
  for (size_t k = 0; k < results.size(); ++k) n.result(k, results[k]);
}

namespace {

std::vector<TensorId> operands_of_iteration(NodeImport& n, int64_t i, TensorId condition, const std::vector<TensorId>& carried) {
  std::vector<TensorId> operands = {n.constant_i64({i}, {}), condition};
  operands.insert(operands.end(), carried.begin(), carried.end());
  return operands;
}

}  // namespace

// A condition counts only if the node has one to begin with; the body's own is ignored otherwise.
void import_loop(NodeImport& n) {
  n.expect_inputs(0, kAnyNumber);
  n.expect_graph("body");
  const bool has_trips = n.has(0), has_condition = n.has(1);
  if (n.open_trips() || (has_trips && !n.is_constant(n.in(0)))) return import_run_time_loop(n);
  const size_t rops_before = n.builder().graph.rops.size();
  const double trips = has_trips ? n.number(0, "M") : std::numeric_limits<double>::infinity();
  std::vector<TensorId> carried;
  for (size_t i = 2; i < n.input_count(); ++i) carried.push_back(n.in(i));
  TensorId condition = has_condition ? n.in(1) : n.constant_bool(true);
  std::vector<Stack> stacks(n.output_count() > carried.size() ? n.output_count() - carried.size() : 0);

  // Of any number of iterations, conditions that are known must tell how many there are, if half of the limit has room for them: where that
  // depends on a length, or to stack pieces.
  const bool is_counted = trips >= std::numeric_limits<int32_t>::max() && (n.keeps_copies() || !stacks.empty());
  int64_t i = 0;
  for (; static_cast<double>(i) < trips; ++i) {
    const double most = is_counted ? 2.0 * static_cast<double>(i + 1) : trips;
    const bool is_too_long = i > 0 && std::isfinite(trips) && most * static_cast<double>(n.body_size("body")) > kMaxUnrolledNodes;
    if (!n.is_constant(condition) || is_too_long) {
      n.builder().graph.rops.resize(rops_before);
      n.note_trips(Builder::kUnknownTrips);
      return import_run_time_loop(n);
    }
    const std::string when = i == 0 ? "the condition" : fmt::format("the condition after {} iterations", i);
    if (has_condition && !is_true(n, condition, when)) break;
    const std::vector<TensorId> made = n.run_body("body", operands_of_iteration(n, i, condition, carried), i);
    if (made.empty()) throw n.bad("attribute 'body' has no outputs, expected a condition");
    expect_results(n, made.size() - 1, carried.size());
    if (has_condition) condition = made[0];
    std::copy_n(made.begin() + 1, carried.size(), carried.begin());
    for (size_t k = 0; k < stacks.size(); ++k) stacks[k].pieces.push_back(made[1 + carried.size() + k]);
  }
  n.note_trips(i);
  for (size_t k = 0; k < carried.size(); ++k) n.result(k, carried[k]);
  std::vector<TensorId> example;  // what an iteration would make, where there is none: only shapes and types are taken from it
  for (size_t k = 0; k < stacks.size(); ++k) {
    const size_t number = carried.size() + k;
    if (!n.wants(number)) continue;
    if (!stacks[k].pieces.empty()) {
      n.result(number, stacks[k].join(n, 0, number));
      continue;
    }
    if (example.empty()) example = n.run_body("body", operands_of_iteration(n, 0, condition, carried), 0);
    expect_results(n, example.size() - 1, carried.size());
    n.result(number, Stack::of_none(n, 0, example.at(1 + number)));
  }
}

namespace {

ScanForm form_of_scan(NodeImport& n) {
  if (n.version() == 8) throw n.refuse("Scan of opset 8 (with a batch dimension) is not supported, supported: from opset 9");
  n.expect_inputs(1, kAnyNumber);
  n.expect_graph("body");
  const int64_t given = n.find_int("num_scan_inputs").value_or(0);
  if (given < 1 || given > static_cast<int64_t>(n.input_count())) {
    throw n.bad(fmt::format("attribute 'num_scan_inputs' is {}, expected 1 to {}", given, n.input_count()));
  }
  ScanForm scan;
  const auto scanned = static_cast<size_t>(given);
  scan.states = n.input_count() - scanned;
  scan.axes = list_of(n, "scan_input_axes", scanned);
  scan.backward = directions_of(n, "scan_input_directions", scanned);
  for (size_t i = 0; i < scanned; ++i) {
    const Shape shape = n.shape(n.in(scan.states + i));
    scan.axes[i] = n.axis(scan.axes[i], static_cast<int64_t>(shape.size()), "attribute 'scan_input_axes'");
    const int64_t extent = shape[static_cast<size_t>(scan.axes[i])];
    if (scan.steps >= 0 && extent != scan.steps) throw n.bad(fmt::format("scan inputs of {} and {} steps", scan.steps, extent));
    scan.steps = extent;
  }
  if (n.output_count() < scan.states) throw n.bad(fmt::format("has {} outputs for {} states", n.output_count(), scan.states));
  scan.stacked = n.output_count() - scan.states;
  // The lists are as long as the body's scan outputs, of which the node may leave out the last ones.
  const size_t body_outputs = n.body_outputs("body");
  expect_results(n, body_outputs, scan.states);
  scan.output_axes = list_of(n, "scan_output_axes", body_outputs - scan.states);
  scan.in_front = directions_of(n, "scan_output_directions", body_outputs - scan.states);
  return scan;
}

}  // namespace

void import_scan(NodeImport& n) {
  const ScanForm scan = form_of_scan(n);
  if (n.open_trips()) return import_run_time_scan(n, scan);
  n.note_trips(scan.steps);
  const size_t rops_before = n.builder().graph.rops.size(), states = scan.states;
  std::vector<TensorId> carried;
  for (size_t i = 0; i < states; ++i) carried.push_back(n.in(i));
  std::vector<Stack> stacks(scan.stacked);
  for (int64_t s = 0; s < scan.steps; ++s) {
    if (s == 1 && scan.steps > kMaxUnrolledNodes / n.body_size("body")) {
      n.builder().graph.rops.resize(rops_before);
      return import_run_time_scan(n, scan);
    }
    std::vector<TensorId> operands = carried;
    for (size_t i = 0; i < scan.axes.size(); ++i)
      operands.push_back(piece_of(n, n.in(states + i), scan.axes[i], scan.backward[i] ? scan.steps - 1 - s : s));
    const std::vector<TensorId> made = n.run_body("body", operands, s);
    std::copy_n(made.begin(), states, carried.begin());
    for (size_t k = 0; k < stacks.size(); ++k) stacks[k].pieces.push_back(made[states + k]);
  }
  for (size_t k = 0; k < states; ++k) n.result(k, carried[k]);
  std::vector<TensorId> example;  // as of Loop
  for (size_t k = 0; k < stacks.size(); ++k) {
    if (!n.wants(states + k)) continue;
    if (scan.steps > 0) {
      n.result(states + k, stacks[k].join(n, scan.output_axes[k], states + k, scan.in_front[k]));
      continue;
    }
    if (example.empty()) {
      std::vector<TensorId> operands = carried;
      for (size_t i = 0; i < scan.axes.size(); ++i) operands.push_back(zeros_like_piece(n, n.in(states + i), scan.axes[i]));
      example = n.run_body("body", operands, 0);
    }
    n.result(states + k, Stack::of_none(n, scan.output_axes[k], example.at(states + k)));
  }
}

}  // namespace tamp::frontend
