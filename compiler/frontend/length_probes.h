// What the model read at other lengths says of the rOperator that is being followed: which of its numbers depend on a length, and how.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/lengths.h"
#include "compiler/frontend/mixes.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::frontend {

class LengthProbes {
 private:
  std::optional<Extent> product_of(int64_t own, const std::function<int64_t(const Probe&)>& number);

 protected:
  LengthProbes(Graph original, const std::vector<Probe>& probes);

  bool has(size_t i) const { return i < rop_->inputs.size() && rop_->inputs[i].valid(); }
  const Tensor& operand(size_t i) const { return original_.tensor(rop_->inputs[i]); }
  const Shape& shape(size_t i) const { return operand(i).shape; }
  const Shape& result_shape(size_t k = 0) const { return original_.tensor(rop_->outputs[k]).shape; }
  std::string name(size_t i) const { return fmt::format("'{}'", printable(operand(i).name)); }
  int64_t at(const Extent& extent, const std::vector<int64_t>& values) const { return value_of(products_, extent, values); }
  int64_t least(const Extent& extent) const;
  void set_where(const ROperator& rop);

  const ROperator& twin(const Probe& probe) const { return probe.graph.rops[at_]; }
  void require_same_kinds(const Probe& probe);
  std::string values_text(const Probe& probe) const;

  // The straight line over a length that gives `own` at the largest lengths and number(probe) at each probe; none if all are the same.
  std::optional<Extent> line(int64_t own, const std::function<int64_t(const Probe&)>& number);
  std::optional<Extent> line_of_extent(int64_t own, const std::function<int64_t(const Probe&)>& number);
  bool fits(const Extent& extent, int64_t own, const std::function<int64_t(const Probe&)>& number) const;
  std::optional<Extent> line_of(const std::function<int64_t(const ROperator&)>& number);
  std::optional<Extent> extent_of_result(size_t k, size_t d);
  // The same of what may be a multiple of the product of two extents.
  std::optional<Extent> line_or_product(int64_t own, const std::function<int64_t(const Probe&)>& number);
  void note(const Extent& extent);  // one that `line` should know

  // What a constant of the model is in the probes.
  using Other = std::function<const Tensor&(const Probe&)>;
  bool is_cut(const Tensor& own, const Other& other) const;  // each is the beginning of the other along all dimensions
  struct Number {
    int64_t value = 0;
    std::optional<Extent> extent;  // that it is in each run
  };
  // Of a scalar, or of a few integers as Shape gives them.
  std::vector<Number> numbers_of(const Tensor& own, const Other& other);

  const Graph original_;
  const std::vector<Probe>& probes_;
  std::string where_;
  Refusal refused_;  // its node and operator
  std::vector<int64_t> smallest_, largest_;
  ExtentProducts products_;
  std::vector<Extent> known_;

  size_t at_ = 0;
  const ROperator* rop_ = nullptr;  // of the original
};

}  // namespace tamp::frontend
