// Records of measurements: how long rKernels took in real networks on a vDevice (`tamp tune` writes them). They correct the cost
// model of the candidates that they are about, so that everybody who asks it (selection, policies, simulator) hears of them.
//
// A file of records is JSON lines. What decides a rOperator's time is the key: vDevice, precision, execution, the rOperator
// without its name (`signature`), the rKernel, and the conditions: on how many vEUs it ran, how many ran others at
// the same time (0: it was alone), and whether weights come from L2.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/select/cost.h"

namespace tamp::select {

// Operator, attributes, fusions and the types of all operands and results; equal for rOperators that run alike.
std::string signature(const Graph& graph, const ROperator& rop);

// The family's own numbers: "block_m=64 block_n=32".
std::string config_text(const RKernel& rkernel);
// What tells the candidates of one rOperator apart: family, name and config.
std::string identity(const RKernel& rkernel);

struct RecordKey {
  std::string vdevice, precision, execution;
  std::string rop;                      // signature
  std::string family, rkernel, config;  // rkernel: RKernel::name
  int64_t veus = 1;                     // that it ran on
  int64_t beside = 0;                   // that ran others at the same time
  bool weights_in_l2 = true;
  auto operator<=>(const RecordKey&) const = default;
};
// From the last signal of its inputs to its own last one, as often as it was measured (the mean of the medians).
struct RecordTime {
  double us = 0;
  int64_t runs = 0;
};

class Records {
 public:
  bool empty() const { return times_.empty(); }
  size_t size() const { return times_.size(); }
  const std::map<RecordKey, RecordTime>& times() const { return times_; }

  void add(const RecordKey& key, RecordTime time);  // an equal key: the mean, weighted by runs
  void replace(const Records& newer);               // an equal key: the newer
  Records only(const std::set<std::string>& signatures) const;
  // Of a rKernel (identity), whatever the conditions; none if it was not measured.
  std::optional<double> mean_us(const std::string& rop, const std::string& rkernel) const;
  std::string text() const;  // of a file, in the order of the keys

  // Of the rOperator's candidates: those that have records take the measured time from now on (Cost::correction); the others are
  // corrected as their family was, or else as all were, and a little more, since a measurement is worth more than a guess. A
  // rOperator without records keeps the model's costs. `alone`: it is its wave's only one.
  void correct(std::vector<RKernel>& candidates, const Graph& graph, const ROperator& rop, const Machine& machine, bool alone) const;

 private:
  std::map<RecordKey, RecordTime> times_;
};

// Equal keys are joined, so that files can be put behind each other. Error (bad input) names source and line.
Records parse_records(const std::string& text, const std::string& source_name);
// Those in this program (compiler/select/records/*.jsonl).
Records builtin_records();

}  // namespace tamp::select
