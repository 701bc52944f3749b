#include "compiler/passes/fuse/sum_channels.h"

#include <algorithm>
#include <utility>

#include "compiler/ir/fused.h"
#include "compiler/support/error.h"

namespace tamp::passes {

bool is_f32_map(const Graph& graph, TensorId id) { return graph.tensor(id).dtype == DType::f32 && graph.tensor(id).shape.size() == 4; }

bool is_mean_of_channels(const Graph& graph, const ROperator& rop) {
  const auto* reduce = std::get_if<Reduce>(&rop.attrs);
  return reduce && reduce->kind == ReduceKind::mean && reduce->axes == std::vector<int64_t>{2, 3} && is_f32_map(graph, rop.inputs[0]);
}

ActivationCall activation_call(const Epilogue& epilogue) { return {epilogue.activation, epilogue.a, epilogue.b}; }

std::vector<std::vector<int64_t>> tiles_for_sums(const Shape& map) {
  std::vector<std::vector<int64_t>> tiles;
  for (const int64_t columns : {1, 2, 3, 4, 6, 8}) {
    const int64_t w = (map[3] + columns - 1) / columns;
    for (const int64_t pixels : {12, 16, 24, 32, 48, 64, 96, 128}) {
      const int64_t most = std::min(pixels / w, map[2]);
      if (most == 0) continue;
      const int64_t rows = (map[2] + most - 1) / most;  // of tiles
      std::vector<int64_t> tile = {(map[2] + rows - 1) / rows, w};
      if (std::find(tiles.begin(), tiles.end(), tile) == tiles.end()) tiles.push_back(std::move(tile));
    }
  }
  return tiles;
}

TensorId add_sums(Graph& graph, const Tensor& map) { return add_tensor(graph, {map.name + ".sums", DType::f32, {}}); }

Shape shape_of_sums(const Shape& map, const std::vector<int64_t>& tile) {
  return {map[0], map[1], ((map[2] + tile[0] - 1) / tile[0]) * ((map[3] + tile[1] - 1) / tile[1])};
}

ROperator summed_conv(const Graph& graph, const ROperator& conv, TensorId sums, const std::vector<int64_t>& tile) {
  const Epilogue& epilogue = conv.epilogue;
  TAMP_CHECK(!epilogue.residual.valid() || !epilogue.residual_after_activation, "the sums of '" + conv.name + "' are those of its results");
  const ROperator add{conv.name, TileSums{tile}, {}, {conv.outputs[0]}, {sums}, {}};
  return fuse(graph, "convolution with tile sums", {conv, add}, {conv.outputs[0], sums});
}

}  // namespace tamp::passes
