// NodeProto -> Node: names, operands without the empty ones at the end, and attributes by their declared kind.
#include "compiler/frontend/node.h"

#include <fmt/format.h>
#include <onnx/onnx_pb.h>

#include <set>

#include "compiler/frontend/container.h"
#include "compiler/frontend/op_table.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

using AttributeProto = onnx::AttributeProto;

// Models of IR 1 do not say which field counts; the filled one does.
AttributeProto::AttributeType kind_of_proto(const AttributeProto& proto) {
  if (proto.type() != AttributeProto::UNDEFINED) return proto.type();
  if (proto.has_f()) return AttributeProto::FLOAT;
  if (proto.has_i()) return AttributeProto::INT;
  if (proto.has_s()) return AttributeProto::STRING;
  if (proto.has_t()) return AttributeProto::TENSOR;
  if (proto.has_g()) return AttributeProto::GRAPH;
  if (proto.floats_size() > 0) return AttributeProto::FLOATS;
  if (proto.strings_size() > 0) return AttributeProto::STRINGS;
  return AttributeProto::INTS;
}

Attribute read_attribute(AttributeProto& proto, const TensorSource& source, const std::string& where) {
  Attribute attribute;
  attribute.name = proto.name();
  switch (kind_of_proto(proto)) {
    case AttributeProto::FLOAT: attribute.value = proto.f(); break;
    case AttributeProto::INT: attribute.value = static_cast<int64_t>(proto.i()); break;
    case AttributeProto::STRING: attribute.value = proto.s(); break;
    case AttributeProto::FLOATS: attribute.value = std::vector<float>(proto.floats().begin(), proto.floats().end()); break;
    case AttributeProto::INTS: attribute.value = std::vector<int64_t>(proto.ints().begin(), proto.ints().end()); break;
    case AttributeProto::STRINGS: attribute.value = std::vector<std::string>(proto.strings().begin(), proto.strings().end()); break;
    case AttributeProto::TENSOR:
      if (!proto.has_t()) throw bad_input("{}: attribute '{}' holds no tensor", where, printable(proto.name()));
      attribute.value = read_tensor(*proto.mutable_t(), source, fmt::format("{}: attribute '{}'", where, printable(proto.name())));
      break;
    case AttributeProto::GRAPH:
      if (!proto.has_g()) throw bad_input("{}: attribute '{}' holds no graph", where, printable(proto.name()));
      attribute.value = std::make_shared<Subgraph>(Subgraph{proto.mutable_g(), static_cast<size_t>(proto.g().output_size())});
      break;
    case AttributeProto::GRAPHS: attribute.value = OtherAttribute{"graphs"}; break;
    case AttributeProto::SPARSE_TENSOR:
    case AttributeProto::SPARSE_TENSORS: attribute.value = OtherAttribute{"sparse tensor"}; break;
    case AttributeProto::TENSORS: attribute.value = OtherAttribute{"tensors"}; break;
    default: attribute.value = OtherAttribute{fmt::format("kind {}", static_cast<int>(proto.type()))}; break;
  }
  return attribute;
}

std::vector<std::string> without_trailing_empty(const auto& names) {
  std::vector<std::string> kept(names.begin(), names.end());
  while (!kept.empty() && kept.back().empty()) kept.pop_back();
  return kept;
}

}  // namespace

std::string kind_of(const Attribute& attribute) {
  return std::visit(overloaded{
                        [](int64_t) -> std::string { return "int"; },
                        [](float) -> std::string { return "float"; },
                        [](const std::string&) -> std::string { return "string"; },
                        [](const std::vector<int64_t>&) -> std::string { return "ints"; },
                        [](const std::vector<float>&) -> std::string { return "floats"; },
                        [](const std::vector<std::string>&) -> std::string { return "strings"; },
                        [](const FileTensor&) -> std::string { return "tensor"; },
                        [](const std::shared_ptr<Subgraph>&) -> std::string { return "graph"; },
                        [](const OtherAttribute& other) -> std::string { return other.kind; },
                    },
                    attribute.value);
}

std::string node_text(const std::string& graph, size_t index, const onnx::NodeProto& node, int64_t opset) {
  const std::string name = node.name().empty() ? "" : fmt::format(" '{}'", printable(node.name()));
  const std::string domain = is_default_domain(node.domain()) ? "" : printable(node.domain(), 60) + ".";
  const int64_t own = domain.empty() ? opset : node.domain() == kMicrosoft ? kMicrosoftVersion : 0;
  const std::string version = own > 0 ? fmt::format(", opset {}", own) : "";
  return fmt::format("{}: node #{}{} ({}{}{})", graph, index, name, domain, printable(node.op_type(), 60), version);
}

Node read_node(onnx::NodeProto& proto, size_t index, int64_t opset, const TensorSource& source, const std::string& where) {
  Node node;
  node.index = index;
  node.name = proto.name();
  node.op_type = proto.op_type();
  node.opset = opset;
  node.inputs = without_trailing_empty(proto.input());
  node.outputs = without_trailing_empty(proto.output());
  std::set<std::string> seen;
  for (AttributeProto& attribute : *proto.mutable_attribute()) {
    const std::string name = printable(attribute.name());
    if (attribute.name().empty()) throw bad_input("{}: an attribute has no name", where);
    if (!seen.insert(attribute.name()).second) throw bad_input("{}: attribute '{}' is given twice", where, name);
    if (attribute.has_ref_attr_name()) throw bad_input("{}: attribute '{}' refers to a function's attribute", where, name);
    node.attributes.push_back(read_attribute(attribute, source, where));
  }
  return node;
}

}  // namespace tamp::frontend
