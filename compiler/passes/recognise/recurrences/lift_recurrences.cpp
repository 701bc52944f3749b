// Four stages, each a file of its own: cells are recognised one by one (_match, _cells), cells with equal weights whose states feed
// each other are chains (_chains), the inputs of a chain are one tensor over time (_inputs), and here chains become rOperators.
//
// Why a collapsed chain cannot be its own input: whatever the rOperator reads, the chain's first step read too (initial states,
// parts of one input tensor; weights are constants), and every result depends on the first step. So a way back from a result to an
// operand would have been a cycle before. Only inputs put together of several tensors need a search.
#include "compiler/passes/recognise/recurrences/lift_recurrences.h"

#include <algorithm>

#include "compiler/passes/recognise/recurrences/lift_recurrences_inputs.h"
#include "compiler/support/error.h"

namespace tamp::passes {
namespace lift {
namespace {

class Rewriter : Source {
 public:
  Rewriter(const Source& source, const std::vector<Cell>& cells)
      : Source(source), cells_(cells), emitter_(graph_), inputs_(graph_, cells, emitter_) {}

  void lift(const Chain& chain) {
    for (size_t begin = 0, end = 0; begin < chain.cells.size(); begin = end) {
      end = begin + 1;
      while (end < chain.cells.size() && !chain.is_cut[end - 1]) ++end;
      lift(chain, begin, end);
    }
  }

  // The graph as it was if no chain could be lifted.
  Graph finish() {
    if (!is_changed_) return graph_;
    for (size_t i = 0; i < graph_.rops.size(); ++i) {
      if (std::holds_alternative<Concat>(graph_.rops[i].attrs)) replace_concat(i);
    }
    return emitter_.finish();
  }

 private:
  // rOperators outside may read the last cell state of [begin, end), but none of those before.
  void lift(const Chain& chain, size_t begin, size_t end) {
    while (begin + 1 < end) {
      const bool is_reverse = inputs_.runs_backwards(chain, begin);
      const size_t even_end = inputs_.evenly_spaced(chain, begin, end);
      const size_t far_end = even_end < end ? inputs_.independent_end(chain, begin, end) : end;
      const Segment even{chain, begin, even_end, is_reverse}, far{chain, begin, far_end, is_reverse};
      if (even_end >= far_end && lift(even, &Inputs::views)) {
        begin = even_end;
      } else if (lift(far, &Inputs::gathered)) {
        begin = far_end;
      } else if (lift(even, &Inputs::views)) {
        begin = even_end;
      } else {
        ++begin;
      }
    }
  }

  const Cell& cell(const Segment& segment, size_t step) const { return cells_[segment.chain.cells[step]]; }

  bool lift(const Segment& segment, std::optional<TensorId> (Inputs::*inputs_of)(const Segment&)) {
    if (segment.steps() < 2) return false;
    const std::optional<TensorId> x = (inputs_.*inputs_of)(segment);
    if (!x) return false;
    const Cell &first = cell(segment, segment.begin), &last = cell(segment, segment.end - 1);
    const Roles& roles = segment.chain.roles[segment.end - 1];
    std::vector<TensorId> inputs, outputs;
    const auto add = [](std::vector<TensorId>& list, TensorId id) {
      if (id.valid()) list.push_back(id);
      return id.valid() ? static_cast<int32_t>(list.size()) - 1 : -1;
    };
    RecurrentCell made;
    made.kind = last.kind;
    made.steps = segment.steps();
    made.hidden = last.hidden;
    made.reverse = segment.is_reverse;
    made.linear_before_reset = last.linear_before_reset;
    made.functions = last.functions;
    made.x = add(inputs, *x);
    made.w = add(inputs, emitter_.weights(constants_, last, roles.inputs));
    made.r = add(inputs, emitter_.weights(constants_, last, {*roles.state}));
    made.bias = add(inputs, emitter_.bias(constants_, last));
    made.h0 = add(inputs, hidden_before(segment));
    made.c0 = add(inputs, cell_state_before(segment));

    const std::string name = maker(first.h).name + "." + name_of(last.kind);
    const TensorId y = emitter_.add_tensor(graph_.tensor(first.h).name + ".sequence", {segment.steps(), last.batch, last.hidden});
    made.y = add(outputs, y);
    made.y_h = add(outputs, final_state(last, last.h));
    made.y_c = last.c.valid() ? add(outputs, final_state(last, last.c)) : -1;
    std::vector<size_t> rops;
    for (size_t step = segment.begin; step < segment.end; ++step) {
      const std::vector<size_t>& inner = cell(segment, step).inner;
      rops.insert(rops.end(), inner.begin(), inner.end());
    }
    replace_states(segment, y, outputs);
    is_changed_ = true;
    emitter_.add_rop(Recurrent{last.batch, {made}}, name, std::move(inputs), std::move(outputs), origin_of(std::move(rops)));
    return true;
  }

  std::vector<std::string> origin_of(std::vector<size_t> rops) const {
    std::sort(rops.begin(), rops.end());
    rops.erase(std::unique(rops.begin(), rops.end()), rops.end());
    std::vector<std::string> origin;
    for (const size_t i : rops) origin.insert(origin.end(), graph_.rops[i].origin.begin(), graph_.rops[i].origin.end());
    return origin;
  }

  // The state before the segment as [B,H], or none for zeros.
  TensorId hidden_before(const Segment& segment) {
    if (segment.begin > 0) return as_matrix(cell(segment, segment.begin), cell(segment, segment.begin - 1).h);
    const std::optional<size_t> state = segment.chain.roles[0].state;
    return state ? as_matrix(cell(segment, 0), cell(segment, 0).parts[*state].tensor) : TensorId();
  }

  TensorId cell_state_before(const Segment& segment) {
    const TensorId before = cell(segment, segment.begin).c_before;
    return before.valid() ? as_matrix(cell(segment, segment.begin), before) : TensorId();
  }

  TensorId as_matrix(const Cell& cell, TensorId id) { return emitter_.reshaped(views_.whole_of(id), {cell.batch, cell.hidden}); }

  // The tensor that the rOperator makes for the last state: the state itself if it is a matrix.
  TensorId final_state(const Cell& cell, TensorId state) {
    const Shape matrix = {cell.batch, cell.hidden};
    return emitter_.shape(state) == matrix ? state : emitter_.add_tensor(graph_.tensor(state).name + ".matrix", matrix);
  }

  // Readers outside the chain now read states as slices of y; the last states are results of their own.
  void replace_states(const Segment& segment, TensorId y, const std::vector<TensorId>& outputs) {
    for (size_t step = segment.begin; step < segment.end; ++step) {
      const Cell& at = cell(segment, step);
      const auto row = static_cast<int64_t>(segment.row_of(step));
      inputs_.lifted(at.h, y, row);
      if (step + 1 == segment.end) {
        take_over(at.h, outputs[1]);
        if (at.c.valid()) take_over(at.c, outputs[2]);
        continue;
      }
      const Shape& shape = graph_.tensor(at.h).shape;
      const Strided place{row * at.batch * at.hidden, shape, row_major_strides(shape)};
      const bool done = emitter_.remake(at.h, y, place, maker(at.h));
      TAMP_CHECK(done, "a row is a view");
      if (at.c.valid()) emitter_.disown(at.c);
    }
  }

  void take_over(TensorId state, TensorId by) {
    emitter_.disown(state);
    if (state != by) emitter_.add_rop(Reshape{graph_.tensor(state).shape}, maker(state).name, {by}, {state}, maker(state).origin);
  }

  const ROperator& maker(TensorId id) const { return graph_.rop(uses_.producer[id.index()]); }

  // Operands of a Concat that are, in order, rows of a tensor [T,B,..].
  struct Run {
    TensorId sequence;
    int64_t row = 0, step = 0;  // of the first operand, and to the next one
    size_t operands = 1;
  };

  // Operands of a Concat that are hidden states of neighbouring steps become one operand; if all do, the Concat becomes a view of y.
  void replace_concat(size_t rop) {
    const ROperator& concat = graph_.rops[rop];
    const int64_t axis = std::get<Concat>(concat.attrs).axis;
    if (const std::optional<Run> all = joined_run(concat)) {
      if (emitter_.remake(concat.outputs[0], all->sequence, place_of(concat, 0, *all, axis), concat)) return;
    }
    std::vector<TensorId> parts;
    for (size_t i = 0; i < concat.inputs.size();) {
      const std::optional<Run> run = run_of(concat.inputs, i);
      if (!run) {
        parts.push_back(concat.inputs[i++]);
        continue;
      }
      const Strided place = place_of(concat, i, *run, axis);
      if (run->operands == concat.inputs.size() && emitter_.remake(concat.outputs[0], run->sequence, place, concat)) return;
      Shape shape = graph_.tensor(concat.inputs[i]).shape;
      shape[static_cast<size_t>(axis)] *= static_cast<int64_t>(run->operands);
      const std::optional<TensorId> part = emitter_.add_view(run->sequence, place, shape);
      TAMP_CHECK(part, "rows next to each other are a view");
      parts.push_back(*part);
      i += run->operands;
    }
    if (parts.size() != concat.inputs.size()) emitter_.set_inputs(rop, std::move(parts));
  }

  // The longest run of two and more tensors of one shape from `begin` that are rows next to each other of one y, up or down.
  std::optional<Run> run_of(const std::vector<TensorId>& ids, size_t begin) const {
    const auto first = inputs_.state_of(views_.rows_of(ids[begin]));
    if (!first) return std::nullopt;
    Run run{first->sequence, first->row, 0, 1};
    for (size_t i = begin + 1; i < ids.size(); ++i, ++run.operands) {
      const auto next = inputs_.state_of(views_.rows_of(ids[i]));
      if (!next || next->sequence != run.sequence || graph_.tensor(ids[i]).shape != graph_.tensor(ids[begin]).shape) break;
      if (run.operands == 1) run.step = next->row - run.row;
      if (std::abs(run.step) != 1 || next->row != run.row + run.step * static_cast<int64_t>(run.operands)) break;
    }
    return run.operands > 1 ? std::optional(run) : std::nullopt;
  }

  // All operands are Concats of columns of several layers' states, step by step: both directions of a bidirectional layer.
  std::optional<Run> joined_run(const ROperator& concat) {
    std::vector<std::vector<TensorId>> layers;  // operands of the inner Concats, transposed
    for (const TensorId id : concat.inputs) {
      const TensorId whole = views_.whole_of(id);
      const auto rank = static_cast<int64_t>(graph_.tensor(whole).shape.size());
      const ROperatorId producer = uses_.producer[whole.index()];
      const auto* inner = producer.valid() ? std::get_if<Concat>(&graph_.rop(producer).attrs) : nullptr;
      if (!inner || inner->axis + 1 != rank || graph_.tensor(id).shape != graph_.tensor(concat.inputs[0]).shape) return std::nullopt;
      const std::vector<TensorId>& parts = graph_.rop(producer).inputs;
      layers.resize(layers.empty() ? parts.size() : layers.size());
      if (layers.size() != parts.size()) return std::nullopt;
      for (size_t i = 0; i < parts.size(); ++i) layers[i].push_back(parts[i]);
    }
    std::vector<TensorId> sequences;
    for (const std::vector<TensorId>& ids : layers) {
      const std::optional<Run> run = run_of(ids, 0);
      if (!run || run->operands != ids.size()) return std::nullopt;
      Shape shape = emitter_.shape(run->sequence);
      if (graph_.tensor(ids[0]).shape.back() != shape[2]) return std::nullopt;
      shape[0] = static_cast<int64_t>(ids.size());
      const int64_t size = shape[1] * shape[2];
      sequences.push_back(*emitter_.add_view(run->sequence, {run->row * size, shape, {run->step * size, shape[2], 1}}, shape));
    }
    return Run{emitter_.concat(sequences, 2), 0, 1, concat.inputs.size()};
  }

  // The operands' dimensions, and the steps before the one that they are joined along.
  Strided place_of(const ROperator& concat, size_t begin, const Run& run, int64_t axis) const {
    const Shape& shape = graph_.tensor(concat.inputs[begin]).shape;
    const int64_t size = element_count(shape);
    Strided place{run.row * size, shape, row_major_strides(shape)};
    place.extents.insert(place.extents.begin() + axis, static_cast<int64_t>(run.operands));
    place.strides.insert(place.strides.begin() + axis, run.step * size);
    return place;
  }

  const std::vector<Cell>& cells_;
  Emitter emitter_;
  Inputs inputs_;
  bool is_changed_ = false;
};

}  // namespace
}  // namespace lift

Graph lift_recurrences(Graph graph) {
  const Uses uses = uses_of(graph);
  const lift::Views views(graph, uses);
  const lift::Constants constants(graph);
  const lift::Source source{graph, uses, views, constants};
  const std::vector<lift::Cell> cells = lift::find_cells(source);
  const std::vector<lift::Chain> chains = lift::chains_of(source, cells);
  if (chains.empty()) return graph;
  lift::Rewriter rewriter(source, cells);
  for (const lift::Chain& chain : chains) rewriter.lift(chain);
  return rewriter.finish();
}

}  // namespace tamp::passes
