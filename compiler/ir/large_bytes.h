// Large Bytes whose memory is used again. The kernel clears each page that it gives, which would take as long as all else that is done with
// weights.
#pragma once

#include <memory>

#include "compiler/ir/tensor_data.h"

namespace tamp {

// Holds the bytes. Behind the last holder their memory waits for the next zero_bytes of about their size.
std::shared_ptr<const Bytes> hold_large(Bytes bytes);

}  // namespace tamp
