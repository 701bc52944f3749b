// ONNX models in the making, for tests of the frontend: protobuf messages that go through a file, as a user's do.
//
// onnx.pb.h needs to know its namespace; only the frontend's own target gets that from CMake.
#pragma once

#ifndef ONNX_NAMESPACE
#define ONNX_NAMESPACE onnx
#define ONNX_ML 1
#endif
#include <onnx/onnx_pb.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "compiler/frontend/onnx_reader.h"
#include "compiler/support/error.h"
#include "compiler/support/files.h"
#include "test/support/catch.h"

namespace tamp::test {

namespace fs = std::filesystem;
using Ints = std::vector<int64_t>;
using Floats = std::vector<float>;
using Attributes = std::vector<onnx::AttributeProto>;

// A folder of its own for every test, gone afterwards.
struct TempFolder {
  ScratchFolder scratch{temporary_parent(), "tamp-frontend-"};
  fs::path path = scratch.path();
  std::string write(const google::protobuf::Message& message, const std::string& name = "m.onnx") const {
    std::ofstream stream(path / name, std::ios::binary);
    message.SerializeToOstream(&stream);
    return (path / name).string();
  }
};

inline onnx::AttributeProto attribute(const std::string& name, const Ints& values) {
  onnx::AttributeProto proto;
  proto.set_name(name);
  proto.set_type(onnx::AttributeProto::INTS);
  for (const int64_t value : values) proto.add_ints(value);
  return proto;
}
inline onnx::AttributeProto attribute(const std::string& name, int64_t value) {
  onnx::AttributeProto proto;
  proto.set_name(name);
  proto.set_type(onnx::AttributeProto::INT);
  proto.set_i(value);
  return proto;
}
inline onnx::AttributeProto attribute(const std::string& name, int value) { return attribute(name, static_cast<int64_t>(value)); }
inline onnx::AttributeProto attribute(const std::string& name, float value) {
  onnx::AttributeProto proto;
  proto.set_name(name);
  proto.set_type(onnx::AttributeProto::FLOAT);
  proto.set_f(value);
  return proto;
}
inline onnx::AttributeProto attribute(const std::string& name, const char* value) {
  onnx::AttributeProto proto;
  proto.set_name(name);
  proto.set_type(onnx::AttributeProto::STRING);
  proto.set_s(value);
  return proto;
}

inline onnx::AttributeProto attribute(const std::string& name, const Floats& values) {
  onnx::AttributeProto proto;
  proto.set_name(name);
  proto.set_type(onnx::AttributeProto::FLOATS);
  for (const float value : values) proto.add_floats(value);
  return proto;
}
inline onnx::AttributeProto attribute(const std::string& name, const std::vector<std::string>& values) {
  onnx::AttributeProto proto;
  proto.set_name(name);
  proto.set_type(onnx::AttributeProto::STRINGS);
  for (const std::string& value : values) proto.add_strings(value);
  return proto;
}
inline onnx::AttributeProto attribute(const std::string& name, const onnx::GraphProto& graph) {
  onnx::AttributeProto proto;
  proto.set_name(name);
  proto.set_type(onnx::AttributeProto::GRAPH);
  *proto.mutable_g() = graph;
  return proto;
}

inline onnx::TensorProto tensor(const std::string& name, const Shape& shape, const Floats& values) {
  onnx::TensorProto proto;
  proto.set_name(name);
  proto.set_data_type(onnx::TensorProto::FLOAT);
  for (const int64_t extent : shape) proto.add_dims(extent);
  for (const float value : values) proto.add_float_data(value);
  return proto;
}
inline onnx::TensorProto tensor(const std::string& name, const Ints& values) {
  onnx::TensorProto proto;
  proto.set_name(name);
  proto.set_data_type(onnx::TensorProto::INT64);
  proto.add_dims(static_cast<int64_t>(values.size()));
  for (const int64_t value : values) proto.add_int64_data(value);
  return proto;
}

// One number of an integer type or bool.
inline onnx::TensorProto scalar(const std::string& name, int64_t value, int type = onnx::TensorProto::INT64) {
  onnx::TensorProto proto;
  proto.set_name(name);
  proto.set_data_type(type);
  type == onnx::TensorProto::INT64 ? proto.add_int64_data(value) : proto.add_int32_data(static_cast<int32_t>(value));
  return proto;
}

// A model in the making: calls chain.
struct Model {
  onnx::ModelProto proto;

  explicit Model(int64_t opset = 17) {
    proto.set_ir_version(8);
    proto.add_opset_import()->set_version(opset);
    proto.mutable_graph()->set_name("g");
  }
  // A negative extent -k is the symbol "Sk".
  static void set_type(onnx::ValueInfoProto& value, const std::string& name, const Shape& shape, int type) {
    value.set_name(name);
    auto* of = value.mutable_type()->mutable_tensor_type();
    of->set_elem_type(type);
    of->mutable_shape();
    for (const int64_t extent : shape) {
      auto* dim = of->mutable_shape()->add_dim();
      extent < 0 ? dim->set_dim_param("S" + std::to_string(-extent)) : dim->set_dim_value(extent);
    }
  }
  Model& input(const std::string& name, const Shape& shape, int type = onnx::TensorProto::FLOAT) {
    set_type(*proto.mutable_graph()->add_input(), name, shape, type);
    return *this;
  }
  Model& constant(const onnx::TensorProto& value) {
    *proto.mutable_graph()->add_initializer() = value;
    return *this;
  }
  Model& node(const std::string& op, const std::vector<std::string>& inputs, const std::vector<std::string>& outputs,
              const std::vector<onnx::AttributeProto>& attributes = {}, const std::string& name = "") {
    auto* made = proto.mutable_graph()->add_node();
    made->set_op_type(op);
    made->set_name(name);
    for (const std::string& one : inputs) made->add_input(one);
    for (const std::string& one : outputs) made->add_output(one);
    for (const auto& one : attributes) *made->add_attribute() = one;
    return *this;
  }
  Model& output(const std::string& name) {  // without a claim
    proto.mutable_graph()->add_output()->set_name(name);
    return *this;
  }
  Model& output(const std::string& name, const Shape& shape) {
    set_type(*proto.mutable_graph()->add_output(), name, shape, onnx::TensorProto::FLOAT);
    return *this;
  }

  Graph read(const std::map<std::string, int64_t>& dims = {}) const {
    const TempFolder folder;
    frontend::ReadOptions options;
    options.dims = dims;
    Graph graph = frontend::read_onnx(folder.write(proto), options);
    verify(graph);
    ops::verify_shapes(graph);
    return graph;
  }
};

// The refusal, its code first: "2: m.onnx: ...", the temporary folder cut off; "read" if there was none.
template <class F>
std::string refusal_of(F&& action) {
  try {
    action();
  } catch (const Error& error) {
    std::string text = error.what();
    const std::string scratch = (temporary_parent() / "tamp-frontend-").string();
    for (size_t at = text.find(scratch); at != std::string::npos; at = text.find(scratch))
      text.erase(at, text.find('/', at + scratch.size()) + 1 - at);
    return std::to_string(static_cast<int>(error.code())) + ": " + text;
  }
  return "read";
}
inline std::string refusal(const Model& model, const std::map<std::string, int64_t>& dims = {}) {
  return refusal_of([&] { model.read(dims); });
}

inline ops::Value value(const Shape& shape, const Floats& values) {
  Bytes bytes(values.size() * sizeof(float));
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return {DType::f32, shape, std::make_shared<const Bytes>(std::move(bytes))};
}

inline Floats counting(int64_t count) {
  Floats values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i + 1));
  return values;
}

inline Floats floats_of(const ops::Value& result) {
  REQUIRE(result.dtype == DType::f32);
  Floats values(static_cast<size_t>(element_count(result.shape)));
  if (!values.empty()) std::memcpy(values.data(), result.data->data(), result.data->size());
  return values;
}

inline std::vector<Floats> floats_of_all(const std::vector<ops::Value>& values) {
  std::vector<Floats> all;
  for (const ops::Value& value : values) all.push_back(floats_of(value));
  return all;
}

inline void check_near(const Floats& got, const Floats& expected) {
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(expected[i]).epsilon(1e-5).margin(1e-6));
}

}  // namespace tamp::test
