// What the shared library of a compiled model (library.cpp) offers to the Python package (module.cpp). Plain C: nvcc and the compiler of
// the package need not agree on more.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define TAMP_LIBRARY_VERSION 5 /* of these structs */

/* An input or output, as tamp_port of NAME.h. */
struct TampLibraryPort {
  const char *name, *dtype;
  int32_t rank;
  const int64_t* shape;
};

/* A number that each run is given, as tamp_length of NAME.h; and a dimension that depends on one, as tamp_axis. */
struct TampLibraryLength {
  const char* name;
  int64_t smallest, largest;
};
struct TampLibraryAxis {
  int32_t port, dim, length;
  int64_t times, plus, over;
};

/* What a text is made of: the fields of tamp_tokens of NAME.h that are numbers, and a function that gets each token as it is made. */
struct TampLibraryTokens {
  const int64_t* prompt;
  int32_t prompt_count, max_tokens, top_k;
  float temperature, top_p, repetition_penalty;
  uint64_t seed;
  const int64_t* stops; /* null: those of the compilation */
  int32_t stop_count;
  int64_t position;
  const int64_t* lengths; /* of the inputs that each call gives, in the program's order */
  int (*on_token)(void* user, int64_t token);
  void* user;
};

struct TampLibrary {
  int32_t version;
  int32_t is_stand_in; /* runs on the CPU: device memory is host memory */
  int32_t inputs, outputs;
  const char *tamp, *name, *vdevice, *precision; /* these and the next two as tamp_info of NAME.h */
  int64_t batch;
  uint64_t structure;
  struct TampLibraryPort (*port)(int32_t is_output, int32_t index);
  /* A program with its weights on a CUDA device. Functions that return int return 0 or a number that is not; message() says why. */
  int (*open)(int32_t device, const char* weights, void** program);
  /* One pointer an input and output; where on_host[i] is not 0 it is host memory, which is copied through device memory of the program.
     With outputs on the host it returns when they are there. `stream` is a cudaStream_t of the program's device; `lengths` has a value for
     each length. */
  int (*run)(void* program, const int64_t* lengths, const void* const* inputs, const uint8_t* inputs_on_host, void* const* outputs,
             const uint8_t* outputs_on_host, void* stream);
  int (*status)(void* program);                /* whether an earlier run failed on the device */
  const char* (*message)(const void* program); /* null: of open() */
  void (*close)(void* program);
  void* (*allocate)(int32_t device, size_t bytes); /* device memory; null if there is none */
  void (*release)(void* memory);
  /* All zero where shapes are fixed. */
  int32_t lengths, input_axes, output_axes;
  struct TampLibraryLength (*length)(int32_t index);
  struct TampLibraryAxis (*axis)(int32_t is_output, int32_t index);
  int32_t buckets, bucket_length; /* largest values of the programs, of which length */
  const int64_t* bucket;
  /* Null where the program makes no tokens. Fills `tokens`, which has room for max_tokens. `inputs` as in run(); those that the program
     makes itself are not looked at. */
  int (*generate)(void* program, const struct TampLibraryTokens* wanted, const void* const* inputs, const uint8_t* inputs_on_host,
                  int64_t* tokens, int32_t* count, void* stream);
  const int32_t* held; /* numbers of the inputs that each call gives */
  int32_t held_count;
};

/* The one symbol that is looked up: const struct TampLibrary* tamp_library(void) */
typedef const struct TampLibrary* (*TampLibraryFunction)(void);
