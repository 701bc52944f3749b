// Folders of ONNX test data for `tamp run --against DIR`: DIR/test_data_set_N/{input,output}_I.pb, or one such set in DIR itself.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compiler/cli/compiled_folder.h"
#include "compiler/ops/ops.h"

namespace tamp::cli {

// |found - expected| <= absolute + relative * |expected| for each element; integers and booleans must be equal, unless `of_small_integers`
// is set, for those of 8 and 16 bits, which may be quantised. Where `of_precision` is set, floats may also be as far from what is expected
// as --check lets that precision be from the reference (`tolerance` of compare.h): in tf32 small elements of a right output are further off
// than 1e-3 of themselves.
struct Tolerance {
  double relative = 1e-3, absolute = 1e-5;
  std::optional<Precision> of_precision;
  bool of_small_integers = false;
};

struct TestSet {
  std::filesystem::path folder;
  std::vector<std::filesystem::path> inputs, outputs;  // by their numbers, from 0
};

// Error (bad input) if there is no set, or if the numbers of a set's files have a gap.
std::vector<TestSet> test_sets(const std::string& folder);

// "NAME=FILE" for each port. `names` are the model's inputs in the model's order, including those that became constants (which are no
// ports).
std::vector<std::string> test_inputs(const TestSet& set, const std::vector<std::string>& names, const std::vector<Port>& ports);

// How many elements are outside of the tolerance.
int64_t outside(const ops::Value& found, const ops::Value& expected, const Tolerance& tolerance);

// Empty if `found` is as expected, in type and shape and within the tolerance. Else a sentence with its worst element.
std::string departure(const std::string& name, const ops::Value& found, const ops::Value& expected, const Tolerance& tolerance);

// Empty if all outputs are as expected: in number, types and shapes, and within the tolerance. Else a sentence for each wrong output, with
// its worst element. Of a padded output the valid entries are compared; the output with the count needs no file. What is outside of the
// tolerance may be right for another reason: `otherwise`, if there is one, says of an output why it is not, or nothing.
using Otherwise = std::function<std::string(size_t output, const ops::Value& found, const ops::Value& expected)>;
std::vector<std::string> departures(const TestSet& set, const std::vector<Port>& ports, const std::vector<ops::Value>& found,
                                    const Tolerance& tolerance, const Otherwise& otherwise);

}  // namespace tamp::cli
