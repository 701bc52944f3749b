// Makes one file of several: follows the quoted #include lines, takes each file once, dependencies first, with banners between the files.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace tamp::codegen {

// Declarations whose first line ends with the comment "in tables", and all else. The tables of a program need no other declarations, so
// that these stand in front of the tables and all else behind. A declaration is one line, or ends with the next line that is not indented
// and ends with ';' or is '}'. The comment and the template<> above it are part of it.
struct Library {
  std::string for_tables, rest;
};

// `roots` are paths of embedded files. #pragma once and quoted #include lines are dropped; <...> includes stay. Files in `done` are left
// out, and the files taken are added to it.
Library amalgamate(const std::vector<std::string>& roots, std::set<std::string>& done);

// <...> includes must stand outside a model's namespace: takes them out of `text`, each once.
void split_system_includes(std::string& text, std::set<std::string>& includes);

}  // namespace tamp::codegen
