// What answers of a quantised model may differ by (`tamp run --check`). Such a model rounds values to integers of few bits. A value that
// lies close to a tie is rounded the one way by the reference and the other way by a program that adds in another order: both are right.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/ops/ops.h"

namespace tamp::cli {

struct Roundings {
  std::vector<ROperatorId> places;  // the rOperators `round` whose results are clipped and cast to integers of 8 or 16 bits
  int bits = 0;                     // of the narrowest of these integers
  // Per output of the graph: what two neighbouring values of it differ by, if it has a quantisation of its own.
  std::vector<std::optional<double>> steps;
};

// `source`: the graph as it was read, in which each elementwise function is a rOperator. An output has a step if it is computed from one
// quantised tensor by what keeps the steps: views, casts, largest elements, relu and clip, sums and products with one constant number.
Roundings roundings_of(const Graph& source);

// How far an output is from what is expected. Roundings go both ways, so they change single elements much more than all of them together;
// a wrong scale or zero point changes all of them the same way.
struct Distance {
  int64_t differ = 0;  // elements that differ by half a step or more
  double steps = 0;    // by so many at most
  double part = 0;     // steps of the difference that is no whole number of them, if there is one
  double relative_l2 = 0;
  double scaled = 0;   // got is about (1 + scaled) * expected, by least squares
  double shifted = 0;  // the mean of got - expected, relative to the root mean square of what is expected
};
// `step`: of the output, if it has one.
Distance distance(const ops::Value& got, const ops::Value& expected, const std::optional<double>& step);

// How far right answers may be from the reference's, by trial: the reference is run several times, values are moved a little before each
// rounding, and of each rounding an element next to a tie goes the other way. Half as much again as what changes most is allowed; of
// `scaled` and `shifted`, five times their root mean square, and what one element of an output with a step makes. `moves`: what values are
// moved by at most, relative to their root mean square: about what a product in that precision is off by.
double moves(Precision precision);
std::vector<Distance> allowed_distances(const Graph& source, const Roundings& roundings, const std::vector<ops::Value>& inputs,
                                        const std::vector<ops::Value>& expected, Precision precision);
bool is_within(const Distance& found, const Distance& allowed, const std::optional<double>& step);

// The same of an output, with what it needs.
struct Rounded {
  Roundings roundings;
  std::vector<Distance> allowed;  // per output; none of a model without roundings

  // Empty if the output is as near as roundings let it be, else what it is.
  std::string why_not(size_t output, const ops::Value& got, const ops::Value& expected) const;
};
Rounded rounded_of(const Graph& source, const std::vector<ops::Value>& inputs, const std::vector<ops::Value>& expected,
                   Precision precision);

// "3 of 1000 elements differ, by 1 step of 0.0039 at most (9 may, by 1 step); .."
std::string distance_text(const Distance& found, const Distance& allowed, const std::optional<double>& step, int64_t elements);

// "the model rounds to 8 bits in 11 places; limits are .."
std::string reason(const Roundings& roundings, Precision precision);

}  // namespace tamp::cli
