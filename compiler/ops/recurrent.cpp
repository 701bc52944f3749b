// The reference of recurrent networks.
#include "compiler/ops/call.h"
#include "compiler/support/error.h"

namespace tamp::ops {

std::vector<Value> recurrent(const Call& call, const Recurrent&) {
  TAMP_CHECK(false, where(call.rop) + ": not written yet");
}

}  // namespace tamp::ops
