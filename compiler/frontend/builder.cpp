// Folding is the reference evaluator at work inside a budget; what exceeds it stays an rOperator, or is refused if the device
// could not compute it.
#include "compiler/frontend/builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <optional>

#include "compiler/frontend/initializers.h"
#include "compiler/frontend/lower_f64.h"
#include "compiler/frontend/lower_rank.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

int64_t bytes_of_all(const std::vector<ops::TensorType>& types) {
  int64_t bytes = 0;
  for (const ops::TensorType& type : types) bytes += element_count(type.shape) * bytes_of(type.dtype);
  return bytes;
}

// Element types whose values f32 holds exactly.
bool fits_f32(const OpAttrs& attrs, DType dtype) {
  if (dtype == DType::f16 || dtype == DType::bf16) return true;
  const auto* pool = std::get_if<Pool>(&attrs);
  return pool && pool->kind == PoolKind::max && (dtype == DType::i8 || dtype == DType::u8);
}

// Of what is too large to be folded. A product reads the weights that a Transpose turns as they lie (passes/canonicalise.h).
bool may_be_at_run_time(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::boolean;
}

// A Reshape's result is the operand's bytes, and costs nothing. Of a type that a view at run time may have it is left to the passes, so
// that both are stored once.
bool shares_bytes(const OpAttrs& attrs, const std::vector<ops::TensorType>& types) {
  return std::holds_alternative<Reshape>(attrs) && !may_be_at_run_time(types[0].dtype);
}

}  // namespace

ops::Value Builder::value(TensorId id) const {
  const Tensor& tensor = graph.tensor(id);
  TAMP_CHECK(tensor.data != nullptr, "value of '" + tensor.name + "', which has none");
  return {tensor.dtype, tensor.shape, tensor.data};
}

TensorId Builder::add_value(const std::string& name, ops::Value value) {
  return add_tensor(graph, {name, value.dtype, std::move(value.shape), Role::constant, std::move(value.data)});
}

TensorId Builder::add_file_tensor(const std::string& name, FileTensor value) {
  const NarrowType type = value.narrow;
  if (value.dtype == DType::i8 || value.dtype == DType::u8) graph.has_quantised_weights = true;
  const TensorId id = add_value(name, static_cast<ops::Value&&>(value));
  if (type != NarrowType::none) narrow[id] = type;
  return id;
}

TensorId Builder::unpacked(const std::string& name, TensorId source, const Key& key, ops::Value value, const std::string& where) {
  graph.has_quantised_weights = true;
  const auto found = unpacked_.find({source, key});
  if (found != unpacked_.end()) return found->second;
  const auto first = unpacked_.lower_bound({source, {}});
  const bool is_first = first == unpacked_.end() || first->first.first != source;
  if (!is_first) charge(element_count(value.shape) * bytes_of(value.dtype), where);
  return unpacked_[{source, key}] = add_value(unique_tensor_name(name), std::move(value));
}

void Builder::charge(int64_t bytes, const std::string& where) {
  if (bytes > kFoldTensorBytes)
    throw bad_input("{}: would make a constant of {}, at most {} are folded", where, bytes_text(bytes), bytes_text(kFoldTensorBytes));
  if (folded_bytes_ + bytes > kFoldTotalBytes)
    throw bad_input("{}: the constants folded so far exceed {}", where, bytes_text(kFoldTotalBytes));
  folded_bytes_ += bytes;
}

TensorId Builder::constant_part(TensorId id, int64_t i) {
  const auto found = parts_.find({id, i});
  if (found != parts_.end()) return found->second;
  ops::Value part = value(id);
  const int64_t parts = part.shape.at(0);
  part.shape.erase(part.shape.begin());
  if (parts > 1) {
    const auto bytes = static_cast<std::ptrdiff_t>(element_count(part.shape) * bytes_of(part.dtype));
    part.data = std::make_shared<const Bytes>(part.data->begin() + i * bytes, part.data->begin() + (i + 1) * bytes);
  }
  const std::string name = graph.tensor(id).name;
  const TensorId made = add_value(unique_tensor_name(fmt::format("{}.{}", name, i)), std::move(part));
  return parts_[{id, i}] = made;
}

ops::OperandList Builder::operands_of(const Request& request) const {
  ops::OperandList operands;
  for (const TensorId id : request.inputs) {
    if (id.valid())
      operands.push_back(ops::Operand{{dtype(id), graph.tensor(id).shape}, graph.tensor(id).data.in_memory()});
    else
      operands.push_back(std::nullopt);
  }
  return operands;
}

std::vector<ops::TensorType> Builder::infer(const Request& request) const {
  Types types;
  try {
    types = ops::infer(request.attrs, operands_of(request));
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", request.where, error.what()));
  }
  for (const ops::TensorType& type : types) {
    const std::string limit = shape_limit(type.shape);
    if (!limit.empty()) throw unsupported("{}: the result {}", request.where, limit);
  }
  return types;
}

bool Builder::may_fold(const Request& request, const Types& types) const {
  if (is_of_loop(request.attrs) || !request.folds) return false;
  if (shares_bytes(request.attrs, types)) return true;
  const int64_t bytes = bytes_of_all(types);
  if (bytes > kFoldTensorBytes || folded_bytes_ + bytes > kFoldTotalBytes) return false;
  return ops::work_of(request.attrs, operands_of(request), types) <= ops::kFoldTotalWork - folded_work_;
}

std::vector<TensorId> Builder::add_results(const std::string& name, const Types& types) {
  std::vector<TensorId> ids;
  for (const ops::TensorType& type : types) ids.push_back(add_tensor(graph, {unique_tensor_name(name), type.dtype, type.shape}));
  return ids;
}

std::vector<TensorId> Builder::fold(Request request, const Types& types) {
  if (!shares_bytes(request.attrs, types)) {
    charge(bytes_of_all(types), request.where);
    folded_work_ += ops::work_of(request.attrs, operands_of(request), types);
  }

  const std::vector<TensorId> ids = add_results(request.name, types);
  const ROperator rop{std::move(request.name), std::move(request.attrs), {}, std::move(request.inputs), ids, {request.origin}};
  std::deque<std::pair<TensorId, ops::Value>> values;  // references into it stay good
  for (const TensorId in : reads_of(rop)) values.emplace_back(in, value(in));
  const ops::ValueOf value_of = [&](TensorId wanted) -> const ops::Value& {
    const auto found = std::find_if(values.begin(), values.end(), [&](const auto& entry) { return entry.first == wanted; });
    TAMP_CHECK(found != values.end(), "folding reads a tensor that is no operand");
    return found->second;
  };
  try {
    const std::vector<ops::Value> results = ops::evaluate(graph, rop, value_of);
    for (size_t k = 0; k < ids.size(); ++k) graph.tensor(ids[k]).data = results[k].data;
  } catch (const Error& error) {  // an integer division by 0, say
    throw Error(error.code(), fmt::format("{}: folding: {}", request.where, error.what()));
  }
  for (const TensorId id : ids) graph.tensor(id).role = Role::constant;
  if (keeps_copies) folded.push_back(rop);
  return ids;
}

TensorId Builder::cast(const Request& request, TensorId id, DType to) {
  if (!id.valid() || graph.tensor(id).dtype == to) return id;
  return emit({Elementwise{{{ElementwiseOp::cast, {0}}}, {}, to}, {id}, request.name, request.origin, request.where});
}

std::vector<TensorId> Builder::emit_in_f32(Request request, DType dtype) {
  if (dtype == DType::f64) {
    if (const std::optional<TensorId> lowered = lower_f64(*this, request)) return {*lowered};
  }
  if (!fits_f32(request.attrs, dtype)) {
    throw unsupported("{}: {} of {} at run time, supported: f32, f16, bf16; export the model in float32", request.where,
                      name_of(request.attrs), name_of(dtype));
  }
  for (TensorId& id : request.inputs) {
    if (id.valid() && graph.tensor(id).dtype == dtype) id = cast(request, id, DType::f32);
  }
  const Request names = request;
  std::vector<TensorId> ids = emit_all(std::move(request));
  for (TensorId& id : ids) id = cast(names, id, dtype);
  return ids;
}

std::vector<TensorId> Builder::emit_all(Request request) {
  for (const TensorId id : request.inputs) {
    if (may_read_padded || !padded.contains(id)) continue;
    throw unsupported("{}: how many entries '{}' has is known only at run time, supported: as an output of the model", request.where,
                      printable(graph.tensor(id).name));
  }
  const Types types = infer(request);
  const bool all_constant =
      std::all_of(request.inputs.begin(), request.inputs.end(), [&](TensorId id) { return !id.valid() || is_constant(id); });
  const bool known = std::all_of(request.inputs.begin(), request.inputs.end(), [&](TensorId id) { return !id.valid() || has_data(id); });
  if (all_constant && known && may_fold(request, types)) return fold(std::move(request), types);

  const auto& [dtype, shape] = types.at(0);
  if (all_constant && known && request.folds && !is_of_loop(request.attrs) && !may_be_at_run_time(dtype)) {
    throw bad_input("{}: the {} result of shape {} exceeds what is folded ({} a tensor, {} and about a second of work in all)",
                    request.where, name_of(dtype), shape_text(shape), bytes_text(kFoldTensorBytes), bytes_text(kFoldTotalBytes));
  }
  if (const std::optional<TensorId> lowered = types.size() == 1 ? lower_rank(*this, request, shape) : std::nullopt) return {*lowered};
  if (dtype != DType::f32 && ops::is_f32_only(request.attrs, dtype)) return emit_in_f32(std::move(request), dtype);
  const std::vector<TensorId> ids = add_results(request.name, types);
  const std::string name = rop_names_.unique(request.name, ".");
  graph.rops.push_back({name, std::move(request.attrs), {}, std::move(request.inputs), ids, {std::move(request.origin)}});
  return ids;
}

}  // namespace tamp::frontend
