#include "codegen/weights.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <vector>

#include "codegen/codegen.h"
#include "compiler/support/error.h"
#include "compiler/support/parallel.h"
#include "kernels/catalogue.h"
#include "runtime_stub/host/checksum.h"

namespace tamp::codegen {
namespace {

constexpr std::string_view kMagic = "tampWT02";

}  // namespace

Bytes gather_weights(const RProgram& program) {
  Bytes data(static_cast<size_t>(program.weight_bytes));
  struct Part {
    const RProgram& program;
    const WeightBlob& blob;
    bool is_first;  // of those that lie there
  };
  std::vector<Part> parts;
  std::map<int64_t, int64_t> written;  // begin, end; the verifier proved that places are apart or the same
  const auto list = [&](const RProgram& of) {
    for (const WeightBlob& blob : of.weights) {
      TAMP_CHECK(blob.offset >= 0 && blob.offset + blob.bytes <= program.weight_bytes, "place of weights '" + blob.name + "'");
      parts.push_back({of, blob, written.emplace(blob.offset, blob.offset + blob.bytes).second});
    }
  };
  list(program);
  for (const RProgram& smaller : program.smaller) list(smaller);
  // The first blob of a place is written, then the others of the place are compared with it.
  for (const bool writes : {true, false}) {
    in_parallel(parts.size(), processor_count(), [&](size_t p) {
      const auto& [of, blob, is_first] = parts[p];
      if (is_first != writes) return;
      Bytes packed;
      const Bytes* source = &packed;
      if (blob.constant.valid()) {
        source = of.graph.tensor(blob.constant).data.get();
      } else {
        const RKernel& rkernel = of.rkernels[blob.rop.index()];
        packed = kernels::family(rkernel.family).pack(of.graph, of.graph.rop(blob.rop), rkernel, blob.phase);
      }
      TAMP_CHECK(static_cast<int64_t>(source->size()) == blob.bytes, "size of weights '" + blob.name + "'");
      std::byte* const place = data.data() + blob.offset;
      if (writes && !source->empty()) std::memcpy(place, source->data(), source->size());
      TAMP_CHECK(writes || std::equal(source->begin(), source->end(), place), "weights '" + blob.name + "' lie on others");
    });
  }
  return data;
}

uint64_t hash_of(std::string_view data) {
  tamp_host::Checksum checksum;
  checksum.add(data.data(), data.size());
  return checksum.value();
}

uint64_t hash_of(const Bytes& data) { return hash_of(std::string_view(reinterpret_cast<const char*>(data.data()), data.size())); }

std::optional<uint64_t> structure_of_weights(const std::string& path) {
  Bytes header(kWeightsHeaderBytes);
  std::ifstream file(path, std::ios::binary);
  if (!file.read(reinterpret_cast<char*>(header.data()), kWeightsHeaderBytes)) return std::nullopt;
  if (std::memcmp(header.data(), kMagic.data(), kMagic.size()) != 0) return std::nullopt;
  uint64_t structure = 0;
  std::memcpy(&structure, header.data() + 24, 8);
  return structure;
}

Bytes weights_header(const Bytes& data, uint64_t hash, uint64_t structure) {
  Bytes header(kWeightsHeaderBytes);
  const uint64_t bytes = data.size();
  std::memcpy(header.data(), kMagic.data(), kMagic.size());
  std::memcpy(header.data() + 8, &bytes, 8);
  std::memcpy(header.data() + 16, &hash, 8);
  std::memcpy(header.data() + 24, &structure, 8);
  return header;
}

}  // namespace tamp::codegen
