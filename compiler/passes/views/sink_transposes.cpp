#include "compiler/passes/views/sink_transposes.h"

#include <algorithm>
#include <set>

#include "compiler/passes/memory_order.h"
#include "compiler/passes/view_strides.h"
#include "compiler/passes/views/row_work.h"
#include "compiler/passes/views/view_atoms.h"

namespace tamp::passes {
namespace {

class TransposeSinker {
 public:
  TransposeSinker(Graph graph, int64_t cell)
      : graph_(std::move(graph)), uses_(uses_of(graph_)), preferred_(preferred_strides(graph_, cell)), tensors_(graph_) {}

  Graph run() {
    const std::vector<ROperator> old = graph_.rops;
    for (const ROperator& rop : old) {
      if (std::holds_alternative<MatMul>(rop.attrs)) decide(rop);
      if (sunk_.count(rop.outputs[0]) > 0)
        sink(rop);
      else
        tensors_.emit(rop);
    }
    graph_.rops = tensors_.take();
    return remove_dead(std::move(graph_));
  }

 private:
  // The rows in the order in which they lie in the base.
  struct Rows {
    Seen seen;                // a matrix of the rows
    std::vector<size_t> was;  // per part of the rows, as they were: its number in `seen`
  };
  static Rows in_order(const Seen& seen) {
    Rows rows{seen, {}};
    std::vector<size_t> was, columns = seen.dims.back();
    for (size_t d = 0; d + 1 < seen.dims.size(); ++d) was.insert(was.end(), seen.dims[d].begin(), seen.dims[d].end());
    std::vector<size_t> sorted = was;
    std::sort(sorted.begin(), sorted.end());
    for (const size_t i : was) rows.was.push_back(static_cast<size_t>(std::find(sorted.begin(), sorted.end(), i) - sorted.begin()));
    rows.seen.dims = {sorted, columns};
    return rows;
  }

  // A tensor of the rows as they were, as it is seen in `base`: the result [rows, columns] of work on the rows in order.
  Seen result_seen(TensorId base, const Seen& was, const Rows& rows, int64_t columns) const {
    Seen seen{base, {}, {}};
    int64_t inner = 1;
    const std::vector<size_t>& sorted = rows.seen.dims[0];
    for (size_t i = sorted.size(); i-- > 0;) {
      const int64_t count = was.atoms[sorted[i]].count;
      seen.atoms.insert(seen.atoms.begin(), Atom{0, inner, count, 0, 1, count});
      inner *= count;
    }
    size_t next = 0;
    for (size_t d = 0; d + 1 < was.dims.size(); ++d) {
      seen.dims.emplace_back();
      for (size_t k = 0; k < was.dims[d].size(); ++k) seen.dims[d].push_back(rows.was[next++]);
    }
    seen.dims.emplace_back();
    if (columns != 1) {
      seen.dims.back() = {seen.atoms.size()};
      seen.atoms.push_back({1, 1, columns, 0, 1, columns});
    }
    return seen;
  }

  // ---- whether to ----

  void decide(const ROperator& rop) {
    const std::optional<RowWork> work = row_work(graph_, rop);
    if (!work) return;
    const TensorId main = rop.inputs[work->mains[0]], made = rop.outputs[0];
    if (element_count(graph_.tensor(main).shape) == 0 || element_count(graph_.tensor(made).shape) == 0) return;
    const Seen seen = tensors_.seen(main);
    const Rows rows = in_order(seen);
    if (std::is_sorted(rows.was.begin(), rows.was.end()) || !can_be_read(main, rows.seen)) return;
    std::set<TensorId> steps = {made};
    const Shape& shape = graph_.tensor(made).shape;
    if (may_become(made, result_seen(TensorId(), seen, rows, shape.back()), seen_whole(graph_, made), {shape.back(), 1}, steps))
      sunk_.insert(steps.begin(), steps.end());
  }

  // Without a copy: by strides, or because the base can be made so.
  bool can_be_read(TensorId main, const Seen& seen) const {
    if (seen.base.index() >= preferred_.size()) return false;
    if (strides_of(seen, preferred_[seen.base.index()])) return true;
    const ROperator* maker = tensors_.maker(seen.base);
    return maker && !is_view(maker->attrs) && can_be_made(seen) && is_read_by_one(main, seen.base);
  }
  // Whether the base can be written in the order that is seen: all of it, what lies innermost stays there, and the parts of each dimension
  // stay together.
  static bool can_be_made(const Seen& seen) {
    const std::vector<size_t> order = seen.order();
    if (!seen.is_whole() || order.size() != seen.atoms.size() || order.back() + 1 != order.size()) return false;
    const auto starts_dimension = [&](size_t i) { return i == 0 || seen.atoms[i - 1].dimension != seen.atoms[i].dimension; };
    for (size_t k = 0; k < order.size(); ++k) {
      if (!starts_dimension(order[k]) && (k == 0 || order[k - 1] + 1 != order[k])) return false;
    }
    return true;
  }
  bool is_read_by_one(TensorId id, TensorId base) const {
    while (true) {
      if (uses_.is_output[id.index()] || uses_.consumers[id.index()].size() != 1) return false;
      if (id == base) return true;
      id = tensors_.maker(id)->inputs[0];
    }
  }

  // Whether all that read the tensor can read it as it is seen in a result of strides `base`. `before` is how it is seen now. Adds the
  // results of steps that come along.
  bool may_become(TensorId id, const Seen& seen, const std::optional<Seen>& before, const std::vector<int64_t>& base,
                  std::set<TensorId>& steps) const {
    bool read = uses_.is_output[id.index()];
    for (const ROperatorId reader : uses_.consumers[id.index()]) {
      const ROperator& rop = graph_.rop(reader);
      if (is_view(rop.attrs)) {
        const std::optional<Seen> next = seen_through(graph_, rop, seen);
        const std::optional<Seen> was = before ? seen_through(graph_, rop, *before) : std::nullopt;
        if (!next || !may_become(rop.outputs[0], *next, was, base, steps)) return false;
      } else if (shows_whole_rows(seen, base[0]) && is_step(rop, id)) {
        steps.insert(rop.outputs[0]);
        if (!may_become(rop.outputs[0], seen, before, base, steps)) return false;
      } else {
        read = true;
      }
    }
    return !read || (strides_of(seen, base) && (seen.is_in_order() || !before || !before->is_in_order()));
  }

  static bool shows_whole_rows(const Seen& seen, int64_t columns) {
    const std::vector<size_t>& last = seen.dims.back();
    return seen.is_whole() && last.size() == 1 && seen.atoms[last[0]].dimension == 1 && seen.atoms[last[0]].extent == columns;
  }

  // A step on each element alone, with operands that are the same for all rows.
  bool is_step(const ROperator& rop, TensorId main) const {
    if (!std::holds_alternative<Elementwise>(rop.attrs)) return false;
    const std::optional<RowWork> work = row_work(graph_, rop);
    return work && work->mains.size() == 1 && rop.inputs[work->mains[0]] == main;
  }

  // ---- doing it ----

  void sink(const ROperator& rop) {
    const size_t main = row_work(graph_, rop)->mains[0];
    const Seen was = tensors_.seen(rop.inputs[main]);
    const Rows rows = in_order(was);
    const Shape from = graph_.tensor(rop.inputs[main]).shape;
    const int64_t count = element_count(from) / from.back(), columns = graph_.tensor(rop.outputs[0]).shape.back();
    ROperator done = rop;
    done.inputs[main] = tensors_.show(rows.seen, {count, from.back()}, rop);
    const TensorId made = tensors_.tensor(graph_.tensor(rop.outputs[0]).name, {count, columns});
    done.outputs = {made};
    tensors_.emit(done);
    tensors_.show_as(rop.outputs[0], result_seen(made, was, rows, columns), rop);
  }

  Graph graph_;
  Uses uses_;
  std::vector<std::vector<int64_t>> preferred_;
  SeenTensors tensors_;
  std::set<TensorId> sunk_;  // results of what is done in the rows' order
};

}  // namespace

Graph sink_transposes(Graph graph, int64_t cell) { return TransposeSinker(std::move(graph), cell).run(); }

}  // namespace tamp::passes
