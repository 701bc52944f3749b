#include "codegen/weights.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "compiler/support/error.h"
#include "kernels/catalogue.h"
#include "runtime_stub/host/checksum.h"

namespace tamp::codegen {

Bytes gather_weights(const RProgram& program) {
  Bytes data(static_cast<size_t>(program.weight_bytes));
  std::map<int64_t, int64_t> written;  // begin, end; what the verifier proves: places are apart or the same
  for (const WeightBlob& blob : program.weights) {
    Bytes packed;
    const Bytes* source = &packed;
    if (blob.constant.valid()) {
      source = program.graph.tensor(blob.constant).data.get();
    } else {
      const RKernel& rkernel = program.rkernels[blob.rop.index()];
      packed = kernels::family(rkernel.family).pack(program.graph, program.graph.rop(blob.rop), rkernel, blob.phase);
    }
    TAMP_CHECK(static_cast<int64_t>(source->size()) == blob.bytes, "size of weights '" + blob.name + "'");
    TAMP_CHECK(blob.offset >= 0 && blob.offset + blob.bytes <= program.weight_bytes, "place of weights '" + blob.name + "'");
    std::byte* const place = data.data() + blob.offset;
    const bool is_new = written.emplace(blob.offset, blob.offset + blob.bytes).second;
    if (is_new && !source->empty()) std::memcpy(place, source->data(), source->size());
    TAMP_CHECK(is_new || std::equal(source->begin(), source->end(), place), "weights '" + blob.name + "' lie on others");
  }
  return data;
}

uint64_t hash_of(const Bytes& data) {
  tamp_host::Checksum checksum;
  checksum.add(data.data(), data.size());
  return checksum.value();
}

Bytes weights_header(const Bytes& data, uint64_t hash) {
  Bytes header(32);
  const uint64_t bytes = data.size();
  std::memcpy(header.data(), "tampWT01", 8);
  std::memcpy(header.data() + 8, &bytes, 8);
  std::memcpy(header.data() + 16, &hash, 8);
  return header;
}

}  // namespace tamp::codegen
