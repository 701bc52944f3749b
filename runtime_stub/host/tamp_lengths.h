/* What generated headers of programs with lengths share: numbers that each run is given, at which dimensions of inputs and outputs end. */
#ifndef TAMP_LENGTHS_H
#define TAMP_LENGTHS_H

#include <stdint.h>

typedef struct tamp_length {
  const char* name;                /* the symbol in the ONNX model; "batch" for --batch */
  int64_t smallest, largest, step; /* values are multiples of step */
} tamp_length;

/* A dimension that has (times * value + plus) / over elements, rounded down; `value` is that of a length. An output's dimension with
   several entries has the product of their numbers. */
typedef struct tamp_axis {
  int32_t port, dim, length; /* which input or output, which of its dimensions, which length */
  int64_t times, plus, over;
} tamp_axis;

/* Shapes in tamp_port are those of the largest values. */
typedef struct tamp_lengths {
  int32_t length_count, input_axis_count, output_axis_count;
  const tamp_length* lengths;
  const tamp_axis* input_axes; /* by input, then by dimension */
  const tamp_axis* output_axes;
  /* There is a program for each bucket: of lengths[bucket_length], program b runs values up to buckets[b] that no program before it runs.
   */
  int32_t bucket_count, bucket_length;
  const int64_t* buckets;
} tamp_lengths;

#endif
