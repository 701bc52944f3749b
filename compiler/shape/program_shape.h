// The shape of a program: how its launch and the shared memory of its vEUs are divided, and which kinds of bodies it may have. The shapes
// that a placed graph's program may have are listed, each with what it must gain, and the one of the least time is taken.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compiler/shape/narrowed.h"

namespace tamp::shape {

// Boxes of input values are for products on tensor cores; a gang wants all shared memory for its weights. Where a graph has both,
// convolutions may have boxes, and gangs use the room of the input stages (compiler/ir/over_inputs.h).
bool has_boxes(const Graph& graph, Precision precision);

// The shape that a program has by the products that its graph is made of. The graph needs no places.
ShapedVDevice usual_shape(const Graph& graph, const VDevice& vdevice, Precision precision);

// A shape that a program may have instead of the ones before it in a list.
struct Offer {
  std::string name;
  ShapedVDevice vdevice;
  double factor = 1;  // by which its time counts; below 1 it is taken although its time is not less, if `control` takes longer
  std::optional<ShapedVDevice> control = {};  // the same without the part whose time estimates know too little of
};
std::vector<Offer> offers(const Graph& placed, const Setting& setting);
// The one whose time counts least; the first of equals. Asks for times that decide, so for none if there is one offer.
const Offer& least(const std::vector<Offer>& offers, const std::function<double(const ShapedVDevice&)>& us);

// As the rKernels of the placed graph's program will see the vDevice, by the offer that is least.
ShapedVDevice program_shape(const Graph& placed, const Setting& setting);
// The same with the stages of input that the finished program has.
ShapedVDevice with_final_stages(const Graph& placed, const Setting& setting, const ShapedVDevice& shaped);

}  // namespace tamp::shape
