// Records of measurements: how long rKernels took in real networks on a vDevice (`tamp tune` writes them). They correct the candidates'
// costs in the cost model, so that selection, policies and simulator all use the measured times.
//
// A file of records is JSON lines. The key of a record is everything that decides a rOperator's time: vDevice, precision, execution, the
// rOperator without its name (`signature`), the rKernel, and the conditions: how many vEUs it ran on, how many vEUs ran other rOperators at
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

// A text of operator, attributes, fusions and the types of all operands and results; equal for rOperators that run alike.
std::string signature(const Graph& graph, const ROperator& rop);

// The family's own numbers: "block_m=64 block_n=32". Not how long chunks of a ring are, which follows from the program's stages.
std::string config_text(const RKernel& rkernel);
// Tells the candidates of one rOperator apart: family, name and config.
std::string identity(const RKernel& rkernel);

struct RecordKey {
  std::string vdevice, precision, execution;
  std::string rop;                      // signature
  std::string family, rkernel, config;  // rkernel: RKernel::name
  int64_t veus = 1;                     // that the rOperator ran on
  int64_t beside = 0;                   // that ran other rOperators at the same time
  bool weights_in_l2 = true;
  auto operator<=>(const RecordKey&) const = default;
};
// From the last signal of the rOperator's inputs to its own last signal: the mean of the medians of all measurements.
struct RecordTime {
  double us = 0;
  int64_t runs = 0;
};

class Records {
 public:
  bool empty() const { return times_.empty(); }
  size_t size() const { return times_.size(); }
  const std::map<RecordKey, RecordTime>& times() const { return times_; }

  void add(const RecordKey& key, RecordTime time);  // if the key is there: the mean, weighted by runs
  void replace(const Records& newer);               // if the key is there: the newer time
  Records only(const std::set<std::string>& signatures) const;
  // Mean time of a rKernel (given by its identity) under any conditions; none if it was not measured.
  std::optional<double> mean_us(const std::string& rop, const std::string& rkernel) const;
  std::string text() const;  // the text of a file, sorted by the keys

  // Corrects the candidates of a rOperator (Cost::correction). A candidate with records takes the measured time from now on. The others are
  // corrected as their family was, or else as all candidates were, and are made a little slower, since a measurement is worth more than a
  // guess. A rOperator without records keeps the model's costs. `alone`: nothing else is in the rOperator's wave.
  void correct(std::vector<RKernel>& candidates, const Graph& graph, const ROperator& rop, const Machine& machine, bool alone) const;

 private:
  std::map<RecordKey, RecordTime> times_;
};

// Records with equal keys are joined, so that files can be appended to each other. Error (bad input) names source and line.
Records parse_records(const std::string& text, const std::string& source_name);
// The records in this program (compiler/select/records/*.jsonl).
Records builtin_records();

}  // namespace tamp::select
