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
  TAMP_INVALID_ARGUMENT = 1, /* a null pointer, one that is not 16-byte aligned, overlapping inputs and outputs, a wait budget below 0, a
                                tensor of another device, element type, shape or order */
  TAMP_WEIGHTS = 2,          /* the weights file is missing, has the wrong size, was changed or is of another structure */
  TAMP_CUDA = 3,             /* a CUDA call failed, or a kernel died; the message names it */
  TAMP_DEVICE = 4,           /* there is no GPU, it cannot hold all vEUs at once, or is older than the model was compiled for */
  TAMP_TIMED_OUT = 5,        /* a wait outlived its budget; the message names vEU, rTask and event. Create anew. */
  TAMP_OUT_OF_MEMORY = 6
} tamp_status;

/* One input or output: dense, row-major, in the model's order of dimensions. */
typedef struct tamp_port {
  const char* name;  /* as in the ONNX model */
  const char* dtype; /* "f32", "f16", "bf16", "f64", "i8" to "i64", "u8" to "u64", "bool" (a byte, 0 or 1) */
  int32_t rank;
  const int64_t* shape; /* rank extents */
  size_t bytes;
} tamp_port;

/* What a program is. All that it points to lives as long as the program. */
typedef struct tamp_info {
  const char* tamp; /* the version that wrote it, as "0.1.0" */
  const char* name;
  const char* vdevice;   /* as "h200" */
  const char* precision; /* "fp32", "tf32", "fp16" or "bf16" */
  int64_t batch;         /* the first extent of all inputs; 0 if they do not share one */
  uint64_t structure;    /* a fingerprint: weights files of the same one fit (tamp weights) */
  int32_t input_count;
  int32_t output_count;
  const tamp_port* inputs;
  const tamp_port* outputs;
} tamp_info;

/* DLPack's (dlpack.h of version 0.8 or 1.x), which only those need who look inside. */
struct DLManagedTensor;

typedef struct tamp_options {
  /* NULL: NAME.weights in the folder of NAME.cu; if there is none, in the folder of the running program. The generated CMakeLists.txt
     gives the compiler the whole path of NAME.cu; without CMake the folder is as the compiler's command line had it ("resnet18/" for
     resnet18/resnet18.cu), so that a relative one holds only where the program is started in the folder that it was compiled in. */
  const char* weights_path;
  const void* weights; /* not NULL: the weights in host memory, instead of a file */
  size_t weights_bytes;
  /* How long one wait may last before the run is given up. 0: two seconds; infinity: no limit; negative or not a number: refused. */
  double wait_budget_seconds;
} tamp_options;

#ifdef __cplusplus
}
#endif
#endif
