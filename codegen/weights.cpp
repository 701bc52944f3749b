#include "codegen/weights.h"

#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "codegen/codegen.h"
#include "compiler/ir/large_bytes.h"
#include "compiler/support/error.h"
#include "compiler/support/parallel.h"
#include "kernels/catalogue.h"
#include "runtime_stub/host/checksum.h"

namespace tamp::codegen {
namespace {

constexpr std::string_view kMagic = "tampWT02";

// What lies in one place of the file: equal blobs.
struct Place {
  int64_t offset = 0;
  std::vector<std::pair<const RProgram*, const WeightBlob*>> blobs;
};

std::vector<Place> places_of(const RProgram& program) {
  std::map<int64_t, Place> places;
  const auto add = [&](const RProgram& of) {
    for (const WeightBlob& blob : of.weights) {
      TAMP_CHECK(blob.offset >= 0 && blob.offset + blob.bytes <= program.weight_bytes, "place of weights '" + blob.name + "'");
      if (blob.bytes == 0) continue;
      Place& place = places[blob.offset];
      place.offset = blob.offset;
      place.blobs.emplace_back(&of, &blob);
    }
  };
  add(program);
  for (const RProgram& smaller : program.smaller) add(smaller);
  std::vector<Place> ordered;
  for (auto& [offset, place] : places) ordered.push_back(std::move(place));
  return ordered;
}

std::shared_ptr<const Bytes> bytes_of(const RProgram& program, const WeightBlob& blob) {
  std::shared_ptr<const Bytes> bytes;
  if (blob.constant.valid()) {
    bytes = program.graph.tensor(blob.constant).data.hold();
  } else {
    const RKernel& rkernel = program.rkernels[blob.rop.index()];
    bytes = hold_large(kernels::family(rkernel.family).pack(program.graph, program.graph.rop(blob.rop), rkernel, blob.phase));
  }
  TAMP_CHECK(static_cast<int64_t>(bytes->size()) == blob.bytes, "size of weights '" + blob.name + "'");
  return bytes;
}

std::shared_ptr<const Bytes> bytes_of(const Place& place) {
  std::shared_ptr<const Bytes> first;
  for (const auto& [program, blob] : place.blobs) {
    const std::shared_ptr<const Bytes> bytes = bytes_of(*program, *blob);
    TAMP_CHECK(!first || *bytes == *first, "weights '" + blob->name + "' lie on others");
    first = bytes;
  }
  return first;
}

std::string_view view(const Bytes& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

}  // namespace

void stream_weights(const RProgram& program, const std::function<void(std::string_view)>& take) {
  const std::vector<Place> places = places_of(program);
  std::vector<size_t> costs;
  ConstantReads reads;
  for (const Place& place : places) {
    size_t& cost = costs.emplace_back(0);
    for (const auto& [of, blob] : place.blobs) {
      cost += static_cast<size_t>(blob->bytes);
      if (blob->constant.valid()) continue;
      cost += constant_bytes(of->graph, of->graph.rop(blob->rop));
      reads.expect(of->graph, of->graph.rop(blob->rop));
    }
  }
  std::vector<std::shared_ptr<const Bytes>> bytes(places.size());
  // A piece that does not end on a whole block takes the zeros behind it.
  const auto take_padded = [&](std::string_view data, int64_t bytes_of_zeros) {
    const size_t whole = data.size() / tamp_host::Checksum::kBlock * tamp_host::Checksum::kBlock;
    std::string end(data.substr(whole));
    end.resize(end.size() + static_cast<size_t>(bytes_of_zeros), '\0');
    for (const std::string_view piece : {data.substr(0, whole), std::string_view(end)}) {
      if (!piece.empty()) take(piece);
    }
  };
  if (const int64_t first = places.empty() ? program.weight_bytes : places[0].offset; first > 0) take_padded({}, first);
  std::mutex mutex;
  make_in_order(
      costs, kPackingBytes,
      [&](size_t i) {
        bytes[i] = bytes_of(places[i]);
        const std::scoped_lock lock(mutex);
        for (const auto& [of, blob] : places[i].blobs) {
          if (!blob->constant.valid()) reads.end(of->graph, of->graph.rop(blob->rop));
        }
      },
      [&](size_t i) {
        const std::shared_ptr<const Bytes> own = std::move(bytes[i]);
        const int64_t end = places[i].offset + std::ssize(*own);
        const int64_t next = i + 1 < places.size() ? places[i + 1].offset : program.weight_bytes;
        TAMP_CHECK(end <= next, "weights that lie on others");
        take_padded(view(*own), next - end);
      });
  forget_data(program.graph);
  for (const RProgram& smaller : program.smaller) forget_data(smaller.graph);
}

Bytes gather_weights(const RProgram& program) {
  Bytes data;
  stream_weights(program, [&](std::string_view piece) {
    const auto* const first = reinterpret_cast<const std::byte*>(piece.data());
    data.insert(data.end(), first, first + piece.size());
  });
  return data;
}

uint64_t hash_of_weights(const RProgram& program) {
  tamp_host::Checksum checksum;
  stream_weights(program, [&](std::string_view piece) { checksum.add(piece.data(), piece.size()); });
  return checksum.value();
}

uint64_t write_weights(const RProgram& program, uint64_t structure, NewFile& file) {
  tamp_host::Checksum checksum;
  file.append(weights_header(program.weight_bytes, 0, structure));
  stream_weights(program, [&](std::string_view piece) {
    checksum.add(piece.data(), piece.size());
    file.append(piece);
  });
  file.overwrite(weights_header(program.weight_bytes, checksum.value(), structure), 0);
  return checksum.value();
}

uint64_t hash_of(std::string_view data) {
  tamp_host::Checksum checksum;
  checksum.add(data.data(), data.size());
  return checksum.value();
}

uint64_t hash_of(const Bytes& data) { return hash_of(view(data)); }

std::optional<uint64_t> structure_of_weights(const std::string& path) {
  Bytes header(kWeightsHeaderBytes);
  std::ifstream file(path, std::ios::binary);
  if (!file.read(reinterpret_cast<char*>(header.data()), kWeightsHeaderBytes)) return std::nullopt;
  if (std::memcmp(header.data(), kMagic.data(), kMagic.size()) != 0) return std::nullopt;
  uint64_t structure = 0;
  std::memcpy(&structure, header.data() + 24, 8);
  return structure;
}

std::string weights_header(int64_t bytes, uint64_t hash, uint64_t structure) {
  std::string header(kWeightsHeaderBytes, '\0');
  std::memcpy(header.data(), kMagic.data(), kMagic.size());
  std::memcpy(header.data() + 8, &bytes, 8);
  std::memcpy(header.data() + 16, &hash, 8);
  std::memcpy(header.data() + 24, &structure, 8);
  return header;
}

}  // namespace tamp::codegen
