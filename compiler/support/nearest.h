// What a user probably meant by a word that is not known: a command, an option, an operator, a vDevice.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tamp {

// The word of `known` that is nearest to `word`, whatever their case; empty if none is near: at most a third of the letters are left out,
// put in, wrong, or swapped with the next one (Damerau's distance). "MatMull" -> "MatMul", "H200" -> "h200", "xyz" -> "".
std::string nearest(std::string_view word, const std::vector<std::string>& known);

// "; did you mean 'MatMul'?", or nothing: the end of a message.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& known);

}  // namespace tamp
