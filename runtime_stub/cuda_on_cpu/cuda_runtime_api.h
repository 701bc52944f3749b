/* What a program that only calls a generated NAME.h needs: in C the type of a stream, in C++ the host side of the stand-in. */
#pragma once
#ifdef __cplusplus
#include "cpu_host.h"
#else
typedef struct CUstream_st* cudaStream_t;
#endif
