// Makes one file of several real ones: follows the quoted #include lines, each file once, dependencies first, between banners.
#pragma once

#include <string>
#include <vector>

namespace tamp::codegen {

// `roots` are paths of embedded files. #pragma once and quoted #include lines are dropped; <...> includes stay.
std::string amalgamate(const std::vector<std::string>& roots);

}  // namespace tamp::codegen
