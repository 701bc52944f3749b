#include "compiler/passes/views/channels_stay_last.h"

#include <algorithm>
#include <optional>

#include "compiler/passes/rewrite.h"

namespace tamp::passes {
namespace {

// The values with the one at `from` put behind all others.
template <class T>
std::vector<T> with_last(std::vector<T> values, size_t from) {
  std::rotate(values.begin() + static_cast<std::ptrdiff_t>(from), values.begin() + static_cast<std::ptrdiff_t>(from) + 1, values.end());
  return values;
}

struct Chain {
  std::vector<size_t> rops;  // Transpose, Reshapes, and the Transpose behind them if there is one
  size_t channel = 0;        // the place of the channels in between
  bool returns = false;      // the channels come back
};

class ChannelKeeper {
 public:
  explicit ChannelKeeper(Graph graph) : graph_(std::move(graph)), uses_(uses_of(graph_)) {}

  Graph run() {
    std::vector<std::optional<ROperator>> behind(graph_.rops.size());
    for (size_t i = 0; i < graph_.rops.size(); ++i) {
      if (const std::optional<Chain> chain = chain_from(i)) rewrite(*chain, behind);
    }
    std::vector<ROperator> rops;
    for (size_t i = 0; i < graph_.rops.size(); ++i) {
      rops.push_back(std::move(graph_.rops[i]));
      if (behind[i]) rops.push_back(*std::move(behind[i]));
    }
    graph_.rops = std::move(rops);
    return remove_dead(std::move(graph_));
  }

 private:
  const Shape& shape_of(TensorId id) const { return graph_.tensor(id).shape; }

  std::optional<Chain> chain_from(size_t first) const {
    const auto* const begin = std::get_if<Transpose>(&graph_.rops[first].attrs);
    if (!begin || begin->perm.empty()) return std::nullopt;
    const auto last = static_cast<int64_t>(begin->perm.size()) - 1;
    Chain chain{{first}, static_cast<size_t>(std::find(begin->perm.begin(), begin->perm.end(), last) - begin->perm.begin())};
    if (static_cast<int64_t>(chain.channel) == last) return std::nullopt;
    while (true) {
      const TensorId made = graph_.rops[chain.rops.back()].outputs[0];
      const ROperatorId next = uses_.only_reader(made);
      const auto* const end = next.valid() ? std::get_if<Transpose>(&graph_.rop(next).attrs) : nullptr;
      if (end && chain.rops.size() > 1 && end->perm.back() == static_cast<int64_t>(chain.channel)) {
        chain.rops.push_back(next.index());
        chain.returns = true;
        return chain;
      }
      const bool goes_on = next.valid() && std::holds_alternative<Reshape>(graph_.rop(next).attrs) &&
                           keeps_front(shape_of(made), shape_of(graph_.rop(next).outputs[0]), chain.channel);
      if (!goes_on) return chain.rops.size() > 1 && chain.channel == 1 && shape_of(made).size() == 4 ? std::optional(chain) : std::nullopt;
      chain.rops.push_back(next.index());
    }
  }

  // Whether the dimensions up to the channels are the same. (With no element at all a Reshape may be anything.)
  static bool keeps_front(const Shape& from, const Shape& to, size_t channel) {
    const auto end = static_cast<std::ptrdiff_t>(channel) + 1;
    return element_count(from) > 0 && to.size() > channel && std::equal(from.begin(), from.begin() + end, to.begin());
  }

  void rewrite(const Chain& chain, std::vector<std::optional<ROperator>>& behind) {
    ROperator& begin = graph_.rops[chain.rops.front()];
    auto& first = std::get<Transpose>(begin.attrs);
    first.perm = with_last(first.perm, chain.channel);
    if (!chain.returns) behind[chain.rops.back()] = channels_back(graph_.rops[chain.rops.back()], chain.channel);
    for (size_t i = 0; i < chain.rops.size() - (chain.returns ? 1 : 0); ++i) {
      ROperator& rop = graph_.rops[chain.rops[i]];
      Shape& shape = graph_.tensor(rop.outputs[0]).shape;
      const bool is_done = !chain.returns && i + 1 == chain.rops.size();  // by channels_back
      if (!is_done) shape = with_last(shape, chain.channel);
      if (auto* const reshape = std::get_if<Reshape>(&rop.attrs)) reshape->shape = shape;
    }
    if (std::is_sorted(first.perm.begin(), first.perm.end())) graph_.rops[chain.rops[1]].inputs[0] = begin.inputs[0];
    if (!chain.returns) return;
    for (int64_t& d : std::get<Transpose>(graph_.rops[chain.rops.back()].attrs).perm) {
      const auto channel = static_cast<int64_t>(chain.channel);
      const auto rank = static_cast<int64_t>(shape_of(graph_.rops[chain.rops.back()].inputs[0]).size());
      d = d == channel ? rank - 1 : d > channel ? d - 1 : d;
    }
  }

  // Makes the Reshape `rop` make a map with its channels last; returns the Transpose from there to the old result.
  ROperator channels_back(ROperator& rop, size_t channel) {
    const TensorId map = rop.outputs[0];
    Tensor last = graph_.tensor(map);
    last.name += ".channels_last";
    last.shape = with_last(last.shape, channel);
    std::vector<int64_t> perm = range(0, static_cast<int64_t>(last.shape.size()));
    std::rotate(perm.begin() + static_cast<std::ptrdiff_t>(channel), perm.end() - 1, perm.end());
    rop.outputs = {add_tensor(graph_, std::move(last))};
    ROperator transpose{rop.name, Transpose{std::move(perm)}, {}, rop.outputs, {map}, rop.origin};
    rop.name += ".channels_last";
    return transpose;
  }

  Graph graph_;
  Uses uses_;
};

}  // namespace

Graph channels_stay_last(Graph graph) { return ChannelKeeper(std::move(graph)).run(); }

}  // namespace tamp::passes
