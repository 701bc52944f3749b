#include "compiler/ir/vdevice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "compiler/ir/shaped_vdevice.h"
#include "compiler/support/embedded.h"
#include "compiler/support/error.h"
#include "compiler/support/nearest.h"
#include "compiler/support/text.h"

namespace tamp {
namespace {

using nlohmann::json;

constexpr std::string_view kFolder = "compiler/ir/vdevices/";

std::string_view builtin_text(const std::string& name) { return embedded_file(std::string(kFolder) + name + ".json"); }

// A value for messages. For an array or an object only the word: it may be large or nest deeply.
std::string shown(const json& value) { return value.is_structured() ? value.type_name() : printable(value.dump(), 40); }

// With the fields of the built-in vDevice that the file is `like`, where it gives none. Not those that say which GPU it is; costs are the
// h200's anyway (VDevice::cost).
json with_fields_of_model(json object, const std::string& source) {
  const auto like = object.find("like");
  if (like == object.end()) return object;
  const std::vector<std::string> known = builtin_vdevices();
  if (!like->is_string() || std::find(known.begin(), known.end(), like->get<std::string>()) == known.end())
    throw bad_input("{}: field 'like' is {}, expected one of {}", source, shown(*like), join(known, ", "));
  json model = with_fields_of_model(json::parse(builtin_text(like->get<std::string>())), source);
  for (const char* own : {"name", "description", "gpus", "costs"}) model.erase(own);
  object.erase(like);
  object.insert(model.begin(), model.end());  // leaves what is there
  return object;
}

// Reads one field after another; remembers which names are known so that a misspelt one is refused.
class FieldReader {
 public:
  FieldReader(const json& object, std::string source) : object_(object), source_(std::move(source)) {}

  void required(const char* name, auto& out) {
    known_.insert(name);
    if (!object_.contains(name)) throw bad_input("{}: field '{}' is missing", source_, name);
    read(name, out);
  }
  template <class T>
  void optional(const char* name, T& out) {
    known_.insert(name);
    if (object_.contains(name)) read(name, out);
  }
  // The field as it is, null if absent. No copy is made: copying recurses as deeply as the value nests.
  const json* optional(const char* name) {
    known_.insert(name);
    const auto at = object_.find(name);
    return at == object_.end() ? nullptr : &*at;
  }
  void refuse_unknown() const {
    for (const auto& [name, value] : object_.items()) {
      if (known_.count(name) == 0) throw bad_input("{}: unknown field '{}'", source_, printable(name));
    }
  }
  void expect(bool holds, const char* name, const std::string& what) const {
    if (!holds) throw bad_input("{}: field '{}' {}", source_, name, what);
  }

 private:
  void read(const char* name, auto& out) {
    try {
      object_.at(name).get_to(out);
    } catch (const json::exception&) {
      throw bad_input("{}: field '{}' has the wrong type: {}", source_, name, shown(object_.at(name)));
    }
  }
  const json& object_;
  std::string source_;
  std::set<std::string> known_;
};

Precision parse_precision_field(const std::string& text, const FieldReader& fields) {
  if (text == "fp32") return Precision::fp32;
  if (text == "tf32") return Precision::tf32;
  fields.expect(false, "default_precision", fmt::format("is '{}', expected fp32 or tf32", printable(text)));
  return Precision::fp32;
}

// Two stages at least: some bodies hold one while they wait for the next.
void expect_stages(const FieldReader& fields, const char* stages_name, int64_t stages, const char* bytes_name, int64_t bytes) {
  fields.expect(stages >= 2 && stages <= 32, stages_name, "is out of range 2..32");
  fields.expect(bytes >= 4096 && bytes % 1024 == 0 && bytes <= 65536, bytes_name, "must be a multiple of 1024 from 4096 to 65536");
}

// Programs with boxes and programs without must both leave room for bodies.
void expect_rings(const FieldReader& fields, const VDevice& d) {
  expect_stages(fields, "weight_stages", d.weight_stages, "weight_stage_bytes", d.weight_stage_bytes);
  if (d.input_stages != 0) {
    expect_stages(fields, "input_stages", d.input_stages, "input_stage_bytes", d.input_stage_bytes);
    expect_stages(fields, "weight_stages_beside_inputs", d.weight_stages_beside_inputs, "weight_stage_bytes_beside_inputs",
                  d.weight_stage_bytes_beside_inputs);
  }
  if (d.input_stages_of_batches != 0) {
    fields.expect(d.input_stages != 0, "input_stages_of_batches", "is given, but 'input_stages' is not");
    expect_stages(fields, "input_stages_of_batches", d.input_stages_of_batches, "input_stage_bytes_of_batches",
                  d.input_stage_bytes_of_batches);
    expect_stages(fields, "weight_stages_of_batches", d.weight_stages_of_batches, "weight_stage_bytes_of_batches",
                  d.weight_stage_bytes_of_batches);
  }
  if (d.sms_in_clusters != 0) {
    fields.expect(d.sms_in_clusters > 0 && d.sms_in_clusters % 4 == 0 && d.veus_per_sm == 1, "sms_in_clusters",
                  "is not a multiple of 4, with one vEU an SM");
    fields.expect(d.input_stages != 0, "sms_in_clusters", "is given, but 'input_stages' is not");
    expect_stages(fields, "weight_stages_beside_inputs", d.weight_stages_beside_inputs, "weight_stage_bytes_in_clusters",
                  d.weight_stage_bytes_in_clusters);
    fields.expect(d.smem_bytes <= 1024 * 1024 && d.with_clusters().work_bytes() >= 16384, "smem_bytes",
                  "leaves less than 16384 bytes of work space to programs in clusters");
  }
  if (d.input_stages_in_clusters != 0) {
    fields.expect(d.sms_in_clusters != 0, "input_stages_in_clusters", "is given, but 'sms_in_clusters' is not");
    expect_stages(fields, "input_stages_in_clusters", d.input_stages_in_clusters, "input_stage_bytes_in_clusters",
                  d.input_stage_bytes_in_clusters);
    fields.expect(d.with_clusters().with_products_over_inputs().work_beside_inputs() >= 12288, "input_stages_in_clusters",
                  "leave less than 12288 bytes for what the members of a cluster send");
  }
  if (d.weight_stages_of_rows != 0)
    expect_stages(fields, "weight_stages_of_rows", d.weight_stages_of_rows, "weight_stage_bytes_of_rows", d.weight_stage_bytes_of_rows);
  for (const ShapedVDevice& program : {d.with_inputs(), d.with_batches(), d.with_long_batches(), d.without_inputs(), d.with_rows()})
    fields.expect(d.smem_bytes <= 1024 * 1024 && program.work_bytes() >= 16384, "smem_bytes", "leaves less than 16384 bytes of work space");
}

// "sm_90", "sm_100a"; the stand-in on the CPU has all kinds of launches.
bool has_dependent_launch(const std::string& arch) { return arch == "cpu" || std::atoi(arch.c_str() + 3) >= 90; }

using Costs = std::map<std::string, double, std::less<>>;

// Whether there are costs of the group, "pool" or "staged_conv.64x32".
bool is_group(const Costs& known, const std::string& name) {
  const auto at = known.lower_bound(name + ".");
  return at != known.end() && at->first.starts_with(name + ".");
}

double read_cost(const json& value, const std::string& name, const std::string& source) {
  const auto refuse = [&](const std::string& what) { throw bad_input("{}: field 'costs.{}' {}", source, name, what); };
  if (!value.is_number()) refuse(fmt::format("has the wrong type: {}; expected a number", shown(value)));
  const double cost = value.get<double>();
  // These bounds keep estimates from becoming infinite or 0 / 0.
  if (!(cost >= 1e-6 && cost <= 1e9)) refuse(fmt::format("is {}, expected 0.000001 to 1000000000", value.dump()));
  if (name.ends_with("efficiency") && cost > 1) refuse(fmt::format("is {}, expected at most 1: it is a share of the peak", value.dump()));
  return cost;
}

// Numbers by their names, groups within groups: {"pool": {"strip_turn_us": 1}}. Only known groups are entered, so no file nests deeply.
void append_costs(const json& group, const std::string& prefix, const Costs& known, const std::string& source, Costs& out) {
  for (const auto& [key, value] : group.items()) {
    const std::string name = prefix + key;
    if (key.find('.') != std::string::npos) {
      throw bad_input("{}: unknown field 'costs.{}'; a group of costs is an object of its own", source, printable(name));
    } else if (known.count(name) != 0) {
      out[name] = read_cost(value, name, source);
    } else if (!is_group(known, name)) {
      throw bad_input("{}: unknown field 'costs.{}'", source, printable(name));
    } else if (!value.is_object()) {
      throw bad_input("{}: field 'costs.{}' has the wrong type: {}; expected an object of costs", source, name, shown(value));
    } else {
      append_costs(value, name + ".", known, source, out);
    }
  }
}

Costs read_costs(const json& costs, const Costs& known, const std::string& source) {
  if (!costs.is_object()) throw bad_input("{}: field 'costs' has the wrong type: {}; expected an object of costs", source, shown(costs));
  Costs out;
  append_costs(costs, "", known, source, out);
  return out;
}

// The costs in the h200's file. Names hold no dots, so that each path has one spelling.
void flatten(const json& group, const std::string& prefix, Costs& out) {
  for (const auto& [key, value] : group.items()) {
    TAMP_CHECK(key.find('.') == std::string::npos, "a cost's name has a dot: " + key);
    if (value.is_object())
      flatten(value, prefix + key + ".", out);
    else
      out[prefix + key] = value.get<double>();
  }
}

}  // namespace

const Costs& default_costs() {
  static const Costs costs = [] {
    Costs out;
    flatten(json::parse(builtin_text("h200")).at("costs"), "", out);
    return out;
  }();
  return costs;
}

double VDevice::cost(std::string_view cost_name) const {
  auto at = costs.find(cost_name);
  if (at != costs.end()) return at->second;
  at = default_costs().find(cost_name);
  TAMP_CHECK(at != default_costs().end(), "compiler/ir/vdevices/h200.json has no cost '" + std::string(cost_name) + "'");
  return at->second;
}

int64_t VDevice::threads() const { return compute_threads + kServiceThreads; }

std::vector<std::string> builtin_vdevices() {
  return {"h200", "h200nvl",    "h100",    "h100pcie", "b200",     "a100",    "a30",     "a10", "l40s",
          "l4",   "rtxpro6000", "rtx5090", "rtx4090",  "rtxa6000", "rtx3090", "agxorin", "t4",  "cpu"};
}

std::string vdevice_of_gpu(std::string_view product) {
  for (const std::string_view maker : {"NVIDIA ", "Tesla ", "GeForce "}) {
    if (product.starts_with(maker)) product.remove_prefix(maker.size());
  }
  std::string fits;
  size_t longest = 0;
  for (const std::string& name : builtin_vdevices()) {
    for (const std::string_view gpu : read_vdevice(name).gpus) {
      const bool open = gpu.ends_with('*');
      const std::string_view stem = gpu.substr(0, gpu.size() - (open ? 1 : 0));
      if (gpu.size() <= longest || !product.starts_with(stem) || (!open && product != stem)) continue;
      longest = gpu.size();
      fits = name;
    }
  }
  return fits;
}

VDevice read_vdevice(const std::string& name_or_path) {
  for (const std::string& name : builtin_vdevices()) {
    if (name == name_or_path) return parse_vdevice(std::string(builtin_text(name)), name + ".json");
  }
  if (!name_or_path.ends_with(".json")) {
    throw bad_input("vDevice '{}' is not known; built in: {}; or give a .json file{}", printable(name_or_path),
                    join(builtin_vdevices(), ", "), did_you_mean(name_or_path, builtin_vdevices()));
  }
  std::ifstream file(name_or_path);
  if (!file) throw bad_input("{}: cannot be opened", printable(name_or_path));
  std::stringstream text;
  text << file.rdbuf();
  return parse_vdevice(text.str(), printable(name_or_path));
}

VDevice parse_vdevice(const std::string& json_text, const std::string& source_name) {
  json given = json::parse(json_text, nullptr, /*allow_exceptions=*/false);
  if (!given.is_object()) throw bad_input("{}: not a JSON object", source_name);
  const json object = with_fields_of_model(std::move(given), source_name);
  FieldReader fields(object, source_name);
  VDevice d;
  std::string precision = "fp32";
  fields.required("name", d.name);
  fields.optional("description", d.description);
  fields.required("arch", d.arch);
  fields.optional("gpus", d.gpus);
  fields.required("sms", d.sms);
  fields.optional("veus_per_sm", d.veus_per_sm);
  fields.optional("compute_threads", d.compute_threads);
  fields.required("smem_bytes", d.smem_bytes);
  fields.required("weight_stages", d.weight_stages);
  fields.required("weight_stage_bytes", d.weight_stage_bytes);
  fields.optional("input_stages", d.input_stages);
  fields.optional("input_stage_bytes", d.input_stage_bytes);
  fields.optional("weight_stages_beside_inputs", d.weight_stages_beside_inputs);
  fields.optional("weight_stage_bytes_beside_inputs", d.weight_stage_bytes_beside_inputs);
  fields.optional("input_stages_of_batches", d.input_stages_of_batches);
  fields.optional("input_stage_bytes_of_batches", d.input_stage_bytes_of_batches);
  fields.optional("weight_stages_of_batches", d.weight_stages_of_batches);
  fields.optional("weight_stage_bytes_of_batches", d.weight_stage_bytes_of_batches);
  fields.optional("sms_in_clusters", d.sms_in_clusters);
  fields.optional("weight_stage_bytes_in_clusters", d.weight_stage_bytes_in_clusters);
  fields.optional("input_stages_in_clusters", d.input_stages_in_clusters);
  fields.optional("input_stage_bytes_in_clusters", d.input_stage_bytes_in_clusters);
  fields.optional("weight_stages_of_rows", d.weight_stages_of_rows);
  fields.optional("weight_stage_bytes_of_rows", d.weight_stage_bytes_of_rows);
  fields.optional("registers_per_sm", d.registers_per_sm);
  fields.optional("tf32", d.tf32);
  fields.optional("fp16", d.fp16);
  fields.optional("bf16", d.bf16);
  fields.optional("default_precision", precision);
  fields.required("clock_ghz", d.clock_ghz);
  fields.required("fp32_tflops", d.fp32_tflops);
  fields.optional("tf32_tflops", d.tf32_tflops);
  fields.optional("fp16_tflops", d.fp16_tflops);
  fields.required("l2_bytes", d.l2_bytes);
  fields.required("l2_gb_per_s", d.l2_gb_per_s);
  fields.required("dram_gb_per_s", d.dram_gb_per_s);
  fields.optional("lone_veu_shares", d.lone_veu_shares);
  fields.required("edge_us", d.edge_us);
  d.kernel_edge_us = 2 * d.edge_us;
  fields.optional("kernel_edge_us", d.kernel_edge_us);
  fields.optional("edge_spread_us", d.edge_spread_us);
  double estimated_edge_us = d.edge_us;
  fields.optional("estimated_edge_us", estimated_edge_us);
  if (object.contains("estimated_edge_us")) d.estimated_edge_us = estimated_edge_us;
  double dependent_kernel_edge_us = d.kernel_edge_us;
  fields.optional("dependent_kernel_edge_us", dependent_kernel_edge_us);
  if (object.contains("dependent_kernel_edge_us")) d.dependent_kernel_edge_us = dependent_kernel_edge_us;
  fields.required("same_veu_us", d.same_veu_us);
  fields.optional("signal_us", d.signal_us);
  fields.required("rtask_us", d.rtask_us);
  fields.required("barrier_us", d.barrier_us);
  fields.required("launch_us", d.launch_us);
  const json* const costs = fields.optional("costs");
  fields.refuse_unknown();
  if (costs != nullptr) d.costs = read_costs(*costs, default_costs(), source_name);

  d.default_precision = parse_precision_field(precision, fields);
  fields.expect(d.arch == "cpu" || (d.arch.starts_with("sm_") && d.arch.size() >= 5 && d.arch.size() <= 8 && identifier(d.arch) == d.arch),
                "arch", "is not of the form sm_90 or cpu");
  fields.expect(d.sms >= 1 && d.sms <= 1024, "sms", "is out of range 1..1024");
  fields.expect(d.veus_per_sm == 1, "veus_per_sm", "must be 1");
  fields.expect(d.compute_threads == 256, "compute_threads", "must be 256");
  expect_rings(fields, d);
  fields.expect(d.default_precision != Precision::tf32 || d.tf32, "default_precision", "is tf32, but field 'tf32' is false");
  for (const auto& [name, value] : {std::pair<const char*, double>{"clock_ghz", d.clock_ghz},
                                    {"fp32_tflops", d.fp32_tflops},
                                    {"l2_gb_per_s", d.l2_gb_per_s},
                                    {"dram_gb_per_s", d.dram_gb_per_s},
                                    {"lone_veu_shares", d.lone_veu_shares}}) {
    fields.expect(value > 0, name, "must be positive");
  }
  for (const auto& [name, value] : {std::pair<const char*, double>{"l2_bytes", d.l2_bytes},
                                    {"edge_us", d.edge_us},
                                    {"kernel_edge_us", d.kernel_edge_us},
                                    {"edge_spread_us", d.edge_spread_us},
                                    {"estimated_edge_us", estimated_edge_us},
                                    {"dependent_kernel_edge_us", dependent_kernel_edge_us},
                                    {"same_veu_us", d.same_veu_us},
                                    {"signal_us", d.signal_us},
                                    {"rtask_us", d.rtask_us},
                                    {"barrier_us", d.barrier_us},
                                    {"launch_us", d.launch_us}}) {
    fields.expect(value >= 0, name, "must not be negative");
  }
  fields.expect(d.edge_spread_us <= d.edge_us, "edge_spread_us", "is more than 'edge_us'");
  fields.expect(d.edge_spread_us <= estimated_edge_us, "estimated_edge_us", "is less than 'edge_spread_us'");
  fields.expect(!d.dependent_kernel_edge_us || has_dependent_launch(d.arch), "dependent_kernel_edge_us",
                fmt::format("is given, but field 'arch' is {}: programmatic dependent launch is of sm_90 and later", d.arch));
  fields.expect(!d.tf32 || d.tf32_tflops > 0, "tf32_tflops", "must be positive where 'tf32' is true");
  return d;
}

}  // namespace tamp
