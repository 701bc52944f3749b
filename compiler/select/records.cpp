// How a record is used. A record has the microseconds of a whole rOperator, while the model adds up rTasks. So what is kept of a record is
// a factor on all of the model's costs, chosen so that the model gives the record's time under the record's conditions. Under other
// conditions the corrected model computes as usual, and a calibration of the kernels' costs does not make records wrong.
#include "compiler/select/records.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>

#include "compiler/ir/print.h"
#include "compiler/select/select.h"
#include "compiler/support/embedded.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::select {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kPersistent = "persistent";
constexpr const char* kFolder = "compiler/select/records/";
constexpr double kDoubt = 1.3;           // factor on the guessed time of what nobody measured
constexpr double kMostCorrection = 1e4;  // corrections lie between 1 / kMostCorrection and this

// --- the text of a file ----------------------------------------------------------------------------------------------

// Checked here, since the library's messages do not name the field.
const json& field(const json& object, const char* name, bool (json::*is)() const noexcept, const char* expected) {
  const auto found = object.find(name);
  if (found == object.end()) throw bad_input("field '{}' is missing", name);
  if (!((*found).*is)()) throw bad_input("field '{}' is not {}", name, expected);
  return *found;
}

int64_t count(const json& object, const char* name, int64_t least) {
  const auto value = field(object, name, &json::is_number_integer, "a whole number").get<int64_t>();
  if (value < least || value > 1'000'000'000) throw bad_input("field '{}' is out of range", name);
  return value;
}

constexpr size_t kFields = 12;

void add_line(const std::string& line, Records& out) {
  const json object = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) throw bad_input("is not a JSON object");
  const auto text = [&](const char* name) { return field(object, name, &json::is_string, "a string").get<std::string>(); };
  RecordKey key;
  key.vdevice = text("vdevice");
  key.precision = text("precision");
  key.execution = text("execution");
  key.rop = text("rop");
  key.family = text("family");
  key.rkernel = text("rkernel");
  key.config = text("config");
  key.veus = count(object, "veus", 1);
  key.beside = count(object, "beside", 0);
  key.weights_in_l2 = field(object, "weights_in_l2", &json::is_boolean, "true or false").get<bool>();
  RecordTime time;
  time.us = field(object, "us", &json::is_number, "a number").get<double>();
  if (!(time.us > 0) || time.us > 1e9) throw bad_input("field 'us' is out of range");
  time.runs = count(object, "runs", 1);
  if (object.size() != kFields) throw bad_input("has {} fields, a record has {}", object.size(), kFields);
  out.add(key, time);
}

// --- corrections -----------------------------------------------------------------------------------------------------

double model_us(const RKernel& rkernel, const Machine& machine, const RecordKey& key) {
  const int64_t all = machine.vdevice.veus();
  const int64_t share = std::clamp<int64_t>(key.veus, 1, all);
  return completion_us(rkernel, machine, share, std::min(all, share + key.beside));
}

void set_correction(RKernel& rkernel, double correction) {
  for (Phase& phase : rkernel.phases) phase.cost.correction = correction;
}

// The correction at which model_us gives the record's time, found by halving, since model_us grows with the correction. It leaves some
// correction in `rkernel`.
double correction_of(RKernel& rkernel, const Machine& machine, const RecordKey& key, double us) {
  constexpr int kHalvings = 24;
  double low = std::log(1 / kMostCorrection), high = std::log(kMostCorrection);
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    set_correction(rkernel, std::exp(middle));
    (model_us(rkernel, machine, key) < us ? low : high) = middle;
  }
  return std::exp((low + high) / 2);
}

// Geometric mean, weighted.
class Mean {
 public:
  void add(double value, int64_t weight = 1) {
    sum_ += std::log(value) * static_cast<double>(weight);
    weight_ += weight;
  }
  bool empty() const { return weight_ == 0; }
  double value() const { return std::exp(sum_ / static_cast<double>(weight_)); }

 private:
  double sum_ = 0;
  int64_t weight_ = 0;
};

std::string identity(const RecordKey& key) { return fmt::format("{} {} {}", key.family, key.rkernel, key.config); }

// What the records of one candidate say: `same` under the conditions that are asked for, `other` under others.
struct Known {
  Mean same, other;
};

}  // namespace

std::string signature(const Graph& graph, const ROperator& rop) {
  const auto type = [&](TensorId id) -> std::string {
    if (!id.valid()) return "none";
    const Tensor& tensor = graph.tensor(id);
    const char* where = "";
    if (tensor.role == Role::constant) {
      where = "const ";
    } else if (tensor.place.buffer.valid()) {
      const BufferKind kind = graph.buffers[tensor.place.buffer.index()].kind;
      where = kind == BufferKind::input ? "input " : kind == BufferKind::output ? "output " : "";
    }
    return where + std::string(name_of(tensor.dtype)) + shape_text(tensor.shape);
  };
  const auto types = [&](const std::vector<TensorId>& ids) {
    std::vector<std::string> texts;
    for (const TensorId id : ids) texts.push_back(type(id));
    return join(texts, ", ");
  };
  const Epilogue& e = rop.epilogue;
  const auto* const fused = std::get_if<Fused>(&rop.attrs);
  const std::string attributes = fused ? " {" + steps_text(*fused) + "}" : attributes_text(rop.attrs);  // whatever its title
  std::string text = fmt::format("{}({}){}", name_of(rop.attrs), types(rop.inputs), attributes);
  if (e.bias.valid()) text += " bias";
  if (e.residual.valid()) text += fmt::format(" residual {}{}", type(e.residual), e.residual_after_activation ? " last" : "");
  if (e.activation != Activation::none) text += fmt::format(" {}({}, {})", name_of(e.activation), e.a, e.b);
  if (e.sum) text += e.sum->rounds ? " scaled, rounded" : " scaled";
  return text + " -> " + types(rop.outputs);
}

std::string config_text(const RKernel& rkernel) {
  std::vector<std::string> texts;
  for (const auto& [name, value] : rkernel.config) {
    if (name == "boxes_per_chunk" || name == "chunk_steps" || name == "stage_steps") continue;
    texts.push_back(fmt::format("{}={}", name, value));
  }
  return join(texts, " ");
}

std::string identity(const RKernel& rkernel) { return fmt::format("{} {} {}", rkernel.family, rkernel.name, config_text(rkernel)); }

void Records::add(const RecordKey& key, RecordTime time) {
  const auto [at, is_new] = times_.emplace(key, time);
  if (is_new) return;
  RecordTime& joined = at->second;
  const auto weight = [](const RecordTime& t) { return static_cast<double>(t.runs); };
  joined.us = (joined.us * weight(joined) + time.us * weight(time)) / (weight(joined) + weight(time));
  joined.runs += time.runs;
}

void Records::replace(const Records& newer) {
  for (const auto& [key, time] : newer.times_) times_[key] = time;
}

Records Records::only(const std::set<std::string>& signatures) const {
  Records rest = *this;
  std::erase_if(rest.times_, [&](const auto& entry) { return !signatures.contains(entry.first.rop); });
  return rest;
}

std::optional<double> Records::mean_us(const std::string& rop, const std::string& rkernel) const {
  double sum = 0;
  int64_t runs = 0;
  for (const auto& [key, time] : times_) {
    if (key.rop != rop || identity(key) != rkernel) continue;
    sum += time.us * static_cast<double>(time.runs);
    runs += time.runs;
  }
  return runs > 0 ? std::optional(sum / static_cast<double>(runs)) : std::nullopt;
}

std::string Records::text() const {
  std::string text;
  for (const auto& [key, time] : times_) {
    const ordered_json line = {{"vdevice", key.vdevice},
                               {"precision", key.precision},
                               {"execution", key.execution},
                               {"rop", key.rop},
                               {"family", key.family},
                               {"rkernel", key.rkernel},
                               {"config", key.config},
                               {"veus", key.veus},
                               {"beside", key.beside},
                               {"weights_in_l2", key.weights_in_l2},
                               {"us", std::max(1.0, std::round(time.us * 1e3)) / 1e3},
                               {"runs", time.runs}};
    text += line.dump(-1, ' ', /*ensure_ascii=*/true, ordered_json::error_handler_t::replace) + "\n";
  }
  return text;
}

void Records::correct(std::vector<RKernel>& candidates, const Graph& graph, const ROperator& rop, const Machine& machine,
                      bool alone) const {
  if (times_.empty()) return;
  RecordKey least;
  least.vdevice = machine.vdevice.name;
  least.precision = name_of(precision_of(graph, rop, machine.precision));
  least.execution = kPersistent;
  least.rop = signature(graph, rop);
  least.veus = least.beside = 0;
  least.weights_in_l2 = false;
  std::map<std::string, Known> known;  // by the candidate's identity
  std::map<std::string, size_t> position;
  for (size_t i = candidates.size(); i-- > 0;) position[identity(candidates[i])] = i;
  for (auto at = times_.lower_bound(least); at != times_.end(); ++at) {
    const RecordKey& key = at->first;
    if (std::tie(key.vdevice, key.precision, key.execution, key.rop) !=
        std::tie(least.vdevice, least.precision, least.execution, least.rop))
      break;
    const std::string id = identity(key);
    const auto candidate = position.find(id);
    if (candidate == position.end() || key.weights_in_l2 != machine.weights_in_l2) continue;
    if (!std::isfinite(model_us(candidates[candidate->second], machine, key))) continue;  // a gang on fewer vEUs than it needs
    const double correction = correction_of(candidates[candidate->second], machine, key, at->second.us);
    Mean& mean = (key.beside == 0) == alone ? known[id].same : known[id].other;
    mean.add(correction, at->second.runs);
  }
  Mean all;
  std::map<std::string, Mean> of_family;
  for (const auto& [id, means] : known) {
    const double correction = (means.same.empty() ? means.other : means.same).value();
    all.add(correction);
    of_family[candidates[position.at(id)].family].add(correction);
  }
  if (all.empty()) return;
  for (RKernel& rkernel : candidates) {
    const auto found = known.find(identity(rkernel));
    rkernel.measured = found != known.end() && !found->second.same.empty();
    double correction = 1;
    if (rkernel.measured) {
      correction = found->second.same.value();
    } else if (found != known.end()) {
      correction = found->second.other.value() * kDoubt;
    } else {
      const auto family = of_family.find(rkernel.family);
      correction = (family != of_family.end() ? family->second : all).value() * kDoubt;
    }
    set_correction(rkernel, correction);
  }
}

Records parse_records(const std::string& text, const std::string& source_name) {
  Records records;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.empty()) continue;
    try {
      add_line(line, records);
    } catch (const Error& wrong) {
      throw bad_input("{}:{}: {}; 'tamp tune' writes files of records", printable(source_name), number, wrong.what());
    }
  }
  return records;
}

Records builtin_records() {
  Records records;
  for (const EmbeddedFile& file : embedded_files()) {
    if (file.path.starts_with(kFolder) && !file.text.empty())
      records.replace(parse_records(std::string(file.text), std::string(file.path)));
  }
  return records;
}

}  // namespace tamp::select
