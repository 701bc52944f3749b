#include "codegen/names.h"

#include <fmt/format.h>

#include "compiler/support/text.h"

namespace tamp::codegen {

std::string Names::unique(const std::string& wanted) {
  const std::string base = identifier(wanted);
  std::string name = base;
  for (int i = 2; !taken_.insert(name).second; ++i) name = fmt::format("{}_{}", base, i);
  return name;
}

std::vector<RecordName> name_records(const RProgram& program) {
  Names names;
  std::vector<RecordName> records;
  for (size_t i = 0; i < program.graph.rops.size(); ++i) {
    const std::string& name = program.graph.rops[i].name;
    const size_t phases = program.rkernels[i].phases.size();
    for (size_t p = 0; p < phases; ++p) {
      const std::string suffix = p == 0 ? "" : fmt::format("_phase{}", p);
      const std::string text = phases == 1 ? name : fmt::format("{}, phase {} of {}", name, p, phases);
      records.push_back(
          {ROperatorId(static_cast<int64_t>(i)), static_cast<int32_t>(p), names.unique("k_" + identifier(name) + suffix), text});
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
