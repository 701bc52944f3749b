#include "compiler/support/version.h"

namespace tamp {

std::string_view version() { return TAMP_VERSION; }

}  // namespace tamp
