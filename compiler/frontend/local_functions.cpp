// Odd: some fields (a function's default attributes, overloads) are newer than the oldest ONNX that tamp is built with. They are read by
// their field numbers from the unknown fields that protobuf keeps.
#include "compiler/frontend/local_functions.h"

#include <google/protobuf/unknown_field_set.h>
#include <onnx/onnx_pb.h>

#include <set>
#include <vector>

#include "compiler/frontend/container.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

namespace pb = google::protobuf;

constexpr int kNodeOverload = 8, kFunctionAttributeProto = 11, kFunctionOverload = 13;

// The values of a string or message field, as bytes.
std::vector<std::string> bytes_of_field(const pb::Message& message, int number) {
  std::vector<std::string> values;
  const pb::Reflection& reflection = *message.GetReflection();
  if (const pb::FieldDescriptor* field = message.GetDescriptor()->FindFieldByNumber(number)) {
    if (field->is_repeated()) {
      for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
        values.push_back(reflection.GetRepeatedMessage(message, field, i).SerializeAsString());
      }
    } else if (reflection.HasField(message, field)) {
      values.push_back(reflection.GetString(message, field));
    }
    return values;
  }
  const pb::UnknownFieldSet& unknown = reflection.GetUnknownFields(message);
  for (int i = 0; i < unknown.field_count(); ++i) {
    const pb::UnknownField& field = unknown.field(i);
    if (field.number() == number && field.type() == pb::UnknownField::TYPE_LENGTH_DELIMITED) values.push_back(field.length_delimited());
  }
  return values;
}

std::string overload_of(const pb::Message& message, int number) {
  const std::vector<std::string> values = bytes_of_field(message, number);
  return values.empty() ? "" : values.back();
}

std::string domain_key(const std::string& domain) { return is_default_domain(domain) ? "" : domain; }

// One copy of a function's body.
class Instance {
 public:
  Instance(const onnx::FunctionProto& function, const onnx::NodeProto& call, const std::string& where)
      : function_(function), where_(where), graph_(std::make_shared<onnx::GraphProto>()) {
    read_attributes(call);
  }

  std::shared_ptr<onnx::GraphProto> make(const onnx::NodeProto& call, std::vector<std::string>& inputs) {
    if (call.input_size() > function_.input_size() || call.output_size() > function_.output_size()) {
      throw bad_input("{}: has {} inputs and {} outputs, the function has {} and {}", where_, call.input_size(), call.output_size(),
                      function_.input_size(), function_.output_size());
    }
    for (int i = 0; i < function_.input_size(); ++i) {
      if (i < call.input_size() && !call.input(i).empty()) {
        graph_->add_input()->set_name(function_.input(i));
        inputs.push_back(call.input(i));
      } else {
        left_out_.insert(function_.input(i));
      }
    }
    for (const std::string& name : function_.output()) graph_->add_output()->set_name(name);
    for (const onnx::NodeProto& node : function_.node()) *graph_->add_node() = node;
    for (onnx::NodeProto& node : *graph_->mutable_node()) substitute(node);
    return graph_;
  }

 private:
  void read_attributes(const onnx::NodeProto& call) {
    std::set<std::string> known(function_.attribute().begin(), function_.attribute().end());
    for (const std::string& bytes : bytes_of_field(function_, kFunctionAttributeProto)) {
      onnx::AttributeProto proto;
      if (!proto.ParseFromString(bytes)) throw bad_input("{}: an attribute of the function is damaged", where_);
      known.insert(proto.name());
      attributes_[proto.name()] = proto;
    }
    for (const onnx::AttributeProto& attribute : call.attribute()) {
      const std::string name = printable(attribute.name());
      if (!known.contains(attribute.name())) throw bad_input("{}: unknown attribute '{}'", where_, name);
      if (attribute.has_ref_attr_name()) throw bad_input("{}: attribute '{}' refers to a function's attribute", where_, name);
      attributes_[attribute.name()] = attribute;
    }
  }

  // Protobuf bounds how deep graphs nest in attributes.
  void substitute(onnx::NodeProto& node) {
    for (std::string& name : *node.mutable_input()) {
      if (left_out_.contains(name)) name.clear();
    }
    onnx::NodeProto without;
    for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) {
        for (onnx::NodeProto& inner : *attribute.mutable_g()->mutable_node()) substitute(inner);
      }
      if (!attribute.has_ref_attr_name() || attribute.ref_attr_name().empty()) {
        *without.add_attribute() = attribute;
        continue;
      }
      const auto found = attributes_.find(attribute.ref_attr_name());
      if (found == attributes_.end()) continue;  // left out: the node's own default holds
      onnx::AttributeProto& given = *without.add_attribute();
      given = found->second;
      given.set_name(attribute.name());
    }
    node.mutable_attribute()->Swap(without.mutable_attribute());
  }

  const onnx::FunctionProto& function_;
  const std::string& where_;
  std::shared_ptr<onnx::GraphProto> graph_;
  std::map<std::string, onnx::AttributeProto> attributes_;
  std::set<std::string> left_out_;
};

}  // namespace

LocalFunctions::LocalFunctions(const onnx::ModelProto& model) {
  for (const onnx::FunctionProto& function : model.functions()) {
    const Key key{domain_key(function.domain()), function.name(), overload_of(function, kFunctionOverload)};
    if (!functions_.emplace(key, &function).second) twice_ = name_of_function(function);
  }
}

const onnx::FunctionProto* LocalFunctions::find(const onnx::NodeProto& node) const {
  if (functions_.empty()) return nullptr;
  const auto found = functions_.find({domain_key(node.domain()), node.op_type(), overload_of(node, kNodeOverload)});
  return found == functions_.end() ? nullptr : found->second;
}

std::string name_of_function(const onnx::FunctionProto& function) {
  const std::string domain = is_default_domain(function.domain()) ? "" : printable(function.domain(), 60) + ".";
  return domain + printable(function.name(), 60);
}

Node read_call(const onnx::FunctionProto& function, const onnx::NodeProto& call, size_t index, int64_t opset, const std::string& where) {
  Node node;
  node.index = index;
  node.name = call.name();
  node.op_type = call.op_type();
  node.opset = opset;
  node.version = 1;
  node.outputs.assign(call.output().begin(), call.output().end());
  while (!node.outputs.empty() && node.outputs.back().empty()) node.outputs.pop_back();
  auto body = std::make_shared<Subgraph>();
  body->owned = Instance(function, call, where).make(call, node.inputs);
  body->proto = body->owned.get();
  body->function = &function;
  body->outputs = static_cast<size_t>(function.output_size());
  body->opset = opset;
  for (const auto& import : function.opset_import()) {
    if (is_default_domain(import.domain()) && import.version() > 0) body->opset = import.version();
  }
  node.attributes.push_back({"body", std::move(body)});
  return node;
}

}  // namespace tamp::frontend
