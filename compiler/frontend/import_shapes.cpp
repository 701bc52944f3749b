// Operators on shapes alone: those that relabel the elements' indices, and those that read a shape (constants here, as
// all shapes are known).
#include <algorithm>

#include "compiler/frontend/importers.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

// 0 copies the input's extent (unless allowzero), one -1 takes what is left.
Shape reshaped(NodeImport& n, const Shape& shape, const Ints& wanted, bool allow_zero) {
  Shape result = wanted;
  std::optional<size_t> free;
  for (size_t d = 0; d < wanted.size(); ++d) {
    if (wanted[d] < -1 || wanted[d] > kMaxElements) throw n.bad("shape {}: {} is no extent", shape_text(wanted), wanted[d]);
    if (wanted[d] == -1) {
      if (free) throw n.bad("shape {} has more than one -1", shape_text(wanted));
      free = d;
    }
    if (wanted[d] != 0 || allow_zero) continue;
    if (d >= shape.size())
      throw n.bad("shape {}: 0 at {} copies an extent that {} does not have", shape_text(wanted), d, shape_text(shape));
    result[d] = shape[d];
  }
  const bool has_zero = std::find(wanted.begin(), wanted.end(), 0) != wanted.end();
  if (allow_zero && has_zero && free) throw n.bad("shape {} has both 0 and -1, and allowzero is 1", shape_text(wanted));

  const int64_t count = element_count(shape);
  if (free) {
    result[*free] = 1;
    const int64_t rest = checked_count(result).value_or(0);
    if (rest == 0 || count % rest != 0) throw n.bad("{} elements of {} do not fit shape {}", count, shape_text(shape), shape_text(wanted));
    result[*free] = count / rest;
  }
  if (result.size() > kMaxRank || checked_count(result) != count)
    throw n.bad("{} elements of {} do not fit shape {}", count, shape_text(shape), shape_text(wanted));
  return result;
}

// The axes of Squeeze and Unsqueeze: an attribute before version 13, an operand from then on.
std::optional<Ints> read_axes(NodeImport& n, bool required) {
  const bool by_input = n.version() >= 13;
  n.expect_counts(by_input && required ? 2 : 1, by_input ? 2 : 1);
  std::optional<Ints> axes = by_input ? n.optional_ints(1, "axes") : n.find_ints("axes");
  if (!axes && required) throw n.bad("attribute 'axes' is missing");
  return axes;
}

constexpr int64_t kMaxBlock = 1 << 15;  // its square is an extent

// [batch, depth, height, width] and the blocksize of DepthToSpace and SpaceToDepth.
struct Blocks {
  Shape shape;
  int64_t size = 0;
  bool depth_first = false;  // mode CRD: the element's depth is the outer dimension, its place in the block the inner one
};
Blocks blocks_of(NodeImport& n, bool has_mode) {
  n.expect_counts(1, 1);
  Blocks blocks{n.shape(n.in(0)), n.attr_int("blocksize", 0)};
  if (blocks.shape.size() != 4) throw n.bad("input has shape {}, expected four dimensions", shape_text(blocks.shape));
  if (blocks.size < 1 || blocks.size > kMaxBlock) throw n.bad("attribute 'blocksize' is {}, expected 1 to {}", blocks.size, kMaxBlock);
  const std::string mode = has_mode ? n.attr_string("mode", "DCR") : "DCR";
  if (mode != "DCR" && mode != "CRD") throw n.bad("attribute 'mode' is '{}', expected DCR or CRD", printable(mode));
  blocks.depth_first = mode == "CRD";
  return blocks;
}

}  // namespace

void import_reshape(NodeImport& n) {
  const bool by_input = n.version() >= 5;
  n.expect_counts(by_input ? 2 : 1, by_input ? 2 : 1);
  if (n.version() == 1) n.ignore("consumed_inputs");
  const bool allow_zero = n.version() >= 14 && n.attr_flag("allowzero", false);
  const std::optional<Ints> wanted = by_input ? n.ints(1, "shape") : n.find_ints("shape");
  if (!wanted) throw n.bad("attribute 'shape' is missing");
  const TensorId x = n.in(0);
  Ints kept(n.shape(x).size(), -1);
  for (size_t d = 0; !allow_zero && d < std::min(kept.size(), wanted->size()); ++d) {
    if ((*wanted)[d] == 0) kept[d] = static_cast<int64_t>(d);
  }
  n.result(0, n.reshape(x, reshaped(n, n.shape(x), *wanted, allow_zero), kept));
}

void import_flatten(NodeImport& n) {
  n.expect_counts(1, 1);
  const TensorId x = n.in(0);
  const Shape shape = n.shape(x);
  const int64_t given = n.attr_int("axis", 1);
  const auto axis = static_cast<size_t>(n.axis(given, n.rank(x), "attribute 'axis'", /*with_end=*/true));
  Shape result = {1, 1};
  Ints kept;
  for (size_t d = 0; d < shape.size(); ++d) {
    kept.push_back(d < axis ? 0 : 1);
    result[d < axis ? 0 : 1] *= shape[d];
  }
  n.result(0, n.reshape(x, result, kept));
}

void import_squeeze(NodeImport& n) {
  const std::optional<Ints> given = read_axes(n, /*required=*/false);
  const TensorId x = n.in(0);
  const Shape shape = n.shape(x);
  const Ints axes = n.axes(given.value_or(Ints()), n.rank(x));
  Shape result;
  Ints kept;
  for (size_t d = 0; d < shape.size(); ++d) {
    const bool named = std::binary_search(axes.begin(), axes.end(), static_cast<int64_t>(d));
    if (named && shape[d] != 1) throw n.bad("axis {} of {} has extent {}, expected 1", d, shape_text(shape), shape[d]);
    const bool drop = axes.empty() ? shape[d] == 1 : named;
    kept.push_back(drop ? -1 : static_cast<int64_t>(result.size()));
    if (!drop) result.push_back(shape[d]);
  }
  n.result(0, n.reshape(x, result, kept));
}

void import_unsqueeze(NodeImport& n) {
  const Ints given = *read_axes(n, /*required=*/true);
  const TensorId x = n.in(0);
  const Shape shape = n.shape(x);
  const size_t rank = shape.size() + given.size();
  if (rank > kMaxRank) throw n.refuse("the result has {} dimensions, supported: up to {}", rank, kMaxRank);
  const Ints axes = n.axes(given, static_cast<int64_t>(rank));
  Shape result;
  Ints kept;
  for (size_t d = 0; d < rank; ++d) {
    const bool added = std::binary_search(axes.begin(), axes.end(), static_cast<int64_t>(d));
    result.push_back(added ? 1 : shape[kept.size()]);
    if (!added) kept.push_back(static_cast<int64_t>(d));
  }
  n.result(0, n.reshape(x, result, kept));
}

void import_depth_to_space(NodeImport& n) {
  const Blocks blocks = blocks_of(n, n.version() >= 11);
  const int64_t b = blocks.size, batch = blocks.shape[0], height = blocks.shape[2], width = blocks.shape[3];
  if (blocks.shape[1] % (b * b) != 0)
    throw n.bad("input of shape {} has a depth that blocks of {} by {} do not divide", shape_text(blocks.shape), b, b);
  const int64_t depth = blocks.shape[1] / (b * b);
  const Shape apart = blocks.depth_first ? Shape{batch, depth, b, b, height, width} : Shape{batch, b, b, depth, height, width};
  const Ints perm = blocks.depth_first ? Ints{0, 1, 4, 2, 5, 3} : Ints{0, 3, 4, 1, 5, 2};
  n.result(0, n.reshape(n.add(Transpose{perm}, {n.reshape(n.in(0), apart)}), {batch, depth, height * b, width * b}));
}

// The way back. A mode came with version 28.
void import_space_to_depth(NodeImport& n) {
  const Blocks blocks = blocks_of(n, n.version() >= 28);
  const int64_t b = blocks.size, batch = blocks.shape[0], depth = blocks.shape[1];
  if (blocks.shape[2] % b != 0 || blocks.shape[3] % b != 0)
    throw n.bad("input of shape {} has a height or width that blocks of {} by {} do not divide", shape_text(blocks.shape), b, b);
  const int64_t height = blocks.shape[2] / b, width = blocks.shape[3] / b;
  const Ints perm = blocks.depth_first ? Ints{0, 1, 3, 5, 2, 4} : Ints{0, 3, 5, 1, 2, 4};
  const TensorId apart = n.reshape(n.in(0), {batch, depth, height, b, width, b});
  n.result(0, n.reshape(n.add(Transpose{perm}, {apart}), {batch, depth * b * b, height, width}));
}

// start and end (version 15) are clamped as in numpy's slices.
void import_shape(NodeImport& n) {
  n.expect_counts(1, 1);
  const Shape shape = n.shape(n.in(0));
  const auto rank = static_cast<int64_t>(shape.size());
  const auto clamp = [&](int64_t index) { return index < -rank ? 0 : index < 0 ? index + rank : std::min(index, rank); };
  const int64_t start = n.version() >= 15 ? clamp(n.attr_int("start", 0)) : 0;
  const int64_t end = n.version() >= 15 ? clamp(n.attr_int("end", rank)) : rank;
  if (const std::optional<Builder::Padded> padded = n.padding(n.in(0)); padded && start <= padded->axis && padded->axis < end) {
    std::vector<TensorId> parts;
    for (int64_t d = start; d < end; ++d)
      parts.push_back(d == padded->axis ? padded->count : n.constant_i64({shape[static_cast<size_t>(d)]}, {1}));
    return n.result(0, parts.size() == 1 ? parts[0] : n.add(Concat{0}, parts));
  }
  const Ints part(shape.begin() + start, shape.begin() + std::max(start, end));
  n.result(0, n.constant_i64(part, {static_cast<int64_t>(part.size())}));
}

void import_size(NodeImport& n) {
  n.expect_counts(1, 1);
  n.result(0, n.constant_i64({element_count(n.shape(n.in(0)))}, {}));
}

}  // namespace tamp::frontend
