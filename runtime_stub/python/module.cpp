// tamp._native: loads the shared library of a compiled model and runs it; takes arrays of any library by DLPack. _model.py has checked the
// arguments; the functions here take pointers.
#include <dlfcn.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "library.h"

namespace nb = nanobind;

namespace {

struct RunError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Never closed: device code of CUDA stays registered, and arrays that a library allocated may live longer than its model.
const TampLibrary* load(const std::string& path) {
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) throw RunError(dlerror());
  const auto function = reinterpret_cast<TampLibraryFunction>(dlsym(handle, "tamp_library"));
  if (function == nullptr) throw RunError(path + ": not a library that tamp.build or Model.save wrote");
  const TampLibrary* const library = function();
  if (library->version != TAMP_LIBRARY_VERSION) throw RunError(path + ": of another version of tamp; build it again with tamp.build");
  return library;
}

class Library {
 public:
  explicit Library(const std::string& path) : library_(load(path)) {}
  const TampLibrary* get() const { return library_; }

  // (tamp, name, vdevice, precision, batch, structure): what the program is.
  nb::tuple info() const {
    return nb::make_tuple(text(library_->tamp), text(library_->name), text(library_->vdevice), text(library_->precision), library_->batch,
                          library_->structure);
  }
  // (name, dtype, shape) of each input or output.
  nb::list ports(bool are_outputs) const {
    nb::list out;
    for (int32_t i = 0; i < (are_outputs ? library_->outputs : library_->inputs); ++i) {
      const TampLibraryPort port = library_->port(are_outputs, i);
      nb::list shape;
      for (int32_t d = 0; d < port.rank; ++d) shape.append(port.shape[d]);
      out.append(nb::make_tuple(text(port.name), text(port.dtype), nb::tuple(shape)));
    }
    return out;
  }

  // (name, smallest, largest, largest values of its programs) of each length.
  nb::list lengths() const {
    nb::list out;
    for (int32_t i = 0; i < library_->lengths; ++i) {
      const TampLibraryLength length = library_->length(i);
      nb::list buckets;
      for (int32_t b = 0; i == library_->bucket_length && b < library_->buckets; ++b) buckets.append(library_->bucket[b]);
      if (buckets.size() == 0) buckets.append(length.largest);
      out.append(nb::make_tuple(text(length.name), length.smallest, length.largest, nb::tuple(buckets)));
    }
    return out;
  }
  bool makes_tokens() const { return library_->generate != nullptr; }
  // Numbers of the inputs that each call of generate gives.
  std::vector<int> held() const { return {library_->held, library_->held + library_->held_count}; }
  // (port, dim, length, times, plus, over) of each dimension of inputs or outputs that depends on a length.
  nb::list axes(bool are_outputs) const {
    nb::list out;
    for (int32_t i = 0; i < (are_outputs ? library_->output_axes : library_->input_axes); ++i) {
      const TampLibraryAxis axis = library_->axis(are_outputs, i);
      out.append(nb::make_tuple(axis.port, axis.dim, axis.length, axis.times, axis.plus, axis.over));
    }
    return out;
  }

 private:
  // Names come from the model and need not be UTF-8.
  static nb::object text(const char* bytes) {
    return nb::steal(PyUnicode_DecodeUTF8(bytes, static_cast<Py_ssize_t>(std::strlen(bytes)), "replace"));
  }

  const TampLibrary* library_;
};

class Program {
 public:
  Program(const Library& library, int device, const std::string& weights) : library_(library.get()) {
    const nb::gil_scoped_release others_run;
    if (library_->open(device, weights.c_str(), &program_) != 0) throw RunError(library_->message(nullptr));
  }
  ~Program() {
    const nb::gil_scoped_release others_run;
    library_->close(program_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  using Addresses = std::vector<uintptr_t>;
  using Flags = std::vector<uint8_t>;
  void run(const Addresses& inputs, const Flags& inputs_on_host, const Addresses& outputs, const Flags& outputs_on_host, uintptr_t stream,
           const std::vector<int64_t>& lengths) {
    if (inputs.size() != static_cast<size_t>(library_->inputs) || inputs_on_host.size() != inputs.size() ||
        outputs.size() != static_cast<size_t>(library_->outputs) || outputs_on_host.size() != outputs.size() ||
        lengths.size() != static_cast<size_t>(library_->lengths))
      throw RunError("the model has other numbers of inputs, outputs and lengths");
    const nb::gil_scoped_release others_run;
    const std::lock_guard<std::mutex> one_at_a_time(mutex_);
    const int failed = library_->run(program_, lengths.data(), reinterpret_cast<const void* const*>(inputs.data()), inputs_on_host.data(),
                                     reinterpret_cast<void* const*>(const_cast<uintptr_t*>(outputs.data())), outputs_on_host.data(),
                                     reinterpret_cast<void*>(stream));
    if (failed != 0) throw RunError(library_->message(program_));
  }

  // Tokens that follow the prompt. `on_token` may be None.
  std::vector<int64_t> generate(const std::vector<int64_t>& prompt, int max_tokens, float temperature, int top_k, float top_p,
                                float penalty, uint64_t seed, const std::optional<std::vector<int64_t>>& stops, int64_t position,
                                const Addresses& inputs, const Flags& inputs_on_host, uintptr_t stream, const std::vector<int64_t>& lengths,
                                const nb::object& on_token) {
    if (library_->generate == nullptr) throw RunError("the model makes no tokens");
    if (inputs.size() != static_cast<size_t>(library_->inputs) || inputs_on_host.size() != inputs.size() ||
        lengths.size() != static_cast<size_t>(library_->lengths))
      throw RunError("the model has other numbers of inputs and lengths");
    Listener listener{on_token, {}};
    TampLibraryTokens wanted{};
    wanted.prompt = prompt.data();
    wanted.prompt_count = static_cast<int32_t>(prompt.size());
    wanted.max_tokens = max_tokens;
    wanted.temperature = temperature;
    wanted.top_k = top_k;
    wanted.top_p = top_p;
    wanted.repetition_penalty = penalty;
    wanted.seed = seed;
    const int64_t none = 0;
    if (stops) wanted.stops = stops->empty() ? &none : stops->data();
    wanted.stop_count = stops ? static_cast<int32_t>(stops->size()) : 0;
    wanted.position = position;
    wanted.lengths = lengths.data();
    wanted.on_token = Listener::call;
    wanted.user = &listener;
    std::vector<int64_t> tokens(max_tokens > 0 ? static_cast<size_t>(max_tokens) : 0);
    int32_t count = 0;
    int failed = 0;
    {
      const nb::gil_scoped_release others_run;
      const std::lock_guard<std::mutex> one_at_a_time(mutex_);
      failed = library_->generate(program_, &wanted, reinterpret_cast<const void* const*>(inputs.data()), inputs_on_host.data(),
                                  tokens.data(), &count, reinterpret_cast<void*>(stream));
    }
    if (listener.failure) std::rethrow_exception(listener.failure);
    if (failed != 0) throw RunError(library_->message(program_));
    tokens.resize(static_cast<size_t>(count));
    return tokens;
  }

  void check() {
    const nb::gil_scoped_release others_run;
    const std::lock_guard<std::mutex> one_at_a_time(mutex_);
    if (library_->status(program_) != 0) throw RunError(library_->message(program_));
  }

 private:
  // Who gets the tokens: Python's function, whose exceptions end the text, as does a true result; and so does Ctrl-C.
  struct Listener {
    nb::object function;
    std::exception_ptr failure;

    static int call(void* user, int64_t token) {
      auto& self = *static_cast<Listener*>(user);
      const nb::gil_scoped_acquire python;
      try {
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
        return !self.function.is_none() && nb::cast<bool>(nb::bool_(self.function(token))) ? 1 : 0;
      } catch (...) {
        self.failure = std::current_exception();
        return 1;
      }
    }
  };

  const TampLibrary* library_;
  void* program_ = nullptr;
  std::mutex mutex_;
};

using AnyArray = nb::ndarray<nb::ro>;

// As ndarray.dtype: code of DLPack, bits.
std::pair<int, int> type_of(const AnyArray& array) { return {array.dtype().code, array.dtype().bits * array.dtype().lanes}; }

bool is_dense(const AnyArray& array) {
  int64_t stride = 1;
  for (size_t d = array.ndim(); d-- > 0;) {
    if (array.shape(d) == 0) return true;
    if (array.shape(d) != 1 && array.stride(d) != stride) return false;
    stride *= static_cast<int64_t>(array.shape(d));
  }
  return true;
}

// What DLPack says of an array; holding this holds the array's memory.
struct View {
  AnyArray array;
  uintptr_t address() const { return reinterpret_cast<uintptr_t>(array.data()); }
  nb::tuple type() const { return nb::make_tuple(type_of(array).first, type_of(array).second); }
  nb::tuple shape() const {
    nb::list extents;
    for (size_t d = 0; d < array.ndim(); ++d) extents.append(array.shape(d));
    return nb::tuple(extents);
  }
};

struct Memory {
  const TampLibrary* library;
  void* data;
};

// A new array with __dlpack__: in memory of the device, or of the host.
nb::ndarray<nb::array_api> empty(const Library& library, std::pair<int, int> type, const std::vector<size_t>& shape, bool on_host,
                                 int device) {
  size_t bytes = static_cast<size_t>(type.second) / 8;
  for (const size_t extent : shape) bytes *= extent;
  const size_t rounded = (bytes + 255) / 256 * 256;
  auto memory = std::make_unique<Memory>(Memory{on_host ? nullptr : library.get(), nullptr});
  memory->data = on_host ? std::aligned_alloc(256, rounded > 0 ? rounded : 256) : library.get()->allocate(device, bytes);
  if (memory->data == nullptr) throw std::bad_alloc();
  void* const data = memory->data;
  const nb::capsule owner(memory.release(), [](void* self) noexcept {
    const std::unique_ptr<Memory> freed(static_cast<Memory*>(self));
    if (freed->library == nullptr)
      std::free(freed->data);
    else
      freed->library->release(freed->data);
  });
  const nb::dlpack::dtype dtype{static_cast<uint8_t>(type.first), static_cast<uint8_t>(type.second), 1};
  return nb::ndarray<nb::array_api>(data, shape.size(), shape.data(), owner, nullptr, dtype,
                                    on_host ? nb::device::cpu::value : nb::device::cuda::value, on_host ? 0 : device);
}

}  // namespace

NB_MODULE(_native, m) {
  nb::set_leak_warnings(false);  // at exit torch's caches, say, may still hold models
  nb::exception<RunError>(m, "RunError", PyExc_RuntimeError);
  nb::class_<Library>(m, "Library")
      .def(nb::init<const std::string&>(), nb::arg("path"))
      .def_prop_ro("is_stand_in", [](const Library& self) { return self.get()->is_stand_in != 0; })
      .def("info", &Library::info)
      .def("ports", &Library::ports, nb::arg("are_outputs"))
      .def_prop_ro("makes_tokens", &Library::makes_tokens)
      .def("held", &Library::held)
      .def("lengths", &Library::lengths)
      .def("axes", &Library::axes, nb::arg("are_outputs"));
  nb::class_<Program>(m, "Program")
      .def(nb::init<const Library&, int, const std::string&>(), nb::arg("library"), nb::arg("device"), nb::arg("weights"))
      .def("run", &Program::run, nb::arg("inputs"), nb::arg("inputs_on_host"), nb::arg("outputs"), nb::arg("outputs_on_host"),
           nb::arg("stream"), nb::arg("lengths"))
      .def("generate", &Program::generate, nb::arg("prompt"), nb::arg("max_tokens"), nb::arg("temperature"), nb::arg("top_k"),
           nb::arg("top_p"), nb::arg("repetition_penalty"), nb::arg("seed"), nb::arg("stops").none(), nb::arg("position"),
           nb::arg("inputs"), nb::arg("inputs_on_host"), nb::arg("stream"), nb::arg("lengths"), nb::arg("on_token").none())
      .def("check", &Program::check);
  nb::class_<View>(m, "View")
      .def(
          "__init__", [](View* self, AnyArray array) { new (self) View{std::move(array)}; }, nb::arg("array"))
      .def_prop_ro("address", &View::address)
      .def_prop_ro("type", &View::type)
      .def_prop_ro("shape", &View::shape)
      .def_prop_ro("is_dense", [](const View& self) { return is_dense(self.array); })
      .def_prop_ro("is_on_host",
                   [](const View& self) {
                     return self.array.device_type() == nb::device::cpu::value || self.array.device_type() == nb::device::cuda_host::value;
                   })
      .def_prop_ro("is_on_cuda", [](const View& self) { return self.array.device_type() == nb::device::cuda::value; })
      .def_prop_ro("device", [](const View& self) { return self.array.device_id(); });
  m.def(
      "empty",
      [](const Library& library, nb::tuple type, const std::vector<size_t>& shape, bool on_host, int device) {
        return empty(library, {nb::cast<int>(type[0]), nb::cast<int>(type[1])}, shape, on_host, device);
      },
      nb::arg("library"), nb::arg("type"), nb::arg("shape"), nb::arg("on_host"), nb::arg("device"));
}
