// Brings a program's weights to the device, from NAME.weights or from memory. What does not belong to this program, or is damaged, is
// refused.
#pragma once

#include <cuda_runtime.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "runtime_stub/host/checksum.h"
#include "runtime_stub/host/program.h"
#include "runtime_stub/host/tamp_api.h"

namespace tamp_host {

// The first 32 bytes of NAME.weights.
struct WeightsHeader {
  char magic[8];
  uint64_t bytes;
  uint64_t hash;  // Checksum of the data behind it
  uint64_t structure;
};
constexpr char kMagic[8] = {'t', 'a', 'm', 'p', 'W', 'T', '0', '2'};

// The folder of a path, with its last slash; empty where the path has none.
inline std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/') + 1); }

inline std::string program_folder() {
  char path[4096];
  const ssize_t bytes = readlink("/proc/self/exe", path, sizeof path);
  return bytes > 0 ? folder_of(std::string(path, static_cast<size_t>(bytes))) : std::string();
}

// Opens the file that the user named, or finds the one that NULL stands for; `path` is set.
inline std::FILE* open_weights(const Model& model, const tamp_options& options, std::string& path, std::string& message) {
  path = options.weights_path != nullptr ? std::string(options.weights_path) : model.weights_folder + model.weights_file;
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file != nullptr) return file;
  message = path + ": cannot be opened";
  if (options.weights_path != nullptr) return nullptr;
  path = program_folder() + model.weights_file;
  file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) message += ", nor " + path + "; tamp_options.weights_path names another file";
  return file;
}

inline std::string hexadecimal(uint64_t number) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(number));
  return text;
}

// `what`: the file or the memory, for the message.
inline tamp_status check_header(const Model& model, const WeightsHeader& header, const std::string& what, std::string& message) {
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0)
    return fail(message, TAMP_WEIGHTS, what + ": not a tamp weights file of this version");
  if (header.structure != model.structure) {
    return fail(message, TAMP_WEIGHTS,
                what + ": weights for programs of structure " + hexadecimal(header.structure) + ", this one is " +
                    hexadecimal(model.structure) + "; 'tamp weights' writes those of a model for it");
  }
  if (header.bytes != model.weight_bytes) {
    return fail(message, TAMP_WEIGHTS,
                what + ": damaged, it says that it holds " + std::to_string(header.bytes) + " bytes of weights, expected " +
                    std::to_string(model.weight_bytes));
  }
  return TAMP_OK;
}

// Streams the file to the device in pieces, so that the host never holds all of it.
inline tamp_status copy_weights_file(const Model& model, const tamp_options& options, char* to, std::string& message) {
  std::string path;
  std::FILE* const file = open_weights(model, options, path, message);
  if (file == nullptr) return TAMP_WEIGHTS;
  constexpr size_t kPiece = size_t{8} << 20;
  char* const piece = static_cast<char*>(std::malloc(kPiece));
  tamp_status status = piece == nullptr ? fail(message, TAMP_OUT_OF_MEMORY, "out of host memory") : TAMP_OK;
  WeightsHeader header{};
  if (status == TAMP_OK && std::fread(&header, sizeof header, 1, file) != 1) header = {};
  if (status == TAMP_OK) status = check_header(model, header, path, message);
  Checksum checksum;
  for (size_t at = 0; status == TAMP_OK && at < model.weight_bytes;) {
    const size_t want = model.weight_bytes - at < kPiece ? model.weight_bytes - at : kPiece;
    if (std::fread(piece, 1, want, file) != want) {
      status = fail(message, TAMP_WEIGHTS, path + ": shorter than it should be");
      break;
    }
    checksum.add(piece, want);
    const cudaError_t error = cudaMemcpy(to + at, piece, want, cudaMemcpyHostToDevice);
    if (error != cudaSuccess) status = fail_cuda(message, "cudaMemcpy of the weights", error);
    at += want;
  }
  if (status == TAMP_OK && std::fgetc(file) != EOF) status = fail(message, TAMP_WEIGHTS, path + ": longer than it should be");
  if (status == TAMP_OK && checksum.value() != header.hash)
    status = fail(message, TAMP_WEIGHTS, path + ": damaged, the checksum of its data is not the one that was written");
  std::free(piece);
  std::fclose(file);
  return status;
}

inline tamp_status load_weights(const Model& model, const tamp_options& options, char* to, std::string& message) {
  const void* data = options.weights;
  if (data != nullptr && options.weights_bytes != sizeof(WeightsHeader) + model.weight_bytes) {
    return fail(message, TAMP_WEIGHTS,
                "weights_bytes is " + std::to_string(options.weights_bytes) + ", expected " +
                    std::to_string(sizeof(WeightsHeader) + model.weight_bytes));
  }
  if (data != nullptr) {
    WeightsHeader header;
    std::memcpy(&header, data, sizeof header);
    const tamp_status checked = check_header(model, header, "the weights in memory", message);
    if (checked != TAMP_OK) return checked;
    data = static_cast<const char*>(data) + sizeof header;
    Checksum checksum;
    checksum.add(data, model.weight_bytes);
    if (checksum.value() != header.hash)
      return fail(message, TAMP_WEIGHTS, "the weights in memory: damaged, the checksum of the data is not the one that was written");
  } else if (options.weights_path == nullptr) {
    data = model.embedded_weights;
  }
  if (data == nullptr) return copy_weights_file(model, options, to, message);
  TAMP_TRY_CUDA(message, cudaMemcpy(to, data, model.weight_bytes, cudaMemcpyHostToDevice));
  return TAMP_OK;
}

}  // namespace tamp_host
