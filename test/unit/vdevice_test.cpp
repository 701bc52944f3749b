// vDevices are data that users may write themselves: what is read, and what is refused in which words.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <tuple>

#include "compiler/ir/shaped_vdevice.h"
#include "compiler/support/error.h"
#include "compiler/support/files.h"
#include "test/support/catch.h"

using namespace tamp;
using nlohmann::json;

namespace {

json good() {
  return {{"name", "mine"},
          {"arch", "sm_90"},
          {"sms", 4},
          {"smem_bytes", 100 * 1024},
          {"weight_stages", 2},
          {"weight_stage_bytes", 8192},
          {"clock_ghz", 1.5},
          {"fp32_tflops", 10},
          {"l2_bytes", 1e6},
          {"l2_gb_per_s", 1000},
          {"dram_gb_per_s", 500},
          {"edge_us", 0.5},
          {"same_veu_us", 0.1},
          {"rtask_us", 0.3},
          {"barrier_us", 1},
          {"launch_us", 4}};
}

}  // namespace

TEST_CASE("every built-in vDevice is read by its name and has room for a body") {
  REQUIRE(builtin_vdevices() == std::vector<std::string>{"h200", "h200nvl", "h100", "h100pcie", "b200", "a100", "a30", "a10", "l40s", "l4",
                                                         "rtxpro6000", "rtx5090", "rtx4090", "rtxa6000", "rtx3090", "agxorin", "t4",
                                                         "cpu"});
  for (const std::string& name : builtin_vdevices()) {
    INFO(name);
    const VDevice d = read_vdevice(name);
    CHECK(d.name == name);
    CHECK_FALSE(d.description.empty());
    CHECK(d.threads() == d.compute_threads + kServiceThreads);
    for (const ShapedVDevice& program : {d.with_inputs(), d.with_batches(), d.without_inputs()}) {
      CHECK(program.veus() == d.sms);
      CHECK(program.work_bytes() >= 16384);
      CHECK(program.work_bytes() + kControlBytes + program.weight_stages * program.weight_stage_bytes +
                program.input_stages * program.input_stage_bytes ==
            d.smem_bytes);
    }
    CHECK(d.same_veu_us <= d.edge_us);
    CHECK(d.edge_us <= d.barrier_us);
    CHECK(d.edge_us < d.kernel_edge_us);
    if (d.dependent_kernel_edge_us) CHECK(*d.dependent_kernel_edge_us <= d.kernel_edge_us);
  }
  for (const char* name : {"h200", "h100", "b200", "rtx5090", "rtxpro6000"}) CHECK(read_vdevice(name).dependent_kernel_edge_us.has_value());
  for (const char* name : {"a100", "a10", "agxorin", "rtx4090", "t4"}) CHECK_FALSE(read_vdevice(name).dependent_kernel_edge_us.has_value());
}

// What NVIDIA's programming guide says of each compute capability, and what tamp uses of it.
TEST_CASE("a built-in vDevice has all that its architecture has") {
  struct Row {
    const char* arch;
    int64_t smem_kb;  // of a block, at most
    bool tf32, dependent_launch, boxes, clusters;
  };
  const Row rows[] = {
      {"sm_75", 64, false, false, false, false}, {"sm_80", 163, true, false, false, false}, {"sm_86", 99, true, false, false, false},
      {"sm_87", 163, true, false, false, false}, {"sm_89", 99, true, false, false, false},  {"sm_90a", 227, true, true, true, true},
      {"sm_100a", 227, true, true, true, false}, {"sm_120", 99, true, true, false, false},
  };
  const VDevice h200 = read_vdevice("h200");
  for (const std::string& name : builtin_vdevices()) {
    INFO(name);
    const VDevice d = read_vdevice(name);
    if (d.arch == "cpu") continue;
    const Row* const row = std::find_if(std::begin(rows), std::end(rows), [&](const Row& r) { return r.arch == d.arch; });
    REQUIRE(row != std::end(rows));  // sm_90 and sm_100 are none: their wgmma, or tcgen05, is of sm_90a and sm_100a alone
    CHECK(d.smem_bytes == row->smem_kb * 1024);
    CHECK(d.registers_per_sm == 65536);
    CHECK(d.fp16);
    CHECK(d.tf32 == row->tf32);
    CHECK(d.bf16 == row->tf32);
    CHECK(d.default_precision == (row->tf32 ? Precision::tf32 : Precision::fp32));
    CHECK(d.dependent_kernel_edge_us.has_value() == row->dependent_launch);
    CHECK((d.input_stages > 0) == row->boxes);
    CHECK((d.sms_in_clusters > 0) == row->clusters);
    CHECK(d.sms_in_clusters <= d.sms);
    if (d.smem_bytes != h200.smem_bytes) continue;
    // Shared memory is divided as it was found to be best.
    CHECK(std::tie(d.weight_stages, d.weight_stage_bytes, d.input_stages, d.input_stage_bytes) ==
          std::tie(h200.weight_stages, h200.weight_stage_bytes, h200.input_stages, h200.input_stage_bytes));
    CHECK(
        std::tie(d.input_stages_of_batches, d.weight_stages_of_batches, d.weight_stages_of_rows, d.weight_stage_bytes_of_rows) ==
        std::tie(h200.input_stages_of_batches, h200.weight_stages_of_batches, h200.weight_stages_of_rows, h200.weight_stage_bytes_of_rows));
    if (row->clusters)
      CHECK(std::tie(d.weight_stage_bytes_in_clusters, d.input_stages_in_clusters, d.input_stage_bytes_in_clusters) ==
            std::tie(h200.weight_stage_bytes_in_clusters, h200.input_stages_in_clusters, h200.input_stage_bytes_in_clusters));
  }
}

TEST_CASE("where products lie over the input stages there are more of these, and bodies may use their room") {
  const ShapedVDevice usual = read_vdevice("h200").with_clusters(), over = usual.with_products_over_inputs();
  CHECK(usual.work_bytes() == usual.work_beside_inputs());
  CHECK(over.input_stages * over.input_stage_bytes > usual.input_stages * usual.input_stage_bytes);
  CHECK(over.work_bytes() == over.work_beside_inputs() + over.input_stages * over.input_stage_bytes);
  CHECK(over.work_bytes() + kControlBytes + over.weight_stages * over.weight_stage_bytes == over.smem_bytes);
  CHECK(over.work_beside_inputs() >= 12288);  // what the members of a cluster send
}

TEST_CASE("a GPU has the vDevice that names it, and the one that names more of it") {
  struct Row {
    const char *product, *vdevice;
  };
  const Row rows[] = {
      {"NVIDIA H200", "h200"},
      {"NVIDIA H200 NVL", "h200nvl"},
      {"NVIDIA H100 PCIe", "h100pcie"},
      {"NVIDIA B200", "b200"},
      {"NVIDIA A10", "a10"},
      {"NVIDIA A30", "a30"},
      {"NVIDIA L4", "l4"},
      {"NVIDIA L40S", "l40s"},
      {"NVIDIA RTX A6000", "rtxa6000"},
      {"NVIDIA GeForce RTX 3090 Ti", "rtx3090"},
      {"NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtxpro6000"},
      {"NVIDIA GH200 480GB", "h200"},
      {"NVIDIA H100 80GB HBM3", "h100"},
      {"NVIDIA A100-SXM4-40GB", "a100"},
      {"A100-PCIE-40GB", "a100"},
      {"Tesla T4", "t4"},
      {"NVIDIA GeForce RTX 4090", "rtx4090"},
      {"NVIDIA GeForce RTX 4090 Laptop GPU", ""},  // 76 SMs
      {"NVIDIA GeForce RTX 4090 D", ""},           // 114 SMs
      {"NVIDIA T400 4GB", ""},
      {"NVIDIA H20", ""},
      {"NVIDIA A100X", "a100"},
      {"NVIDIA A16", ""},
      {"NVIDIA L40", ""},
      {"Orin (nvgpu)", ""},  // of 4 to 16 SMs
      {"Quadro RTX 8000", ""},
      {"", ""},
  };
  for (const Row& row : rows) {
    INFO(row.product);
    CHECK(vdevice_of_gpu(row.product) == row.vdevice);
  }
}

TEST_CASE("a vDevice is read from JSON, with defaults for what need not be said") {
  const VDevice d = parse_vdevice(good().dump(), "mine.json");
  CHECK(d.name == "mine");
  CHECK(d.sms == 4);
  CHECK(d.compute_threads == 256);
  CHECK(d.default_precision == Precision::fp32);
  CHECK_FALSE(d.tf32);
  CHECK(d.edge_us == 0.5);
  CHECK(d.with_inputs().for_estimates().edge_us == 0.5);
  CHECK(d.kernel_edge_us == 1);                         // not given
  CHECK_FALSE(d.dependent_kernel_edge_us.has_value());  // it has no programmatic dependent launch then
}

TEST_CASE("a vDevice has the fields of the built-in one that it is like, where its file gives none") {
  const VDevice a100 = read_vdevice("a100"), a30 = read_vdevice("a30");
  const VDevice mine =
      parse_vdevice(R"({"name": "mine", "like": "a30", "clock_ghz": 1.25, "costs": {"pool": {"strip_turn_us": 7}}})", "mine.json");
  CHECK(std::tie(mine.name, mine.clock_ghz, mine.edge_us) == std::make_tuple("mine", 1.25, a30.edge_us));
  CHECK(std::tie(mine.arch, mine.weight_stages, mine.tf32) == std::tie(a100.arch, a100.weight_stages, a100.tf32));
  CHECK((mine.description.empty() && mine.gpus.empty() && mine.costs.size() == 1));
  CHECK(parse_vdevice(R"({"name": "mine", "like": "h200"})", "mine.json").costs.empty());  // the h200's are the default
  const auto message = [](const char* text) {
    return std::string("mine.json: field 'like' is ") + text + ", expected one of h200, h200nvl";
  };
  CHECK_THROWS_WITH(parse_vdevice(R"({"name": "mine", "like": "a31"})", "mine.json"), Catch::StartsWith(message("\\x22a31\\x22")));
  CHECK_THROWS_WITH(parse_vdevice(R"({"name": "mine", "like": [7]})", "mine.json"), Catch::StartsWith(message("array")));
  CHECK_THROWS_WITH(parse_vdevice(R"({"like": "a30"})", "mine.json"), "mine.json: field 'name' is missing");
  CHECK_THROWS_WITH(parse_vdevice(R"({"name": "mine", "like": "a30", "smss": 7})", "mine.json"), "mine.json: unknown field 'smss'");
}

TEST_CASE("an edge of dependent launches is of devices that have them") {
  json object = good();
  object["dependent_kernel_edge_us"] = 0.75;
  CHECK(parse_vdevice(object.dump(), "mine.json").dependent_kernel_edge_us == 0.75);
  object["arch"] = "sm_120";
  CHECK(parse_vdevice(object.dump(), "mine.json").dependent_kernel_edge_us == 0.75);
  object["arch"] = "sm_89";
  CHECK_THROWS_WITH(
      parse_vdevice(object.dump(), "mine.json"),
      Catch::Contains("mine.json: field 'dependent_kernel_edge_us' is given, but field 'arch' is sm_89: programmatic dependent "
                      "launch is of sm_90 and later"));
  object["arch"] = "sm_90", object["dependent_kernel_edge_us"] = -1;
  CHECK_THROWS_WITH(parse_vdevice(object.dump(), "mine.json"), Catch::Contains("'dependent_kernel_edge_us' must not be negative"));
}

TEST_CASE("an edge may be shorter in estimates than where plans are chosen") {
  json object = good();
  object["estimated_edge_us"] = 0.25;
  const VDevice d = parse_vdevice(object.dump(), "mine.json");
  CHECK(d.edge_us == 0.5);
  CHECK(d.kernel_edge_us == 1);
  CHECK(d.with_inputs().for_estimates().edge_us == 0.25);
  object["edge_spread_us"] = 0.375;
  CHECK_THROWS_WITH(parse_vdevice(object.dump(), "mine.json"),
                    Catch::Contains("mine.json: field 'estimated_edge_us' is less than 'edge_spread_us'"));
}

TEST_CASE("a vDevice is read from a file whose name ends in .json") {
  const ScratchFolder folder(temporary_parent(), "tamp-vdevice-");
  const std::string path = (folder.path() / "mine.json").string();
  std::ofstream(path) << good().dump();
  CHECK(read_vdevice(path).name == "mine");
  std::filesystem::remove(path);
  CHECK_THROWS_WITH(read_vdevice(path), Catch::Contains("cannot be opened"));
}

TEST_CASE("a vDevice that is wrong is refused with the file, the field and what was expected") {
  struct Row {
    const char* field;
    json value;
    const char* sentence;
  };
  const Row rows[] = {
      {"sms", 0, "mine.json: field 'sms' is out of range 1..1024"},
      {"sms", 100000, "mine.json: field 'sms' is out of range 1..1024"},
      {"sms", "four", "mine.json: field 'sms' has the wrong type: \\x22four\\x22"},
      {"arch", "hopper", "mine.json: field 'arch' is not of the form sm_90 or cpu"},
      {"arch", "sm_9 -x", "mine.json: field 'arch' is not of the form sm_90 or cpu"},
      {"veus_per_sm", 2, "mine.json: field 'veus_per_sm' must be 1"},
      {"compute_threads", 128, "mine.json: field 'compute_threads' must be 256"},
      {"weight_stages", 1, "mine.json: field 'weight_stages' is out of range 2..32"},
      {"weight_stage_bytes", 5000, "mine.json: field 'weight_stage_bytes' must be a multiple of 1024 from 4096 to 65536"},
      {"smem_bytes", 20000, "mine.json: field 'smem_bytes' leaves less than 16384 bytes of work space"},
      {"input_stages_in_clusters", 4, "mine.json: field 'input_stages_in_clusters' is given, but 'sms_in_clusters' is not"},
      {"default_precision", "tf32", "mine.json: field 'default_precision' is tf32, but field 'tf32' is false"},
      {"default_precision", "int8", "mine.json: field 'default_precision' is 'int8', expected fp32 or tf32"},
      {"fp32_tflops", 0, "mine.json: field 'fp32_tflops' must be positive"},
      {"dram_gb_per_s", -1, "mine.json: field 'dram_gb_per_s' must be positive"},
      {"tf32", true, "mine.json: field 'tf32_tflops' must be positive where 'tf32' is true"},
      {"edge_us", -0.5, "mine.json: field 'edge_us' must not be negative"},
      {"estimated_edge_us", -0.5, "mine.json: field 'estimated_edge_us' must not be negative"},
      {"rtask_us", -1, "mine.json: field 'rtask_us' must not be negative"},
      {"lone_veu_shares", 0, "mine.json: field 'lone_veu_shares' must be positive"},
      {"smss", 4, "mine.json: unknown field 'smss'"},
  };
  for (const Row& row : rows) {
    json object = good();
    object[row.field] = row.value;
    CHECK_THROWS_WITH(parse_vdevice(object.dump(), "mine.json"), row.sentence);
  }
  const json whole = good();
  for (const auto& [field, value] : whole.items()) {
    json object = good();
    object.erase(field);
    CHECK_THROWS_WITH(parse_vdevice(object.dump(), "mine.json"), "mine.json: field '" + field + "' is missing");
  }
}

TEST_CASE("costs of bodies are the h200's where a file gives none") {
  const VDevice none = parse_vdevice(good().dump(), "mine.json");
  CHECK(none.costs.empty());
  CHECK(none.lone_veu_shares == 3);
  json object = good();
  object["costs"] = {{"pool", {{"strip_turn_us", 7}}}, {"staged_conv", {{"64x32", {{"fixed_cycles", 5}}}}}};
  const VDevice some = parse_vdevice(object.dump(), "mine.json");
  CHECK(some.costs.size() == 2);
  CHECK(some.cost("pool.strip_turn_us") == 7);
  CHECK(some.cost("staged_conv.64x32.fixed_cycles") == 5);
  REQUIRE_FALSE(default_costs().empty());
  for (const auto& [name, value] : default_costs()) {
    INFO(name);
    CHECK(read_vdevice("h200").cost(name) == value);
    CHECK(none.cost(name) == value);
    if (name != "pool.strip_turn_us" && name != "staged_conv.64x32.fixed_cycles") CHECK(some.cost(name) == value);
  }
  CHECK_THROWS_AS(none.cost("pool.no_such_us"), InternalError);
}

// What a family asks for is in the h200's file by itself: VDevice::cost checks it, and every family's tests ask.
TEST_CASE("the h200's own costs are as sound as a user's must be") {
  for (const auto& [name, value] : default_costs()) {
    INFO(name);
    CHECK(value > 0);
    const std::string last = name.substr(name.rfind('.') + 1);
    if (last.ends_with("efficiency")) CHECK(value <= 1);
  }
}

TEST_CASE("wrong costs are refused with the file, the path of the field and what was expected") {
  struct Row {
    json costs;
    const char* sentence;
  };
  const Row rows[] = {
      {7, "mine.json: field 'costs' has the wrong type: 7; expected an object of costs"},
      {json::array(), "mine.json: field 'costs' has the wrong type: array; expected an object of costs"},
      {{{"pool", 7}}, "mine.json: field 'costs.pool' has the wrong type: 7; expected an object of costs"},
      {{{"pool", {{"strip_turn_us", "fast"}}}},
       "mine.json: field 'costs.pool.strip_turn_us' has the wrong type: \\x22fast\\x22; expected a number"},
      {{{"pool", {{"strip_turn_us", nullptr}}}}, "mine.json: field 'costs.pool.strip_turn_us' has the wrong type: null; expected a number"},
      {{{"pool", {{"strip_turn_us", {{"deep", 1}}}}}},
       "mine.json: field 'costs.pool.strip_turn_us' has the wrong type: object; expected a number"},
      {{{"pool", {{"strip_turn_us", -1}}}}, "mine.json: field 'costs.pool.strip_turn_us' is -1, expected 0.000001 to 1000000000"},
      {{{"pool", {{"strip_turn_us", 0}}}}, "mine.json: field 'costs.pool.strip_turn_us' is 0, expected 0.000001 to 1000000000"},
      {{{"pool", {{"strip_turn_us", 1e300}}}}, "mine.json: field 'costs.pool.strip_turn_us' is 1e+300, expected 0.000001 to 1000000000"},
      {{{"pool", {{"efficiency", 1.5}}}}, "mine.json: field 'costs.pool.efficiency' is 1.5, expected at most 1: it is a share of the peak"},
      {{{"pool", {{"strip_turn", 1}}}}, "mine.json: unknown field 'costs.pool.strip_turn'"},
      {{{"pol", json::object()}}, "mine.json: unknown field 'costs.pol'"},
      {{{"staged_conv", {{"64x33", json::object()}}}}, "mine.json: unknown field 'costs.staged_conv.64x33'"},
      {{{"pool.strip_turn_us", 1}}, "mine.json: unknown field 'costs.pool.strip_turn_us'; a group of costs is an object of its own"},
      {{{"", 1}}, "mine.json: unknown field 'costs.'"},
  };
  for (const Row& row : rows) {
    json object = good();
    object["costs"] = row.costs;
    CHECK_THROWS_WITH(parse_vdevice(object.dump(), "mine.json"), row.sentence);
  }
  std::string text = good().dump();
  text.pop_back();
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  CHECK_THROWS_WITH(parse_vdevice(text + ",\"costs\":" + deep + "}", "mine.json"),
                    "mine.json: field 'costs' has the wrong type: array; expected an object of costs");
  CHECK_THROWS_WITH(parse_vdevice(text + ",\"tf32_tflops\":" + deep + "}", "mine.json"),
                    "mine.json: field 'tf32_tflops' has the wrong type: array");
}

TEST_CASE("text that is not a JSON object, and unknown names, are the user's errors") {
  for (const char* text : {"", "[]", "{", "7", "null", "{\"name\": }"}) {
    CHECK_THROWS_WITH(parse_vdevice(text, "x.json"), "x.json: not a JSON object");
  }
  try {
    read_vdevice("h\n300");
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::bad_input);
    CHECK_THAT(error.what(), Catch::Contains("vDevice 'h\\x0a300' is not known; built in: h200, h200nvl, h100"));
  }
}
