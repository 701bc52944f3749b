#include "compiler/passes/views/join_views.h"

#include <algorithm>
#include <map>
#include <optional>

#include "compiler/passes/memory_order.h"
#include "compiler/passes/view_strides.h"
#include "compiler/passes/views/view_atoms.h"

namespace tamp::passes {
namespace {

class ViewJoiner {
 public:
  ViewJoiner(Graph graph, int64_t cell)
      : graph_(std::move(graph)), uses_(uses_of(graph_)), preferred_(preferred_strides(graph_, cell)), tensors_(graph_) {}

  Graph run() {
    const std::vector<ROperator> old = graph_.rops;
    for (const ROperator& rop : old) {
      if (is_view(rop.attrs) && is_read_by_others(rop.outputs[0]) && gains(rop))
        tensors_.show_as(rop.outputs[0], *seen_through(graph_, rop, tensors_.seen(rop.inputs[0])), rop);
      else
        tensors_.emit(rop);
    }
    graph_.rops = tensors_.take();
    return remove_dead(std::move(graph_));
  }

 private:
  // By rOperators that are no views. What only views read is no tensor of its own.
  bool is_read_by_others(TensorId id) const {
    const std::vector<ROperatorId>& readers = uses_.consumers[id.index()];
    return uses_.is_output[id.index()] ||
           std::any_of(readers.begin(), readers.end(), [&](ROperatorId reader) { return !is_view(graph_.rop(reader).attrs); });
  }

  bool gains(const ROperator& rop) {
    const std::optional<Seen> seen = seen_through(graph_, rop, tensors_.seen(rop.inputs[0]));
    return seen && !place_of(rop.outputs[0], seen->base) && strides_of(*seen, strides_of_base(seen->base)).has_value();
  }
  // A base that is itself a view, of which no parts can be told, is copied.
  std::vector<int64_t> strides_of_base(TensorId base) const {
    const ROperator* maker = tensors_.maker(base);
    return maker && is_view(maker->attrs) ? row_major_strides(graph_.tensor(base).shape) : preferred_[base.index()];
  }

  // Where the views as they stand put the tensor; nothing if one of them needs a copy. All that it finds on the way it keeps, since the
  // next view of the chain asks again.
  std::optional<Placement> place_of(TensorId id, TensorId base) {
    std::vector<TensorId> views;
    const auto is_known = [&](TensorId at) {
      const auto found = places_.find(at);
      return found != places_.end() && found->second.base == base;
    };
    for (; id != base && !is_known(id); id = graph_.rop(uses_.producer[id.index()]).inputs[0]) views.push_back(id);
    std::optional<Placement> place = id == base ? Placement{BufferId(), 0, strides_of_base(base)} : places_.at(id).place;
    for (size_t i = views.size(); i-- > 0;) {
      if (place) place = view_place(graph_, graph_.rop(uses_.producer[views[i].index()]), *place);
      places_[views[i]] = {base, place};
    }
    return place;
  }

  struct Known {
    TensorId base;
    std::optional<Placement> place;
  };

  Graph graph_;
  Uses uses_;
  std::vector<std::vector<int64_t>> preferred_;
  SeenTensors tensors_;
  std::map<TensorId, Known> places_;
};

}  // namespace

Graph join_views(Graph graph, int64_t cell) { return ViewJoiner(std::move(graph), cell).run(); }

}  // namespace tamp::passes
