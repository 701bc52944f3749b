#include "compiler/frontend/length_probes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "compiler/ir/length_rules.h"
#include "compiler/ops/ops.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

std::vector<double> values_of(const Tensor& tensor) {
  Graph one;
  const TensorId from = add_constant(one, "x", tensor.dtype, tensor.shape, Bytes(*tensor.data));
  const TensorId to = add_tensor(one, {.name = "y", .dtype = DType::f64, .shape = tensor.shape});
  one.rops = {{"cast", Elementwise{{{ElementwiseOp::cast, {0}}}, {}, DType::f64}, {}, {from}, {to}, {}}};
  one.outputs = {to};
  std::vector<double> values(static_cast<size_t>(element_count(tensor.shape)));
  std::memcpy(values.data(), ops::run(one, {})[0].data->data(), values.size() * sizeof(double));
  return values;
}

// Whether the constant is the beginning of the other one along all dimensions.
bool is_cut_of(const Tensor& whole, const Tensor& part) {
  if (whole.data == part.data) return true;
  if (!whole.data || !part.data) return whole.shape == part.shape;
  if (whole.shape == part.shape) return *whole.data.hold() == *part.data.hold();
  const auto each = static_cast<size_t>(bytes_of(whole.dtype));
  const std::vector<int64_t> strides = row_major_strides(whole.shape);
  std::vector<int64_t> at(part.shape.size(), 0);
  for (int64_t e = 0; e < element_count(part.shape); ++e) {
    int64_t rest = e, from = 0;
    for (size_t d = part.shape.size(); d-- > 0; rest /= part.shape[d]) from += rest % part.shape[d] * strides[d];
    if (std::memcmp(whole.data->data() + static_cast<size_t>(from) * each, part.data->data() + static_cast<size_t>(e) * each, each) != 0)
      return false;
  }
  return true;
}

}  // namespace

LengthProbes::LengthProbes(Graph original, const std::vector<Probe>& probes) : original_(std::move(original)), probes_(probes) {
  for (const Length& length : original_.lengths) {
    smallest_.push_back(length.smallest);
    largest_.push_back(length.largest);
  }
}

int64_t LengthProbes::least(const Extent& extent) const { return at(extent, smallest_); }

void LengthProbes::set_where(const ROperator& rop) {
  refused_ = {printable(rop.origin.empty() ? rop.name : rop.origin[0]), name_of(rop.attrs), ""};
  where_ = fmt::format("node '{}' ({})", refused_.node, refused_.op);
}

void LengthProbes::require_same_kinds(const Probe& probe) {
  const auto& rops = probe.graph.rops;
  for (size_t i = 0; i < original_.rops.size() || i < rops.size(); ++i) {
    const bool is_same = i < original_.rops.size() && i < rops.size() && original_.rops[i].attrs.index() == rops[i].attrs.index() &&
                         original_.rops[i].inputs.size() == rops[i].inputs.size() &&
                         original_.rops[i].outputs.size() == rops[i].outputs.size();
    if (is_same) continue;
    if (i < original_.rops.size()) set_where(original_.rops[i]);
    throw Mixes{fmt::format(
        "is another one with {}: the model does other work then; give a range in which it does not, or a program for each (--dim NAME=A,B)",
        values_text(probe))};
  }
}

std::string LengthProbes::values_text(const Probe& probe) const {
  std::vector<std::string> parts;
  for (size_t l = 0; l < probe.values.size(); ++l)
    parts.push_back(fmt::format("{}={}", printable(original_.lengths[l].name), probe.values[l]));
  return join(parts, " ");
}

std::optional<Extent> LengthProbes::line(int64_t own, const std::function<int64_t(const Probe&)>& number) {
  std::optional<Extent> found;
  for (const Probe& probe : probes_) {
    const int64_t other = number(probe);
    if (other == own) continue;
    for (size_t l = 0; l < probe.values.size() && !found; ++l) {
      const int64_t run = largest_[l] - probe.values[l];
      if (run == 0) continue;
      const int64_t step = original_.lengths[l].step;
      for (const int64_t over : {int64_t{1}, step}) {
        if (found || (own - other) * over % run != 0) continue;
        const int64_t times = (own - other) * over / run;
        found = reduced({static_cast<int32_t>(l), times, own * over - times * largest_[l], over}, original_.lengths);
      }
    }
  }
  const bool changes = std::any_of(probes_.begin(), probes_.end(), [&](const Probe& p) { return number(p) != own; });
  for (size_t k = 0; changes && k < known_.size() && !(found && fits(*found, own, number)); ++k) {  // of a strided convolution
    Extent known = known_[k];
    known.plus += (own - at(known, largest_)) * known.over;  // its last element, say
    if (fits(known, own, number)) found = known;
  }
  if (found ? !fits(*found, own, number) : changes) {
    throw Mixes{
        "has a number that depends on the length in a way that no straight line gives: a step (--dim NAME=A:B:STEP) or a program for each "
        "part "
        "of the range (--dim NAME=A,B) may help"};
  }
  return found;
}

// Or 3 * L / 2, as Resize makes it.
std::optional<Extent> LengthProbes::line_of_extent(int64_t own, const std::function<int64_t(const Probe&)>& number) {
  try {
    return line(own, number);
  } catch (const Mixes&) {
    constexpr int64_t kMostOver = 4;
    for (int64_t over = 2; over <= kMostOver; ++over) {
      for (size_t l = 0; l < largest_.size(); ++l) {
        for (int64_t times = own * over / largest_[l]; times <= own * over / largest_[l] + 1; ++times) {
          const Extent found{static_cast<int32_t>(l), times, 0, over};
          if (fits(found, own, number)) return found;
        }
      }
    }
    throw;
  }
}

bool LengthProbes::fits(const Extent& extent, int64_t own, const std::function<int64_t(const Probe&)>& number) const {
  return at(extent, largest_) == own &&
         std::all_of(probes_.begin(), probes_.end(), [&](const Probe& probe) { return at(extent, probe.values) == number(probe); });
}

std::optional<Extent> LengthProbes::line_of(const std::function<int64_t(const ROperator&)>& number) {
  return line(number(*rop_), [&](const Probe& probe) { return number(twin(probe)); });
}

std::optional<Extent> LengthProbes::extent_of_result(size_t k, size_t d) {
  return line_of_extent(result_shape(k)[d], [&](const Probe& probe) { return probe.graph.tensor(twin(probe).outputs[k]).shape[d]; });
}

std::optional<Extent> LengthProbes::line_or_product(int64_t own, const std::function<int64_t(const Probe&)>& number) {
  try {
    return line(own, number);
  } catch (const Mixes&) {
    if (const std::optional<Extent> found = product_of(own, number)) return found;
    throw;
  }
}

std::optional<Extent> LengthProbes::product_of(int64_t own, const std::function<int64_t(const Probe&)>& number) {
  for (const Extent& known : known_) {
    if (known.length < 0 && own % at(known, largest_) == 0 && known.over == 1) {
      const int64_t times = own / at(known, largest_);
      if (const Extent more{known.length, known.times * times, known.plus * times, 1}; fits(more, own, number)) return more;
    }
  }
  for (size_t i = 0; i < known_.size(); ++i) {
    for (size_t k = i; k < known_.size(); ++k) {
      const int64_t each = at(known_[i], largest_) * at(known_[k], largest_);
      if (each == 0 || own % each != 0) continue;
      products_.push_back({known_[i], known_[k]});
      const Extent found{static_cast<int32_t>(-static_cast<int64_t>(products_.size())), own / each};
      if (fits(found, own, number)) {
        note({found.length});
        return found;
      }
      products_.pop_back();
    }
  }
  return std::nullopt;
}

void LengthProbes::note(const Extent& extent) {
  if (std::find(known_.begin(), known_.end(), extent) == known_.end()) known_.push_back(extent);
}

bool LengthProbes::is_cut(const Tensor& own, const Other& other) const {
  return std::all_of(probes_.begin(), probes_.end(), [&](const Probe& probe) {
    const Tensor& there = other(probe);
    return element_count(there.shape) > element_count(own.shape) ? is_cut_of(there, own) : is_cut_of(own, there);
  });
}

std::vector<LengthProbes::Number> LengthProbes::numbers_of(const Tensor& own, const Other& other) {
  const auto whole = [&](const Tensor& tensor) {
    std::vector<int64_t> numbers;
    for (const double value : values_of(tensor)) {
      if (!(std::fabs(value) < 9007199254740992.0) || value != std::floor(value))
        throw Mixes{fmt::format("has a constant '{}' that changes with the length", printable(own.name))};
      numbers.push_back(static_cast<int64_t>(value));
    }
    return numbers;
  };
  std::vector<std::vector<int64_t>> there;
  for (const Probe& probe : probes_) there.push_back(whole(other(probe)));
  std::vector<Number> numbers;
  for (const int64_t value : whole(own)) {
    const auto number_at = [&](const Probe& probe) { return there[static_cast<size_t>(&probe - probes_.data())].at(numbers.size()); };
    const std::optional<Extent> extent = line_or_product(value, number_at);
    numbers.push_back({value, extent});
  }
  return numbers;
}

}  // namespace tamp::frontend
