// What staged_conv does in programs in clusters: for a product whose splits are the members of a cluster (cluster_conv.cuh), and where
// products lie over the input stages (docs/adr/0039).
#pragma once

#include <utility>
#include <vector>

#include "kernels/family.h"
#include "kernels/product/staged_conv_plan.h"

namespace tamp::kernels::staged {

// Whether there is such a body for the shape and the tile, and room for what the members send each other.
bool may_share_in_cluster(const ShapedVDevice& vdevice, const Product& p, const Config& c);

// Bytes that there are for the sums of a rTask.
int64_t room_of_sums(const ShapedVDevice& vdevice);

// Where products are over the input stages (ProgramShape::products_over_inputs), the sums of the phase lie in these. Behind them lies what
// is there before the last products are: what a normalisation makes of sums (RowNorm of moment_conv.cuh), and what the members of a cluster
// send.
void lie_over_inputs(const ShapedVDevice& vdevice, const Config& c, Phase& phase);

// Makes the phase of a product, whose splits are as many as a cluster has members, that of such a body.
void share_in_cluster(const Request& request, const Product& p, const Config& c, Phase& phase);

// The rows [begin, end) of a tile from `first` to `last` whose results member `member` keeps, in pieces.
std::vector<std::pair<int64_t, int64_t>> kept_rows(const Config& c, int64_t member, int64_t first, int64_t last);

}  // namespace tamp::kernels::staged
