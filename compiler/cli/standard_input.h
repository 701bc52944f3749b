// `tamp compile -`: the model comes from standard input.
#pragma once

namespace tamp::cli {

// The path that it can be opened by, as often as one likes, once it is kept; and that messages have.
inline constexpr const char* kStandardInput = "/dev/stdin";

// Reads standard input to its end, or as far as no model reaches, into memory that takes its place as a file. Error (bad input) if it is a
// terminal or cannot be read.
void keep_standard_input();

}  // namespace tamp::cli
