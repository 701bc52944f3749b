/* What every generated header shares. Its text stands in each NAME.h, so that a generated folder needs no tamp. */
#ifndef TAMP_API_H
#define TAMP_API_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tamp_status {
  TAMP_OK = 0,
  TAMP_INVALID_ARGUMENT = 1, /* a null pointer, or a pointer that is not 16-byte aligned */
  TAMP_WEIGHTS = 2,          /* the weights file is missing, has the wrong size or belongs to another model */
  TAMP_CUDA = 3,             /* a CUDA call failed; the message names it */
  TAMP_DEVICE = 4,           /* the GPU cannot hold all vEUs at once, or is older than the model was compiled for */
  TAMP_TIMED_OUT = 5,        /* a wait outlived its budget; the message names vEU, rTask and event. Create anew. */
  TAMP_OUT_OF_MEMORY = 6
} tamp_status;

/* One input or output: dense, row-major, in the model's order of dimensions. */
typedef struct tamp_port {
  const char* name;  /* as in the ONNX model */
  const char* dtype; /* "f32" */
  int32_t rank;
  int64_t shape[8];
  size_t bytes;
} tamp_port;

typedef struct tamp_options {
  const char* weights_path; /* NULL: NAME.weights where the generated CMakeLists.txt lies */
  const void* weights;      /* not NULL: the weights in host memory, instead of a file */
  size_t weights_bytes;
  double wait_budget_seconds; /* 0: two seconds. How long one wait may last before the run is given up */
} tamp_options;

#ifdef __cplusplus
}
#endif
#endif
