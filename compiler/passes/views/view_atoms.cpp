#include "compiler/passes/views/view_atoms.h"

#include <algorithm>

#include "compiler/passes/rewrite.h"
#include "compiler/passes/view_strides.h"

namespace tamp::passes {
namespace {

// Parts an atom in two: `inner` of its elements stay neighbours. False where a Slice left no whole number of them.
bool split(Seen& seen, std::vector<size_t>& flat, size_t at, int64_t inner) {
  const Atom old = seen.atoms[at];
  if (old.step != 1 || old.extent % inner != 0 || old.start % inner != 0 || old.count % inner != 0) return false;
  seen.atoms[at] = {old.dimension, old.inner * inner, old.extent / inner, old.start / inner, 1, old.count / inner};
  seen.atoms.insert(seen.atoms.begin() + static_cast<std::ptrdiff_t>(at) + 1, Atom{old.dimension, old.inner, inner, 0, 1, inner});
  const auto renumber = [&](std::vector<size_t>& list) {
    std::vector<size_t> made;
    for (const size_t i : list) {
      made.push_back(i > at ? i + 1 : i);
      if (i == at) made.push_back(at + 1);
    }
    list = std::move(made);
  };
  renumber(flat);
  for (std::vector<size_t>& dim : seen.dims) renumber(dim);
  return true;
}

std::optional<Seen> reshaped(Seen seen, const Shape& to) {
  std::vector<size_t> flat = seen.order();
  seen.dims.assign(to.size(), {});
  size_t next = 0;
  for (size_t d = 0; d < to.size(); ++d) {
    for (int64_t left = to[d]; left > 1;) {
      const int64_t count = seen.atoms[flat[next]].count;
      if (left % count == 0) {
        left /= count;
        seen.dims[d].push_back(flat[next++]);
      } else if (count % left != 0 || !split(seen, flat, flat[next], count / left)) {
        return std::nullopt;
      }
    }
  }
  return seen;
}

std::optional<Seen> sliced(Seen seen, const Slice& op) {
  for (size_t d = 0; d < seen.dims.size(); ++d) {
    std::vector<size_t>& dim = seen.dims[d];
    int64_t extent = 1;
    for (const size_t i : dim) extent *= seen.atoms[i].count;
    if (op.extents[d] == extent && op.starts[d] == 0 && op.steps[d] == 1) continue;
    if (dim.size() != 1) return std::nullopt;
    Atom& atom = seen.atoms[dim[0]];
    atom.start += op.starts[d] * atom.step;
    atom.step *= op.steps[d];
    atom.count = op.extents[d];
    if (atom.count == 1) {
      atom.step = 1;
      dim.clear();
    }
  }
  return seen;
}

}  // namespace

std::vector<size_t> Seen::order() const {
  std::vector<size_t> all;
  for (const std::vector<size_t>& dim : dims) all.insert(all.end(), dim.begin(), dim.end());
  return all;
}
bool Seen::is_whole() const {
  return std::all_of(atoms.begin(), atoms.end(), [](const Atom& atom) { return atom.is_whole(); });
}
bool Seen::is_in_order() const {
  const std::vector<size_t> all = order();
  return is_whole() && std::is_sorted(all.begin(), all.end());
}

Seen seen_whole(const Graph& graph, TensorId id) {
  Seen seen{id, {}, {}};
  const Shape& shape = graph.tensor(id).shape;
  for (size_t d = 0; d < shape.size(); ++d) {
    seen.dims.emplace_back();
    if (shape[d] == 1) continue;
    seen.dims[d] = {seen.atoms.size()};
    seen.atoms.push_back({d, 1, shape[d], 0, 1, shape[d]});
  }
  return seen;
}

std::optional<Seen> seen_through(const Graph& graph, const ROperator& view, const Seen& operand) {
  const Shape &from = graph.tensor(view.inputs[0]).shape, &to = graph.tensor(view.outputs[0]).shape;
  if (element_count(from) == 0 || element_count(to) == 0) return std::nullopt;
  if (std::holds_alternative<Reshape>(view.attrs)) return reshaped(operand, to);
  if (const auto* op = std::get_if<Slice>(&view.attrs)) return sliced(operand, *op);
  const auto* op = std::get_if<Transpose>(&view.attrs);
  if (!op) return std::nullopt;
  Seen seen = operand;
  for (size_t d = 0; d < op->perm.size(); ++d) seen.dims[d] = operand.dims[static_cast<size_t>(op->perm[d])];
  return seen;
}

std::optional<std::vector<int64_t>> strides_of(const Seen& seen, const std::vector<int64_t>& base) {
  std::vector<int64_t> strides(seen.dims.size(), 0);
  const auto stride = [&](size_t i) { return base[seen.atoms[i].dimension] * seen.atoms[i].inner * seen.atoms[i].step; };
  for (size_t d = 0; d < seen.dims.size(); ++d) {
    const std::vector<size_t>& dim = seen.dims[d];
    for (size_t k = 0; k + 1 < dim.size(); ++k) {
      if (stride(dim[k]) != stride(dim[k + 1]) * seen.atoms[dim[k + 1]].count) return std::nullopt;
    }
    if (!dim.empty()) strides[d] = stride(dim.back());
  }
  return strides;
}

void SeenTensors::emit(ROperator rop) {
  for (const TensorId id : rop.outputs) maker_[id] = rops_.size();
  if (is_view(rop.attrs)) {
    if (std::optional<Seen> made = seen_through(graph_, rop, seen(rop.inputs[0]))) seen_[rop.outputs[0]] = *std::move(made);
  }
  rops_.push_back(std::move(rop));
}

Seen SeenTensors::seen(TensorId id) const {
  const auto found = seen_.find(id);
  return found != seen_.end() ? found->second : seen_whole(graph_, id);
}
const ROperator* SeenTensors::maker(TensorId id) const {
  const auto found = maker_.find(id);
  return found != maker_.end() ? &rops_[found->second] : nullptr;
}

TensorId SeenTensors::tensor(const std::string& name, Shape shape) {
  return add_tensor(graph_, {name + ".seen" + std::to_string(graph_.tensors.size()), DType::f32, std::move(shape)});
}

TensorId SeenTensors::view(TensorId base, TensorId from, Shape shape, OpAttrs attrs, const ROperator& reason) {
  const TensorId to = tensor(graph_.tensor(base).name, std::move(shape));
  graph_.tensor(to).dtype = graph_.tensor(from).dtype;
  emit({graph_.tensor(to).name, std::move(attrs), {}, {from}, {to}, reason.origin});
  return to;
}

// The base with its atoms as dimensions, cut and in the order that is seen; those that a Slice left one of come first.
TensorId SeenTensors::turned(const Seen& seen, const ROperator& reason) {
  TensorId at = seen.base;
  Shape parts, cut;
  Slice slice;
  for (const Atom& atom : seen.atoms) {
    parts.push_back(atom.extent);
    cut.push_back(atom.count);
    slice.starts.push_back(atom.start);
    slice.steps.push_back(atom.step);
  }
  slice.extents = cut;
  std::vector<int64_t> perm;
  const std::vector<size_t> order = seen.order();
  for (size_t i = 0; i < seen.atoms.size(); ++i) {
    if (std::find(order.begin(), order.end(), i) == order.end()) perm.push_back(static_cast<int64_t>(i));
  }
  perm.insert(perm.end(), order.begin(), order.end());
  Shape shape;
  for (const int64_t i : perm) shape.push_back(cut[static_cast<size_t>(i)]);

  if (graph_.tensor(at).shape != parts) at = view(seen.base, at, parts, Reshape{parts}, reason);
  if (!seen.is_whole()) at = view(seen.base, at, cut, slice, reason);
  if (!std::is_sorted(perm.begin(), perm.end())) at = view(seen.base, at, shape, Transpose{perm}, reason);
  return at;
}

TensorId SeenTensors::show(const Seen& seen, const Shape& shape, const ROperator& reason) {
  const TensorId from = seen.is_in_order() ? seen.base : turned(seen, reason);
  return graph_.tensor(from).shape == shape ? from : view(seen.base, from, shape, Reshape{shape}, reason);
}

void SeenTensors::show_as(TensorId to, const Seen& seen, const ROperator& reason) {
  const TensorId from = seen.is_in_order() ? seen.base : turned(seen, reason);
  emit({reason.name, Reshape{graph_.tensor(to).shape}, {}, {from}, {to}, reason.origin});
}

}  // namespace tamp::passes
