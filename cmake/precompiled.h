// Headers that nearly every source includes, compiled once with -DTAMP_PRECOMPILE=ON. With this option the sources of a library are also
// compiled eight at a time, so a name in an unnamed namespace must be unique within its library. Users build without the option, so each
// file still has to include what it needs.
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
