#include "compiler/cli/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <utility>

#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::cli {
namespace {

using nlohmann::json;

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kAlignment = 64;           // the data begins at a multiple of this, as NumPy writes it
constexpr size_t kLongestHeader = 1 << 20;  // far more than any shape needs

struct TypeName {
  std::string_view descr;
  DType dtype;
};
constexpr std::array kTypes = {TypeName{"<f4", DType::f32}, TypeName{"<f8", DType::f64}, TypeName{"<f2", DType::f16},
                               TypeName{"<i8", DType::i64}, TypeName{"<i4", DType::i32}, TypeName{"<i2", DType::i16},
                               TypeName{"|i1", DType::i8},  TypeName{"<u8", DType::u64}, TypeName{"<u4", DType::u32},
                               TypeName{"<u2", DType::u16}, TypeName{"|u1", DType::u8},  TypeName{"|b1", DType::boolean}};

struct Header {
  DType dtype = DType::f32;
  Shape shape;
};

Error wrong(const std::string& path, const std::string& what) { return bad_input("{}: {}", printable(path), what); }

// The Python dictionary of the header as JSON: {'descr': '<f4', 'fortran_order': False, 'shape': (1, 3), } is
// {"descr": "<f4", "fortran_order": false, "shape": [1, 3]}, without blanks.
json json_of(const std::string& header) {
  static const std::pair<std::regex, const char*> kRewrites[] = {{std::regex("'"), "\""},
                                                                 {std::regex("[(]"), "["},
                                                                 {std::regex("[)]"), "]"},
                                                                 {std::regex("\\bFalse\\b"), "false"},
                                                                 {std::regex("\\bTrue\\b"), "true"},
                                                                 {std::regex(",([\\]}])"), "$1"}};
  std::string text = header;
  std::erase(text, ' ');
  for (const auto& [from, to] : kRewrites) text = std::regex_replace(text, from, to);
  return json::parse(text, nullptr, /*allow_exceptions=*/false);
}

Header read_header(const std::string& text, const std::string& path) {
  const json header = json_of(text);
  if (!header.is_object()) throw wrong(path, "the .npy header cannot be read");
  for (const auto& [key, value] : header.items()) {
    if (key != "descr" && key != "fortran_order" && key != "shape")
      throw wrong(path, fmt::format("unknown key '{}' in the .npy header", printable(key, 40)));
  }
  if (header.size() != 3) throw wrong(path, "the .npy header lacks 'descr', 'fortran_order' or 'shape'");
  if (header["fortran_order"] == true) throw wrong(path, "is in Fortran order, supported: C order");
  const auto is_extent = [](const json& extent) { return extent.is_number_unsigned() && extent <= std::numeric_limits<int64_t>::max(); };
  if (header["fortran_order"] != false || !header["descr"].is_string() || !header["shape"].is_array() ||
      !std::all_of(header["shape"].begin(), header["shape"].end(), is_extent))
    throw wrong(path, "the .npy header cannot be read");
  const auto descr = header["descr"].get<std::string>();
  const auto* const type = std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeName& name) { return name.descr == descr; });
  if (type == kTypes.end()) {
    throw wrong(path, fmt::format("element type '{}' is not supported; supported: little-endian floats, integers and booleans",
                                  printable(descr, 40)));
  }
  return {type->dtype, header["shape"].get<Shape>()};
}

// Bytes of the data; none if the number overflows.
std::optional<uint64_t> data_bytes(const Header& header) {
  uint64_t bytes = static_cast<uint64_t>(bytes_of(header.dtype));
  for (const int64_t extent : header.shape) {
    const auto factor = static_cast<uint64_t>(extent);
    if (factor != 0 && bytes > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) / factor) return std::nullopt;
    bytes *= factor;
  }
  return bytes;
}

std::string header_text(const ops::Value& value, std::string_view descr) {
  std::string shape;
  for (const int64_t extent : value.shape) shape += fmt::format("{}, ", extent);
  if (value.shape.size() > 1) shape.resize(shape.size() - 2);
  if (value.shape.size() == 1) shape.resize(shape.size() - 1);  // NumPy writes one dimension as "(3,)"
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr, shape);
  const size_t unpadded = kMagic.size() + 4 + text.size() + 1;
  text.append((kAlignment - unpadded % kAlignment) % kAlignment, ' ');
  return text + "\n";
}

}  // namespace

ops::Value read_npy(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::error_code failure;
  const uint64_t file_bytes = std::filesystem::file_size(path, failure);
  if (!file || failure) throw wrong(path, "cannot be opened");

  std::array<char, 8> start{};
  file.read(start.data(), start.size());
  if (!file || std::string_view(start.data(), kMagic.size()) != kMagic) throw wrong(path, "is not a .npy file");
  const int version = start[6];
  if (version != 1 && version != 2) throw wrong(path, fmt::format(".npy version {} is not supported; supported: 1, 2", version));
  std::array<unsigned char, 4> length{};
  const size_t length_bytes = version == 1 ? 2 : 4;
  file.read(reinterpret_cast<char*>(length.data()), static_cast<std::streamsize>(length_bytes));
  const size_t header_bytes = length[0] | length[1] << 8 | static_cast<size_t>(length[2]) << 16 | static_cast<size_t>(length[3]) << 24;
  if (!file || header_bytes > kLongestHeader) throw wrong(path, "the .npy header cannot be read");
  std::string text(header_bytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(header_bytes));
  if (!file) throw wrong(path, "the .npy header is cut short");

  const Header header = read_header(text, path);
  const std::optional<uint64_t> bytes = data_bytes(header);
  const uint64_t found = file_bytes - (start.size() + length_bytes + header_bytes);
  if (!bytes || *bytes != found) {
    throw wrong(path, fmt::format("holds {} bytes of data, its shape {} of {} needs {}", found, shape_text(header.shape),
                                  name_of(header.dtype), bytes ? std::to_string(*bytes) : "more than memory has"));
  }
  auto data = std::make_shared<Bytes>(*bytes);
  file.read(reinterpret_cast<char*>(data->data()), static_cast<std::streamsize>(*bytes));
  if (!file) throw wrong(path, "cannot be read");
  return {header.dtype, header.shape, std::move(data)};
}

void write_npy(const std::string& path, const ops::Value& value) {
  std::string_view descr;
  for (const TypeName& name : kTypes) {
    if (name.dtype == value.dtype) descr = name.descr;
  }
  if (descr.empty()) throw wrong(path, fmt::format("{} has no .npy element type", name_of(value.dtype)));
  const std::string text = header_text(value, descr);
  std::ofstream file(path, std::ios::binary);
  const std::array<char, 4> version_and_length = {1, 0, static_cast<char>(text.size() & 0xff), static_cast<char>(text.size() >> 8)};
  file << kMagic;
  file.write(version_and_length.data(), version_and_length.size());
  file << text;
  file.write(reinterpret_cast<const char*>(value.data->data()), static_cast<std::streamsize>(value.data.size()));
  file.close();
  if (!file) throw wrong(path, "cannot be written");
}

}  // namespace tamp::cli
