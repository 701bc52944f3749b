// What nearly every source reads anyway, compiled once with -DTAMP_PRECOMPILE=ON. The sources of a library are then read eight at a time, too, so a
// name in an unnamed namespace is unique within its library. What users build is without it, so that each file still has to name what it needs.
#pragma once

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>
