// The values that go into and come out of a model at `tamp run`.
#pragma once

#include <string>
#include <vector>

#include "compiler/cli/compiled_folder.h"
#include "compiler/ops/ops.h"

namespace tamp::cli {

// One value per input port, from `NAME=FILE` arguments (.npy or TensorProto .pb); inputs that are not given are random. Error (bad input)
// names the input whose name, element type or shape does not fit.
std::vector<ops::Value> read_inputs(const std::vector<Port>& ports, const std::vector<std::string>& assignments, uint64_t seed);

// The values of the model's lengths: those of `at` (NAME=N arguments), else as the shapes of the files that are given for inputs have them,
// else the largest. Error (bad input) names a length that is not the model's, a value that is not allowed, or files that do not agree.
std::vector<int64_t> values_of(const CompiledFolder& model, const std::vector<std::string>& at,
                               const std::vector<std::string>& assignments);

// Error (bad input) if an assignment names none of the model's inputs, or its file cannot be read: before a model is compiled.
void require_inputs(const std::vector<std::string>& names, const std::vector<std::string>& assignments);

// Floats uniform in [-sqrt(3), sqrt(3)): mean 0, variance 1. Integers below the port's index_limit; where it has none, and booleans: 0 or
// 1, so that they are legal indices. The same seed and position give the same values everywhere.
ops::Value random_value(const Port& port, uint64_t seed, size_t position);

// A .npy or TensorProto .pb file. Error (bad input) names it.
ops::Value read_value(const std::string& path);

// A value from the raw bytes of one port.
ops::Value read_raw(const std::filesystem::path& path, const Port& port);
void write_raw(const std::filesystem::path& path, const ops::Value& value);

// OUT/NAME.npy for each output, and OUT/outputs.json: {"output name": "file name"}.
void write_outputs(const std::string& folder, const std::vector<Port>& ports, const std::vector<ops::Value>& values);

std::string type_text(DType dtype, const Shape& shape);  // "f32[1,1000]"

// Statistics of a value: the least, greatest and mean of its numbers, and how many elements are no numbers.
struct Statistics {
  double least = 0, most = 0, mean = 0;  // over the numbers; 0 if there are none
  int64_t numbers = 0, nans = 0;
};
Statistics statistics_of(const ops::Value& value);

// "f32[1,1000] min -1.5 max 3.2 mean 0.01 first 0.1 0.2 0.3 0.4"
std::string summary(const ops::Value& value);

// Element i as a double, whatever the type.
double number_at(const ops::Value& value, int64_t i);

// Element i of an integer type or bool, all 64 bits of it; a u64 as the same bits.
int64_t whole_at(const ops::Value& value, int64_t i);

// Element i as text: an integer as it is, a float with so many digits.
std::string element_text(const ops::Value& value, int64_t i, int digits);

}  // namespace tamp::cli
