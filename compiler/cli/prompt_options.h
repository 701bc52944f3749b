// The options of `tamp run` that make tokens: --prompt, and how they are drawn.
#pragma once

#include <string>

#include "compiler/cli/command.h"
#include "compiler/cli/toolchain.h"

namespace tamp::cli {

struct PromptArguments {
  std::string prompt;
  bool is_given = false, has_others = false;  // --prompt; options that need it
  TokenOptions tokens;
};
// `arguments` must live as long as the command.
void add_prompt_options(CLI::App& command, PromptArguments& arguments);

// "1,15,7". Error (bad input) where that is no list of tokens.
std::vector<int64_t> parse_prompt(const std::string& text);

// CLI11's own check of a number that is not negative prints a limit of 309 digits, and lets NaN pass.
CLI::Validator check_of_amount();

}  // namespace tamp::cli
