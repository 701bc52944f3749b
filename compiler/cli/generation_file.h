// The file of --generate: what the user says of a model that makes tokens (docs/howto/generate.md), as JSON.
#pragma once

#include <string>

#include "compiler/frontend/generation.h"

namespace tamp::cli {

// Error (bad input) names the field; `source` is the file for messages.
frontend::GenerationRequest parse_generation(const std::string& text, const std::string& source);
std::string generation_text(const frontend::GenerationRequest& request);  // the same as JSON

}  // namespace tamp::cli
