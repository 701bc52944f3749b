#include "compiler/cli/test_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>

#include "compiler/cli/compare.h"
#include "compiler/cli/ports.h"
#include "compiler/frontend/onnx_reader.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kDigits = 9;  // of a float, all that f32 has

// N of a name like PREFIX_N.SUFFIX, or -1.
int number_in(const std::string& name, const std::string& prefix, const std::string& suffix) {
  if (!name.starts_with(prefix) || !name.ends_with(suffix) || name.size() <= prefix.size() + suffix.size()) return -1;
  int number = -1;
  const char* const end = name.data() + name.size() - suffix.size();
  const auto [stop, failure] = std::from_chars(name.data() + prefix.size(), end, number);
  return failure == std::errc() && stop == end ? number : -1;
}

std::map<int, fs::path> numbered(const fs::path& folder, const std::string& prefix, const std::string& suffix) {
  std::map<int, fs::path> found;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(folder, failure)) {
    const int number = number_in(entry.path().filename().string(), prefix, suffix);
    if (number >= 0) found[number] = entry.path();
  }
  if (failure) throw bad_input("{}: cannot be read: {}", printable(folder.string()), failure.message());
  return found;
}

std::vector<fs::path> without_gaps(const fs::path& folder, const std::string& prefix) {
  std::vector<fs::path> files;
  for (const auto& [number, path] : numbered(folder, prefix, ".pb")) {
    if (number != static_cast<int>(files.size()))
      throw bad_input("{}: has {}{}.pb, but no {}{}.pb", printable(folder.string()), prefix, number, prefix, files.size());
    files.push_back(path);
  }
  return files;
}

bool is_near(double found, double expected, const Tolerance& tolerance) {
  if (found == expected || (std::isnan(found) && std::isnan(expected))) return true;
  if (!std::isfinite(found) || !std::isfinite(expected)) return false;
  return std::abs(found - expected) <= tolerance.absolute + tolerance.relative * std::abs(expected);
}

bool has_tolerance(DType dtype, const Tolerance& tolerance) {
  return is_float(dtype) || (tolerance.of_small_integers && is_integer(dtype) && bytes_of(dtype) <= 2);
}

// How far element i of `found` is outside the tolerance, which most integers do not have; infinite if only one of the two is a number.
double excess(const ops::Value& found, const ops::Value& expected, int64_t i, const Tolerance& tolerance) {
  if (!has_tolerance(found.dtype, tolerance)) return distance_at(found, expected, i);
  const double distance = distance_at(found, expected, i) - tolerance.relative * std::abs(number_at(expected, i));
  return std::isfinite(distance) ? distance : std::numeric_limits<double>::infinity();
}

bool is_near_at(const ops::Value& found, const ops::Value& expected, int64_t i, const Tolerance& tolerance) {
  if (!has_tolerance(found.dtype, tolerance)) return whole_at(found, i) == whole_at(expected, i);
  return is_near(number_at(found, i), number_at(expected, i), tolerance);
}

// Output i without its padding.
ops::Value valid_part(const Port& port, const std::vector<ops::Value>& found, size_t i) {
  ops::Value value = found[i];
  if (port.count < 0) return value;
  int64_t count = 0;
  std::memcpy(&count, found[static_cast<size_t>(port.count)].data->data(), sizeof count);
  const auto axis = static_cast<size_t>(port.count_axis);
  const int64_t extent = value.shape[axis];
  int64_t inner = bytes_of(value.dtype);
  for (size_t d = axis + 1; d < value.shape.size(); ++d) inner *= value.shape[d];
  count = std::clamp<int64_t>(count, 0, extent);
  Bytes bytes;
  const auto size = static_cast<int64_t>(value.data.size());
  for (int64_t at = 0; at < size && inner > 0; at += extent * inner)
    bytes.insert(bytes.end(), value.data->begin() + at, value.data->begin() + at + count * inner);
  value.shape[axis] = count;
  value.data = std::make_shared<const Bytes>(std::move(bytes));
  return value;
}

}  // namespace

int64_t outside(const ops::Value& found, const ops::Value& expected, const Tolerance& tolerance) {
  int64_t count = 0;
  for (int64_t i = 0; i < element_count(found.shape); ++i) count += is_near_at(found, expected, i, tolerance) ? 0 : 1;
  return count;
}

std::string departure(const std::string& name, const ops::Value& found, const ops::Value& expected, const Tolerance& tolerance) {
  const std::string output = fmt::format("output '{}'", printable(name));
  if (found.dtype != expected.dtype || found.shape != expected.shape) {
    return fmt::format("{} is {}, expected {}", output, type_text(found.dtype, found.shape), type_text(expected.dtype, expected.shape));
  }
  int64_t wrong = 0, worst = -1;
  double furthest = 0;
  for (int64_t i = 0; i < element_count(found.shape); ++i) {
    if (is_near_at(found, expected, i, tolerance)) continue;
    ++wrong;
    const double distance = excess(found, expected, i, tolerance);
    if (worst >= 0 && distance <= furthest) continue;
    furthest = distance;
    worst = i;
  }
  if (wrong == 0) return "";
  std::string as_a_whole;
  if (tolerance.of_precision && is_float(found.dtype)) {
    const double relative_l2 = difference(found, expected).relative_l2, limit = cli::tolerance(*tolerance.of_precision, found.dtype);
    if (relative_l2 <= limit) return "";
    as_a_whole = fmt::format("; relative L2 {:.2e}, limit {:.0e} for {}", relative_l2, limit, name_of(*tolerance.of_precision));
  }
  return fmt::format("{}: {} of {} elements are wrong (rtol {:g}, atol {:g}); the worst is {}: found {}, expected {}{}", output, wrong,
                     element_count(found.shape), tolerance.relative, tolerance.absolute, index_text(worst, found.shape),
                     element_text(found, worst, kDigits), element_text(expected, worst, kDigits), as_a_whole);
}

std::vector<TestSet> test_sets(const std::string& folder) {
  std::vector<fs::path> folders;
  for (const auto& [number, path] : numbered(folder, "test_data_set_", "")) folders.push_back(path);
  if (folders.empty()) folders.emplace_back(folder);
  std::vector<TestSet> sets;
  for (const fs::path& path : folders) {
    sets.push_back({path, without_gaps(path, "input_"), without_gaps(path, "output_")});
    if (sets.back().outputs.empty())
      throw bad_input("--against {}: holds no test_data_set_N folder and no output_0.pb", printable(path.string()));
  }
  return sets;
}

std::vector<std::string> test_inputs(const TestSet& set, const std::vector<std::string>& names, const std::vector<Port>& ports) {
  if (set.inputs.size() != names.size()) {
    throw bad_input("{}: has {} files input_I.pb, the model has {} inputs", printable(set.folder.string()), set.inputs.size(),
                    names.size());
  }
  std::vector<std::string> assignments;
  for (size_t i = 0; i < names.size(); ++i) {
    const bool is_port = std::any_of(ports.begin(), ports.end(), [&](const Port& port) { return port.name == names[i]; });
    if (is_port) assignments.push_back(names[i] + "=" + set.inputs[i].string());
  }
  return assignments;
}

std::vector<std::string> departures(const TestSet& set, const std::vector<Port>& ports, const std::vector<ops::Value>& found,
                                    const Tolerance& tolerance, const Otherwise& otherwise) {
  const auto counts = std::count_if(ports.begin(), ports.end(), [](const Port& port) { return port.count >= 0; });
  const size_t outputs = ports.size() - static_cast<size_t>(counts);  // only outputs that the model names; their counts come after them
  if (set.outputs.size() != outputs) return {fmt::format("the model has {} outputs, expected {}", outputs, set.outputs.size())};
  std::vector<std::string> sentences;
  for (size_t i = 0; i < outputs; ++i) {
    const ops::Value got = valid_part(ports[i], found, i), expected = frontend::read_tensor_pb(set.outputs[i].string());
    std::string sentence = departure(ports[i].name, got, expected, tolerance);
    if (!sentence.empty() && otherwise && got.dtype == expected.dtype && got.shape == expected.shape) {
      const std::string why = otherwise(i, got, expected);
      sentence = why.empty() ? "" : sentence + "; " + why;
    }
    if (!sentence.empty()) sentences.push_back(sentence);
  }
  return sentences;
}

}  // namespace tamp::cli
