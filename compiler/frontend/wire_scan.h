// Looks at a protobuf file before it is parsed: how many objects would the parser make?
#pragma once

namespace tamp::frontend {

// In protobuf's wire format an empty message takes two bytes of the file and 200 in memory, so that a file of some
// megabytes can ask for more memory than there is. Models with hundreds of thousands of nodes stay far below this.
inline constexpr int kMaxObjects = 2'000'000;

// True if the ModelProto that begins at the descriptor's position holds more than kMaxObjects messages and repeated
// strings. Moves the position. Bytes that are no ModelProto give false: the parser says what is wrong with them.
bool has_too_many_objects(int descriptor);

}  // namespace tamp::frontend
