#include "compiler/shape/estimators.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compiler/ir/products.h"
#include "compiler/passes/place/assign_layout.h"
#include "compiler/schedule/choose.h"
#include "compiler/shape/program_shape.h"

namespace tamp::shape {
namespace {

bool has(const Graph& graph, bool (*is)(const ROperator&)) { return std::any_of(graph.rops.begin(), graph.rops.end(), is); }

// Whether halves keep all that the precision keeps of rows that rOperators keep to themselves in 16 bits.
bool halves_keep_rows(const Graph& placed, const Setting& setting) {
  if (setting.precision != Precision::tf32 || !has(placed, keeps_rows_of_16_bits)) return true;
  if (!setting.narrow_activations) return false;
  const std::vector<bool> keeps = passes::half_use(placed, *setting.norms).rops;
  for (size_t i = 0; i < placed.rops.size(); ++i) {
    if (keeps_rows_of_16_bits(placed.rops[i]) && !keeps[i]) return false;
  }
  return true;
}

// Whether there are bodies with tiles that fill a round for all products, and fast ones. There are none by moments. A product that
// normalises in its sums was slower in 16 bits, though its estimate is lower: partial sums of fp32 are twice the bytes. On an H200 at batch
// 8 in fp16 bert_base_s128 took 952 us with and 745 without, vit_b_16 1125 and 1070.
bool may_fill_rounds(const Graph& narrow, const Setting& setting) {
  return !has(narrow, is_by_moments) && !(has(narrow, normalizes_in_sums) && (may_narrow(setting) || has_narrow(narrow)));
}

double graph_us(const Graph& unplaced, const Setting& setting, const PlacedEstimator& alone) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  Graph placed = passes::assign_layout(unplaced, cell_of(setting), alone);
  if (!halves_keep_rows(placed, setting)) return kNever;
  const ShapedVDevice shaped = program_shape(placed, setting);
  placed = narrowed(std::move(placed), setting, shaped);
  if (shaped.more_tiles && !may_fill_rounds(placed, setting)) return kNever;
  return schedule::one_after_another_us(placed, shaped, setting.precision, setting.gangs);
}

}  // namespace

Estimator estimator(const Setting& setting) {
  return [with = setting.vdevice.with_inputs(), without = setting.vdevice.without_inputs(), precision = setting.precision,
          gangs = setting.gangs](const Graph& graph, const ROperator& rop) -> std::optional<Estimate> {
    const bool is_recurrent = std::holds_alternative<Recurrent>(rop.attrs);
    if (is_recurrent && !gangs) return std::nullopt;
    return select::estimate(graph, rop, !is_recurrent && has_boxes(graph, precision) ? with : without, precision);
  };
}

PlacedEstimator placed_estimator(const Setting& setting) {
  if (setting.precision == Precision::fp32) return {};
  return [with = setting.vdevice.with_inputs(), without = setting.vdevice.without_inputs(), precision = setting.precision,
          gangs = setting.gangs](const Graph& placed, const ROperator& rop) {
    const ShapedVDevice& shaped = has_boxes(placed, precision) ? with : without;
    return schedule::alone_us(placed, rop, select::machine_for(placed, shaped, precision), gangs) + shaped.edge_us;
  };
}

GraphEstimator graph_estimator(const Setting& setting) {
  const auto known = std::make_shared<std::unordered_map<std::string, double>>();
  return [setting, known, alone = placed_estimator(setting)](const Graph& unplaced) {
    std::string text = print(unplaced);
    if (const auto at = known->find(text); at != known->end()) return at->second;
    const double us = graph_us(unplaced, setting, alone);
    known->emplace(std::move(text), us);
    return us;
  };
}

}  // namespace tamp::shape
