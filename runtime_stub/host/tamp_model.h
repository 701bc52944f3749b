// The C++ class on top of a model's C functions. Its text stands in each NAME.h, in the model's namespace, so that headers of several
// models, also of other versions of tamp, go together. The generated `Api` names the functions.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime_stub/host/tamp_api.h"

namespace tamp_cpp {

// "f32[1,3,224,224]"
inline std::string type_text(const tamp_port& port) {
  std::string text = std::string(port.dtype) + "[";
  for (int32_t d = 0; d < port.rank; ++d) text.append(d == 0 ? "" : ",").append(std::to_string(port.shape[d]));
  return text + "]";
}

#if defined(__cpp_lib_span)

// The kind of a span's elements. For the 16-bit types of other libraries (__half, __nv_bfloat16) only their size is known.
enum class Kind : char { floating = 'f', integer = 'i', natural = 'u', boolean = 'b', other = '?', bytes = 'B' };

template <class T>
constexpr Kind kind_of() {
  if constexpr (std::is_same_v<T, std::byte>) return Kind::bytes;
  if constexpr (std::is_same_v<T, bool>) return Kind::boolean;
  if constexpr (std::is_floating_point_v<T>) return Kind::floating;
  if constexpr (std::is_integral_v<T>) return std::is_signed_v<T> ? Kind::integer : Kind::natural;
  return Kind::other;
}

// Device memory with its size. It is made of a std::span of the port's C++ type: float for f32, int64_t for i64, any class of 2 bytes for
// f16 and bf16, bool or uint8_t for bool; a span of std::byte may hold any of them.
template <class Pointer>
struct Memory {
  template <class T, std::size_t N>
  requires(std::is_convertible_v<T*, Pointer>) Memory(std::span<T, N> span)  // not explicit: spans are what users give
      : data(span.data()), count(span.size()), bytes_each(sizeof(T)), kind(kind_of<std::remove_cv_t<T>>()) {}

  Pointer data;
  std::size_t count, bytes_each;
  Kind kind;
};
using Input = Memory<const void*>;
using Output = Memory<void*>;

// The same with the name that the ONNX model has for it: {"ids", ids}.
template <class Pointer>
struct Named {
  std::string_view name;
  Memory<Pointer> memory;
};
using NamedInput = Named<const void*>;
using NamedOutput = Named<void*>;

template <class Pointer>
bool is_of_type(const Memory<Pointer>& given, const tamp_port& port) {
  const std::string dtype = port.dtype;
  if (dtype == "bool") return given.bytes_each == 1 && (given.kind == Kind::boolean || given.kind == Kind::natural);
  const std::size_t bits = std::strtoul(dtype.c_str() + dtype.find_first_of("0123456789"), nullptr, 10);
  const bool is_16_bit_float = dtype == "bf16" || dtype == "f16";
  if (is_16_bit_float && given.kind == Kind::other) return given.bytes_each == 2;
  return given.bytes_each * 8 == bits && static_cast<char>(given.kind) == (is_16_bit_float ? 'f' : dtype[0]);
}

template <class Pointer>
std::string elements_text(const Memory<Pointer>& given) {
  if (given.kind == Kind::bytes) return "bytes";
  if (given.kind == Kind::boolean) return "elements of bool";
  if (given.kind == Kind::other) return std::string("elements of a type of ") + std::to_string(given.bytes_each) + " bytes";
  return std::string("elements of ") + static_cast<char>(given.kind) + std::to_string(given.bytes_each * 8);
}

// Returns why the memory does not fit the port; empty if it fits.
template <class Pointer>
std::string misfit(const Memory<Pointer>& given, const tamp_port& port) {
  std::size_t wanted = port.bytes;
  if (given.kind != Kind::bytes) {
    wanted = 1;
    for (int32_t d = 0; d < port.rank; ++d) wanted *= static_cast<std::size_t>(port.shape[d]);
  }
  const bool fits = given.count == wanted && (given.kind == Kind::bytes || is_of_type(given, port));
  if (fits) return {};
  return std::to_string(given.count) + " " + elements_text(given) + ", wanted " + std::to_string(wanted) + " of " + type_text(port);
}

#endif

// Owns a context; every failure is a std::runtime_error with the message of the C function. An object that was moved from has no context,
// and may only be assigned to or destroyed.
template <class Api>
class ModelOf {
 public:
  explicit ModelOf(const tamp_options& options = {}) {
    if (Api::create(&options, &context_) != TAMP_OK) throw std::runtime_error(Api::message(nullptr));
  }
  ~ModelOf() { Api::destroy(context_); }
  ModelOf(const ModelOf&) = delete;
  ModelOf& operator=(const ModelOf&) = delete;
  ModelOf(ModelOf&& other) noexcept { std::swap(context_, other.context_); }
  ModelOf& operator=(ModelOf&& other) noexcept {
    ModelOf taken(std::move(other));
    std::swap(context_, taken.context_);
    return *this;
  }

  static const tamp_info& info() { return *Api::info(); }
  // By their names in the ONNX model, as any kind of text; -1 if none has that name.
  template <class Text>
  static int input_index(const Text& name) {
    return Api::input_index(std::string(name).c_str());
  }
  template <class Text>
  static int output_index(const Text& name) {
    return Api::output_index(std::string(name).c_str());
  }

  // Asynchronous, like all runs. Device pointers, 16-byte aligned, in the order listed above.
  void run(const void* const* inputs, void* const* outputs, cudaStream_t stream = nullptr) {
    require(Api::run(context(), inputs, outputs, stream));
  }

#if defined(__cpp_lib_span)
  // Device memory as spans whose sizes and element types are checked: run({image}, {scores}, stream).
  void run(std::initializer_list<Input> inputs, std::initializer_list<Output> outputs, cudaStream_t stream = nullptr) {
    run(std::span<const Input>(inputs.begin(), inputs.size()), std::span<const Output>(outputs.begin(), outputs.size()), stream);
  }
  void run(std::span<const Input> inputs, std::span<const Output> outputs, cudaStream_t stream = nullptr) {
    const std::vector<const void*> from = pointers("input", inputs, info().inputs, info().input_count);
    const std::vector<void*> to = pointers("output", outputs, info().outputs, info().output_count);
    run(from.data(), to.data(), stream);
  }

  // By their names, in any order: run({{"ids", ids}, {"mask", mask}}, {{"scores", scores}}, stream).
  void run(std::initializer_list<NamedInput> inputs, std::initializer_list<NamedOutput> outputs, cudaStream_t stream = nullptr) {
    run(std::span<const NamedInput>(inputs.begin(), inputs.size()), std::span<const NamedOutput>(outputs.begin(), outputs.size()), stream);
  }
  void run(std::span<const NamedInput> inputs, std::span<const NamedOutput> outputs, cudaStream_t stream = nullptr) {
    run(in_order("input", inputs, info().inputs, info().input_count), in_order("output", outputs, info().outputs, info().output_count),
        stream);
  }
#endif

  // The first is as the C function. The second makes all outputs, and the caller frees them by their deleters.
  void run_dlpack(DLManagedTensor* const* inputs, DLManagedTensor** outputs, cudaStream_t stream = nullptr) {
    require(Api::run_dlpack(context(), inputs, outputs, stream));
  }
  std::vector<DLManagedTensor*> run_dlpack(const std::vector<DLManagedTensor*>& inputs, cudaStream_t stream = nullptr) {
    require_count("input", inputs.size(), info().input_count);
    std::vector<DLManagedTensor*> outputs(static_cast<std::size_t>(info().output_count), nullptr);
    run_dlpack(inputs.data(), outputs.data(), stream);
    return outputs;
  }

  // After the stream was synchronised: throws if the run failed on the device.
  void check() { require(Api::status(context())); }
  typename Api::Context* get() { return context_; }

 private:
  [[noreturn]] static void fail(const std::string& what) { throw std::runtime_error(std::string(info().name) + ": " + what); }

  typename Api::Context* context() const {
    if (context_ == nullptr) fail("this Model was moved from");
    return context_;
  }
  void require(tamp_status status) const {
    if (status != TAMP_OK) throw std::runtime_error(Api::message(context_));
  }
  static void require_count(const char* what, std::size_t given, int32_t wanted) {
    if (given != static_cast<std::size_t>(wanted)) fail(std::to_string(given) + " " + what + "s, wanted " + std::to_string(wanted));
  }

#if defined(__cpp_lib_span)
  template <class Pointer>
  static std::vector<Pointer> pointers(const char* what, std::span<const Memory<Pointer>> given, const tamp_port* ports, int32_t count) {
    require_count(what, given.size(), count);
    std::vector<Pointer> out;
    for (const Memory<Pointer>& memory : given) {
      const tamp_port& port = ports[out.size()];
      const std::string wrong = misfit(memory, port);
      if (!wrong.empty()) fail(std::string(what) + " '" + port.name + "': " + wrong);
      out.push_back(memory.data);
    }
    return out;
  }

  template <class Pointer>
  static std::vector<Memory<Pointer>> in_order(const char* what, std::span<const Named<Pointer>> given, const tamp_port* ports,
                                               int32_t count) {
    require_count(what, given.size(), count);
    std::vector<Memory<Pointer>> out;
    for (int32_t i = 0; i < count; ++i) {
      std::size_t at = 0;
      while (at < given.size() && given[at].name != ports[i].name) ++at;
      if (at == given.size()) fail(std::string(what) + " '" + ports[i].name + "' is not among those that are given");
      out.push_back(given[at].memory);
    }
    return out;
  }
#endif

  typename Api::Context* context_ = nullptr;
};

}  // namespace tamp_cpp
