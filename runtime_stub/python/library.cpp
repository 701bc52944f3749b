// Together with a generated source, which comes first in the same translation unit, this file makes the shared library that the Python
// package loads (library.h):
//
//   #define TAMP_MODEL resnet18
//   #define TAMP_LENGTHS      // of a program that has lengths of run time
//   #define TAMP_TOKENS       // of a program that makes tokens
//   #include "resnet18.cu"
//   #include "library.cpp"
#include "library.h"

#include <cuda_runtime.h>

#include <cstring>
#include <new>
#include <string>
#include <vector>

#define TAMP_JOIN_AGAIN(a, b) a##_##b
#define TAMP_JOIN(a, b) TAMP_JOIN_AGAIN(a, b)
#define MODEL(function) TAMP_JOIN(TAMP_MODEL, function)

namespace tamp_library_of_model {

#if defined(TAMP_CUDA_ON_CPU)
constexpr bool kIsStandIn = true;
constexpr double kWaitBudgetSeconds = 3600;  // a wait lasts as long as everything else that the one CPU thread does
inline bool is_capturing(cudaStream_t) { return false; }
#else
constexpr bool kIsStandIn = false;
constexpr double kWaitBudgetSeconds = 0;  // the default
inline bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(stream, &status) == cudaSuccess && status != cudaStreamCaptureStatusNone;
}
#endif

struct Program {
  MODEL(context) * context = nullptr;
  int device = 0;
  // Runs share the arena: a run in another stream than the last run's waits for the last run.
  cudaEvent_t done = nullptr;
  cudaStream_t last_stream = nullptr;
  bool has_run = false;
  std::vector<void*> inputs, outputs;  // device memory of those that came from the host, when there was one
  std::string message;
};

inline std::string& open_message() {
  static thread_local std::string message;
  return message;
}

// Makes a device the current one for a while.
class OnDevice {
 public:
  explicit OnDevice(int device) : error_(cudaGetDevice(&before_)) {
    if (error_ == cudaSuccess && before_ != device) {
      error_ = cudaSetDevice(device);
      is_switched_ = true;
    }
  }
  ~OnDevice() {
    if (is_switched_) cudaSetDevice(before_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  cudaError_t error() const { return error_; }

 private:
  int before_ = 0;
  bool is_switched_ = false;
  cudaError_t error_;
};

inline int fail(std::string& message, const char* call, cudaError_t error) {
  message = std::string(call) + ": " + cudaGetErrorString(error);
  return TAMP_CUDA;
}

#define TAMP_TRY(message, call)                                     \
  do {                                                              \
    const cudaError_t error_ = (call);                              \
    if (error_ != cudaSuccess) return fail(message, #call, error_); \
  } while (false)

inline void close(void* program) {
  Program* const self = static_cast<Program*>(program);
  if (self == nullptr) return;
  const OnDevice here(self->device);
  for (void* memory : self->inputs) cudaFree(memory);
  for (void* memory : self->outputs) cudaFree(memory);
  if (self->done != nullptr) cudaEventDestroy(self->done);
  if (self->context != nullptr) MODEL(destroy)(self->context);
  delete self;
}

inline int fill(Program& self, const char* weights) {
  const OnDevice here(self.device);
  if (here.error() != cudaSuccess) return fail(self.message, "built for a GPU, and CUDA finds none that it can use", here.error());
  tamp_options options{};
  options.weights_path = *weights == '\0' ? nullptr : weights;
  options.wait_budget_seconds = kWaitBudgetSeconds;
  const tamp_status created = MODEL(create)(&options, &self.context);
  if (created != TAMP_OK) {
    self.message = MODEL(message)(nullptr);
    return created;
  }
  TAMP_TRY(self.message, cudaEventCreateWithFlags(&self.done, cudaEventDisableTiming));
  self.inputs.resize(static_cast<size_t>(MODEL(input_count)()));
  self.outputs.resize(static_cast<size_t>(MODEL(output_count)()));
  return 0;
}

inline int open(int32_t device, const char* weights, void** program) {
  Program* const self = new Program;
  self->device = device;
  const int failed = fill(*self, weights);
  if (failed == 0) {
    *program = self;
    return 0;
  }
  open_message() = self->message;
  close(self);
  return failed;
}

inline const tamp_port& port_of(bool is_output, size_t index) { return (is_output ? MODEL(outputs) : MODEL(inputs))()[index]; }

#if defined(TAMP_LENGTHS)

inline const tamp_lengths& lengths_info() { return *MODEL(lengths_info)(); }

inline MODEL(lengths) lengths_of(const int64_t* values) {
  MODEL(lengths) lengths;  // a struct of as many numbers
  std::memcpy(&lengths, values, sizeof lengths);
  return lengths;
}

inline size_t bytes_of(bool is_output, size_t index, const int64_t* values) {
  const tamp_port& port = port_of(is_output, index);
  const MODEL(lengths) lengths = lengths_of(values);
  std::vector<int64_t> shape(static_cast<size_t>(port.rank) + 1);
  if ((is_output ? MODEL(output_shape) : MODEL(input_shape))(static_cast<int>(index), &lengths, shape.data()) != TAMP_OK) return 0;
  size_t all = 1, now = 1;
  for (size_t d = 0; d < static_cast<size_t>(port.rank); ++d) {
    all *= static_cast<size_t>(port.shape[d]);
    now *= static_cast<size_t>(shape[d]);
  }
  return all == 0 ? 0 : port.bytes / all * now;
}

inline tamp_status run_model(MODEL(context) * context, const int64_t* values, const void* const* inputs, void* const* outputs,
                             cudaStream_t stream) {
  const MODEL(lengths) lengths = lengths_of(values);
  return MODEL(run_at)(context, &lengths, inputs, outputs, stream);
}

inline TampLibraryLength length(int32_t index) {
  const tamp_length& length = lengths_info().lengths[index];
  return {length.name, length.smallest, length.largest};
}

inline TampLibraryAxis axis(int32_t is_output, int32_t index) {
  const tamp_axis& axis = (is_output ? lengths_info().output_axes : lengths_info().input_axes)[index];
  return {axis.port, axis.dim, axis.length, axis.times, axis.plus, axis.over};
}

inline TampLibrary with_lengths(TampLibrary library) {
  const tamp_lengths& info = lengths_info();
  library.lengths = info.length_count;
  library.input_axes = info.input_axis_count;
  library.output_axes = info.output_axis_count;
  library.length = length;
  library.axis = axis;
  library.buckets = info.bucket_count;
  library.bucket_length = info.bucket_length;
  library.bucket = info.buckets;
  return library;
}

#else

inline TampLibrary with_lengths(TampLibrary library) { return library; }

inline size_t bytes_of(bool is_output, size_t index, const int64_t*) { return port_of(is_output, index).bytes; }

inline tamp_status run_model(MODEL(context) * context, const int64_t*, const void* const* inputs, void* const* outputs,
                             cudaStream_t stream) {
  return MODEL(run)(context, inputs, outputs, stream);
}

#endif

// Device memory that belongs to the program, allocated when it is first needed.
inline int own_memory(Program& self, void*& memory, size_t bytes) {
  if (memory == nullptr && bytes > 0) TAMP_TRY(self.message, cudaMalloc(&memory, bytes));
  return 0;
}

inline int start(Program& self, const int64_t* lengths, const void* const* inputs, const uint8_t* inputs_on_host, void* const* outputs,
                 const uint8_t* outputs_on_host, cudaStream_t stream) {
  std::vector<const void*> from(inputs, inputs + self.inputs.size());
  std::vector<void*> to(outputs, outputs + self.outputs.size());
  for (size_t i = 0; i < from.size(); ++i) {
    if (kIsStandIn || !inputs_on_host[i]) continue;
    const size_t bytes = bytes_of(/*is_output=*/false, i, lengths);
    if (const int failed = own_memory(self, self.inputs[i], port_of(/*is_output=*/false, i).bytes)) return failed;
    if (bytes > 0) TAMP_TRY(self.message, cudaMemcpyAsync(self.inputs[i], inputs[i], bytes, cudaMemcpyHostToDevice, stream));
    from[i] = self.inputs[i];
  }
  for (size_t i = 0; i < to.size(); ++i) {
    if (kIsStandIn || !outputs_on_host[i]) continue;
    if (const int failed = own_memory(self, self.outputs[i], port_of(/*is_output=*/true, i).bytes)) return failed;
    to[i] = self.outputs[i];
  }
  const tamp_status started = run_model(self.context, lengths, from.data(), to.data(), stream);
  if (started != TAMP_OK) self.message = MODEL(message)(self.context);
  return started;
}

inline int status(void* program) {
  Program& self = *static_cast<Program*>(program);
  const OnDevice here(self.device);
  const tamp_status found = MODEL(status)(self.context);
  if (found != TAMP_OK) self.message = MODEL(message)(self.context);
  return found;
}

inline int finish(Program& self, const int64_t* lengths, void* const* outputs, const uint8_t* outputs_on_host, cudaStream_t stream) {
  bool waits = kIsStandIn;
  for (size_t i = 0; !kIsStandIn && i < self.outputs.size(); ++i) {
    if (!outputs_on_host[i]) continue;
    const size_t bytes = bytes_of(/*is_output=*/true, i, lengths);
    if (bytes > 0) TAMP_TRY(self.message, cudaMemcpyAsync(outputs[i], self.outputs[i], bytes, cudaMemcpyDeviceToHost, stream));
    waits = true;
  }
  if (!waits) return 0;
  TAMP_TRY(self.message, cudaStreamSynchronize(stream));
  return status(&self);
}

inline int run(void* program, const int64_t* lengths, const void* const* inputs, const uint8_t* inputs_on_host, void* const* outputs,
               const uint8_t* outputs_on_host, void* stream) {
  Program& self = *static_cast<Program*>(program);
  const OnDevice here(self.device);
  TAMP_TRY(self.message, here.error());
  const cudaStream_t on = static_cast<cudaStream_t>(stream);
  const bool captures = is_capturing(on);  // in a CUDA graph of the caller's, whose order is the caller's business
  if (!captures && self.has_run && self.last_stream != on) TAMP_TRY(self.message, cudaStreamWaitEvent(on, self.done, 0));
  if (const int failed = start(self, lengths, inputs, inputs_on_host, outputs, outputs_on_host, on)) return failed;
  if (!captures) {
    TAMP_TRY(self.message, cudaEventRecord(self.done, on));
    self.last_stream = on;
    self.has_run = true;
  }
  return finish(self, lengths, outputs, outputs_on_host, on);
}

#if defined(TAMP_TOKENS)

inline int generate(void* program, const TampLibraryTokens* wanted, const void* const* inputs, const uint8_t* inputs_on_host,
                    int64_t* tokens, int32_t* count, void* stream) {
  Program& self = *static_cast<Program*>(program);
  const OnDevice here(self.device);
  TAMP_TRY(self.message, here.error());
  const cudaStream_t on = static_cast<cudaStream_t>(stream);
  if (self.has_run && self.last_stream != on) TAMP_TRY(self.message, cudaStreamWaitEvent(on, self.done, 0));
  std::vector<const void*> from(self.inputs.size(), nullptr);
  for (int h = 0; h < MODEL(detail)::kTokenPlan.held_count; ++h) {
    const size_t i = static_cast<size_t>(MODEL(detail)::kTokenPlan.held[h]);
    from[i] = inputs[i];
    if (kIsStandIn || !inputs_on_host[i]) continue;
    if (const int failed = own_memory(self, self.inputs[i], port_of(/*is_output=*/false, i).bytes)) return failed;
    const size_t bytes = bytes_of(/*is_output=*/false, i, wanted->lengths);
    TAMP_TRY(self.message, cudaMemcpyAsync(self.inputs[i], inputs[i], bytes, cudaMemcpyHostToDevice, on));
    from[i] = self.inputs[i];
  }
  tamp_tokens call{};
  call.prompt = wanted->prompt;
  call.prompt_count = wanted->prompt_count;
  call.max_tokens = wanted->max_tokens;
  call.temperature = wanted->temperature;
  call.top_k = wanted->top_k;
  call.top_p = wanted->top_p;
  call.repetition_penalty = wanted->repetition_penalty;
  call.seed = wanted->seed;
  call.stops = wanted->stops;
  call.stop_count = wanted->stop_count;
  call.position = wanted->position;
  call.inputs = from.data();
  call.lengths = wanted->lengths;
  call.on_token = wanted->on_token;
  call.user = wanted->user;
  const tamp_status made = MODEL(generate)(self.context, &call, tokens, count, on);
  if (made != TAMP_OK) self.message = MODEL(message)(self.context);
  return made;
}

inline TampLibrary with_tokens(TampLibrary library) {
  library.generate = generate;
  library.held = MODEL(detail)::kTokenPlan.held;
  library.held_count = MODEL(detail)::kTokenPlan.held_count;
  return library;
}

#else

inline TampLibrary with_tokens(TampLibrary library) { return library; }

#endif

inline const char* message(const void* program) {
  return program == nullptr ? open_message().c_str() : static_cast<const Program*>(program)->message.c_str();
}

inline void* allocate(int32_t device, size_t bytes) {
  const OnDevice here(device);
  void* memory = nullptr;
  return here.error() == cudaSuccess && cudaMalloc(&memory, bytes > 0 ? bytes : 16) == cudaSuccess ? memory : nullptr;
}

inline void release(void* memory) { cudaFree(memory); }

inline TampLibraryPort port(int32_t is_output, int32_t index) {
  const tamp_port& port = port_of(is_output != 0, static_cast<size_t>(index));
  return {port.name, port.dtype, port.rank, port.shape};
}

}  // namespace tamp_library_of_model

// All else is hidden (-fvisibility=hidden): a library of another model may have the same names, and torch brings the real CUDA runtime.
extern "C" __attribute__((visibility("default"))) const TampLibrary* tamp_library(void) {
  namespace own = tamp_library_of_model;
  static const tamp_info& info = *MODEL(info)();
  static const TampLibrary library = own::with_tokens(own::with_lengths({
      TAMP_LIBRARY_VERSION,
      own::kIsStandIn,
      info.input_count,
      info.output_count,
      info.tamp,
      info.name,
      info.vdevice,
      info.precision,
      info.batch,
      info.structure,
      own::port,
      own::open,
      own::run,
      own::status,
      own::message,
      own::close,
      own::allocate,
      own::release,
  }));
  return &library;
}
