// Two walks. The first follows lengths forwards: which dimension of which result ends where. The second goes backwards: an end is marked if
// no reader takes anything from behind it, or takes it only for what lies behind the end of its own results.
//
// Both ask one question of a rOperator (`links`): the dimension d of operand i and the dimension r of a result, do they go together, so
// that element e along r is made of element e along d alone?
#include "compiler/passes/place/mark_ends.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "compiler/ir/length_rules.h"
#include "compiler/ir/loops.h"

namespace tamp::passes {
namespace {

// How an operand's dimension that ends at an extent reaches a rOperator's results.
struct Link {
  enum Kind : uint8_t {
    mixes,    // all of it is needed
    ignored,  // nothing behind the end is read
    follows,  // it is dimension `dim` of all results, which ends at `extent`
  };
  Kind kind = mixes;
  size_t dim = 0;
  Extent extent{};
  bool reads_behind = false;  // of follows: what lies behind the operand's end reaches results before their own
};

class Ends {
 public:
  explicit Ends(const Graph& graph) : graph_(graph), axes_(graph.tensors.size()), needed_(graph.tensors.size()) {}

  // `inputs`: where the graph's inputs end.
  void forwards(const std::vector<LengthAxes>& inputs) {
    for (size_t i = 0; i < inputs.size(); ++i) set(graph_.inputs[i], inputs[i]);
    for (const ROperator& rop : graph_.rops) follow(rop);
  }
  // `outputs`: per graph output and axis, whether what lies behind the end is needed.
  void backwards(const std::vector<std::vector<bool>>& outputs) {
    for (size_t i = 0; i < outputs.size(); ++i) {
      for (size_t a = 0; a < outputs[i].size(); ++a) need(graph_.outputs[i], a, outputs[i][a]);
    }
    // What a loop's body needs of a value, the iteration before makes.
    for (bool is_done = false; !is_done;) {
      const std::vector<std::vector<bool>> before = needed_;
      for (size_t i = graph_.rops.size(); i-- > 0;) look_back(graph_.rops[i]);
      is_done = !has_loops(graph_) || needed_ == before;
    }
  }
  const LengthAxes& axes(TensorId id) const { return axes_[id.index()]; }
  const std::vector<bool>& needed(TensorId id) const { return needed_[id.index()]; }

 private:
  void set(TensorId id, LengthAxes axes) {
    needed_[id.index()].assign(axes.size(), false);
    axes_[id.index()] = std::move(axes);
  }
  void need(TensorId id, size_t axis, bool is_needed) {
    if (is_needed) needed_[id.index()][axis] = true;
  }
  const Shape& shape(TensorId id) const { return graph_.tensor(id).shape; }

  void follow(const ROperator& rop) {
    if (std::holds_alternative<Fused>(rop.attrs)) return follow_steps(rop);
    if (const auto* pad = std::get_if<Pad>(&rop.attrs); pad && !pad->ends.empty()) return set(rop.outputs[0], pad->ends);
    if (const auto* recurrent = std::get_if<Recurrent>(&rop.attrs)) return follow_cells(*recurrent, rop);
    if (is_of_loop(rop.attrs)) return follow_values(rop);
    const size_t rank = shape(rop.outputs[0]).size();
    std::vector<std::optional<Extent>> ends(rank);
    std::vector<bool> mixed(rank, false);
    const std::vector<TensorId> reads = reads_of(rop);
    for (const TensorId id : reads) {
      for (const LengthAxis& axis : axes(id)) {
        for (const Link& link : links(rop, id, axis)) {
          if (link.kind != Link::follows || link.dim >= rank) continue;
          if (ends[link.dim] && *ends[link.dim] != link.extent) mixed[link.dim] = true;
          ends[link.dim] = link.extent;
        }
      }
    }
    LengthAxes made;
    for (size_t d = 0; d < rank; ++d) {
      if (ends[d] && !mixed[d]) made.push_back({static_cast<int64_t>(d), *ends[d]});
    }
    for (const TensorId id : rop.outputs) {
      if (shape(id).size() == rank) set(id, made);
    }
  }

  // A cell that makes only so many steps reads and writes nothing behind them.
  void follow_cells(const Recurrent& recurrent, const ROperator& rop) {
    for (const RecurrentCell& cell : recurrent.cells) {
      if (cell.end && cell.y >= 0) set(rop.outputs[static_cast<size_t>(cell.y)], {{0, *cell.end}});
    }
  }

  void follow_values(const ROperator& rop) {
    for (size_t k = 0; k < rop.outputs.size(); ++k) set(rop.outputs[k], axes(rop.inputs[k]));
  }

  void follow_steps(const ROperator& rop) {
    const Graph& steps = *std::get<Fused>(rop.attrs).body;
    Ends inside(steps);
    inside.forwards(inputs_of(rop));
    for (size_t k = 0; k < rop.outputs.size(); ++k) set(rop.outputs[k], inside.axes(steps.outputs[k]));
  }
  std::vector<LengthAxes> inputs_of(const ROperator& rop) const {
    std::vector<LengthAxes> inputs;
    for (const TensorId id : rop.inputs) inputs.push_back(id.valid() ? axes(id) : LengthAxes());
    return inputs;
  }

  void look_back(const ROperator& rop) {
    if (std::holds_alternative<Fused>(rop.attrs)) return look_back_steps(rop);
    if (is_of_loop(rop.attrs)) return look_back_values(rop);
    for (const TensorId id : reads_of(rop)) {
      for (size_t a = 0; a < axes(id).size(); ++a) {
        for (const Link& link : links(rop, id, axes(id)[a])) need(id, a, is_needed_by(rop, id, link));
      }
    }
  }
  bool is_needed_by(const ROperator& rop, TensorId id, const Link& link) const {
    if (link.kind == Link::ignored) return false;
    if (link.kind == Link::mixes || link.reads_behind) return true;
    if (is_masked(rop, id, link)) return false;
    return std::any_of(rop.outputs.begin(), rop.outputs.end(), [&](TensorId result) {
      return is_needed(result, {static_cast<int64_t>(link.dim), link.extent});
    });
  }
  bool is_needed(TensorId result, const LengthAxis& axis) const {
    for (size_t a = 0; a < axes(result).size(); ++a) {
      if (axes(result)[a] == axis) return needed(result)[a];
    }
    return true;  // it has no such end
  }

  // What a value is in an iteration, what it is in the next one and what it is behind the loop lie in the same memory.
  void look_back_values(const ROperator& rop) {
    const size_t values = rop.outputs.size();
    const auto need_as = [&](TensorId id, TensorId as) {
      for (size_t a = 0; a < axes(id).size(); ++a) need(id, a, is_needed(as, axes(id)[a]));
    };
    for (size_t k = 0; k < rop.inputs.size(); ++k) need_as(rop.inputs[k], rop.outputs[k % values]);
    if (!std::holds_alternative<LoopEnd>(rop.attrs)) return;
    for (size_t k = 0; k < values; ++k) need_as(rop.outputs[k], rop.inputs[k]);
  }

  void look_back_steps(const ROperator& rop) {
    const Graph& steps = *std::get<Fused>(rop.attrs).body;
    Ends inside(steps);
    inside.forwards(inputs_of(rop));
    std::vector<std::vector<bool>> outputs;
    for (const TensorId id : rop.outputs) outputs.push_back(needed(id));
    inside.backwards(outputs);
    for (size_t i = 0; i < rop.inputs.size(); ++i) {
      if (!rop.inputs[i].valid()) continue;
      const std::vector<bool>& found = inside.needed(steps.inputs[i]);
      for (size_t a = 0; a < found.size(); ++a) need(rop.inputs[i], a, found[a]);
    }
  }

  // Whether the chain takes the operand only through where(valid, .., ..), with a mask of the same end.
  bool is_masked(const ROperator& rop, TensorId id, const Link& link) const {
    const auto* const chain = std::get_if<Elementwise>(&rop.attrs);
    if (!chain) return false;
    const auto own = std::find(rop.inputs.begin(), rop.inputs.end(), id) - rop.inputs.begin();
    std::vector<bool> reaches(chain->steps.size(), false);  // per step: whether the operand does, past the masks
    for (size_t s = 0; s < chain->steps.size(); ++s) {
      const ElementwiseStep& step = chain->steps[s];
      for (size_t o = 0; o < step.operands.size(); ++o) {
        const int32_t v = step.operands[o];
        const bool comes = v >= 0 ? v == own : bool(reaches[static_cast<size_t>(-1 - v)]);
        const bool is_chosen = step.op == ElementwiseOp::where && o == 1 && is_mask(rop, step.operands[0], link);
        if (comes && !is_chosen) reaches[s] = true;
      }
    }
    return !reaches.back();
  }
  bool is_mask(const ROperator& rop, int32_t operand, const Link& link) const {
    if (operand < 0) return false;
    const TensorId id = rop.inputs[static_cast<size_t>(operand)];
    const size_t behind = shape(rop.outputs[0]).size() - shape(id).size();
    return is_valid_of(id) && axes(id).size() == 1 && axes(id)[0].extent == link.extent &&
           static_cast<size_t>(axes(id)[0].dim) + behind == link.dim;
  }
  // Whether it is 1 before its end and 0 behind it.
  bool is_valid_of(TensorId id) const {
    for (const ROperator& rop : graph_.rops) {
      if (rop.outputs[0] != id) continue;
      const auto* const pad = std::get_if<Pad>(&rop.attrs);
      return pad && !pad->ends.empty() && pad->value == 0 && pad->packed == Packed::none &&
             graph_.tensor(rop.inputs[0]).role == Role::constant;
    }
    return false;
  }

  // --- Rules: one Link for each place that the rOperator reads the tensor at. ---
  std::vector<Link> links(const ROperator& rop, TensorId id, const LengthAxis& axis) const {
    std::vector<Link> found;
    const size_t rank = shape(rop.outputs[0]).size();
    const auto aligned = [&] { return Link{Link::follows, rank - shape(id).size() + static_cast<size_t>(axis.dim), axis.extent}; };
    for (size_t i = 0; i < rop.inputs.size(); ++i) {
      if (rop.inputs[i] != id) continue;
      found.push_back(std::visit(
          [&](const auto& op) {
            if constexpr (requires { rule(op, rop, i, axis); })
              return rule(op, rop, i, axis);
            else
              return Link{};
          },
          rop.attrs));
    }
    if (rop.epilogue.residual == id) found.push_back(aligned());
    if (rop.epilogue.bias == id) found.push_back({});
    return found;
  }

  Link follows(size_t dim, const LengthAxis& axis) const { return {Link::follows, dim, axis.extent}; }
  Link same(const LengthAxis& axis) const { return follows(static_cast<size_t>(axis.dim), axis); }

  Link rule(const Elementwise&, const ROperator& rop, size_t i, const LengthAxis& axis) const {
    return follows(shape(rop.outputs[0]).size() - shape(rop.inputs[i]).size() + static_cast<size_t>(axis.dim), axis);
  }

  Link rule(const MatMul& op, const ROperator& rop, size_t i, const LengthAxis& axis) const {
    const size_t rank = shape(rop.outputs[0]).size(), own = shape(rop.inputs[i]).size(), back = own - static_cast<size_t>(axis.dim);
    if (i == 2 || back > 2) return follows(rank - back, axis);
    const bool is_last = back == 1, is_summed = i == 0 ? is_last != op.trans_a : is_last == op.trans_b;
    return is_summed ? Link{} : follows(rank - (i == 0 ? 2 : 1), axis);
  }

  Link rule(const Attention& op, const ROperator& rop, size_t i, const LengthAxis& axis) const {
    const size_t rank = shape(rop.outputs[0]).size(), back = shape(rop.inputs[i]).size() - static_cast<size_t>(axis.dim);
    if (i > kAttentionBias || operand(rop, kAttentionRowTable).valid()) return {};
    if (back > 2) return follows(rank - back, axis);
    const bool is_key = i == kAttentionBias ? back == 1 : i > 0 && back == 2;
    if (is_key) return op.end == axis.extent ? Link{.kind = Link::ignored} : Link{};
    const bool is_query = (i == 0 || i == kAttentionBias) && back == 2;
    return is_query || (i == 2 && back == 1) ? follows(rank - back, axis) : Link{};
  }

  Link rule(const Recurrent& op, const ROperator&, size_t i, const LengthAxis& axis) const {
    const auto is_read = [&](const RecurrentCell& cell) { return cell.x == static_cast<int32_t>(i); };
    const bool ends =
        std::all_of(op.cells.begin(), op.cells.end(), [&](const RecurrentCell& cell) { return !is_read(cell) || cell.end == axis.extent; });
    return axis.dim == 0 && ends && std::any_of(op.cells.begin(), op.cells.end(), is_read) ? Link{.kind = Link::ignored} : Link{};
  }
  Link rule(const Softmax& op, const ROperator&, size_t, const LengthAxis& axis) const {
    return axis.dim >= op.first_axis && axis.dim <= op.last_axis ? Link{} : same(axis);
  }
  Link rule(const Normalize& op, const ROperator& rop, size_t i, const LengthAxis& axis) const {
    if (operand(rop, kNormalizeRows).valid()) return {};
    const size_t dim = shape(rop.outputs[0]).size() - shape(rop.inputs[i]).size() + static_cast<size_t>(axis.dim);
    const bool is_inside = std::find(op.axes.begin(), op.axes.end(), static_cast<int64_t>(dim)) != op.axes.end();
    return i == 0 && is_inside ? Link{} : follows(dim, axis);
  }
  Link rule(const NormalizeBy&, const ROperator& rop, size_t i, const LengthAxis& axis) const {
    if (i == 1) return shape(rop.inputs[1]).size() == 3 && axis.dim == 0 && shape(rop.outputs[0]).size() == 2 ? same(axis) : Link{};
    return static_cast<size_t>(axis.dim) + 1 == shape(rop.outputs[0]).size() ? Link{} : same(axis);
  }
  Link rule(const Moments&, const ROperator& rop, size_t, const LengthAxis& axis) const {
    return shape(rop.inputs[0]).size() == 2 && axis.dim == 0 ? same(axis) : Link{};
  }
  Link rule(const Reduce& op, const ROperator&, size_t, const LengthAxis& axis) const {
    if (std::find(op.axes.begin(), op.axes.end(), axis.dim) != op.axes.end()) return {};
    const auto gone = std::count_if(op.axes.begin(), op.axes.end(), [&](int64_t d) { return d < axis.dim; });
    return follows(static_cast<size_t>(axis.dim - (op.keepdims ? 0 : gone)), axis);
  }
  Link rule(const Cumulate& op, const ROperator&, size_t, const LengthAxis& axis) const {
    return op.reverse && axis.dim == op.axis ? Link{} : same(axis);
  }
  Link rule(const Transpose& op, const ROperator&, size_t, const LengthAxis& axis) const {
    return follows(static_cast<size_t>(std::find(op.perm.begin(), op.perm.end(), axis.dim) - op.perm.begin()), axis);
  }
  Link rule(const Slice& op, const ROperator& rop, size_t, const LengthAxis& axis) const {
    const auto d = static_cast<size_t>(axis.dim);
    return op.starts[d] == 0 && op.steps[d] == 1 && op.extents[d] == shape(rop.inputs[0])[d] ? same(axis) : Link{};
  }
  Link rule(const Concat& op, const ROperator&, size_t, const LengthAxis& axis) const { return axis.dim == op.axis ? Link{} : same(axis); }
  Link rule(const Pad& op, const ROperator&, size_t, const LengthAxis& axis) const {
    const auto end = std::find(op.ends.begin(), op.ends.end(), axis);
    if (end != op.ends.end()) return {.kind = Link::ignored};  // it is read before its end only
    const auto d = static_cast<size_t>(axis.dim);
    return op.ends.empty() && op.before[d] == 0 && op.after[d] == 0 ? same(axis) : Link{};
  }
  Link rule(const Gather& op, const ROperator& rop, size_t i, const LengthAxis& axis) const {
    if (i == 1) return {Link::follows, static_cast<size_t>(op.axis + axis.dim), axis.extent, /*reads_behind=*/true};  // rows by any number
    if (axis.dim == op.axis) return {.kind = Link::ignored};  // indices are numbers of rows that there are
    const auto index_rank = static_cast<int64_t>(shape(rop.inputs[1]).size());
    return follows(static_cast<size_t>(axis.dim < op.axis ? axis.dim : axis.dim - 1 + index_rank), axis);
  }
  template <class Window>
  Link window(const Window& op, const LengthAxis& axis, bool has_channels) const {
    if (axis.dim == 0 || (axis.dim == 1 && has_channels)) return same(axis);
    if (axis.dim < 2) return {};
    const auto s = static_cast<size_t>(axis.dim) - 2;
    const Extent made =
        windowed(axis.extent, op.pads_begin[s] + op.pads_end[s], op.kernel[s], op.strides[s], op.dilations[s], graph_.lengths);
    return {Link::follows, static_cast<size_t>(axis.dim), made, op.pads_end[s] > 0};
  }
  Link rule(const Conv& op, const ROperator&, size_t i, const LengthAxis& axis) const {
    return i == 0 && !op.depthwise ? window(op, axis, false) : Link{};
  }
  Link rule(const Pool& op, const ROperator&, size_t, const LengthAxis& axis) const {
    return op.ceil_mode ? Link{} : window(op, axis, true);
  }
  Link rule(const Reshape& op, const ROperator& rop, size_t, const LengthAxis& axis) const {
    const std::optional<LengthAxis> made = reshaped(axis, shape(rop.inputs[0]), op.shape);
    return made ? follows(static_cast<size_t>(made->dim), *made) : Link{};
  }

  const Graph& graph_;
  std::vector<LengthAxes> axes_;
  std::vector<std::vector<bool>> needed_;
};

}  // namespace

Graph mark_ends(Graph graph) {
  if (graph.lengths.empty()) return graph;
  Ends ends(graph);
  ends.forwards(graph.input_axes);
  ends.backwards({});  // outputs that end are copied to true extents, which have nothing behind them (frontend/lengths)
  for (size_t t = 0; t < graph.tensors.size(); ++t) {
    Tensor& tensor = graph.tensors[t];
    const auto id = TensorId(static_cast<int32_t>(t));
    tensor.ends.clear();
    for (size_t a = 0; a < ends.axes(id).size(); ++a) {
      if (tensor.role == Role::activation && !ends.needed(id)[a]) tensor.ends.push_back(ends.axes(id)[a]);
    }
  }
  return graph;
}

}  // namespace tamp::passes
