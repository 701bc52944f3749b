// Sequences of tensors, whose lengths and places are known at import: there they are lists, and nothing of them is left in the graph.
#include <algorithm>
#include <limits>

#include "compiler/frontend/graph_import.h"
#include "compiler/frontend/importers.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

constexpr size_t kAnyNumber = std::numeric_limits<size_t>::max();

// Input `i`, a position in `count` elements, counted from the beginning; with_end: the place behind the last one is one, too.
size_t position(NodeImport& n, size_t i, size_t count, bool with_end) {
  n.expect_constant(i, "position");
  const DType type = n.dtype(n.in(i));
  if ((type != DType::i32 && type != DType::i64) || element_count(n.shape(n.in(i))) != 1)
    throw n.bad("input {} (position) is {}{}, expected one i64", i, name_of(type), shape_text(n.shape(n.in(i))));
  const auto length = static_cast<int64_t>(count);
  const int64_t last = with_end ? length : length - 1, given = n.flat_ints(n.in(i))[0];
  if (given < -length || given > last) throw n.bad("input {} (position) is {}, the sequence has {} elements", i, given, length);
  return static_cast<size_t>(given < 0 ? given + length : given);
}

void expect_tensor(NodeImport& n, size_t i) {
  if (n.is_sequence(n.in(i))) throw n.bad("input {} is a sequence, expected a tensor", i);
}

// How long each part of an extent is: by the operand split, which is one length for all (the last may be shorter) or a length for each;
// else 1.
Ints part_lengths(NodeImport& n, int64_t extent) {
  if (!n.has(1)) return Ints(static_cast<size_t>(extent), 1);
  const Ints given = n.ints(1, "split");
  if (n.rank(n.in(1)) == 1) {
    int64_t sum = 0;
    for (const int64_t length : given) {
      if (length < 0 || length > extent) throw n.bad("split {} of an extent of {}", shape_text(given), extent);
      sum += length;
    }
    if (sum != extent) throw n.bad("split {} of an extent of {}", shape_text(given), extent);
    return given;
  }
  if (given[0] < 1) throw n.bad("input 1 (split) is {}, expected at least 1", given[0]);
  Ints lengths;
  for (int64_t start = 0; start < extent; start += lengths.back()) lengths.push_back(std::min(given[0], extent - start));
  return lengths;
}

// Into a sequence that grows.
void put(NodeImport& n) {
  expect_tensor(n, 1);
  const bool is_in_front = n.has(2);
  if (is_in_front && (!n.is_constant(n.in(2)) || n.number(2, "position") != 0))
    throw n.refuse("puts a tensor into the middle of a sequence that grows in a loop of run time, supported: at one of its ends");
  std::vector<Builder::Put> all = n.builder().growing.at(n.in(0));
  all.push_back({n.in(1), is_in_front});
  const TensorId made = n.sequence({});
  n.builder().growing[made] = std::move(all);
  n.result(0, made);
}

// The elements of a sequence side by side where they lie in one tensor: along a dimension of their own, or along one that they have.
TensorId joined(NodeImport& n, const Builder::Stacked& stacked, int64_t axis, bool is_new) {
  Ints perm = range(0, n.rank(stacked.tensor));
  perm.erase(perm.begin() + stacked.axis);
  perm.insert(perm.begin() + axis, stacked.axis);
  const TensorId all = stacked.axis == axis ? stacked.tensor : n.add(Transpose{perm}, {stacked.tensor});
  if (is_new) return all;
  Shape shape = n.shape(all);
  const auto d = static_cast<size_t>(axis);
  shape[d + 1] *= shape[d];
  shape.erase(shape.begin() + axis);
  return n.reshape(all, shape);
}

}  // namespace

void import_sequence_construct(NodeImport& n) {
  n.expect_counts(1, kAnyNumber);
  std::vector<TensorId> elements;
  for (size_t i = 0; i < n.input_count(); ++i) {
    expect_tensor(n, i);
    elements.push_back(n.in(i));
  }
  n.expect_same_dtype(elements);
  n.result(0, n.sequence(std::move(elements)));
}

void import_sequence_empty(NodeImport& n) {
  n.expect_counts(0, 0);
  n.ignore("dtype");  // that of the tensors that come
  n.result(0, n.sequence({}));
}

void import_sequence_at(NodeImport& n) {
  n.expect_counts(2, 2);
  const std::vector<TensorId>& elements = n.elements(0);
  const auto stacked = n.builder().stacked.find(n.in(0));
  if (stacked != n.builder().stacked.end() && !n.is_constant(n.in(1)) && element_count(n.shape(n.in(1))) == 1)
    return n.result(0, n.add(Gather{stacked->second.axis}, {stacked->second.tensor, n.reshape(n.in(1), {})}));
  n.result(0, elements[position(n, 1, elements.size(), /*with_end=*/false)]);
}

void import_sequence_insert(NodeImport& n) {
  n.expect_counts(2, 3);
  if (n.builder().growing.contains(n.in(0))) return put(n);
  std::vector<TensorId> elements = n.elements(0);
  expect_tensor(n, 1);
  if (!elements.empty()) n.expect_same_dtype({elements[0], n.in(1)});
  const size_t at = n.has(2) ? position(n, 2, elements.size(), /*with_end=*/true) : elements.size();
  elements.insert(elements.begin() + static_cast<std::ptrdiff_t>(at), n.in(1));
  n.result(0, n.sequence(std::move(elements)));
}

void import_sequence_erase(NodeImport& n) {
  n.expect_counts(1, 2);
  std::vector<TensorId> elements = n.elements(0);
  if (elements.empty()) throw n.bad("the sequence has no element to erase");
  const size_t at = n.has(1) ? position(n, 1, elements.size(), /*with_end=*/false) : elements.size() - 1;
  elements.erase(elements.begin() + static_cast<std::ptrdiff_t>(at));
  n.result(0, n.sequence(std::move(elements)));
}

void import_sequence_length(NodeImport& n) {
  n.expect_counts(1, 1);
  n.result(0, n.constant_i64(static_cast<int64_t>(n.elements(0).size())));
}

void import_concat_from_sequence(NodeImport& n) {
  n.expect_counts(1, 1);
  std::vector<TensorId> parts = n.elements(0);
  if (parts.empty()) throw n.bad("the sequence has no elements");
  n.expect_same_dtype(parts);
  const bool is_new = n.attr_flag("new_axis", false);
  const std::optional<int64_t> given = n.find_int("axis");
  if (!given) throw n.bad("attribute 'axis' is missing");
  const int64_t axis = n.axis(*given, n.rank(parts[0]) + (is_new ? 1 : 0), "attribute 'axis'");
  const auto stacked = n.builder().stacked.find(n.in(0));
  if (stacked != n.builder().stacked.end() && stacked->second.is_whole) return n.result(0, joined(n, stacked->second, axis, is_new));
  if (is_new) {
    Shape shape = n.shape(parts[0]);
    for (const TensorId part : parts) {
      if (n.shape(part) != shape)
        throw n.bad("elements of shapes {} and {}, expected one shape", shape_text(shape), shape_text(n.shape(part)));
    }
    shape.insert(shape.begin() + axis, 1);
    for (TensorId& part : parts) part = n.reshape(part, shape);
  }
  n.result(0, parts.size() == 1 ? parts[0] : n.add(Concat{axis}, parts));
}

void import_split_to_sequence(NodeImport& n) {
  n.expect_counts(1, 2);
  expect_tensor(n, 0);
  const TensorId x = n.in(0);
  const int64_t axis = n.axis(n.attr_int("axis", 0), n.rank(x), "attribute 'axis'");
  const bool keeps_axis = n.attr_flag("keepdims", true) || n.has(1);  // which counts only without lengths
  const Ints lengths = part_lengths(n, n.shape(x)[static_cast<size_t>(axis)]);
  if (static_cast<int64_t>(lengths.size()) > kMaxUnrolledNodes)
    throw n.refuse("splits into {} tensors, at most {} are supported", lengths.size(), kMaxUnrolledNodes);
  std::vector<TensorId> parts;
  int64_t start = 0;
  for (const int64_t length : lengths) {
    const TensorId part = n.slice_axis(x, axis, start, length);
    Shape shape = n.shape(part);
    if (!keeps_axis) shape.erase(shape.begin() + axis);
    parts.push_back(n.reshape(part, shape));
    start += length;
  }
  const TensorId made = n.sequence(std::move(parts));
  if (!keeps_axis) n.builder().stacked[made] = {x, axis};
  n.result(0, made);
}

// The body's results for each element of the first sequence are the elements of the sequences that come out. Further sequences go along
// with the first; tensors are the same for all.
void import_sequence_map(NodeImport& n) {
  n.expect_inputs(1, kAnyNumber);
  n.expect_graph("body");
  const size_t count = n.elements(0).size();
  std::vector<std::vector<TensorId>> results(n.output_count());
  for (size_t e = 0; e < count; ++e) {
    std::vector<TensorId> operands;
    for (size_t i = 0; i < n.input_count(); ++i) {
      if (n.is_sequence(n.in(i)) && n.elements(i).size() != count)
        throw n.bad("input {} has {} elements, input 0 has {}", i, n.elements(i).size(), count);
      operands.push_back(n.is_sequence(n.in(i)) ? n.elements(i)[e] : n.in(i));
    }
    const std::vector<TensorId> made = n.run_body("body", operands, static_cast<int64_t>(e));
    if (made.size() < results.size()) throw n.bad("has {} outputs, attribute 'body' gives {}", results.size(), made.size());
    for (size_t k = 0; k < results.size(); ++k) results[k].push_back(made[k]);
  }
  for (size_t k = 0; k < results.size(); ++k) {
    if (n.wants(k)) n.result(k, n.sequence(std::move(results[k])));
  }
}

}  // namespace tamp::frontend
