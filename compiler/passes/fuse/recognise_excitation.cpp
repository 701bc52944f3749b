// The match begins at the multiplication and goes backwards. Convolutions have their biases and activations in their epilogues by now.
#include "compiler/passes/fuse/recognise_excitation.h"

#include <algorithm>
#include <utility>

#include "compiler/passes/fuse/sum_channels.h"
#include "compiler/passes/rewrite.h"

namespace tamp::passes {
namespace {

struct ExcitationMatch {
  TensorId x, squeezed;                 // mostly the same
  size_t pooling, first, second, last;  // the mean, the products, the multiplication
};

class ExcitationMatcher {
 public:
  explicit ExcitationMatcher(const Graph& graph) : graph_(graph), uses_(uses_of(graph)) {}

  // The excitation whose last step is `rop`.
  std::optional<ExcitationMatch> match(size_t rop) const {
    const ElementwiseStep* step = single_step(graph_.rops[rop]);
    const std::vector<TensorId>& inputs = graph_.rops[rop].inputs;
    if (!step || step->op != ElementwiseOp::mul || inputs.size() != 2) return std::nullopt;
    for (const auto& [x, gate] : {std::pair{inputs[0], inputs[1]}, std::pair{inputs[1], inputs[0]}}) {
      const Shape& shape = graph_.tensor(x).shape;
      if (!is_f32_map(graph_, x) || shape != graph_.tensor(graph_.rops[rop].outputs[0]).shape) continue;
      if (graph_.tensor(gate).shape != Shape{shape[0], shape[1], 1, 1}) continue;
      const std::optional<size_t> second = product_that_makes(gate);
      const std::optional<size_t> first = second ? product_that_makes(graph_.rops[*second].inputs[0]) : std::nullopt;
      const std::optional<size_t> pooling = first ? mean_that_makes(graph_.rops[*first].inputs[0]) : std::nullopt;
      if (pooling) return ExcitationMatch{x, graph_.rops[*pooling].inputs[0], *pooling, *first, *second, rop};
    }
    return std::nullopt;
  }

  // The convolution that makes `id`, of two operands and without a residual.
  std::optional<size_t> conv_that_makes(TensorId id) const {
    const ROperatorId producer = uses_.producer[id.index()];
    if (!producer.valid() || graph_.tensor(id).shape.size() != 4) return std::nullopt;
    const ROperator& rop = graph_.rop(producer);
    return plain_conv(rop) && is_f32_map(graph_, rop.inputs[0]) ? std::optional(producer.index()) : std::nullopt;
  }
  // The same, if it is depthwise.
  std::optional<size_t> depthwise_that_makes(TensorId id) const {
    const std::optional<size_t> maker = conv_that_makes(id);
    if (!maker) return std::nullopt;
    const ROperator& rop = graph_.rops[*maker];
    const int64_t channels = graph_.tensor(id).shape[1];
    return std::get<Conv>(rop.attrs).group == channels && graph_.tensor(rop.inputs[0]).shape[1] == channels ? maker : std::nullopt;
  }

 private:
  std::optional<size_t> maker_of(TensorId id) const {
    const ROperatorId maker = uses_.maker_for_one(id);
    return maker.valid() ? std::optional(maker.index()) : std::nullopt;
  }

  // A Conv with constant weights, no prologue, and an epilogue of at most a bias and an activation.
  const Conv* plain_conv(const ROperator& rop) const {
    const auto* conv = std::get_if<Conv>(&rop.attrs);
    const bool is_plain =
        conv && !has_prologue(*conv) && rop.inputs.size() == 2 && !rop.epilogue.residual.valid() && is_f32_constant(graph_, rop.inputs[1]);
    return is_plain ? conv : nullptr;
  }

  std::optional<size_t> product_that_makes(TensorId id) const {
    const std::optional<size_t> maker = maker_of(id);
    const Conv* conv = maker ? plain_conv(graph_.rops[*maker]) : nullptr;
    return conv && is_pointwise(*conv) && graph_.tensor(id).shape.size() == 4 ? maker : std::nullopt;
  }

  std::optional<size_t> mean_that_makes(TensorId id) const {
    const std::optional<size_t> maker = maker_of(id);
    const bool is_mean = maker && is_mean_of_channels(graph_, graph_.rops[*maker]);
    return is_mean && std::get<Reduce>(graph_.rops[*maker].attrs).keepdims ? maker : std::nullopt;
  }

  const Graph& graph_;
  Uses uses_;
};

// The two rOperators that take the place of a match.
struct Excited {
  ROperator squeeze, excite;
  double us = 0;
};

struct ExcitationMaker {
  Graph& graph;
  const Graph& before;
  const Estimator& estimator;

  // The ChannelSqueeze::rows with the shortest estimated time. None where there is no body for it.
  std::optional<Excited> made(const ExcitationMatch& match, std::optional<size_t> depthwise) {
    const TensorId sums = add_tensor(graph, {before.tensor(before.rops[match.first].outputs[0]).name + ".parts", DType::f32, {}});
    const Shape& map = before.tensor(match.squeezed).shape;
    std::optional<Excited> best;
    for (int64_t tiles = 1, last = 0; tiles <= map[2]; ++tiles) {
      const int64_t rows = (map[2] + tiles - 1) / tiles;
      if (rows == std::exchange(last, rows)) continue;
      std::optional<Excited> tried = with_rows(match, depthwise, sums, rows);
      if (tried && (!best || tried->us < best->us)) best = std::move(tried);
    }
    if (best) graph.tensor(sums).shape = shape_of_parts(match, std::get<ChannelSqueeze>(best->squeeze.attrs).rows);
    return best;
  }

  // The convolution with the sums of its channels, by the tile of the shortest estimated time, and a ChannelExcite of these sums. None
  // where the convolution as it stands, by the fastest tile and without the sums, and `other` take less time.
  std::optional<Excited> with_sums(const ExcitationMatch& match, size_t conv, const Excited& other) {
    const Shape& map = before.tensor(match.squeezed).shape;
    const TensorId sums = add_sums(graph, before.tensor(match.squeezed));
    std::optional<Excited> best;
    Shape of_best;
    std::optional<double> conv_us;
    for (const std::vector<int64_t>& tile : tiles_for_sums(map)) {
      graph.tensor(sums).shape = shape_of_sums(map, tile);
      Excited made{summed_conv(graph, before.rops[conv], sums, tile), excited(match, sums)};
      made.excite.inputs.resize(kExciteFirstWeights);
      made.excite.inputs.push_back(before.rops[match.first].inputs[1]);
      for (const size_t step : {match.first, match.pooling}) prepend_origin(made.excite, before.rops[step]);
      const std::optional<Estimate> first = estimator(graph, made.squeeze), second = estimator(graph, made.excite);
      if (!first || !second) continue;
      made.us = first->us + second->us;
      conv_us = std::min(conv_us.value_or(first->us), first->us);
      if (best && best->us <= made.us) continue;
      best = std::move(made);
      of_best = graph.tensor(sums).shape;
    }
    if (!best || other.us + *conv_us <= best->us) return std::nullopt;
    graph.tensor(sums).shape = of_best;
    return best;
  }

  Shape shape_of_parts(const ExcitationMatch& match, int64_t rows) const {
    const Shape& map = before.tensor(match.squeezed).shape;
    const int64_t blocks = (map[1] + kSqueezeBlock - 1) / kSqueezeBlock, tiles = (map[2] + rows - 1) / rows;
    return {map[0], padded_hidden(before.tensor(before.rops[match.first].outputs[0]).shape[1]), blocks * tiles};
  }

  std::optional<Excited> with_rows(const ExcitationMatch& match, std::optional<size_t> depthwise, TensorId sums, int64_t rows) {
    graph.tensor(sums).shape = shape_of_parts(match, rows);
    const ROperator &pooling = before.rops[match.pooling], &first = before.rops[match.first];
    Excited made;
    made.squeeze = {pooling.name, ChannelSqueeze{rows}, {}, {match.squeezed, first.inputs[1]}, {sums}, pooling.origin};
    if (depthwise) add_depthwise(before.rops[*depthwise], made.squeeze);
    made.squeeze.origin.insert(made.squeeze.origin.end(), first.origin.begin(), first.origin.end());
    made.excite = excited(match, sums);
    const std::optional<Estimate> squeeze = estimator(graph, made.squeeze), excite = estimator(graph, made.excite);
    if (!squeeze || !excite) return std::nullopt;
    made.us = squeeze->us + excite->us;
    return made;
  }

  ROperator excited(const ExcitationMatch& match, TensorId sums) const {
    const ROperator &first = before.rops[match.first], &second = before.rops[match.second];
    ROperator excite = before.rops[match.last];
    excite.attrs = ChannelExcite{activation_call(first.epilogue), activation_call(second.epilogue)};
    excite.inputs = without_last_none({match.x, sums, second.inputs[1], first.epilogue.bias, second.epilogue.bias});
    prepend_origin(excite, second);
    return excite;
  }

  static void add_depthwise(const ROperator& rop, ROperator& squeeze) {
    const auto& conv = std::get<Conv>(rop.attrs);
    std::get<ChannelSqueeze>(squeeze.attrs).depthwise =
        DepthwisePrologue{conv.kernel, conv.strides, conv.dilations, conv.pads_begin, conv.pads_end, activation_call(rop.epilogue)};
    squeeze.name = rop.name;
    squeeze.inputs = without_last_none({rop.inputs[0], squeeze.inputs[1], rop.inputs[1], rop.epilogue.bias});
    squeeze.outputs.push_back(rop.outputs[0]);
    prepend_origin(squeeze, rop);
  }
};

}  // namespace

Graph recognise_excitation(Graph graph, const Estimator& estimator) {
  if (!estimator) return graph;
  const Graph before = graph;
  const ExcitationMatcher matcher(before);
  ExcitationMaker maker{graph, before, estimator};
  std::vector<bool> taken(before.rops.size(), false), dead(before.rops.size(), false);
  for (size_t i = 0; i < before.rops.size(); ++i) {
    const std::optional<ExcitationMatch> match = matcher.match(i);
    if (!match) continue;
    const auto free = [&](std::optional<size_t> conv) { return conv && !taken[*conv] ? conv : std::nullopt; };  // of other excitations
    const std::optional<size_t> depthwise = free(matcher.depthwise_that_makes(match->squeezed));
    std::optional<Excited> made = depthwise ? maker.made(*match, depthwise) : std::nullopt;
    size_t at = made ? *depthwise : match->pooling;
    if (!made) {
      made = maker.made(*match, std::nullopt);
      const std::optional<size_t> conv = made ? free(matcher.conv_that_makes(match->squeezed)) : std::nullopt;
      if (std::optional<Excited> sums = conv ? maker.with_sums(*match, *conv, *made) : std::nullopt) {
        made = std::move(sums);
        at = *conv;
      }
    }
    if (!made) continue;
    taken[at] = true;
    for (const size_t step : {match->pooling, match->first, match->second}) dead[step] = true;
    dead[at] = false;
    graph.rops[at] = std::move(made->squeeze);
    graph.rops[i] = std::move(made->excite);
  }
  return remove_dead(erase_rops(std::move(graph), dead));
}

}  // namespace tamp::passes
