// The C++ class of a program with lengths, on top of that of other programs (tamp_model.h).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime_stub/host/tamp_lengths.h"
#include "runtime_stub/host/tamp_model.h"

namespace tamp_cpp {

template <class Api>
class VaryingModelOf : public ModelOf<Api> {
 public:
  using Lengths = typename Api::Lengths;
  using ModelOf<Api>::ModelOf;
  using ModelOf<Api>::run;  // at the largest values

  static const tamp_lengths& lengths() { return *Api::lengths_info(); }
  // The shape of an input or output at these values. Throws if there is none of that index, or a value is not allowed.
  static std::vector<int64_t> input_shape(int index, const Lengths& lengths) {
    return shape_of("input", Api::info()->inputs, Api::info()->input_count, Api::input_shape, index, lengths);
  }
  static std::vector<int64_t> output_shape(int index, const Lengths& lengths) {
    return shape_of("output", Api::info()->outputs, Api::info()->output_count, Api::output_shape, index, lengths);
  }

  void run(const void* const* inputs, void* const* outputs, const Lengths& lengths, cudaStream_t stream = nullptr) {
    if (this->get() == nullptr) fail("this Model was moved from");
    if (Api::run_at(this->get(), &lengths, inputs, outputs, stream) != TAMP_OK) throw std::runtime_error(Api::message(this->get()));
  }

#if defined(__cpp_lib_span)
  // Spans have as many elements as the values say: run({ids}, {scores}, {.seq = 40}, stream).
  void run(std::initializer_list<Input> inputs, std::initializer_list<Output> outputs, const Lengths& lengths,
           cudaStream_t stream = nullptr) {
    run(std::span<const Input>(inputs.begin(), inputs.size()), std::span<const Output>(outputs.begin(), outputs.size()), lengths, stream);
  }
  void run(std::span<const Input> inputs, std::span<const Output> outputs, const Lengths& lengths, cudaStream_t stream = nullptr) {
    const tamp_info& info = *Api::info();
    const auto from = pointers("input", inputs, info.inputs, info.input_count, Api::input_shape, lengths);
    const auto to = pointers("output", outputs, info.outputs, info.output_count, Api::output_shape, lengths);
    run(from.data(), to.data(), lengths, stream);
  }
  void run(std::initializer_list<NamedInput> inputs, std::initializer_list<NamedOutput> outputs, const Lengths& lengths,
           cudaStream_t stream = nullptr) {
    run(std::span<const NamedInput>(inputs.begin(), inputs.size()), std::span<const NamedOutput>(outputs.begin(), outputs.size()), lengths,
        stream);
  }
  void run(std::span<const NamedInput> inputs, std::span<const NamedOutput> outputs, const Lengths& lengths,
           cudaStream_t stream = nullptr) {
    const tamp_info& info = *Api::info();
    run(in_order("input", inputs, info.inputs, info.input_count), in_order("output", outputs, info.outputs, info.output_count), lengths,
        stream);
  }
#endif

 private:
  using ShapeAt = tamp_status (*)(int index, const Lengths* lengths, int64_t* shape);

  [[noreturn]] static void fail(const std::string& what) { throw std::runtime_error(std::string(Api::info()->name) + ": " + what); }

  static std::vector<int64_t> shape_of(const char* what, const tamp_port* ports, int count, ShapeAt shape_at, int index,
                                       const Lengths& lengths) {
    if (index < 0 || index >= count) fail(std::string("there is no ") + what + " " + std::to_string(index));
    std::vector<int64_t> shape(static_cast<std::size_t>(ports[index].rank) + 1);  // never empty
    if (shape_at(index, &lengths, shape.data()) != TAMP_OK) fail("lengths are out of range; allowed are " + ranges_text());
    shape.pop_back();
    return shape;
  }

  static std::string ranges_text() {
    std::string text;
    for (int32_t i = 0; i < lengths().length_count; ++i) {
      const tamp_length& length = lengths().lengths[i];
      text +=
          std::string(i == 0 ? "" : ", ") + length.name + " " + std::to_string(length.smallest) + " to " + std::to_string(length.largest);
    }
    return text;
  }

#if defined(__cpp_lib_span)
  template <class Pointer>
  static std::vector<Pointer> pointers(const char* what, std::span<const Memory<Pointer>> given, const tamp_port* ports, int count,
                                       ShapeAt shape_at, const Lengths& lengths) {
    if (given.size() != static_cast<std::size_t>(count))
      fail(std::to_string(given.size()) + " " + what + "s, wanted " + std::to_string(count));
    std::vector<Pointer> out;
    for (int i = 0; i < count; ++i) {
      const std::vector<int64_t> shape = shape_of(what, ports, count, shape_at, i, lengths);
      tamp_port port = ports[i];
      std::size_t all = 1, now = 1;
      for (int32_t d = 0; d < port.rank; ++d) {
        all *= static_cast<std::size_t>(port.shape[d]);
        now *= static_cast<std::size_t>(shape[static_cast<std::size_t>(d)]);
      }
      port.bytes = all == 0 ? 0 : port.bytes / all * now;
      port.shape = shape.data();
      const std::string wrong = misfit(given[static_cast<std::size_t>(i)], port);
      if (!wrong.empty()) fail(std::string(what) + " '" + port.name + "': " + wrong);
      out.push_back(given[static_cast<std::size_t>(i)].data);
    }
    return out;
  }

  template <class Pointer>
  static std::vector<Memory<Pointer>> in_order(const char* what, std::span<const Named<Pointer>> given, const tamp_port* ports, int count) {
    std::vector<Memory<Pointer>> out;
    for (int i = 0; i < count; ++i) {
      std::size_t at = 0;
      while (at < given.size() && given[at].name != ports[i].name) ++at;
      if (at == given.size() || given.size() != static_cast<std::size_t>(count))
        fail(std::string(what) + " '" + ports[i].name + "' is not among those that are given, or others are");
      out.push_back(given[at].memory);
    }
    return out;
  }
#endif
};

}  // namespace tamp_cpp
