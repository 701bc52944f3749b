// Changes models as a fuzzer wants it: what comes out is an ONNX message still, but with other numbers, names, operators, fields that are
// missing or there twice, and parts of itself in other places. Bytes changed at random mostly are no message at all.
#pragma once

#ifndef ONNX_NAMESPACE
#define ONNX_NAMESPACE onnx
#define ONNX_ML 1
#endif
#include <onnx/onnx_pb.h>

#include <random>

namespace tamp::test {

// The same model and state of `random` give the same change.
void mutate(onnx::ModelProto& model, std::mt19937& random);

}  // namespace tamp::test
