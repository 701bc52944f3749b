// The host half of a program with lengths: numbers that each run is given. Its text stands in NAME.cu of such programs only; it is made of
// that of other programs.
//
// A context has a program for each bucket, and runs the first whose largest value is not below the run's. The programs share one arena and
// one set of weights; what counts from run to run is of each program alone. Before a run the sizes of inputs and outputs are set to those
// of its values, so that all checks are of the caller's true sizes.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime_stub/host/dlpack.h"
#include "runtime_stub/host/instance.h"
#include "runtime_stub/host/tamp_lengths.h"

namespace tamp_host {

// A number that the device is told: (times * value + plus) / over. The value is of a length, or for -1 - p of product p.
struct Extent {
  int32_t length;
  int64_t times, plus, over;
};
struct ExtentProduct {
  Extent left, right;
};

template <class Any>
int64_t extent_at(const Any& extent, const int64_t* values) {
  return (extent.times * values[extent.length] + extent.plus) / extent.over;
}

struct Bucket {
  const Model* model;
  const Extent* extents;
  int extent_count;
  const ExtentProduct* products;
};

inline int64_t number_of(const Bucket& bucket, const Extent& extent, const int64_t* values) {
  if (extent.length >= 0) return extent_at(extent, values);
  const ExtentProduct& product = bucket.products[-1 - extent.length];
  return (extent.times * number_of(bucket, product.left, values) * number_of(bucket, product.right, values) + extent.plus) / extent.over;
}

inline bool is_allowed(const tamp_length& length, int64_t value) {
  return value >= length.smallest && value <= length.largest && value % length.step == 0;
}

// The shape of a port: that of the largest lengths but for these axes.
inline void set_extents(const tamp_axis* axes, int count, int port, const int64_t* values, int64_t* shape) {
  for (int i = 0; i < count; ++i) {
    const bool goes_on = i > 0 && axes[i - 1].port == axes[i].port && axes[i - 1].dim == axes[i].dim;
    if (axes[i].port == port) shape[axes[i].dim] = extent_at(axes[i], values) * (goes_on ? shape[axes[i].dim] : 1);
  }
}

// What the generated file knows.
struct Buckets {
  const tamp_lengths* info;
  const Bucket* buckets;  // as many as info says, ascending
};

struct Varying;

// A bucket's program in a context. Its ports are those of the context.
struct BucketProgram : Model {
  const Bucket* bucket = nullptr;
  const Varying* context = nullptr;
  Instance* instance = nullptr;
};

// A context.
struct Varying {
  const tamp_lengths* info = nullptr;
  std::vector<BucketProgram> programs;  // the last one owns arena and weights
  const BucketProgram* last = nullptr;  // of the last run
  std::vector<int64_t> values;          // of the last run, and in the next three all that follows from them
  std::vector<int64_t> extents;         // of all inputs, then of all outputs
  std::vector<size_t> first_extent;     // of each
  std::vector<tamp_port> ports;
  std::string message;
};

inline void destroy(Varying* context) {
  if (context == nullptr) return;
  for (BucketProgram& program : context->programs) {
    if (program.instance == nullptr) continue;
    if (&program != &context->programs.back()) program.instance->arena = program.instance->weights = nullptr;
    destroy(program.instance);
  }
  delete context;
}

// Model::start: behind the ports' addresses the kernel's list has the extents.
inline tamp_status start_bucket(Instance& instance, const rk::Launch& launch, const uint64_t* bases, cudaStream_t stream) {
  const BucketProgram& program = static_cast<const BucketProgram&>(*instance.model);
  const int ports = rk::kFirstPort + program.input_count + program.output_count;
  uint64_t all[rk::kMaxBases];
  std::copy_n(bases, ports, all);
  for (int e = 0; e < program.bucket->extent_count; ++e)
    all[ports + e] = static_cast<uint64_t>(number_of(*program.bucket, program.bucket->extents[e], program.context->values.data()));
  return program.bucket->model->start(instance, launch, all, stream);
}

inline void set_axes(Varying& context, const tamp_axis* axes, int count, int first_port) {
  for (int i = 0; i < count; ++i) {
    if (i > 0 && axes[i].port == axes[i - 1].port) continue;
    const size_t number = static_cast<size_t>(first_port + axes[i].port);
    tamp_port& port = context.ports[number];
    set_extents(axes, count, axes[i].port, context.values.data(), context.extents.data() + context.first_extent[number]);
    port.bytes = dl_type(port).bits / 8u;
    for (int32_t d = 0; d < port.rank; ++d) port.bytes *= static_cast<size_t>(port.shape[d]);
  }
}

// The values of the next run; null: the largest.
inline tamp_status set_values(Varying& context, const int64_t* values) {
  const tamp_lengths& info = *context.info;
  std::vector<int64_t>& now = context.values;
  bool are_same = true;
  for (size_t i = 0; i < now.size(); ++i) {
    const tamp_length& length = info.lengths[i];
    const int64_t value = values == nullptr ? length.largest : values[i];
    if (!is_allowed(length, value)) {
      now.assign(now.size(), 0);  // the next run sets all
      return fail(context.message, TAMP_INVALID_ARGUMENT,
                  std::string(context.programs[0].name) + ": length '" + length.name + "' is " + std::to_string(value) + ", allowed are " +
                      std::to_string(length.smallest) + " to " + std::to_string(length.largest) +
                      (length.step == 1 ? "" : " in steps of " + std::to_string(length.step)));
    }
    are_same = are_same && now[i] == value;
    now[i] = value;
  }
  if (are_same) return TAMP_OK;
  set_axes(context, info.input_axes, info.input_axis_count, 0);
  set_axes(context, info.output_axes, info.output_axis_count, context.programs[0].input_count);
  return TAMP_OK;
}

inline void add_ports(Varying& context, const tamp_port* ports, int count) {
  for (const tamp_port& port : std::span<const tamp_port>(ports, static_cast<size_t>(count))) {
    context.first_extent.push_back(context.extents.size());
    context.extents.insert(context.extents.end(), port.shape, port.shape + port.rank);
    context.ports.push_back(port);
  }
}

// The program of a smaller bucket is made without memory, and then uses that of the largest.
inline tamp_status create_beside(BucketProgram& program, const BucketProgram& largest, double wait_budget_seconds) {
  const size_t arena_bytes = program.arena_bytes, weight_bytes = program.weight_bytes;
  const int map_count = program.map_count;
  program.arena_bytes = program.weight_bytes = 0;
  program.map_count = 0;
  program.embedded_weights = "";
  tamp_options options{};
  options.wait_budget_seconds = wait_budget_seconds;
  const tamp_status created = create(program, &options, &program.instance);
  if (created != TAMP_OK) return created;
  program.arena_bytes = arena_bytes;
  program.weight_bytes = weight_bytes;
  program.map_count = map_count;
  Instance& instance = *program.instance;
  std::string& message = create_message();
  TAMP_TRY_CUDA(message, cudaFree(std::exchange(instance.arena, largest.instance->arena)));
  TAMP_TRY_CUDA(message, cudaFree(std::exchange(instance.weights, largest.instance->weights)));
  instance.weights_kept = weights_kept(program);
  const tamp_status made = make_maps(instance);
  if (made != TAMP_OK) message = instance.message;
  return made;
}

inline tamp_status create(const Buckets& buckets, const tamp_options* options, Varying** out) {
  if (out == nullptr) return fail(create_message(), TAMP_INVALID_ARGUMENT, "the place for the context is null");
  *out = nullptr;
  Varying* const context = new (std::nothrow) Varying;
  if (context == nullptr) return fail(create_message(), TAMP_OUT_OF_MEMORY, "out of host memory");
  const size_t count = static_cast<size_t>(buckets.info->bucket_count);
  const Model& model = *buckets.buckets[count - 1].model;
  context->info = buckets.info;
  context->values.assign(static_cast<size_t>(buckets.info->length_count), 0);
  add_ports(*context, model.inputs, model.input_count);
  add_ports(*context, model.outputs, model.output_count);
  for (size_t p = 0; p < context->ports.size(); ++p) context->ports[p].shape = context->extents.data() + context->first_extent[p];
  context->programs.resize(count);
  BucketProgram& largest = context->programs.back();
  context->last = &largest;
  tamp_status status = TAMP_OK;
  for (size_t b = count; b-- > 0 && status == TAMP_OK;) {
    BucketProgram& program = context->programs[b];
    static_cast<Model&>(program) = *buckets.buckets[b].model;
    program.bucket = &buckets.buckets[b];
    program.context = context;
    program.start = start_bucket;
    program.inputs = context->ports.data();
    program.outputs = context->ports.data() + model.input_count;
    status = b + 1 == count ? create(program, options, &program.instance)
                            : create_beside(program, largest, options == nullptr ? 0 : options->wait_budget_seconds);
  }
  if (status == TAMP_OK)
    *out = context;
  else
    destroy(context);
  return status;
}

inline tamp_status reported(Varying& context) {
  for (const BucketProgram& program : context.programs) {
    const tamp_status status = reported(program.instance);
    if (status != TAMP_OK) return fail(context.message, status, program.instance->message);
  }
  return TAMP_OK;
}

inline tamp_status status(Varying* context) {
  if (context == nullptr) return TAMP_INVALID_ARGUMENT;
  tamp_status found = reported(*context);
  if (found != TAMP_OK) return found;
  found = status(context->last->instance);
  if (found != TAMP_OK) context->message = context->last->instance->message;
  return found;
}

// Sets all that follows from the values, and finds the program.
inline tamp_status choose(Varying* context, const int64_t* values) {
  if (context == nullptr) return TAMP_INVALID_ARGUMENT;
  tamp_status good = reported(*context);
  if (good == TAMP_OK) good = set_values(*context, values);
  if (good != TAMP_OK) return good;
  const tamp_lengths& info = *context->info;
  const int64_t* const bucket =
      std::lower_bound(info.buckets, info.buckets + info.bucket_count, context->values[static_cast<size_t>(info.bucket_length)]);
  context->last = &context->programs[static_cast<size_t>(bucket - info.buckets)];
  return TAMP_OK;
}

inline tamp_status run_at(Varying* context, const int64_t* values, const void* const* inputs, void* const* outputs, cudaStream_t stream) {
  tamp_status status = choose(context, values);
  if (status != TAMP_OK) return status;
  status = run(context->last->instance, inputs, outputs, stream);
  if (status != TAMP_OK) context->message = context->last->instance->message;
  return status;
}

inline tamp_status run(Varying* context, const void* const* inputs, void* const* outputs, cudaStream_t stream) {
  return run_at(context, nullptr, inputs, outputs, stream);
}

// The lengths as the shapes of the inputs have them; a length that no input has is the largest. All inputs must agree: "input 'mask':
// dimension 1 is 41, allowed is 40, as 'ids' has it (seq 40)".
inline tamp_status read_values(Varying& context, DLManagedTensor* const* inputs, std::vector<int64_t>& values) {
  const tamp_lengths& info = *context.info;
  values.assign(context.values.size(), -1);
  std::vector<const char*> from(values.size(), nullptr);
  for (const tamp_axis& axis : std::span<const tamp_axis>(info.input_axes, static_cast<size_t>(info.input_axis_count))) {
    const tamp_port& port = context.ports[static_cast<size_t>(axis.port)];
    const auto* const managed = reinterpret_cast<const dl::ManagedTensor*>(inputs[axis.port]);
    if (managed == nullptr || managed->tensor.ndim != port.rank || managed->tensor.shape == nullptr) continue;  // misfit() says so
    const int64_t found = managed->tensor.shape[axis.dim];
    const tamp_length& length = info.lengths[axis.length];
    int64_t& value = values[static_cast<size_t>(axis.length)];
    const char*& first = from[static_cast<size_t>(axis.length)];
    const auto at = [&](int64_t of) { return (axis.times * of + axis.plus) / axis.over; };
    std::string allowed;
    if (first != nullptr) {
      if (at(value) == found) continue;
      allowed = "is " + std::to_string(at(value)) + ", as '" + first + "' has it (" + length.name + " " + std::to_string(value) + ")";
    } else {
      const int64_t least = at(length.smallest), most = at(length.largest);
      if (found >= least && found <= most) value = std::max((found * axis.over - axis.plus + axis.times - 1) / axis.times, length.smallest);
      first = port.name;
      if (value > 0 && at(value) == found) continue;
      allowed = "are " + std::to_string(least) + " to " + std::to_string(most) + " (" + length.name + ")";
    }
    return fail(context.message, TAMP_INVALID_ARGUMENT,
                std::string("input '") + port.name + "': dimension " + std::to_string(axis.dim) + " is " + std::to_string(found) +
                    ", allowed " + allowed);
  }
  for (size_t i = 0; i < values.size(); ++i) values[i] = from[i] == nullptr ? info.lengths[i].largest : values[i];
  return TAMP_OK;
}

inline tamp_status run_tensors(Varying* context, DLManagedTensor* const* inputs, DLManagedTensor** outputs, cudaStream_t stream) {
  if (context == nullptr) return TAMP_INVALID_ARGUMENT;
  std::vector<int64_t> values;
  tamp_status status = TAMP_OK;
  if (inputs != nullptr) status = read_values(*context, inputs, values);
  if (status == TAMP_OK) status = choose(context, values.empty() ? nullptr : values.data());
  if (status != TAMP_OK) return status;
  status = run_tensors(context->last->instance, inputs, outputs, stream);
  if (status != TAMP_OK) context->message = context->last->instance->message;
  return status;
}

inline const char* message(const Varying* context) { return context != nullptr ? context->message.c_str() : create_message().c_str(); }

// The extents of port `index` at these values; null: at the largest.
inline tamp_status shape_at(const tamp_lengths& info, const tamp_port* ports, int count, const tamp_axis* axes, int axis_count, int index,
                            const int64_t* values, int64_t* shape) {
  if (index < 0 || index >= count || shape == nullptr) return TAMP_INVALID_ARGUMENT;
  for (int32_t i = 0; i < info.length_count && values != nullptr; ++i) {
    if (!is_allowed(info.lengths[i], values[i])) return TAMP_INVALID_ARGUMENT;
  }
  std::copy_n(ports[index].shape, ports[index].rank, shape);
  if (values != nullptr) set_extents(axes, axis_count, index, values, shape);
  return TAMP_OK;
}

}  // namespace tamp_host
