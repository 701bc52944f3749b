// Extents that are known only at run time (docs/adr/0049). A *length* is a number that each run is given, as seq of `--dim seq=1:512`. The
// graph has the shapes of its largest value; an *axis* of a tensor says that a dimension ends earlier in a run of a smaller one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tamp {

struct Length {
  std::string name;  // the model's symbol, or "batch" for --batch
  int64_t smallest = 1, largest = 1;
  int64_t step = 1;  // each value is a multiple of it
  bool operator==(const Length&) const = default;
};

std::string values_text(const Length& length);  // "1 to 512", or "32 to 640 in steps of 32"

// floor((times * value + plus) / over), where `value` is that of Graph::lengths[length], or for -1 - p of Graph::products[p]. Example: a
// convolution of stride 2 with 3 taps and one padded element on each side makes (value + 1) / 2 elements: times 1, plus 1, over 2.
struct Extent {
  int32_t length = 0;
  int64_t times = 1, plus = 0, over = 1;
  bool operator==(const Extent&) const = default;

  int64_t at(int64_t value) const { return (times * value + plus) / over; }
  static void fields(auto& extent, auto&& f) {
    f("length", extent.length);
    f("times", extent.times, int64_t{1});
    f("plus", extent.plus, int64_t{0});
    f("over", extent.over, int64_t{1});
  }
};

// Pixels of an image of open height and width, in one row.
struct ExtentProduct {
  Extent left, right;
  bool operator==(const ExtentProduct&) const = default;
};
using ExtentProducts = std::vector<ExtentProduct>;

// `values`: of the lengths, in their order.
int64_t value_of(const ExtentProducts& products, const Extent& extent, const std::vector<int64_t>& values);

struct LengthAxis {
  int64_t dim = 0;
  Extent extent;
  bool operator==(const LengthAxis&) const = default;

  static void fields(auto& axis, auto&& f) {
    f("dim", axis.dim);
    f("", axis.extent);
  }
};
using LengthAxes = std::vector<LengthAxis>;  // ascending by dim; few, mostly none

// What `--dim NAME=..` says of a dimension that is not one number: NAME=1:512, NAME=16,64,256, NAME=1:16,64,256 or NAME=32:640:32. A
// program is made for each bucket, and runs the values above the bucket before it. Buckets that tamp has chosen have programs for all
// values from the smallest on.
struct DimRange {
  int64_t smallest = 1;
  std::vector<int64_t> buckets;  // ascending; the last is the largest value
  bool chosen = false;
  int64_t step = 1;
  bool operator==(const DimRange&) const = default;
};

}  // namespace tamp
