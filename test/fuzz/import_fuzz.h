#pragma once

#include <cstddef>
#include <cstdint>

namespace tamp::test {

// True if the bytes are a model that tamp takes, false if it refuses them with an Error; every other exception comes out.
bool try_import(const uint8_t* data, size_t size);

}  // namespace tamp::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
