// Makes one file of several real ones: follows the quoted #include lines, each file once, dependencies first, between banners.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace tamp::codegen {

// `roots` are paths of embedded files. #pragma once and quoted #include lines are dropped; <...> includes stay.
std::string amalgamate(const std::vector<std::string>& roots);
// The same in several parts: what is in `done` is left out, and what is taken is added to it.
std::string amalgamate(const std::vector<std::string>& roots, std::set<std::string>& done);

// <...> includes must stand outside a model's namespace: takes them out of `text`, each once.
void split_system_includes(std::string& text, std::set<std::string>& includes);

}  // namespace tamp::codegen
