// `tamp compile -`: the model comes from standard input.
#pragma once

namespace tamp::cli {

// The path under which standard input can be opened any number of times once it is kept, and which messages name.
inline constexpr const char* kStandardInput = "/dev/stdin";

// Reads standard input, to its end or to the largest size of a model, into memory, and puts that in its place as a file. Error (bad input)
// if standard input is a terminal or cannot be read.
void keep_standard_input();

}  // namespace tamp::cli
