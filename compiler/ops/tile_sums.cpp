// TileSums: the sums of a map's channels over tiles of pixels.
#include "compiler/ops/operator.h"
#include "compiler/support/text.h"

namespace tamp::ops {
namespace {

int64_t count_tiles(int64_t extent, int64_t tile) { return (extent + tile - 1) / tile; }

}  // namespace

TensorTypes infer(const TileSums& op, const Given& given) {
  given.expect(1);
  if (given.rank(0) != 4) throw bad_input("input X has shape {}, expected [N,C,H,W]", shape_text(given.shape(0)));
  if (op.tile.size() != 2 || op.tile[0] < 1 || op.tile[1] < 1) throw bad_input("attribute 'tile' is not two positive numbers");
  const Shape& x = given.shape(0);
  return {{given.dtype(0), {x[0], x[1], count_tiles(x[2], op.tile[0]) * count_tiles(x[3], op.tile[1])}}};
}
std::vector<Value> evaluate(const TileSums& op, const Call& call) {
  const Shape &x = call.input(0).shape, &parts = call.output().shape;
  const Numbers<double> values(call.input(0));
  std::vector<double> sums(static_cast<size_t>(element_count(parts)), 0.0);
  for (int64_t i = 0; i < element_count(x); ++i) {
    const int64_t plane = i / (x[2] * x[3]), h = i / x[3] % x[2], w = i % x[3];
    const int64_t part = h / op.tile[0] * count_tiles(x[3], op.tile[1]) + w / op.tile[1];
    sums[static_cast<size_t>(plane * parts[2] + part)] += values[i];
  }
  return {output_from(call, sums)};
}
Traits traits_of(const TileSums&) { return {Layout::channels_last, InF32::all}; }
int64_t own_work(const TileSums&, const Given& given, const TensorTypes&) { return saturating_product({kWorkOfRead, given.elements(0)}); }

}  // namespace tamp::ops
