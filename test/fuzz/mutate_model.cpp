#include "test/fuzz/mutate_model.h"

#include <google/protobuf/message.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "compiler/frontend/onnx_reader.h"

namespace tamp::test {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// One field of one message, and for a repeated one which element.
struct Place {
  Message* message;
  const FieldDescriptor* field;
  int index;  // -1: not repeated
};

constexpr int kMostElements = 64;  // of one repeated field that are looked at: thousands of weights would hide the rest

class Mutator {
 public:
  Mutator(onnx::ModelProto& model, std::mt19937& random) : random_(random) { collect(model); }

  void change() {
    if (messages_.empty()) return;
    switch (below(8)) {
      case 0: return remove();
      case 1: return duplicate();
      case 2: return add();
      case 3: return move_message();
      default: return change_scalar();
    }
  }

 private:
  size_t below(size_t count) { return std::uniform_int_distribution<size_t>(0, count - 1)(random_); }
  bool one_in(size_t n) { return below(n) == 0; }
  template <class T>
  const T& pick(const std::vector<T>& all) {
    return all[below(all.size())];
  }

  void collect(Message& message) {
    messages_.push_back(&message);
    std::vector<const FieldDescriptor*> fields;
    const Reflection& reflection = *message.GetReflection();
    reflection.ListFields(message, &fields);
    for (const FieldDescriptor* field : fields) {
      const int count = field->is_repeated() ? std::min(reflection.FieldSize(message, field), kMostElements) : 1;
      for (int i = 0; i < count; ++i) {
        const Place place{&message, field, field->is_repeated() ? i : -1};
        if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
          scalars_.push_back(place);
          if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) strings_.push_back(text_at(place));
          continue;
        }
        nested_.push_back(place);
        collect(message_at(place));
      }
    }
  }

  static Message& message_at(const Place& p) {
    const Reflection& reflection = *p.message->GetReflection();
    return p.index < 0 ? *reflection.MutableMessage(p.message, p.field) : *reflection.MutableRepeatedMessage(p.message, p.field, p.index);
  }
  static std::string text_at(const Place& p) {
    const Reflection& reflection = *p.message->GetReflection();
    return p.index < 0 ? reflection.GetString(*p.message, p.field) : reflection.GetRepeatedString(*p.message, p.field, p.index);
  }

  // --- numbers and text ------------------------------------------------------------------------------------------------

  int64_t number(int64_t before) {
    static const std::vector<int64_t> kOdd = {0,
                                              1,
                                              2,
                                              3,
                                              4,
                                              5,
                                              7,
                                              8,
                                              13,
                                              64,
                                              -1,
                                              -2,
                                              -3,
                                              -7,
                                              16,
                                              255,
                                              256,
                                              1023,
                                              32767,
                                              65536,
                                              1 << 20,
                                              2147483647,
                                              -2147483648,
                                              1LL << 31,
                                              1LL << 32,
                                              1LL << 40,
                                              std::numeric_limits<int64_t>::max(),
                                              std::numeric_limits<int64_t>::min()};
    switch (below(4)) {
      case 0: return static_cast<int64_t>(static_cast<uint64_t>(before) + 1);
      case 1: return static_cast<int64_t>(static_cast<uint64_t>(before) - 1);
      case 2: return static_cast<int64_t>(below(16));
      default: return pick(kOdd);
    }
  }
  double real() {
    static const std::vector<double> kOdd = {
        0, 1, -1, 0.5, -0.0, 1e-30, 1e30, -1e300, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()};
    return pick(kOdd);
  }

  // Of an operator another one's name; elsewhere another text of the model, so that names meet.
  std::string text(const Place& place, const std::string& before) {
    static const std::vector<frontend::SupportedOp> kOps = frontend::supported_ops();
    if (place.field->name() == "op_type") return pick(kOps).name;
    if (place.field->name() == "raw_data") return bytes(before);
    switch (below(6)) {
      case 0: return "";
      case 1: return bytes(before);
      default: return strings_.empty() ? "" : pick(strings_);
    }
  }
  std::string bytes(std::string before) {
    if (before.empty() || one_in(4)) return before + std::string(1 + below(8), static_cast<char>(below(256)));
    if (one_in(3)) before.resize(below(before.size()));
    if (!before.empty()) before[below(before.size())] = static_cast<char>(below(256));
    return before;
  }

  void change_scalar() {
    if (scalars_.empty()) return;
    const Place p = pick(scalars_);
    const Reflection& r = *p.message->GetReflection();
    const bool one = p.index < 0;
    Message* const m = p.message;
    switch (p.field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32: {
        const auto v = static_cast<int32_t>(number(one ? r.GetInt32(*m, p.field) : r.GetRepeatedInt32(*m, p.field, p.index)));
        return one ? r.SetInt32(m, p.field, v) : r.SetRepeatedInt32(m, p.field, p.index, v);
      }
      case FieldDescriptor::CPPTYPE_INT64: {
        const int64_t v = number(one ? r.GetInt64(*m, p.field) : r.GetRepeatedInt64(*m, p.field, p.index));
        return one ? r.SetInt64(m, p.field, v) : r.SetRepeatedInt64(m, p.field, p.index, v);
      }
      case FieldDescriptor::CPPTYPE_UINT64: {
        const auto v = static_cast<uint64_t>(number(0));
        return one ? r.SetUInt64(m, p.field, v) : r.SetRepeatedUInt64(m, p.field, p.index, v);
      }
      case FieldDescriptor::CPPTYPE_FLOAT: {
        const auto v = static_cast<float>(std::clamp(real(), -1e38, 1e38));
        return one ? r.SetFloat(m, p.field, v) : r.SetRepeatedFloat(m, p.field, p.index, v);
      }
      case FieldDescriptor::CPPTYPE_DOUBLE: {
        const double v = real();
        return one ? r.SetDouble(m, p.field, v) : r.SetRepeatedDouble(m, p.field, p.index, v);
      }
      case FieldDescriptor::CPPTYPE_ENUM: {
        const int v =
            p.field->enum_type()->value(static_cast<int>(below(static_cast<size_t>(p.field->enum_type()->value_count()))))->number();
        return one ? r.SetEnumValue(m, p.field, v) : r.SetRepeatedEnumValue(m, p.field, p.index, v);
      }
      case FieldDescriptor::CPPTYPE_STRING: {
        const std::string v = text(p, text_at(p));
        return one ? r.SetString(m, p.field, v) : r.SetRepeatedString(m, p.field, p.index, v);
      }
      default: return;
    }
  }

  // --- parts -------------------------------------------------------------------------------------------------------------

  const Place* any_place() {
    const std::vector<Place>& from = one_in(2) || nested_.empty() ? scalars_ : nested_;
    return from.empty() ? nullptr : &pick(from);
  }

  void remove() {
    const Place* const p = any_place();
    if (p == nullptr) return;
    const Reflection& r = *p->message->GetReflection();
    if (p->index < 0) return r.ClearField(p->message, p->field);
    r.SwapElements(p->message, p->field, p->index, r.FieldSize(*p->message, p->field) - 1);
    r.RemoveLast(p->message, p->field);
  }

  void duplicate() {
    if (nested_.empty()) return;
    const Place p = pick(nested_);
    if (p.index < 0) return;
    const std::unique_ptr<Message> copy(message_at(p).New());
    copy->CopyFrom(message_at(p));
    p.message->GetReflection()->AddMessage(p.message, p.field)->CopyFrom(*copy);
  }

  // A field that its message does not have yet, or one element more.
  void add() {
    Message* const m = pick(messages_);
    const Descriptor& type = *m->GetDescriptor();
    const FieldDescriptor* const field = type.field(static_cast<int>(below(static_cast<size_t>(type.field_count()))));
    const Reflection& r = *m->GetReflection();
    const bool many = field->is_repeated();
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT64: return many ? r.AddInt64(m, field, number(0)) : r.SetInt64(m, field, number(0));
      case FieldDescriptor::CPPTYPE_INT32: {
        const auto v = static_cast<int32_t>(number(0));
        return many ? r.AddInt32(m, field, v) : r.SetInt32(m, field, v);
      }
      case FieldDescriptor::CPPTYPE_FLOAT: return many ? r.AddFloat(m, field, 0.5F) : r.SetFloat(m, field, 0.5F);
      case FieldDescriptor::CPPTYPE_STRING: {
        const std::string v = text({m, field, -1}, "");
        return many ? r.AddString(m, field, v) : r.SetString(m, field, v);
      }
      case FieldDescriptor::CPPTYPE_MESSAGE: {
        if (many)
          r.AddMessage(m, field);
        else
          r.MutableMessage(m, field);
        return;
      }
      default: return;
    }
  }

  // One part becomes a copy of another one of its kind: a node of another node, an attribute of another attribute.
  void move_message() {
    if (nested_.empty()) return;
    Message& to = message_at(pick(nested_));
    std::vector<Message*> same;
    for (Message* const m : messages_) {
      if (m->GetDescriptor() == to.GetDescriptor() && m != &to) same.push_back(m);
    }
    if (same.empty()) return;
    const std::unique_ptr<Message> copy(to.New());
    copy->CopyFrom(*pick(same));  // first: one may lie in the other
    to.CopyFrom(*copy);
  }

  std::mt19937& random_;
  std::vector<Message*> messages_;
  std::vector<Place> scalars_, nested_;
  std::vector<std::string> strings_;
};

}  // namespace

void mutate(onnx::ModelProto& model, std::mt19937& random) {
  const int changes = random() % 4 == 0 ? 2 : 1;  // more, and hardly any model is left that tamp takes
  for (int i = 0; i < changes; ++i) Mutator(model, random).change();
}

}  // namespace tamp::test
