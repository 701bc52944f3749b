// Makes one file of several: follows the quoted #include lines, takes each file once, dependencies first, with banners between the files.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace tamp::codegen {

// `roots` are paths of embedded files. #pragma once and quoted #include lines are dropped; <...> includes stay.
std::string amalgamate(const std::vector<std::string>& roots);
// As above, in several calls: files in `done` are left out, and the files taken are added to it.
std::string amalgamate(const std::vector<std::string>& roots, std::set<std::string>& done);

// <...> includes must stand outside a model's namespace: takes them out of `text`, each once.
void split_system_includes(std::string& text, std::set<std::string>& includes);

}  // namespace tamp::codegen
