// Two sweeps. The first goes backwards, because a Concat or a graph output decides where the makers of its operands write: each result that
// is computed either gets a place that a reader wants, or gets memory of its own in its preferred order. Forwards, views follow from where
// their sources lie, and copies are put in where no strides express the view.
#include "compiler/passes/place/assign_layout.h"

#include <algorithm>
#include <map>
#include <set>

#include "compiler/ir/fused.h"
#include "compiler/ir/loops.h"
#include "compiler/passes/memory_order.h"
#include "compiler/passes/place/wanted_order.h"
#include "compiler/passes/rewrite.h"
#include "compiler/passes/view_strides.h"
#include "compiler/support/error.h"

namespace tamp::passes {
namespace {

// Of a longer chain of views nobody asks whether they could all be undone: the question is asked of each view.
constexpr int kMostViews = 64;

// Makes every graph output a tensor of its own that a rOperator makes: an output that is also an input, a constant or another output is
// copied. The copy has the output's name.
Graph separate_outputs(Graph graph) {
  std::set<TensorId> seen;
  for (TensorId& id : graph.outputs) {
    if (graph.tensor(id).role == Role::activation && seen.insert(id).second) continue;
    const TensorId to = add_like(graph, id, graph.tensor(id).name, graph.tensor(id).shape);
    graph.rops.push_back(make_copy(graph.tensor(id).name + ".copy", id, to));
    id = to;
    seen.insert(to);
  }
  return graph;
}

// Whether the first of several steps is a convolution of the first operand, but for one of patches, whose pixels are normalised in the
// end: that reads a few planes.
bool begins_with_conv(const ROperator& rop) {
  const std::optional<FusedView> steps = FusedView::of(rop);
  return steps && steps->as<Conv>(0) && steps->input(0, 0) == rop.inputs[0] && !steps->as<Normalize>(steps->count() - 1);
}

// The elements of a buffer that begins with the tensor; whole 16-byte cells where pixels are padded.
int64_t elements_of(const Shape& shape, const std::vector<int64_t>& strides, int64_t cell) {
  const int64_t count = element_count(shape);
  if (count == 0) return 0;
  int64_t reach = 1;
  for (size_t d = 0; d < shape.size(); ++d) reach += (shape[d] - 1) * strides[d];
  return reach == count ? count : (reach + cell - 1) / cell * cell;
}

class LayoutAssigner {
 public:
  LayoutAssigner(Graph graph, int64_t cell, const PlacedEstimator& estimator)
      : graph_(std::move(graph)),
        cell_(cell),
        estimator_(estimator),
        uses_(uses_of(graph_)),
        preferred_(preferred_strides(graph_, cell)),
        copied_(graph_.rops.size()) {
    for (const ROperator& rop : graph_.rops) names_.insert(rop.name);
    if (has_loops(graph_)) number_loops();
  }

  Graph run() {
    place_ports_and_constants();
    for (size_t i = graph_.rops.size(); i-- > 0;) commit(i);
    for (size_t i = 0; i < graph_.rops.size(); ++i) emit(i, graph_.rops[i]);
    graph_.rops = std::move(emitted_);
    number_buffers();
    return std::move(graph_);
  }

 private:
  struct Copied {
    TensorId from;
    Placement to;
  };

  // Loops, and which of them rOperators and tensors are in.
  void number_loops() {
    std::map<int64_t, int32_t> number;
    const LoopNests nests = loop_nests(graph_);
    const auto innermost = [&](const std::vector<int64_t>& nest) { return nest.empty() ? -1 : number.at(nest.back()); };
    for (size_t i = 0; i < graph_.rops.size(); ++i) {
      ROperator& rop = graph_.rops[i];
      rop.loop = innermost(nests.of_rop[i]);
      if (const auto* begin = std::get_if<LoopBegin>(&rop.attrs)) {
        number[begin->loop] = static_cast<int32_t>(graph_.loops.size());
        graph_.loops.push_back({rop.origin.empty() ? rop.name : rop.origin[0], rop.outputs[0], rop.loop});
      }
      for (const TensorId id : rop.outputs) loop_of_[id] = innermost(nests.of_tensor[id.index()]);
    }
  }
  bool begins_loop(TensorId id) const { return std::holds_alternative<LoopBegin>(graph_.rop(uses_.producer[id.index()]).attrs); }
  int32_t loop_of(TensorId id) const {
    const auto found = loop_of_.find(id);
    return found == loop_of_.end() ? -1 : found->second;
  }

  Placement& place(TensorId id) { return graph_.tensor(id).place; }
  bool placed(TensorId id) const { return graph_.tensor(id).place.buffer.valid(); }

  void give_buffer(TensorId id, BufferKind kind, int32_t io_index, const std::vector<int64_t>& strides) {
    Buffer buffer{kind, elements_of(graph_.tensor(id).shape, strides, cell_), graph_.tensor(id).dtype, io_index, TensorId()};
    if (kind == BufferKind::constant) buffer.constant = id;
    place(id) = {BufferId(static_cast<int64_t>(graph_.buffers.size())), 0, strides};
    graph_.buffers.push_back(buffer);
  }

  void place_ports_and_constants() {
    const auto row_major = [&](TensorId id) { return row_major_strides(graph_.tensor(id).shape); };
    for (size_t i = 0; i < graph_.inputs.size(); ++i)
      give_buffer(graph_.inputs[i], BufferKind::input, static_cast<int32_t>(i), row_major(graph_.inputs[i]));
    for (size_t i = 0; i < graph_.outputs.size(); ++i)
      give_buffer(graph_.outputs[i], BufferKind::output, static_cast<int32_t>(i), row_major(graph_.outputs[i]));
    for (size_t i = 0; i < graph_.tensors.size(); ++i) {
      const TensorId id(static_cast<int64_t>(i));
      if (is_constant(graph_, id)) give_buffer(id, BufferKind::constant, -1, row_major(id));
    }
  }

  // ---- backwards ----

  void commit(size_t i) {
    const ROperator& rop = graph_.rops[i];
    const TensorId made = rop.outputs[0];
    if (is_view(rop.attrs)) {
      if (!placed(made) && saves_copy(rop)) give_buffer(made, BufferKind::arena, -1, preferred_[made.index()]);
      if (placed(made)) commit_source(rop);
      return;
    }
    if (std::holds_alternative<LoopEnd>(rop.attrs)) return commit_end(rop);
    if (std::holds_alternative<LoopBegin>(rop.attrs)) return;  // what has no place yet stays as it is outside: emit_begin
    const auto* concat = std::get_if<Concat>(&rop.attrs);
    if (concat && !placed(made) && lie_in_a_row(i, *concat)) return;
    for (const TensorId id : rop.outputs) {
      if (!placed(id)) give_buffer(id, BufferKind::arena, -1, root_strides(id));
    }
    if (concat) commit_operands(i, *concat);
  }

  // What a value of a loop is behind it lies where it was in each iteration. What makes it for the next one may do so there, at the end of
  // the iteration; else it is copied there.
  void commit_end(const ROperator& rop) {
    bool lie_alone = true;
    for (size_t k = 0; k < rop.outputs.size(); ++k) {
      if (placed(rop.outputs[k]))
        lie_alone = lie_alone && uses_.is_output[rop.outputs[k].index()];
      else
        give_buffer(rop.outputs[k], BufferKind::arena, -1, preferred_[rop.inputs[k].index()]);
      place(rop.inputs[k]) = place(rop.outputs[k]);
    }
    for (size_t k = 0; k < rop.outputs.size(); ++k) {
      const TensorId next = rop.inputs[rop.outputs.size() + k];
      if (!lie_alone || !can_end(rop, next)) continue;
      place(next) = place(rop.outputs[k]);
      last_.emplace(next, ROperator());
    }
  }
  // Whether the maker of the next value can run when all other rOperators of the iteration have: nobody but the loop waits for it, and it
  // reads no value that others change at that time.
  bool can_end(const ROperator& end, TensorId next) const {
    if (graph_.tensor(next).role != Role::activation || placed(next) || uses_.consumers[next.index()].size() != 1) return false;
    const ROperator& maker = graph_.rop(uses_.producer[next.index()]);
    if (is_view(maker.attrs) || std::holds_alternative<Concat>(maker.attrs) || is_of_loop(maker.attrs)) return false;
    if (maker.outputs.size() != 1 || maker.loop != end.loop) return false;
    const std::vector<TensorId> reads = reads_of(maker);
    return std::none_of(reads.begin(), reads.end(), [&](TensorId id) {
      ROperatorId by = uses_.producer[id.index()];
      for (; by.valid() && is_view(graph_.rop(by).attrs); by = uses_.producer[id.index()]) id = graph_.rop(by).inputs[0];
      const auto behind = end.inputs.begin() + static_cast<std::ptrdiff_t>(end.outputs.size());
      const bool is_value = std::find(end.inputs.begin(), behind, id) != behind;
      return is_value || (by.valid() && std::holds_alternative<Concat>(graph_.rop(by).attrs));
    });
  }

  // For a view whose result has a place: gives the source the matching place if possible. emit() sees whether that was done.
  void commit_source(const ROperator& rop) {
    const std::optional<Placement> wanted = source_place(graph_, rop, place(rop.outputs[0]));
    if (wanted && accepts_as_source(rop.inputs[0], *wanted)) place(rop.inputs[0]) = *wanted;
  }

  // A view that strides cannot express in its operand's preferred order, but can in another order that the operand can be made in, too:
  // heads of attention that are put side by side, [1,12,128,64] to [1,128,12,64] to [1,128,768]. Only where neighbours in memory stay
  // neighbours: for a body that writes single elements a copy is cheaper.
  bool saves_copy(const ROperator& rop) const {
    const TensorId source = rop.inputs[0], made = rop.outputs[0];
    if (view_place(graph_, rop, {BufferId(), 0, preferred_[source.index()]})) return false;
    const std::optional<Placement> wanted = source_place(graph_, rop, {BufferId(), 0, preferred_[made.index()]});
    return wanted && accepts_as_source(source, *wanted) && keeps_innermost(source, *wanted);
  }
  bool keeps_innermost(TensorId id, Placement wanted) const {
    for (;;) {
      const ROperator& maker = graph_.rop(uses_.producer[id.index()]);
      if (!is_view(maker.attrs)) break;
      std::optional<Placement> source = source_place(graph_, maker, wanted);
      if (!source) return false;
      wanted = *std::move(source);
      id = maker.inputs[0];
    }
    const Shape& shape = graph_.tensor(id).shape;
    return !shape.empty() && order_of(shape, wanted.strides).back() == order_of(shape, preferred_[id.index()]).back();
  }

  void commit_operands(size_t i, const Concat& concat) {
    const ROperator& rop = graph_.rops[i];
    int64_t start = 0;
    for (const TensorId id : rop.inputs) {
      const Placement part = part_place(place(rop.outputs[0]), concat.axis, start, graph_.tensor(id).shape);
      start += graph_.tensor(id).shape[static_cast<size_t>(concat.axis)];
      if (accepts(id, part) || is_copied_anyway(id))
        place(id) = part;
      else
        add_copied(i, {id, part});
    }
  }

  // Whether the tensor can be made at `wanted` without a copy: it is computed, or it is a view of a computed tensor and the view can be
  // undone.
  bool accepts(TensorId id, Placement wanted) const {
    for (int views = 0; views <= kMostViews; ++views) {
      if (graph_.tensor(id).role != Role::activation || placed(id) || begins_loop(id)) return false;
      const ROperator& maker = graph_.rop(uses_.producer[id.index()]);
      if (!is_view(maker.attrs)) return true;
      std::optional<Placement> source = source_place(graph_, maker, wanted);
      if (!source || !may_suit(maker.inputs[0], *source)) return false;
      wanted = *std::move(source);
      id = maker.inputs[0];
    }
    return false;
  }

  // A view that needs a copy wherever its operand lies in the preferred order: the copy may as well be made where the result is wanted.
  bool is_copied_anyway(TensorId id) const {
    if (graph_.tensor(id).role != Role::activation || placed(id)) return false;
    const ROperator& maker = graph_.rop(uses_.producer[id.index()]);
    return is_view(maker.attrs) && !view_place(graph_, maker, {BufferId(), 0, preferred_[maker.inputs[0].index()]});
  }

  // Whether the operand of a view may get the place that suits the view. If there are other readers, only in the preferred order, which
  // suits them.
  bool accepts_as_source(TensorId id, const Placement& wanted) const { return may_suit(id, wanted) && accepts(id, wanted); }
  bool may_suit(TensorId id, const Placement& wanted) const {
    const Shape& shape = graph_.tensor(id).shape;
    return uses_.consumers[id.index()].size() == 1 || order_of(shape, wanted.strides) == order_of(shape, preferred_[id.index()]);
  }

  // Where all of the tensor's elements are: its own place, and those to which Concats copy it.
  std::vector<Placement> places_of(TensorId id) const {
    std::vector<Placement> places;
    if (placed(id)) places.push_back(graph_.tensor(id).place);
    if (const auto found = copied_by_.find(id); found != copied_by_.end()) {
      for (const auto& [concat, at] : found->second) places.push_back(at);
    }
    return places;
  }

  // Concat of tensors that some later Concat has put side by side in this order already (as in DenseNet): nothing to do, but that what the
  // later Concat copies must be copied here.
  bool lie_in_a_row(size_t i, const Concat& concat) {
    const ROperator& rop = graph_.rops[i];
    if (rop.inputs.size() < 2 || element_count(graph_.tensor(rop.outputs[0]).shape) == 0) return false;
    const auto axis = static_cast<size_t>(concat.axis);
    const int64_t extent = graph_.tensor(rop.inputs[0]).shape[axis];
    if (extent == 0) return false;
    for (const Placement& first : places_of(rop.inputs[0])) {
      for (const Placement& second : places_of(rop.inputs[1])) {
        Placement whole = first;
        whole.strides[axis] = (second.offset - first.offset) / extent;
        if (whole.strides[axis] == 0 || !lie_within(rop, concat, whole)) continue;  // 0: the same tensor several times
        take_copies(i, concat, whole);
        place(rop.outputs[0]) = whole;
        return true;
      }
    }
    return false;
  }

  bool lie_within(const ROperator& rop, const Concat& concat, const Placement& whole) const {
    int64_t start = 0;
    for (const TensorId id : rop.inputs) {
      const Placement part = part_place(whole, concat.axis, start, graph_.tensor(id).shape);
      const std::vector<Placement> places = places_of(id);
      if (std::none_of(places.begin(), places.end(), [&](const Placement& at) { return same_place(part, at); })) return false;
      start += graph_.tensor(id).shape[static_cast<size_t>(concat.axis)];
    }
    return true;
  }

  // Copies that a later Concat would make are made by this one.
  void take_copies(size_t i, const Concat& concat, const Placement& whole) {
    int64_t start = 0;
    for (const TensorId id : graph_.rops[i].inputs) {
      const Placement part = part_place(whole, concat.axis, start, graph_.tensor(id).shape);
      start += graph_.tensor(id).shape[static_cast<size_t>(concat.axis)];
      if (placed(id) && same_place(part, place(id))) continue;
      for (auto& [later, at] : copied_by_.at(id)) {
        if (!same_place(part, at)) continue;
        std::erase_if(copied_[later], [&](const Copied& copied) { return copied.from == id && same_place(copied.to, part); });
        copied_[i].push_back({id, at});
        later = i;
        break;
      }
    }
  }
  void add_copied(size_t i, Copied copied) {
    copied_by_[copied.from].emplace_back(i, copied.to);
    copied_[i].push_back(std::move(copied));
  }

  // The preferred order, unless the only reader is a view that needs a copy in this order and none in row-major order.
  std::vector<int64_t> root_strides(TensorId id) const {
    const std::vector<int64_t> row_major = row_major_strides(graph_.tensor(id).shape);
    if (views_work(id, preferred_[id.index()]) || uses_.consumers[id.index()].size() != 1 || !views_work(id, row_major))
      return preferred_[id.index()];
    return row_major;
  }

  bool views_work(TensorId id, const std::vector<int64_t>& strides) const {
    std::vector<std::pair<TensorId, std::vector<int64_t>>> left = {{id, strides}};
    while (!left.empty()) {
      const auto [seen, in] = std::move(left.back());
      left.pop_back();
      for (const ROperatorId reader : uses_.consumers[seen.index()]) {
        const ROperator& rop = graph_.rop(reader);
        if (!is_view(rop.attrs)) continue;
        std::optional<Placement> view = view_place(graph_, rop, {BufferId(), 0, in});
        if (!view) return false;
        left.emplace_back(rop.outputs[0], std::move(view->strides));
      }
    }
    return true;
  }

  // ---- forwards ----

  void emit(size_t i, ROperator rop) {
    if (is_view(rop.attrs)) {
      if (placed(rop.outputs[0]))
        emit_wanted_view(rop);
      else
        emit_view(rop);
    } else if (std::holds_alternative<Concat>(rop.attrs)) {
      for (const auto& [from, part] : copied_[i]) emit_copy(from, part);
    } else if (std::holds_alternative<LoopBegin>(rop.attrs)) {
      emit_begin(rop);
    } else if (std::holds_alternative<LoopEnd>(rop.attrs)) {
      emit_end(rop);
    } else {
      TAMP_CHECK(!std::holds_alternative<BatchNorm>(rop.attrs), "BatchNorm '" + rop.name + "' was not folded");
      const auto* const conv = std::get_if<Conv>(&rop.attrs);
      if ((conv && has_prologue(*conv)) || begins_with_conv(rop)) rop.inputs[0] = for_boxes(rop.inputs[0]);
      if (estimator_) rop.inputs[0] = best_operand(rop);
      const auto last = last_.find(rop.outputs[0]);
      if (last == last_.end()) return emitted_.push_back(std::move(rop));
      last->second = std::move(rop);
      last->second.ends_iteration = true;
    }
  }

  void emit_begin(const ROperator& rop) {
    for (size_t k = 0; k < rop.inputs.size(); ++k) {
      if (!placed(rop.outputs[k])) {
        place(rop.outputs[k]) = place(rop.inputs[k]);
        continue;
      }
      add_copy_rop(rop.inputs[k], rop.outputs[k]);
      emitted_.back().loop = rop.loop;
    }
  }
  // What makes the next iteration's values where they belong, and copies of the others. All of them run at the same time, so none reads
  // what another writes.
  void emit_end(const ROperator& rop) {
    const size_t count = rop.outputs.size();
    const auto is_value = [&](TensorId id) {
      return std::any_of(rop.outputs.begin(), rop.outputs.end(), [&](TensorId value) { return place(value).buffer == place(id).buffer; });
    };
    std::vector<TensorId> next(rop.inputs.begin() + static_cast<std::ptrdiff_t>(count), rop.inputs.end());
    for (size_t k = 0; k < count; ++k) {
      if (!is_value(next[k]) || stays(rop, k)) continue;
      const TensorId from = next[k];
      next[k] = add_copy_of(from);
      give_buffer(next[k], BufferKind::arena, -1, preferred_[rop.inputs[k].index()]);
      add_copy_rop(from, next[k]);
      emitted_.back().loop = rop.loop;
    }
    for (size_t k = 0; k < count; ++k) {
      if (const auto last = last_.find(next[k]); last != last_.end()) emitted_.push_back(std::move(last->second));
      if (stays(rop, k)) continue;
      add_copy_rop(next[k], rop.outputs[k]);
      emitted_.back().loop = rop.loop;
      emitted_.back().ends_iteration = true;
    }
  }
  bool stays(const ROperator& end, size_t k) {
    const TensorId next = end.inputs[end.outputs.size() + k];
    return graph_.tensor(next).role == Role::activation && same_place(place(next), place(end.outputs[k]));
  }

  void emit_view(const ROperator& rop) {
    std::optional<Placement> view = view_place(graph_, rop, place(rop.inputs[0]));
    if (!view) view = view_place(graph_, rop, place(row_major_copy(rop.inputs[0])));
    TAMP_CHECK(view.has_value(), "no view of a dense tensor for '" + rop.name + "'");
    place(rop.outputs[0]) = *view;
  }

  // For a view whose result has a place. Nothing to do if the source lies so that the result is there already; else the result is copied
  // there.
  void emit_wanted_view(const ROperator& rop) {
    const TensorId source = rop.inputs[0], made = rop.outputs[0];
    const std::optional<Placement> view = view_place(graph_, rop, place(source));
    if (view && same_place(*view, place(made))) return;
    if (!view) {
      if (const auto wanted = source_place(graph_, rop, place(made))) return void(emit_copy(source, *wanted));
    }
    const TensorId from = view ? source : row_major_copy(source);
    Tensor seen = graph_.tensor(made);
    seen.name += ".view";
    seen.place = *view_place(graph_, rop, place(from));
    const TensorId view_of_from = add_tensor(graph_, std::move(seen));
    loop_of_[view_of_from] = rop.loop;
    add_copy_rop(view_of_from, made);
  }

  TensorId row_major_copy(TensorId id) { return dense_copy(id, row_major_strides(graph_.tensor(id).shape), row_major_copies_); }

  // A Conv with a prologue and other steps behind a Conv read their input by boxes, which need a channels-last
  // tensor in memory that tamp allocates.
  TensorId for_boxes(TensorId id) {
    const Tensor& tensor = graph_.tensor(id);
    const bool good = graph_.buffers[tensor.place.buffer.index()].kind == BufferKind::arena && lies_for_boxes(tensor);
    if (good || tensor.shape.size() != 4) return id;
    Tensor copy = tensor;
    copy.place = {BufferId(), 0, channels_last_strides(tensor.shape, cell_)};
    return lies_for_boxes(copy) ? dense_copy(id, copy.place.strides, channels_last_copies_) : id;
  }

  // The first operand, or a copy of it in the order that the rOperator wants, if copying it and then reading it takes less time.
  TensorId best_operand(const ROperator& rop) {
    if (rop.inputs.empty() || !rop.inputs[0].valid()) return TensorId();
    const std::optional<std::vector<int64_t>> wanted = wanted_strides(graph_, rop, 0, cell_);
    if (!wanted) return rop.inputs[0];
    const TensorId operand = rop.inputs[0];
    if (const auto found = wanted_copies_.find({operand, *wanted}); found != wanted_copies_.end()) return found->second;
    const size_t tensors = graph_.tensors.size(), buffers = graph_.buffers.size();
    const TensorId copy = add_copy_of(operand);
    give_buffer(copy, BufferKind::arena, -1, *wanted);
    ROperator reader = rop;
    reader.inputs[0] = copy;
    if (estimator_(graph_, make_copy("", operand, copy)) + estimator_(graph_, reader) < estimator_(graph_, rop)) {
      add_copy_rop(operand, copy);
      return wanted_copies_[{operand, *wanted}] = copy;
    }
    graph_.tensors.resize(tensors);
    graph_.buffers.resize(buffers);
    return operand;
  }

  TensorId dense_copy(TensorId id, const std::vector<int64_t>& strides, std::map<TensorId, TensorId>& copies) {
    const auto [found, is_new] = copies.try_emplace(id);
    if (!is_new) return found->second;
    const TensorId to = add_copy_of(id);
    give_buffer(to, BufferKind::arena, -1, strides);
    add_copy_rop(id, to);
    return found->second = to;
  }

  TensorId emit_copy(TensorId from, const Placement& at) {
    const TensorId to = add_copy_of(from);
    graph_.tensor(to).place = at;
    add_copy_rop(from, to);
    return to;
  }

  TensorId add_copy_of(TensorId id) { return add_like(graph_, id, graph_.tensor(id).name + ".copy", graph_.tensor(id).shape); }

  void add_copy_rop(TensorId from, TensorId to) {
    const std::string base = graph_.tensor(from).name + ".copy";
    std::string name = base;
    for (int i = 2; !names_.insert(name).second; ++i) name = base + std::to_string(i);
    emitted_.push_back(make_copy(std::move(name), from, to));
    emitted_.back().loop = loop_of(from);
    loop_of_.try_emplace(to, loop_of(from));
  }

  // Inputs, outputs, constants, then memory in the order in which it is first written.
  void number_buffers() {
    std::vector<BufferId> number(graph_.buffers.size());
    std::vector<Buffer> buffers;
    const auto take = [&](BufferId id) {
      if (number[id.index()].valid()) return;
      number[id.index()] = BufferId(static_cast<int64_t>(buffers.size()));
      buffers.push_back(graph_.buffers[id.index()]);
    };
    for (size_t i = 0; i < graph_.buffers.size(); ++i) {
      if (graph_.buffers[i].kind != BufferKind::arena) take(BufferId(static_cast<int64_t>(i)));
    }
    for (const ROperator& rop : graph_.rops) {
      for (const TensorId id : rop.outputs) take(place(id).buffer);
    }
    for (Tensor& tensor : graph_.tensors) {
      TAMP_CHECK(tensor.place.buffer.valid(), "'" + tensor.name + "' has no place");
      take(tensor.place.buffer);
      tensor.place.buffer = number[tensor.place.buffer.index()];
    }
    graph_.buffers = std::move(buffers);
  }

  Graph graph_;
  int64_t cell_;
  const PlacedEstimator& estimator_;
  Uses uses_;
  std::vector<std::vector<int64_t>> preferred_;
  std::vector<std::vector<Copied>> copied_;                                      // per Concat: operands that are copied into it
  std::map<TensorId, std::vector<std::pair<size_t, Placement>>> copied_by_;      // the same per operand: Concat and place
  std::map<TensorId, TensorId> row_major_copies_;                                // one copy serves all views that need it
  std::map<TensorId, TensorId> channels_last_copies_;                            // and one all that read it by boxes
  std::map<std::pair<TensorId, std::vector<int64_t>>, TensorId> wanted_copies_;  // and one all that want it in an order of their own
  std::map<TensorId, int32_t> loop_of_;
  std::map<TensorId, ROperator> last_;  // by what they make: rOperators that end an iteration, emitted with the loop's end
  std::set<std::string> names_;
  std::vector<ROperator> emitted_;
};

}  // namespace

Graph assign_layout(Graph graph, int64_t cell, const PlacedEstimator& estimator) {
  return LayoutAssigner(separate_outputs(remove_dead(std::move(graph))), cell, estimator).run();
}

}  // namespace tamp::passes
