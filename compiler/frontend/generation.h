// Makes the graph of a decoder's step one whose program makes tokens (docs/adr/0051): finds out which inputs change from token to token and
// how, which outputs are the inputs of the next run, and appends the draw of a token from the scores.
//
//   scores = MatMul(x, w) -> f32[1,1,65]        token = NextToken(scores, amounts, draw, seen) -> i64[1]
//
// The same for a run of several tokens of a prompt: its scores are then those of the last token alone.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/ir/generation.h"
#include "compiler/ir/graph.h"

namespace tamp::frontend {

// What the user says of it; what is left out is found by names, shapes and what the graph does.
struct GenerationRequest {
  std::string token, scores;
  std::map<std::string, int64_t> positions;  // inputs that hold the token's position, counted from 0, plus a number
  std::map<std::string, int64_t> ends;       // the same; where a run has several tokens, one integer that is of the last
  std::set<std::string> masks;               // inputs in which places that are in use are 1, others 0
  std::map<std::string, std::string> feeds;  // output -> input
  std::set<std::string> held;                // inputs that each call gives, and that do not change
  std::vector<int64_t> stops;
  int64_t places = 0;  // 0: as many as the caches have
  bool operator==(const GenerationRequest&) const = default;
};

// The operands of the draw, behind the model's inputs.
inline constexpr const char* kAddedInputs[] = {"tamp.amounts", "tamp.draw", "tamp.seen"};

// Error (unsupported or bad input) names the input or output that has no part in it, or several.
Generation add_generation(Graph& graph, const GenerationRequest& request);

// "token 'input_ids', position 'position_ids', 'present.0.key' becomes 'past_key_values.0.key', ..": for people.
std::vector<std::string> describe(const Graph& graph, const Generation& generation);

}  // namespace tamp::frontend
