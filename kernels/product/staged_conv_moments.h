// What staged_conv does beside a product whose rows are normalised by moments, or whose results' moments are kept (moment_conv.cuh).
#pragma once

#include "kernels/family.h"
#include "kernels/product/staged_conv_plan.h"

namespace tamp::kernels::staged {

// The steps of such a product, [NormalizeBy] MatMul [Moments [copy]]. The copy is its result once more, to be rounded.
struct MomentSteps {
  ROperator product;                       // the MatMul, of the rows as they lie in memory
  const NormalizeBy* normalize = nullptr;  // null where the product multiplies the rows as they are
  TensorId exact;                          // the rows, where the product reads others that are rounded
  TensorId taken, kept, rounded;           // moments of the rows, moments of the result, the copy; each may be none
};
std::optional<MomentSteps> moment_steps(const ROperator& rop);
bool keeps_rounded(const ROperator& rop);

// Makes `c` the config of a body beside a normalisation; false where the shape has none.
bool take_moments(const Graph& graph, const MomentSteps& steps, const Shape& shape, Config& c);

// Whether there are bodies for it: rows one after the other of 16 bits, moments without gaps, and where moments are kept results that are
// stored in one way.
bool takes_moments(const Request& request, const MomentSteps& steps, const Product& p);

// Makes the arguments of a product's phase those of a body that may know moments (rk::MomentConvArgs), also where the product has none.
void take_moment_args(const Request& request, const Product& p, const Config& c, Phase& phase);
// Makes the phase of a product one that normalises its input's rows by moments, or keeps those of its results, or both.
void add_moments(const Request& request, const MomentSteps& steps, const Product& p, const Config& c, Phase& phase);

// Those beside the product's.
void moment_accesses(const Graph& graph, const MomentSteps& steps, const Product& p, const Config& c, int64_t index, Accesses& out);

}  // namespace tamp::kernels::staged
