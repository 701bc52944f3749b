// Groups grow greedily in the order of the graph: a recurrent rOperator joins the newest group that gains by it and on which it
// depends through links only (the hidden states, or the final state, of one of the group's cells). Any other path from the
// group to it would be a cycle, also one through another group.
#include "compiler/passes/recognise/recurrences/stack_recurrences.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>

#include "compiler/passes/rewrite.h"

namespace tamp::passes {
namespace {

// A stretch of a tensor's elements in row-major order.
struct Stretch {
  TensorId tensor;
  int64_t begin = 0;
};

int64_t stride_of(const Shape& shape, size_t d) {
  return std::accumulate(shape.begin() + static_cast<std::ptrdiff_t>(d) + 1, shape.end(), int64_t{1}, std::multiplies<>());
}

bool are_ones(const Shape& shape, size_t end) {
  return std::all_of(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(end), [](int64_t e) { return e == 1; });
}

// Follows `count` elements from `at` back through rOperators that only rename them, as far as they stay one stretch.
struct Tracer {
  const Graph& graph;
  const Uses& uses;

  Stretch trace(TensorId tensor) const {
    const int64_t count = element_count(graph.tensor(tensor).shape);
    Stretch at{tensor, 0};
    while (const auto before = step(at, count)) at = *before;
    return at;
  }

  // The tensor that has all of its elements, in the same order, as `tensor` does.
  TensorId same_elements(TensorId tensor) const {
    const Stretch at = trace(tensor);
    const bool whole = at.begin == 0 && element_count(graph.tensor(at.tensor).shape) == element_count(graph.tensor(tensor).shape);
    return whole ? at.tensor : tensor;
  }

  std::optional<Stretch> step(const Stretch& at, int64_t count) const {
    const ROperatorId producer = uses.producer[at.tensor.index()];
    if (!producer.valid()) return std::nullopt;
    const ROperator& rop = graph.rop(producer);
    if (keeps_order(graph, rop)) return Stretch{rop.inputs[0], at.begin};
    if (const auto* op = std::get_if<Slice>(&rop.attrs)) return through(*op, rop, at, count);
    if (const auto* op = std::get_if<Concat>(&rop.attrs)) return through(*op, rop, at, count);
    return std::nullopt;
  }

  // For a Slice that cuts one dimension, if the stretch lies within one row of the rest.
  std::optional<Stretch> through(const Slice& op, const ROperator& rop, const Stretch& at, int64_t count) const {
    const Shape &from = graph.tensor(rop.inputs[0]).shape, &to = graph.tensor(rop.outputs[0]).shape;
    std::optional<size_t> cut;
    for (size_t d = 0; d < from.size(); ++d) {
      if (from[d] == to[d] && op.starts[d] == 0 && op.steps[d] == 1) continue;
      if (cut || (op.steps[d] != 1 && to[d] != 1)) return std::nullopt;
      cut = d;
    }
    if (!cut) return Stretch{rop.inputs[0], at.begin};
    const int64_t inner = stride_of(from, *cut), row = inner * to[*cut];
    const int64_t number = row > 0 ? at.begin / row : 0;
    if (row == 0 || at.begin + count > (number + 1) * row) return std::nullopt;
    return Stretch{rop.inputs[0], number * inner * from[*cut] + op.starts[*cut] * inner + at.begin % row};
  }

  // All elements from one operand.
  std::optional<Stretch> through(const Concat& op, const ROperator& rop, const Stretch& at, int64_t count) const {
    const Shape& shape = graph.tensor(rop.outputs[0]).shape;
    const auto axis = static_cast<size_t>(op.axis);
    if (!are_ones(shape, axis)) return std::nullopt;
    int64_t begin = 0;
    for (const TensorId id : rop.inputs) {
      const int64_t end = begin + element_count(graph.tensor(id).shape);
      if (at.begin >= begin && at.begin + count <= end) return Stretch{id, at.begin - begin};
      begin = end;
    }
    return std::nullopt;
  }
};

// A recurrent rOperator under construction, its operands by tensor.
struct Group {
  Recurrent recurrent;
  std::vector<TensorId> inputs, outputs;
  std::vector<size_t> members;  // positions in Graph::rops
  double us = 0;
};

// The last step of y, where a Slice takes just that, is y_h: then y itself need not be stored.
Graph take_last_states(Graph graph) {
  const Uses uses = uses_of(graph);
  std::vector<std::optional<TensorId>> state_of(graph.rops.size());  // per Slice
  for (size_t i = 0; i < graph.rops.size(); ++i) {
    if (!std::holds_alternative<Slice>(graph.rops[i].attrs)) continue;
    const TensorId taken = graph.rops[i].outputs[0];
    const Stretch at = Tracer{graph, uses}.trace(taken);
    const ROperatorId producer = uses.producer[at.tensor.index()];
    if (!producer.valid() || !std::holds_alternative<Recurrent>(graph.rop(producer).attrs)) continue;
    ROperator& rop = graph.rop(producer);
    auto& recurrent = std::get<Recurrent>(rop.attrs);
    for (RecurrentCell& cell : recurrent.cells) {
      if (cell.y < 0 || rop.outputs[static_cast<size_t>(cell.y)] != at.tensor || cell.lengths >= 0 || cell.end) continue;
      const int64_t state = recurrent.batch * cell.hidden, last = cell.reverse ? 0 : cell.steps - 1;
      if (at.begin != last * state || element_count(graph.tensor(taken).shape) != state) continue;
      if (cell.y_h < 0) {
        cell.y_h = static_cast<int32_t>(rop.outputs.size());
        rop.outputs.push_back(add_tensor(graph, {graph.tensor(at.tensor).name + ".last", DType::f32, {recurrent.batch, cell.hidden}}));
      }
      state_of[i] = rop.outputs[static_cast<size_t>(cell.y_h)];
    }
  }
  for (size_t i = 0; i < graph.rops.size(); ++i) {
    if (!state_of[i]) continue;
    graph.rops[i].attrs = Reshape{graph.tensor(graph.rops[i].outputs[0]).shape};
    graph.rops[i].inputs = {*state_of[i]};
  }
  return sort_topologically(std::move(graph));
}

class Stacker {
 public:
  Stacker(Graph graph, const Estimator& estimator) : graph_(std::move(graph)), uses_(uses_of(graph_)), estimator_(estimator) {}

  Graph run() {
    find_dependencies();
    for (size_t i = 0; i < graph_.rops.size(); ++i) {
      if (std::holds_alternative<Recurrent>(graph_.rops[i].attrs)) place(i);
    }
    if (groups_.empty()) return std::move(graph_);
    for (Group& group : groups_) finish(group);
    return rebuild();
  }

 private:
  // --- who needs whom ---

  // Per rOperator: the recurrent ones that it depends on. Recurrent rOperators are few, so these sets are small.
  void find_dependencies() {
    number_.assign(graph_.rops.size(), SIZE_MAX);
    size_t count = 0;
    for (size_t i = 0; i < graph_.rops.size(); ++i) {
      if (std::holds_alternative<Recurrent>(graph_.rops[i].attrs)) number_[i] = count++;
    }
    depends_.assign(count == 0 ? 0 : graph_.rops.size(), std::vector<bool>(count, false));
    if (count == 0) return;
    for (size_t i = 0; i < graph_.rops.size(); ++i) {
      for (const TensorId id : reads_of(graph_.rops[i])) add(depends_[i], id);
    }
  }

  void add(std::vector<bool>& into, TensorId id) const {
    const ROperatorId producer = uses_.producer[id.index()];
    if (!producer.valid()) return;
    const auto& from = depends_[producer.index()];
    for (size_t n = 0; n < into.size(); ++n) into[n] = into[n] || from[n];
    if (number_[producer.index()] != SIZE_MAX) into[number_[producer.index()]] = true;
  }

  // Also by way of other groups: who needs one of a group's members needs all that any of them needs.
  bool depends_on(TensorId id, const Group& group) const {
    std::vector<bool> on(depends_[0].size(), false);
    add(on, id);
    const auto is_needed = [&](const Group& each) {
      return std::any_of(each.members.begin(), each.members.end(), [&](size_t member) { return on[number_[member]]; });
    };
    std::vector<bool> is_added(groups_.size(), false);
    for (size_t g = 0; g < groups_.size();) {
      if (is_added[g] || !is_needed(groups_[g])) {
        ++g;
        continue;
      }
      is_added[g] = true;
      for (const size_t member : groups_[g].members) {
        for (size_t n = 0; n < on.size(); ++n) on[n] = on[n] || depends_[member][n];
      }
      g = 0;
    }
    return is_needed(group);
  }

  // --- growing groups ---

  Group alone(size_t i) const {
    const ROperator& rop = graph_.rops[i];
    Group group{std::get<Recurrent>(rop.attrs), rop.inputs, rop.outputs, {i}, 0};
    group.us = best_us(group);
    return group;
  }

  void place(size_t i) {
    Group single = alone(i);
    for (size_t g = groups_.size(); g-- > 0;) {
      if (!std::isfinite(groups_[g].us) || !std::isfinite(single.us)) continue;
      std::optional<Group> both = joined(groups_[g], single);
      if (!both || !(both->us < groups_[g].us + single.us)) continue;
      groups_[g] = std::move(*both);
      return;
    }
    groups_.push_back(std::move(single));
  }

  std::optional<Group> joined(const Group& group, const Group& single) const {
    if (group.recurrent.batch != single.recurrent.batch) return std::nullopt;
    Group both = group;
    const auto first_input = static_cast<int32_t>(group.inputs.size()), first_output = static_cast<int32_t>(group.outputs.size());
    const auto first_cell = static_cast<int32_t>(group.recurrent.cells.size());
    both.inputs.insert(both.inputs.end(), single.inputs.begin(), single.inputs.end());
    both.outputs.insert(both.outputs.end(), single.outputs.begin(), single.outputs.end());
    both.members.insert(both.members.end(), single.members.begin(), single.members.end());
    for (RecurrentCell cell : single.recurrent.cells) {
      for (int32_t* operand : operands_of(cell)) *operand += *operand >= 0 ? first_input : 0;
      for (int32_t* result : {&cell.y, &cell.y_h, &cell.y_c}) *result += *result >= 0 ? first_output : 0;
      for (int32_t* other : {&cell.x_cell, &cell.h0_cell, &cell.c0_cell}) *other += *other >= 0 ? first_cell : 0;
      link(both, group, cell);
      both.recurrent.cells.push_back(cell);
    }
    // Linked operands are no operands any more.
    for (const RecurrentCell& cell : both.recurrent.cells) {
      RecurrentCell copy = cell;
      for (const int32_t* operand : operands_of(copy)) {
        if (*operand >= first_input && depends_on(both.inputs[static_cast<size_t>(*operand)], group)) return std::nullopt;
      }
    }
    both.us = best_us(both);
    return both;
  }

  static std::vector<int32_t*> operands_of(RecurrentCell& cell) {
    return {&cell.x, &cell.w, &cell.r, &cell.bias, &cell.peepholes, &cell.lengths, &cell.h0, &cell.c0};
  }

  // Operands of `cell` that are results of the group's cells become links.
  void link(const Group& both, const Group& group, RecurrentCell& cell) const {
    const Tracer tracer{graph_, uses_};
    const auto& cells = group.recurrent.cells;
    const auto source = [&](int32_t operand) { return tracer.same_elements(both.inputs[static_cast<size_t>(operand)]); };
    const auto is_result = [&](int32_t result, TensorId id) { return result >= 0 && group.outputs[static_cast<size_t>(result)] == id; };
    for (size_t c = 0; c < cells.size(); ++c) {
      const RecurrentCell& from = cells[c];
      const auto number = static_cast<int32_t>(c);
      const bool same_steps =
          from.steps == cell.steps && from.end == cell.end && from.reverse == cell.reverse && from.lengths < 0 && cell.lengths < 0;
      const bool same_size = cell.x >= 0 && cell.w >= 0 && graph_.tensor(both.inputs[static_cast<size_t>(cell.x)]).shape[2] == from.hidden;
      if (same_steps && same_size && is_result(from.y, source(cell.x))) cell.x = -1, cell.x_cell = number;
      if (from.hidden != cell.hidden) continue;
      if (cell.h0 >= 0 && is_result(from.y_h, source(cell.h0))) cell.h0 = -1, cell.h0_cell = number;
      if (cell.c0 >= 0 && is_result(from.y_c, source(cell.c0))) cell.c0 = -1, cell.c0_cell = number;
    }
  }

  // --- the input product ---

  // The group's time, with the faster way for each cell's input: W x inside the gang, or computed ahead (x_is_gates, which is set).
  double best_us(Group& group) const {
    if (!has_constant_weights(group)) return std::numeric_limits<double>::infinity();
    std::vector<RecurrentCell*> hoistable;
    for (RecurrentCell& cell : group.recurrent.cells) {
      if (cell.w >= 0) cell.x_is_gates = false;
      if (cell.x >= 0 && is_hoistable(group, cell)) hoistable.push_back(&cell);
    }
    double us = gang_us(group);
    if (!std::isfinite(us)) return all_ahead_us(group, hoistable);
    for (RecurrentCell* const each : hoistable) {
      RecurrentCell& cell = *each;
      cell.x_is_gates = true;  // a promise, which finish() fulfils
      const double ahead_us = gang_us(group) + product_us(group, cell);
      cell.x_is_gates = ahead_us < us;
      us = std::min(us, ahead_us);
    }
    return us;
  }

  double all_ahead_us(Group& group, const std::vector<RecurrentCell*>& hoistable) const {
    double products_us = 0;
    for (RecurrentCell* const cell : hoistable) {
      cell->x_is_gates = true;
      products_us += product_us(group, *cell);
    }
    const double us = gang_us(group) + products_us;
    if (!std::isfinite(us)) {
      for (RecurrentCell* const cell : hoistable) cell->x_is_gates = false;
    }
    return us;
  }

  // Infinite where no rKernel takes the rOperator.
  double us_of(const Graph& graph, const ROperator& rop) const {
    const std::optional<Estimate> estimate = estimator_(graph, rop);
    return estimate ? estimate->us : std::numeric_limits<double>::infinity();
  }

  // The time of the group as one rOperator. For a cell whose input product is to be computed ahead, w is left out; x is still the product's
  // operand, since estimates do not depend on the size of the gates.
  double gang_us(const Group& group) const {
    Recurrent recurrent = group.recurrent;
    for (RecurrentCell& cell : recurrent.cells) {
      if (cell.x_is_gates) cell.w = -1;
    }
    return us_of(graph_, ROperator{"", std::move(recurrent), {}, group.inputs, group.outputs, {}});
  }

  // x[rows, k] W^T of all steps, as hoist() would write it.
  double product_us(const Group& group, const RecurrentCell& cell) const {
    const Shape& x = graph_.tensor(group.inputs[static_cast<size_t>(cell.x)]).shape;
    const int64_t rows = x[0] * x[1], gates = gates_of(cell.kind) * cell.hidden;
    Graph product;
    const auto add = [&](const Shape& shape, Role role) { return add_tensor(product, {"", DType::f32, shape, role}); };
    const TensorId in = add({rows, x[2]}, Role::activation), w = add({gates, x[2]}, Role::constant),
                   out = add({rows, gates}, Role::activation);
    return us_of(product, ROperator{"", MatMul{false, true, 1, 1}, {}, {in, w}, {out}, {}});
  }

  bool is_constant_or_none(const Group& group, int32_t operand) const {
    return operand < 0 || is_f32_constant(graph_, group.inputs[static_cast<size_t>(operand)]);
  }

  // Only cells with constant weights can be a gang, whichever way the input comes.
  bool has_constant_weights(const Group& group) const {
    return std::all_of(group.recurrent.cells.begin(), group.recurrent.cells.end(), [&](const RecurrentCell& cell) {
      return is_constant_or_none(group, cell.w) && is_constant_or_none(group, cell.r) && is_constant_or_none(group, cell.bias) &&
             is_constant_or_none(group, cell.peepholes);
    });
  }

  bool is_hoistable(const Group& group, const RecurrentCell& cell) const {
    return cell.w >= 0 && is_constant_or_none(group, cell.w) && is_constant_or_none(group, cell.bias);
  }

  // --- writing it down ---

  void finish(Group& group) {
    for (RecurrentCell& cell : group.recurrent.cells) {
      if (cell.x_is_gates && cell.w >= 0) hoist(group, cell);
    }
  }

  // gates = x W^T + Wb, for all steps at once.
  void hoist(Group& group, RecurrentCell& cell) {
    const TensorId x = group.inputs[static_cast<size_t>(cell.x)], w = group.inputs[static_cast<size_t>(cell.w)];
    const std::string name = graph_.rops[group.members[0]].name + "." + std::to_string(hoisted_.size()) + ".input";
    const Shape from = graph_.tensor(x).shape;
    const int64_t gates = gates_of(cell.kind) * cell.hidden;
    const Shape rows{from[0] * from[1], from[2]}, product{from[0] * from[1], gates}, to{from[0], from[1], gates};
    const TensorId flat = add(name + ".x", rows), flat_gates = add(name + ".product", product), all = add(name, to);
    const std::vector<std::string> origin = graph_.rops[group.members[0]].origin;
    hoisted_.push_back({name + ".x", Reshape{rows}, {}, {x}, {flat}, origin});
    ROperator matmul{name, MatMul{false, true, 1, 1}, {}, {flat, w}, {flat_gates}, origin};
    if (cell.bias >= 0) {
      const auto [ahead, left] = split_bias(group.inputs[static_cast<size_t>(cell.bias)], gates, name);
      matmul.inputs.push_back(ahead);
      cell.bias = static_cast<int32_t>(group.inputs.size());
      group.inputs.push_back(left);
    }
    hoisted_.push_back(std::move(matmul));
    hoisted_.push_back({name + ".gates", Reshape{to}, {}, {flat_gates}, {all}, origin});
    cell.x = static_cast<int32_t>(group.inputs.size());
    group.inputs.push_back(all);
    cell.w = -1;
  }

  // Wb, and the bias without it.
  std::pair<TensorId, TensorId> split_bias(TensorId bias, int64_t gates, const std::string& name) {
    const float* const values = f32_data(graph_.tensor(bias));
    const std::vector<float> ahead(values, values + gates);
    std::vector<float> left(static_cast<size_t>(2 * gates), 0.0F);
    std::copy(values + gates, values + 2 * gates, left.begin() + gates);
    return {add_f32_constant(graph_, name + ".Wb", {gates}, ahead), add_f32_constant(graph_, name + ".Rb", {2 * gates}, left)};
  }

  TensorId add(const std::string& name, const Shape& shape) { return add_tensor(graph_, {name, DType::f32, shape}); }

  Graph rebuild() {
    std::vector<ROperator> joined;
    for (Group& group : groups_) joined.push_back(rop_of(group));
    std::vector<ROperator> rops;
    for (size_t i = 0; i < graph_.rops.size(); ++i) {
      if (number_[i] == SIZE_MAX) rops.push_back(std::move(graph_.rops[i]));
    }
    std::move(hoisted_.begin(), hoisted_.end(), std::back_inserter(rops));
    std::move(joined.begin(), joined.end(), std::back_inserter(rops));
    graph_.rops = std::move(rops);
    return drop_unread_results(remove_dead(sort_topologically(std::move(graph_))));
  }

  ROperator rop_of(Group& group) const {
    ROperator rop;
    rop.name = graph_.rops[group.members[0]].name;
    for (const size_t member : group.members) {
      const auto& origin = graph_.rops[member].origin;
      rop.origin.insert(rop.origin.end(), origin.begin(), origin.end());
    }
    rop.outputs = std::move(group.outputs);
    for (RecurrentCell& cell : group.recurrent.cells) {
      for (int32_t* operand : operands_of(cell)) {
        if (*operand < 0) continue;
        const TensorId id = group.inputs[static_cast<size_t>(*operand)];
        auto at = std::find(rop.inputs.begin(), rop.inputs.end(), id);
        if (at == rop.inputs.end()) at = rop.inputs.insert(at, id);
        *operand = static_cast<int32_t>(at - rop.inputs.begin());
      }
    }
    rop.attrs = std::move(group.recurrent);
    return rop;
  }

  Graph graph_;
  Uses uses_;
  const Estimator& estimator_;
  std::vector<size_t> number_;              // per rOperator: among the recurrent ones
  std::vector<std::vector<bool>> depends_;  // per rOperator: on which recurrent ones
  std::vector<Group> groups_;
  std::vector<ROperator> hoisted_;
};

}  // namespace

Graph stack_recurrences(Graph graph, const Estimator& estimator) {
  if (!estimator) return graph;
  return Stacker(take_last_states(std::move(graph)), estimator).run();
}

}  // namespace tamp::passes
