// Which activations of a program lie in 16 bits: passes/narrow_activations.h, with all that it asks.
#pragma once

#include <cstdint>

#include "compiler/ir/graph.h"
#include "compiler/ir/shaped_vdevice.h"
#include "compiler/shape/setting.h"

namespace tamp::shape {

bool may_narrow(const Setting& setting);  // whether all activations may lie in 16 bits
int64_t cell_of(const Setting& setting);  // `cell` of passes/assign_layout.h
bool has_narrow(const Graph& placed);     // whether some activation lies in 16 bits

// For a placed graph: stores activations in 16 bits wherever there are bodies for that, but for masks and angles (passes/wide_values.h); in
// tf32 only those of which fp16 keeps all that tf32 keeps (passes/value_bounds.h). `vdevice` has the program's shape.
Graph narrowed(Graph placed, const Setting& setting, const ShapedVDevice& vdevice);

// Says how many activations lie in 16 bits, and which rOperators' results stay in fp32 although they might.
void log_activations(const Graph& placed, const Setting& setting);

}  // namespace tamp::shape
