// What staged_conv does for a MomentMatMul beside its product (moment_conv.cuh).
#pragma once

#include "kernels/family.h"
#include "kernels/product/staged_conv_plan.h"

namespace tamp::kernels::staged {

bool keeps_rounded(const ROperator& rop);  // whether it is a MomentMatMul with a rounded result

// Makes `c` the config of a body beside a normalisation; false where the shape has none.
bool take_moments(const Graph& graph, const ROperator& rop, const Shape& shape, Config& c);

// Whether there are bodies for it: rows one after the other of 16 bits, moments without gaps, and where moments are kept results that are
// stored in one way.
bool takes_moments(const Request& request, const Product& p);

// Makes the arguments of a product's phase those of a body that may know moments (rk::MomentConvArgs), also where the product has none.
void take_moment_args(const Request& request, const Product& p, const Config& c, Phase& phase);
// Makes the phase of a product one that normalises its input's rows by moments, or keeps those of its results, or both.
void add_moments(const Request& request, const Product& p, const Config& c, Phase& phase);

// Those of a MomentMatMul beside the product's.
void moment_accesses(const Graph& graph, const ROperator& rop, const Product& p, const Config& c, int64_t index, Accesses& out);

}  // namespace tamp::kernels::staged
