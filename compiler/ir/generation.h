// What a program that makes tokens does between two runs of its kernel (docs/adr/0051): which inputs change, and which outputs the next run
// reads as inputs. Ports are numbers of Graph::inputs and Graph::outputs.
#pragma once

#include <cstdint>
#include <vector>

namespace tamp {

// What the next run finds in an input of the step. A mark is a 1 that stays, among zeros.
enum class Advance : uint8_t { token, position, mark_position, mark_token };

// `element` of the input; a position is the token's, from 0, plus `plus`. Example: the number of tokens with the present one, as ONNX's
// nonpad_kv_seqlen has it, is position with plus 1. A run of several tokens has an element for each of them, or one, which is of the first
// or of the last.
struct Advanced {
  int64_t input = 0;
  Advance advance = Advance::token;
  int64_t element = 0, plus = 0;
  bool is_each = false, is_last = false;
  bool operator==(const Advanced&) const = default;
};

struct Feed {
  int64_t output = 0, input = 0;
  bool operator==(const Feed&) const = default;
};

struct Generation {
  std::vector<Advanced> inputs;  // the first is the token
  std::vector<Feed> feeds;
  int64_t scores = 0, token = 0;            // outputs
  int64_t amounts = 0, draw = 0, seen = 0;  // inputs of the NextToken
  int64_t words = 0;                        // so many scores
  int64_t places = 0;                       // the most tokens of a text; 0: no limit
  std::vector<int64_t> stops;               // tokens that end the text
  int64_t rows = 1;                         // so many tokens go into a run; at most, where a length says it
  int32_t length = -1;                      // of Graph::lengths, or none

  bool is_step() const { return rows == 1 && length < 0; }  // whose run may be repeated
};

}  // namespace tamp
