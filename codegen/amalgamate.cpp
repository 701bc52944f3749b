#include "codegen/amalgamate.h"

#include <algorithm>
#include <string_view>

#include "compiler/support/embedded.h"

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

void append(const std::string& path, std::set<std::string>& done, std::string& out) {
  if (!done.insert(path).second) return;
  std::string own;
  std::string_view rest = embedded_file(path);
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (line == "#pragma once") continue;
    if (const std::string_view other = included(line); !other.empty()) {
      append(std::string(other), done, out);
      continue;
    }
    own += loop_hint(line);
    own += '\n';
  }
  out += "// >>> " + path + "\n" + own + "// <<< " + path + "\n\n";
}

}  // namespace

std::string amalgamate(const std::vector<std::string>& roots) {
  std::set<std::string> done;
  return amalgamate(roots, done);
}

std::string amalgamate(const std::vector<std::string>& roots, std::set<std::string>& done) {
  std::string out;
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
    else
      rest += line;
    at = end;
  }
  text = std::move(rest);
}

}  // namespace tamp::codegen
