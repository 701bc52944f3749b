#include "codegen/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <sstream>
#include <string_view>

#include "codegen/codegen.h"
#include "compiler/support/embedded.h"
#include "compiler/support/text.h"

namespace tamp::codegen {
namespace {

std::set<std::string> reserved_names() {
  std::set<std::string> names;
  std::istringstream lines{std::string(embedded_file("codegen/reserved_names.txt"))};
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream words(line);
    for (std::string word; words >> word;) names.insert(word);
  }
  return names;
}

// Names that other libraries reserve by pattern: a list of them all would be long and soon out of date.
bool in_reserved_family(const std::string& name) {
  static constexpr std::array<std::string_view, 19> kPrefixes = {"cuda",   "tamp",     "pthread_", "posix_", "atomic", "make_", "tex1D",
                                                                 "tex2D",  "tex3D",    "texC",     "surf",   "cublas", "cudnn", "cufft",
                                                                 "curand", "cusolver", "cusparse", "nvrtc",  "nvml"};
  const auto begins = [&](std::string_view prefix) { return name.starts_with(prefix); };
  const auto is_upper = [](char c) { return c >= 'A' && c <= 'Z'; };
  const auto is_lower = [](char c) { return c >= 'a' && c <= 'z'; };
  const bool driver_api = name.size() > 2 && name.starts_with("cu") && is_upper(name[2]);                      // cuInit
  const bool macro = name.find('_') != std::string::npos && std::none_of(name.begin(), name.end(), is_lower);  // INT_MAX
  return driver_api || macro || std::any_of(kPrefixes.begin(), kPrefixes.end(), begins);
}

}  // namespace

std::string safe_name(const std::string& wanted) {
  // The suffixes of the model's C functions: sem.onnx would otherwise declare sem_destroy, which POSIX has.
  static constexpr std::array<std::string_view, 18> kSuffixes = {
      "",         "_create",  "_run",          "_run_dlpack",   "_status",      "_message",
      "_destroy", "_context", "_input_count",  "_output_count", "_inputs",      "_outputs",
      "_info",    "_lengths", "_lengths_info", "_run_at",       "_input_shape", "_output_shape"};
  const std::set<std::string> reserved = reserved_names();
  const std::string name = identifier(wanted);
  const auto clashes = [&](std::string_view suffix) { return reserved.contains(name + std::string(suffix)); };
  return in_reserved_family(name) || std::any_of(kSuffixes.begin(), kSuffixes.end(), clashes) ? "m_" + name : name;
}

std::string Names::unique(const std::string& wanted) { return names_.unique(identifier(wanted), "_"); }

std::vector<RecordName> name_records(const RProgram& program) {
  static const std::string kArgs = "args_";
  Names names;
  std::vector<RecordName> records;
  for (size_t i = 0; i < program.graph.rops.size(); ++i) {
    const std::string& name = program.graph.rops[i].name;
    const size_t phases = program.rkernels[i].phases.size();
    for (size_t p = 0; p < phases; ++p) {
      const std::string suffix = p == 0 ? "" : fmt::format("_phase{}", p);
      const std::string text = phases == 1 ? name : fmt::format("{}, phase {} of {}", name, p, phases);
      const std::string wanted = kArgs + name + suffix;
      const bool is_left = identifier(wanted).starts_with(kArgs);  // of a name without a letter or digit of ASCII nothing is
      const std::string symbol = names.unique(is_left ? wanted : kArgs + "rop" + suffix);
      records.push_back({ROperatorId(static_cast<int64_t>(i)), static_cast<int32_t>(p), symbol, "r_" + symbol.substr(kArgs.size()), text});
    }
  }
  return records;
}

std::string c_string(const std::string& text) {
  std::string out;
  for (const char ch : text) {
    const auto c = static_cast<unsigned char>(ch);
    const bool plain = c >= 0x20 && c < 0x7f && c != '"' && c != '\\' && c != '?';
    if (plain)
      out += ch;
    else
      out += fmt::format("\\{:03o}", c);
  }
  return out;
}

std::string comment(const std::string& text) {
  // A trailing backslash would join the next line to the comment; printable() escapes it.
  return printable(text, 160);
}

}  // namespace tamp::codegen
