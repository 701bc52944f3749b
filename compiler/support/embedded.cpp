#include "compiler/support/embedded.h"

#include "compiler/support/error.h"

namespace tamp {

std::string_view embedded_file(std::string_view path) {
  for (const EmbeddedFile& file : embedded_files()) {
    if (file.path == path) return file.text;
  }
  TAMP_CHECK(false, "no embedded file " + std::string(path));
}

}  // namespace tamp
