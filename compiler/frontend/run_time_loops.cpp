#include "compiler/frontend/run_time_loops.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

using Ids = std::vector<TensorId>;

std::string type_text(const NodeImport& n, TensorId id) { return name_of(n.dtype(id)) + shape_text(n.shape(id)); }

// A tensor that one value of the loop can be.
TensorId plain(const NodeImport& n, TensorId id, const std::string& what) {
  if (n.is_sequence(id)) throw n.refuse(what + " is a sequence, which is known only at import, supported: a tensor");
  if (n.padding(id)) throw n.refuse(what + " has a number of entries that is known only at run time, supported: a fixed shape");
  return id;
}

TensorId scalar_of(NodeImport& n, TensorId id, DType dtype, const std::string& what) {
  const bool fits = element_count(n.shape(id)) == 1 && (n.dtype(id) == dtype || (dtype == DType::i64 && n.dtype(id) == DType::i32));
  if (!fits) throw n.bad(fmt::format("{} is {}, expected one {}", what, type_text(n, id), name_of(dtype)));
  return n.reshape(n.cast(id, dtype), {});
}

// The rOperators of a body between a LoopBegin and a LoopEnd. Values are added while the body is imported or behind it.
class RunTimeLoop {
 public:
  RunTimeLoop(NodeImport& n, TensorId condition)
      : n_(n), builder_(n.builder()), loop_(builder_.loops++), first_tensor_(builder_.graph.tensors.size()), begin_(rops().size()) {
    Ids inputs = {condition};
    if (!builder_.open_loops.empty()) inputs.push_back(builder_.open_loops.back());  // so that it is in that loop
    const Ids made = n.add_all(LoopBegin{loop_}, inputs, ".begin");
    values_ = {{made[0], TensorId()}};
    builder_.open_loops.push_back(made[0]);
  }
  RunTimeLoop(const RunTimeLoop&) = delete;
  RunTimeLoop& operator=(const RunTimeLoop&) = delete;
  ~RunTimeLoop() { close(); }

  // A value that is `first` at first; returns what it is in an iteration.
  TensorId value(TensorId first) {
    const TensorId made = hand_on(first);
    values_.push_back({made, TensorId()});
    return made;
  }
  void set_next(size_t value, TensorId next) { values_[value].next = next; }
  size_t last() const { return values_.size() - 1; }

  // The body is imported.
  void close() {
    if (std::exchange(is_closed_, true)) return;
    builder_.open_loops.pop_back();
    end_ = rops().size();
  }
  bool is_empty() const { return end_ == begin_ + 1; }
  size_t end() const { return end_; }
  size_t begin() const { return begin_; }
  void move_by(std::ptrdiff_t places) {
    begin_ += static_cast<size_t>(places);
    end_ += static_cast<size_t>(places);
  }
  void drop() { rops().erase(rops().begin() + static_cast<std::ptrdiff_t>(begin_), rops().begin() + static_cast<std::ptrdiff_t>(end_)); }

  // Hands on all that the body reads of what is made at run time in front of it, so that it runs in the loop alone.
  void gate() {
    std::map<TensorId, TensorId> gates;
    for (size_t i = begin_ + 1; i < end_; ++i) {
      for (size_t k = 0; k < rops()[i].inputs.size(); ++k) {
        const TensorId id = rops()[i].inputs[k];
        if (!id.valid() || id.index() >= first_tensor_ || builder_.is_constant(id)) continue;
        const auto [at, is_new] = gates.emplace(id, TensorId());
        if (is_new) at->second = hand_on(plain(n_, id, fmt::format("'{}', which a branch reads,", printable(name_of_tensor(id)))));
        rops()[i].inputs[k] = at->second;
      }
    }
  }

  // The values behind the loop.
  Ids results() {
    Ids operands;
    for (const auto& value : values_) operands.push_back(value.now);
    for (const auto& value : values_) operands.push_back(value.next);
    return n_.add_all(LoopEnd{loop_}, operands, ".end");
  }

 private:
  struct Value {
    TensorId now, next;
  };

  std::vector<ROperator>& rops() { return builder_.graph.rops; }
  const std::vector<ROperator>& rops() const { return builder_.graph.rops; }
  const std::string& name_of_tensor(TensorId id) const { return builder_.graph.tensor(id).name; }

  TensorId hand_on(TensorId outside) {
    Tensor inside = builder_.graph.tensor(outside);
    inside.role = Role::activation;
    inside.data = nullptr;
    inside.name = builder_.unique_tensor_name(inside.name + ".now");
    const TensorId made = add_tensor(builder_.graph, std::move(inside));
    rops()[begin_].inputs.push_back(outside);
    rops()[begin_].outputs.push_back(made);
    return made;
  }

  NodeImport& n_;
  Builder& builder_;
  int64_t loop_;
  size_t first_tensor_, begin_, end_ = 0;
  std::vector<Value> values_;  // the condition first
  bool is_closed_ = false;
};

// The most that M can be: a constant, the number of entries of something, or the least of a constant and anything. -1: any number, which
// exporters write as the largest one that there is.
int64_t most_trips(NodeImport& n, TensorId trips) {
  constexpr int64_t kAnyNumber = std::numeric_limits<int32_t>::max();
  const auto bounded = [](int64_t most) { return most >= kAnyNumber ? -1 : std::max<int64_t>(most, 0); };
  if (n.is_constant(trips)) return bounded(n.flat_ints(trips).at(0));
  if (const std::optional<Counted> counted = n.counted(trips)) return counted->most;
  const ROperator* maker = maker_of(n.builder().graph, trips);
  while (maker && std::holds_alternative<Reshape>(maker->attrs)) maker = maker_of(n.builder().graph, maker->inputs[0]);
  const auto* const chain = maker ? std::get_if<Elementwise>(&maker->attrs) : nullptr;
  if (!chain || chain->steps.size() != 1 || chain->steps[0].op != ElementwiseOp::min) return -1;
  for (const TensorId id : maker->inputs) {
    if (n.is_constant(id) && element_count(n.shape(id)) == 1) return bounded(n.flat_ints(id)[0]);
  }
  return -1;
}

TensorId filled(NodeImport& n, TensorId like, const Shape& shape, float value) {
  return n.expand(n.cast(n.constant_f32(value), n.dtype(like)), shape);
}

void expect_same(NodeImport& n, size_t carried, TensorId before, TensorId after) {
  if (n.shape(before) == n.shape(after) && n.dtype(before) == n.dtype(after)) return;
  throw n.refuse(
      fmt::format("carried value {} is {} before an iteration and {} behind it, and how many there are is known only at run "
                  "time, supported: a fixed shape",
                  carried, type_text(n, before), type_text(n, after)));
}

// A value of the loop in which each iteration that there can be fills a place along `axis`, and this one fills place `at`.
void stack(NodeImport& n, RunTimeLoop& loop, TensorId piece, int64_t given_axis, int64_t most, TensorId at) {
  Shape shape = n.shape(piece), one = shape;
  const int64_t axis = n.axis(given_axis, static_cast<int64_t>(shape.size()) + 1, "the axis of a scan output");
  shape.insert(shape.begin() + axis, most);
  one.insert(one.begin() + axis, 1);
  const TensorId all = loop.value(filled(n, piece, shape, -1));
  const TensorId here = n.elementwise(ElementwiseOp::equal, {n.counting(most, shape.size(), static_cast<size_t>(axis)), at});
  loop.set_next(loop.last(), n.elementwise(ElementwiseOp::where, {here, n.reshape(piece, one), all}));
}

// What an iteration puts into carried sequence `k`.
Builder::Put put_by(NodeImport& n, size_t k, TensorId id) {
  const auto found = n.builder().growing.find(id);
  if (found == n.builder().growing.end() || found->second.size() != 1)
    throw n.refuse("carried value {} is a sequence that does not grow by one tensor in each iteration, which is a loop of run time", k);
  return found->second[0];
}

// The parts of a stack.
TensorId sequence_of(NodeImport& n, TensorId all) {
  Ids parts;
  const Shape shape = n.shape(all), one(shape.begin() + 1, shape.end());
  for (int64_t e = 0; e < shape[0]; ++e) parts.push_back(n.reshape(n.slice_axis(all, 0, e, 1), one));
  const TensorId made = n.sequence(std::move(parts));
  n.builder().stacked[made] = {all, 0, /*is_whole=*/true};
  return made;
}

bool holds_always(const NodeImport& n, TensorId id) { return n.is_constant(id) && n.value(id).data->front() != std::byte{0}; }

}  // namespace

// One loop for each branch, of one iteration or none. The second has the first one's results as its values at first. A branch that computes
// nothing needs no loop.
void import_run_time_if(NodeImport& n) {
  const TensorId condition = scalar_of(n, n.in(0), DType::boolean, "the condition");
  const auto run = [&](const char* branch, RunTimeLoop& loop) {
    Ids results = n.run_body(branch, {});
    loop.close();
    if (n.output_count() > results.size())
      throw n.bad(fmt::format("has {} outputs, the branch gives {}", n.output_count(), results.size()));
    for (const TensorId id : results) plain(n, id, "a result of a branch");
    return results;
  };
  const TensorId otherwise = n.elementwise(ElementwiseOp::logical_not, {condition});
  RunTimeLoop then_loop(n, condition);
  Ids then_results = run("then_branch", then_loop);
  RunTimeLoop else_loop(n, otherwise);
  Ids else_results = run("else_branch", else_loop);
  for (size_t k = 0; k < n.output_count(); ++k) {
    if (n.shape(then_results[k]) == n.shape(else_results[k]) && n.dtype(then_results[k]) == n.dtype(else_results[k])) continue;
    throw n.refuse(fmt::format("result {} is {} in one branch and {} in the other, and which is known only at run time{}", k,
                               type_text(n, then_results[k]), type_text(n, else_results[k]), n.freeze_advice(n.in(0))));
  }
  // `results`: what the loop makes of `first`.
  const auto finish = [&](RunTimeLoop& loop, const Ids& first, const Ids& results) {
    loop.set_next(0, n.constant_bool(false));
    for (size_t k = 0; k < n.output_count(); ++k) {
      loop.value(first[k]);
      loop.set_next(k + 1, results[k]);
    }
    loop.gate();
    Ids made = loop.results();
    made.erase(made.begin());
    return made;
  };
  if (else_loop.is_empty()) {
    else_loop.drop();
    if (!then_loop.is_empty()) {
      else_results = finish(then_loop, else_results, then_results);
    } else {
      then_loop.drop();
      for (size_t k = 0; k < n.output_count(); ++k)
        else_results[k] = n.elementwise(ElementwiseOp::where, {condition, then_results[k], else_results[k]});
    }
  } else if (then_loop.is_empty()) {
    else_results = finish(else_loop, then_results, else_results);
  } else {
    Ids first;
    for (size_t k = 0; k < n.output_count(); ++k) first.push_back(filled(n, then_results[k], n.shape(then_results[k]), 0));
    first = finish(then_loop, first, then_results);
    // The first loop's end goes in front of the second loop.
    std::vector<ROperator>& rops = n.builder().graph.rops;
    std::rotate(rops.begin() + static_cast<std::ptrdiff_t>(else_loop.begin()), rops.begin() + static_cast<std::ptrdiff_t>(else_loop.end()),
                rops.end());
    else_loop.move_by(static_cast<std::ptrdiff_t>(rops.size() - else_loop.end()));
    else_results = finish(else_loop, first, else_results);
  }
  for (size_t k = 0; k < n.output_count(); ++k) n.result(k, else_results[k]);
}

// A condition counts only if the node has one to begin with, and how often it held is not known.
void import_run_time_loop(NodeImport& n) {
  const std::optional<int64_t> open = n.open_trips();
  const bool is_counted = open && *open != Builder::kUnknownTrips;
  const bool has_condition = n.has(1) && !is_counted;
  const size_t carried = n.input_count() > 2 ? n.input_count() - 2 : 0;
  const int64_t most = is_counted ? *open : n.has(0) ? most_trips(n, n.in(0)) : -1;
  const bool counts = is_counted || (n.has(0) && !(most < 0 && has_condition && n.is_constant(n.in(0))));
  TensorId trips = is_counted ? n.constant_i64(*open) : counts ? scalar_of(n, n.in(0), DType::i64, "M") : TensorId();
  if (open && counts && n.is_constant(trips)) trips = n.kept(trips);
  const auto goes_on = [&](TensorId i, TensorId condition) {
    const TensorId more = trips.valid() ? n.elementwise(ElementwiseOp::less, {i, trips}) : TensorId();
    if (!condition.valid()) return more;
    return more.valid() ? n.elementwise(ElementwiseOp::logical_and, {condition, more}) : condition;
  };
  const auto condition_of = [&](TensorId id) { return has_condition ? scalar_of(n, id, DType::boolean, "the condition") : TensorId(); };
  const TensorId zero = n.constant_i64(0);
  RunTimeLoop loop(n, goes_on(zero, condition_of(n.has(1) ? n.in(1) : TensorId())));
  const TensorId i = loop.value(zero);
  Ids operands = {i, n.constant_bool(true)};
  std::vector<size_t> places;  // of carried values among the loop's
  for (size_t k = 0; k < carried; ++k) {
    const bool grows = is_counted && n.is_sequence(n.in(2 + k)) && n.elements(2 + k).empty();
    operands.push_back(grows ? n.growing() : loop.value(plain(n, n.in(2 + k), fmt::format("carried value {}", k))));
    places.push_back(loop.last());
  }
  const Ids made = n.run_body("body", operands);
  if (made.size() < 1 + carried)
    throw n.bad(fmt::format("attribute 'body' has {} outputs, expected at least {}", made.size(), 1 + carried));
  if (n.output_count() > made.size() - 1)
    throw n.bad(fmt::format("has {} outputs, attribute 'body' gives {}", n.output_count(), made.size() - 1));
  const TensorId next_i = n.elementwise(ElementwiseOp::add, {i, n.constant_i64(1)});
  loop.set_next(0, goes_on(next_i, condition_of(made[0])));
  loop.set_next(1, next_i);
  for (size_t k = 0; k < carried; ++k) {
    if (n.builder().growing.contains(operands[2 + k])) {
      const Builder::Put put = put_by(n, k, made[1 + k]);
      const TensorId from_end =
          put.is_in_front ? n.elementwise(ElementwiseOp::sub, {n.elementwise(ElementwiseOp::sub, {trips, n.constant_i64(1)}), i}) : i;
      stack(n, loop, put.tensor, 0, most, from_end);
      places[k] = loop.last();
      continue;
    }
    const TensorId after = plain(n, made[1 + k], fmt::format("carried value {}", k));
    expect_same(n, k, operands[2 + k], after);
    loop.set_next(places[k], after);
  }
  std::vector<std::pair<size_t, size_t>> scans;  // results, and where they are among the loop's values
  for (size_t k = carried; k < n.output_count(); ++k) {
    if (!n.wants(k)) continue;
    const TensorId piece = plain(n, made[1 + k], fmt::format("scan output {}", k));
    if (most < 0) {
      throw n.refuse(
          fmt::format("result {} has as many entries as there are iterations, of which there may be any number, supported: where M "
                      "is a constant, the number of entries of something, or Min of a constant and anything",
                      k));
    }
    stack(n, loop, piece, 0, most, i);
    scans.emplace_back(k, loop.last());
  }
  loop.close();
  const Ids results = loop.results();
  for (size_t k = 0; k < carried; ++k)
    n.result(k, n.builder().growing.contains(operands[2 + k]) ? sequence_of(n, results[places[k]]) : results[places[k]]);
  // With as many iterations as the length says the results are whole.
  const bool is_whole = open && counts && (!has_condition || (holds_always(n, n.in(1)) && holds_always(n, made[0])));
  for (const auto& [k, place] : scans) {
    if (is_whole)
      n.result(k, results[place]);
    else
      n.padded_result(k, results[place], n.reshape(results[1], {1}), 0);
  }
}

void import_run_time_scan(NodeImport& n, const ScanForm& scan) {
  const TensorId steps = n.open_trips() ? n.kept(n.constant_i64(scan.steps)) : n.constant_i64(scan.steps);
  const TensorId zero = n.constant_i64(0), one = n.constant_i64(1);
  RunTimeLoop loop(n, n.elementwise(ElementwiseOp::less, {zero, steps}));
  const TensorId i = loop.value(zero);
  TensorId from_end;
  const auto place = [&](bool backward) {
    if (backward && !from_end.valid()) from_end = n.elementwise(ElementwiseOp::sub, {n.elementwise(ElementwiseOp::sub, {steps, one}), i});
    return backward ? from_end : i;
  };
  Ids operands;
  for (size_t k = 0; k < scan.states; ++k) operands.push_back(loop.value(plain(n, n.in(k), fmt::format("state {}", k))));
  for (size_t k = 0; k < scan.axes.size(); ++k)
    operands.push_back(n.add(Gather{scan.axes[k]}, {n.in(scan.states + k), place(scan.backward[k])}));
  const Ids made = n.run_body("body", operands);
  const TensorId next_i = n.elementwise(ElementwiseOp::add, {i, one});
  loop.set_next(0, n.elementwise(ElementwiseOp::less, {next_i, steps}));
  loop.set_next(1, next_i);
  for (size_t k = 0; k < scan.states; ++k) {
    const TensorId after = plain(n, made.at(k), fmt::format("state {}", k));
    expect_same(n, k, operands[k], after);
    loop.set_next(2 + k, after);
  }
  std::vector<size_t> wanted;
  for (size_t k = 0; k < scan.stacked; ++k) {
    if (!n.wants(scan.states + k)) continue;
    const TensorId piece = plain(n, made.at(scan.states + k), fmt::format("scan output {}", k));
    stack(n, loop, piece, scan.output_axes[k], scan.steps, place(scan.in_front[k]));
    wanted.push_back(scan.states + k);
  }
  loop.close();
  const Ids results = loop.results();
  for (size_t k = 0; k < scan.states; ++k) n.result(k, results[2 + k]);
  for (size_t k = 0; k < wanted.size(); ++k) n.result(wanted[k], results[2 + scan.states + k]);
}

}  // namespace tamp::frontend
