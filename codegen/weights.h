// The weights file: a header, then every WeightBlob at its offset.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "compiler/ir/rprogram.h"

namespace tamp::codegen {

// Calls `take` with the program.weight_bytes bytes, some at a time and in order: constants as they are, packed blobs as their family packs
// them. All pieces but the last are a multiple of Checksum::kBlock long.
void stream_weights(const RProgram& program, const std::function<void(std::string_view)>& take);
Bytes gather_weights(const RProgram& program);
uint64_t hash_of_weights(const RProgram& program);

// The Checksum of runtime_stub/host/checksum.h. It identifies a weights file; it is no defence against an attacker.
uint64_t hash_of(std::string_view data);
uint64_t hash_of(const Bytes& data);

constexpr size_t kWeightsHeaderBytes = 32;

// The 32 bytes before the data; runtime_stub/host/weights.h reads them. `structure` is that of the programs that may load the file.
std::string weights_header(int64_t bytes, uint64_t hash, uint64_t structure);

}  // namespace tamp::codegen
