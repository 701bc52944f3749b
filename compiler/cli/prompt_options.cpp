#include "compiler/cli/prompt_options.h"

#include <charconv>
#include <cmath>

#include "compiler/support/text.h"

namespace tamp::cli {

CLI::Validator check_of_amount() {
  return {[](const std::string& text) -> std::string {
            double value = 0;
            return CLI::detail::lexical_cast(text, value) && value >= 0 && std::isfinite(value) ? "" : text + " is no number from 0 on";
          },
          ""};
}

std::vector<int64_t> parse_prompt(const std::string& text) {
  constexpr int64_t kMostTokens = int64_t{1} << 31;
  std::vector<int64_t> tokens;
  const char *at = text.data(), *const end = at + text.size();
  for (;; ++at) {
    const auto [behind, error] = std::from_chars(at, end, tokens.emplace_back());
    const bool is_token = error == std::errc() && tokens.back() >= 0 && tokens.back() <= kMostTokens;
    if (!is_token || (behind != end && *behind != ','))
      throw bad_input("--prompt '{}': token {} is no number from 0 to {}; a prompt is a list as 1,15,7", printable(text), tokens.size() - 1,
                      kMostTokens);
    if (behind == end) return tokens;
    at = behind;
  }
}

void add_prompt_options(CLI::App& command, PromptArguments& arguments) {
  TokenOptions& tokens = arguments.tokens;
  add_value(command, "--prompt", "N,N,..", arguments.prompt, "Of a program of --generate: make tokens that follow these")
      ->each([&arguments](const std::string&) { arguments.is_given = true; });
  const auto add = [&](const char* flag, const char* text, auto& value, const char* help) {
    return add_value(command, flag, text, value, help)->each([&arguments](const std::string&) { arguments.has_others = true; });
  };
  add("--max-tokens", "N", tokens.most, "With --prompt: how many are made at most (default 16)")->check(CLI::Range(1, 1 << 24));
  add("--temperature", "T", tokens.temperature, "With --prompt: 0 (default) takes the best word, others draw with --seed")
      ->check(check_of_amount());
  add("--top-k", "K", tokens.top_k, "With --temperature: draw among the K best words (0, default: all)")
      ->check(CLI::Range(0, 1 << 30))
      ->needs("--temperature");
  add("--top-p", "P", tokens.top_p, "With --temperature: draw among the best words that have P of the probability (0, default: all)")
      ->check(CLI::Range(0.0, 1.0))
      ->needs("--temperature");
  add("--repetition-penalty", "P", tokens.repetition_penalty, "With --prompt: divide scores of words that were there by P (0 or 1: do not)")
      ->check(check_of_amount());
}

}  // namespace tamp::cli
