// A model may claim any type for any value; nothing here believes it beyond reading it.
#include "compiler/frontend/declared_types.h"

#include <fmt/format.h>
#include <onnx/onnx_pb.h>

#include "compiler/frontend/initializers.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

std::string kind_of_type(const onnx::TypeProto& type) {
  switch (type.value_case()) {
    case onnx::TypeProto::kTensorType: return "tensor";
    case onnx::TypeProto::kSequenceType: return "sequence";
    case onnx::TypeProto::kMapType: return "map";
    case onnx::TypeProto::kOptionalType: return "optional";
    case onnx::TypeProto::kSparseTensorType: return "sparse tensor";
    default: return "";
  }
}

}  // namespace

DeclaredType declared_type(const onnx::ValueInfoProto& value) {
  DeclaredType type;
  type.kind = kind_of_type(value.type());
  if (type.kind != "tensor") return type;
  const auto& tensor = value.type().tensor_type();
  type.element_type = tensor.elem_type();
  if (!tensor.has_shape()) return type;
  type.dims.emplace();
  for (int k = 0; k < tensor.shape().dim_size(); ++k) {
    const auto& proto = tensor.shape().dim(k);
    DeclaredDim dim;
    if (proto.has_dim_value()) {
      dim.extent = proto.dim_value();
    } else {
      dim.symbol = proto.dim_param().empty() ? fmt::format("{}.{}", value.name(), k) : proto.dim_param();
    }
    type.dims->push_back(std::move(dim));
  }
  return type;
}

std::string dims_text(const DeclaredType& type) {
  if (!type.dims) return "unknown rank";
  std::vector<std::string> parts;
  for (const DeclaredDim& dim : *type.dims) parts.push_back(dim.symbol.empty() ? fmt::format("{}", dim.extent) : printable(dim.symbol, 40));
  return fmt::format("[{}]", join(parts, ","));
}

std::optional<Shape> DimBinding::bind(const DeclaredType& type, const std::string& where) {
  if (!type.dims) throw bad_input("{} has no shape", where);
  if (type.dims->size() > kMaxRank) throw unsupported("{} has {} dimensions, supported: up to {}", where, type.dims->size(), kMaxRank);
  Shape shape;
  bool complete = true;
  for (const DeclaredDim& dim : *type.dims) {
    if (dim.symbol.empty() && dim.extent < 0) throw bad_input("{} has shape {}: negative extent", where, dims_text(type));
    if (dim.symbol.empty()) {
      shape.push_back(dim.extent);
      continue;
    }
    if (seen_.insert(dim.symbol).second) symbols_.push_back(dim.symbol);
    const auto bound = dims_.find(dim.symbol);
    complete = complete && bound != dims_.end();
    if (complete) shape.push_back(bound->second);
  }
  return complete ? std::optional(shape) : std::nullopt;
}

void DimBinding::bind_to(const DeclaredType& type, const Shape& shape, const std::string& where) {
  if (!type.dims) return;
  bool fits = type.dims->size() == shape.size();
  for (size_t d = 0; fits && d < shape.size(); ++d) {
    const DeclaredDim& dim = (*type.dims)[d];
    if (dim.symbol.empty()) {
      fits = dim.extent == shape[d];
      continue;
    }
    bind_symbol(dim.symbol, shape[d], fmt::format("{}, frozen to a value of shape {},", where, shape_text(shape)));
  }
  if (!fits) throw bad_input("{} has shape {}, the value that it is frozen to {}", where, dims_text(type), shape_text(shape));
}

void DimBinding::bind_symbol(const std::string& symbol, int64_t extent, const std::string& why) {
  if (seen_.insert(symbol).second) symbols_.push_back(symbol);
  const auto [entry, is_new] = dims_.emplace(symbol, extent);
  if (is_new) by_other_options_.insert(symbol);
  if (entry->second == extent) return;
  throw bad_input("{} makes dimension {} {}, elsewhere it is {}", why, printable(symbol, 40), extent, entry->second);
}

void DimBinding::check_names() const {
  std::vector<std::string> all;
  for (const std::string& symbol : symbols_) all.push_back(printable(symbol, 40));
  for (const auto& [name, value] : dims_) {
    if (!seen_.contains(name)) {
      throw bad_input("{}: --dim {}: no input has a dimension of that name; symbolic dimensions: {}", file_, printable(name),
                      all.empty() ? "none" : join(all, ", "));
    }
    if (value < 1 && !by_other_options_.contains(name))
      throw bad_input("{}: --dim {}={}: must be at least 1", file_, printable(name), value);
  }
}

std::string DimBinding::unbound() const {
  std::vector<std::string> options;
  for (const std::string& symbol : symbols_) {
    if (!dims_.contains(symbol)) options.push_back(fmt::format("--dim {}=value", printable(symbol, 40)));
  }
  if (options.empty()) return "";
  return fmt::format("{}: the inputs have symbolic dimensions without a value; give {}", file_, join(options, " "));
}

}  // namespace tamp::frontend
