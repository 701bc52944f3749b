#pragma once

#include <string_view>

namespace tamp {

std::string_view version();  // "0.1.0"

}  // namespace tamp
