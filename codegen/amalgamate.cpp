#include "codegen/amalgamate.h"

#include <algorithm>
#include <string_view>

#include "compiler/support/embedded.h"
#include "compiler/support/text.h"

namespace tamp::codegen {
namespace {

constexpr std::string_view kInclude = "#include \"";

// The path of a quoted include line, or empty.
std::string_view included(std::string_view line) {
  if (!line.starts_with(kInclude)) return {};
  line.remove_prefix(kInclude.size());
  return line.substr(0, line.find('"'));
}

// "#pragma unroll 1" -> "RK_PRAGMA(unroll 1)" (kernels/vdevice/platform.cuh): g++ warns of a pragma that it does not know.
std::string loop_hint(std::string_view line) {
  constexpr std::string_view kHint = "#pragma unroll";
  if (line.substr(std::min(line.find_first_not_of(' '), line.size())).starts_with(kHint))
    return "RK_PRAGMA(" + std::string(line.substr(line.find("unroll"))) + ")";
  return std::string(line);
}

// Removes the mark of a declaration for tables; false if the line has none.
bool take_mark(std::string& line) {
  for (const std::string_view mark : {"  // in tables", "; in tables"}) {
    if (!line.ends_with(mark)) continue;
    line.resize(line.find_last_not_of(' ', line.size() - mark.size() - 1) + 1);
    return true;
  }
  return false;
}

bool ends_declaration(std::string_view line) {
  line = line.substr(0, line.find("//"));
  line = line.substr(0, line.find_last_not_of(' ') + 1);
  return !line.starts_with(' ') && (line.starts_with('#') || line.ends_with(';') || line == "}");
}

// Moves the declarations for tables out of `lines`; no two blank lines stay behind each other.
std::string take_for_tables(std::vector<std::string>& lines) {
  std::string taken;
  std::vector<std::string> rest;
  for (size_t at = 0; at < lines.size(); ++at) {
    if (!take_mark(lines[at])) {
      if (!lines[at].empty() || (!rest.empty() && !rest.back().empty())) rest.push_back(lines[at]);
      continue;
    }
    size_t first = rest.size();
    while (first > 0 && (rest[first - 1].starts_with("//") || rest[first - 1].starts_with("template <"))) --first;
    for (size_t i = first; i < rest.size(); ++i) taken += rest[i] + "\n";
    rest.resize(first);
    while (!ends_declaration(lines[at])) taken += lines[at++] + "\n";
    taken += lines[at] + "\n";
  }
  lines = std::move(rest);
  return taken;
}

void append(const std::string& path, std::set<std::string>& done, Library& out) {
  if (!done.insert(path).second) return;
  std::vector<std::string> own;
  std::string_view rest = embedded_file(path);
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (line == "#pragma once") continue;
    if (const std::string_view other = included(line); !other.empty())
      append(std::string(other), done, out);
    else
      own.push_back(loop_hint(line));
  }
  const auto between_banners = [&](const std::string& text) { return "// >>> " + path + "\n" + text + "// <<< " + path + "\n"; };
  if (const std::string taken = take_for_tables(own); !taken.empty()) out.for_tables += between_banners(taken);
  out.rest += between_banners(join(own, "\n") + "\n") + "\n";
}

}  // namespace

Library amalgamate(const std::vector<std::string>& roots, std::set<std::string>& done) {
  Library out;
  for (const std::string& root : roots) append(root, done, out);
  return out;
}

void split_system_includes(std::string& text, std::set<std::string>& includes) {
  std::string rest;
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    const std::string line = text.substr(at, end - at);
    if (line.starts_with("#include <"))
      includes.insert(line);
    else if (line != "\n" || !rest.ends_with("\n\n"))
      rest += line;
    at = end;
  }
  text = std::move(rest);
}

}  // namespace tamp::codegen
