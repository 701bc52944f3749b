#include "compiler/cli/ports.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "compiler/cli/command.h"
#include "compiler/cli/npy.h"
#include "compiler/cli/process.h"
#include "compiler/frontend/onnx_reader.h"
#include "compiler/ops/number.h"
#include "compiler/support/error.h"
#include "compiler/support/nearest.h"
#include "compiler/support/text.h"
#include "compiler/support/unique_names.h"

namespace tamp::cli {
namespace {

// splitmix64: gives the n-th number of a stream directly, without state.
uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Splits NAME=FILE arguments. A name may contain '='; the longest known name before one wins.
std::map<std::string, std::string> files_by_name(const std::vector<Port>& ports, const std::vector<std::string>& assignments) {
  std::map<std::string, std::string> files;
  for (const std::string& text : assignments) {
    const Port* found = nullptr;
    for (const Port& port : ports) {
      if (text.starts_with(port.name + "=") && (found == nullptr || port.name.size() > found->name.size())) found = &port;
    }
    if (found == nullptr) {
      std::vector<std::string> names, plain;
      for (const Port& port : ports) {
        names.push_back("'" + printable(port.name) + "'");
        plain.push_back(port.name);
      }
      throw bad_input("--input '{}': expected NAME=FILE with an input of the model: {}{}", printable(text), join(names, ", "),
                      did_you_mean(text.substr(0, text.find('=')), plain));
    }
    if (!files.emplace(found->name, text.substr(found->name.size() + 1)).second)
      throw bad_input("--input '{}' is given twice", printable(found->name));
  }
  return files;
}

// The largest integer of a type of at most 24 bits; of wider ones a number that `uniform` below can tell from its neighbours.
int64_t largest_of(DType dtype) {
  switch (dtype) {
    case DType::boolean: return 1;
    case DType::i8: return 127;
    case DType::u8: return 255;
    case DType::i16: return 32767;
    case DType::u16: return 65535;
    default: return (int64_t{1} << 24) - 1;
  }
}

}  // namespace

std::string type_text(DType dtype, const Shape& shape) { return name_of(dtype) + shape_text(shape); }

ops::Value read_value(const std::string& path) {
  if (path.ends_with(".npy")) return read_npy(path);
  if (path.ends_with(".pb")) return frontend::read_tensor_pb(path);
  throw bad_input("{}: not a kind of file that is known; known: .npy, .pb (TensorProto)", printable(path));
}

double number_at(const ops::Value& value, int64_t i) {
  return ops::with_storage(value.dtype,
                           [&](auto zero) { return ops::decode<double>(reinterpret_cast<const decltype(zero)*>(value.data->data())[i]); });
}

int64_t whole_at(const ops::Value& value, int64_t i) {
  return ops::with_storage(value.dtype,
                           [&](auto zero) { return ops::decode<int64_t>(reinterpret_cast<const decltype(zero)*>(value.data->data())[i]); });
}

std::string element_text(const ops::Value& value, int64_t i, int digits) {
  if (is_float(value.dtype)) return fmt::format("{:.{}g}", number_at(value, i), digits);
  const int64_t whole = whole_at(value, i);
  return value.dtype == DType::u64 ? fmt::format("{}", static_cast<uint64_t>(whole)) : fmt::format("{}", whole);
}

ops::Value random_value(const Port& port, uint64_t seed, size_t position) {
  auto data = std::make_shared<Bytes>(static_cast<size_t>(port.bytes()));
  const uint64_t stream = mixed(seed ^ mixed(position));
  const double integers = port.index_limit > 0 ? static_cast<double>(std::min(port.index_limit, largest_of(port.dtype) + 1)) : 2;
  ops::with_storage(port.dtype, [&](auto zero) {
    auto* const elements = reinterpret_cast<decltype(zero)*>(data->data());
    for (int64_t i = 0; i < element_count(port.shape); ++i) {
      const uint64_t bits = mixed(stream + static_cast<uint64_t>(i));
      const double uniform = static_cast<double>(bits >> 40) * 0x1p-24;  // [0, 1) in 24 bits, exact in f32
      const double number = is_float(port.dtype) ? (uniform - 0.5) * std::sqrt(12.0) : std::floor(uniform * integers);
      elements[i] = ops::encode<decltype(zero)>(number, port.dtype);
    }
  });
  return {port.dtype, port.shape, std::move(data)};
}

std::vector<ops::Value> read_inputs(const std::vector<Port>& ports, const std::vector<std::string>& assignments, uint64_t seed) {
  const std::map<std::string, std::string> files = files_by_name(ports, assignments);
  std::vector<ops::Value> values;
  for (size_t i = 0; i < ports.size(); ++i) {
    const auto file = files.find(ports[i].name);
    if (file == files.end()) {
      values.push_back(random_value(ports[i], seed, i));
      continue;
    }
    values.push_back(read_value(file->second));
    if (values[i].dtype != ports[i].dtype || values[i].shape != ports[i].shape) {
      throw bad_input("{}: holds {}, input '{}' is {}", printable(file->second), type_text(values[i].dtype, values[i].shape),
                      printable(ports[i].name), type_text(ports[i].dtype, ports[i].shape));
    }
  }
  return values;
}

namespace {

// Where a length's value comes from, for messages.
struct Told {
  int64_t value = 0;
  std::string where;  // empty: nowhere
};

void tell(Told& told, const Length& length, int64_t value, const std::string& where, int64_t found, const Extent& extent) {
  if (value < length.smallest || value > length.largest || extent.at(value) != found)
    throw bad_input("{} is {}, allowed are {} to {} ({})", where, found, extent.at(length.smallest), extent.at(length.largest),
                    printable(length.name));
  if (!told.where.empty() && told.value != value)
    throw bad_input("{} is {}, which makes {} {}, but {} says {}", where, found, printable(length.name), value, told.where, told.value);
  if (told.where.empty()) told = {value, where};
}

}  // namespace

std::vector<int64_t> values_of(const CompiledFolder& model, const std::vector<std::string>& at,
                               const std::vector<std::string>& assignments) {
  std::vector<Told> told(model.lengths.size());
  std::vector<std::string> names;
  for (const Length& length : model.lengths) names.push_back(length.name);
  for (const std::string& text : at) {
    const auto [name, value] = split_assignment("--at", text);
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end())
      throw bad_input("--at '{}': {}{}", printable(text),
                      names.empty() ? "the model has no lengths of run time, which --dim NAME=SMALLEST:LARGEST makes"
                                    : "the model's lengths are " + printable(join(names, ", ")),
                      did_you_mean(name, names));
    const auto i = static_cast<size_t>(found - names.begin());
    if (!told[i].where.empty()) throw bad_input("--at '{}' is given twice", printable(name));
    int64_t number = 0;
    const auto [end, failure] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (failure != std::errc() || end != value.data() + value.size())
      throw bad_input("--at '{}': '{}' is no number", printable(text), printable(value));
    tell(told[i], model.lengths[i], number, fmt::format("--at '{}'", printable(name)), number, {});
  }
  if (model.lengths.empty()) return {};
  const std::map<std::string, std::string> files = files_by_name(model.inputs, assignments);
  for (const Port& port : model.inputs) {
    const auto file = files.find(port.name);
    if (file == files.end() || port.axes.empty()) continue;
    const Shape shape = read_value(file->second).shape;
    if (shape.size() != port.shape.size()) continue;  // read_inputs says so
    for (const auto& [dim, extent] : port.axes) {
      const int64_t found = shape[static_cast<size_t>(dim)];
      const auto i = static_cast<size_t>(extent.length);
      const int64_t value = (found * extent.over - extent.plus + extent.times - 1) / extent.times;
      tell(told[i], model.lengths[i], value,
           fmt::format("{}: dimension {} of input '{}'", printable(file->second), dim, printable(port.name)), found, extent);
    }
  }
  std::vector<int64_t> values;
  for (size_t i = 0; i < told.size(); ++i) values.push_back(told[i].where.empty() ? model.lengths[i].largest : told[i].value);
  return values;
}

void require_inputs(const std::vector<std::string>& names, const std::vector<std::string>& assignments) {
  std::vector<Port> ports;
  for (const std::string& name : names) ports.push_back({.name = name, .shape = {}});
  for (const auto& [name, file] : files_by_name(ports, assignments)) read_value(file);
}

ops::Value read_raw(const std::filesystem::path& path, const Port& port) {
  const std::string text = read_text(path);
  TAMP_CHECK(text.size() == static_cast<size_t>(port.bytes()), "an output file of the model's program has the wrong size");
  auto data = std::make_shared<Bytes>(text.size());
  std::transform(text.begin(), text.end(), data->begin(), [](char c) { return static_cast<std::byte>(c); });
  return {port.dtype, port.shape, std::move(data)};
}

void write_raw(const std::filesystem::path& path, const ops::Value& value) {
  const size_t bytes = static_cast<size_t>(element_count(value.shape) * bytes_of(value.dtype));
  write_text(path, bytes == 0 ? std::string_view() : std::string_view(reinterpret_cast<const char*>(value.data->data()), bytes));
}

void write_outputs(const std::string& folder, const std::vector<Port>& ports, const std::vector<ops::Value>& values) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) throw bad_input("{}: cannot be created: {}", printable(folder), failure.message());
  nlohmann::ordered_json names = nlohmann::ordered_json::object();
  UniqueNames files;
  for (size_t i = 0; i < ports.size(); ++i) {
    const std::string name = files.unique(identifier(ports[i].name), "_");
    write_npy((std::filesystem::path(folder) / (name + ".npy")).string(), values[i]);
    names[ports[i].name] = name + ".npy";
  }
  write_text(std::filesystem::path(folder) / "outputs.json",
             names.dump(1, ' ', true, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

Statistics statistics_of(const ops::Value& value) {
  const int64_t count = element_count(value.shape);
  Statistics s{.least = std::numeric_limits<double>::infinity(), .most = -std::numeric_limits<double>::infinity()};
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double x = number_at(value, i);
    if (std::isnan(x)) {
      ++s.nans;
      continue;
    }
    s.least = std::min(s.least, x);
    s.most = std::max(s.most, x);
    sum += x;
  }
  s.numbers = count - s.nans;
  s.mean = sum / static_cast<double>(s.numbers);
  return s;
}

std::string summary(const ops::Value& value) {
  constexpr int64_t kShown = 4;
  const int64_t count = element_count(value.shape);
  const Statistics s = statistics_of(value);
  std::string text = type_text(value.dtype, value.shape);
  if (s.numbers > 0) text += fmt::format("  min {:.6g}  max {:.6g}  mean {:.6g}", s.least, s.most, s.mean);
  if (s.nans > 0) text += fmt::format("  {} NaN", s.nans);
  if (count > 0) text += "  first";
  for (int64_t i = 0; i < std::min(count, kShown); ++i) text += fmt::format(" {:.6g}", number_at(value, i));
  return text + (count > kShown ? " ..." : "");
}

}  // namespace tamp::cli
