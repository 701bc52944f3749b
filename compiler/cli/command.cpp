#include "compiler/cli/command.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>

#include "codegen/codegen.h"
#include "compiler/cli/generation_file.h"
#include "compiler/cli/ports.h"
#include "compiler/cli/process.h"
#include "compiler/support/files.h"
#include "compiler/support/text.h"

namespace tamp::cli {

CLI::App* add_command(CLI::App& app, Invocation& invocation, const std::string& name, const std::string& summary,
                      const std::string& examples) {
  CLI::App* command = app.add_subcommand(name, summary);
  command->footer("Examples:\n" + examples);
  command->add_flag_callback(
      "-q,--quiet", [&invocation] { invocation.verbosity = Verbosity::quiet; }, "Print errors and results only");
  command->add_flag_callback(
      "-v,--verbose", [&invocation] { invocation.verbosity = Verbosity::verbose; }, "Print every decision");
  return command;
}

void add_repeated(CLI::App& command, const std::string& flag, const std::string& text, std::vector<std::string>& values,
                  const std::string& help) {
  CLI::Option* option = add_value(command, flag, text, values, help)->expected(1);
  option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)->allow_extra_args(false);
}

void add_model_options(CLI::App& command, ModelArguments& arguments) {
  add_value(command, "--vdevice", "auto|NAME|FILE.json", arguments.vdevice,
            "GPU to compile for: a name of 'tamp devices', or a .json file; auto (default): this machine's; where there is none, "
            "h200, or cpu to run or tune");
  add_value(command, "--precision", "P", arguments.precision,
            "fp32 (IEEE, no tensor cores), tf32, or fp16 or bf16 (weights, products and most activations in 16 bits, sums in fp32); "
            "default: fp16 or bf16 if the model is of that type, fp16 if its activations are quantised to 8 bits, where the vDevice has "
            "it; else the vDevice's own");
  add_value(command, "--activations", "auto|fp32", arguments.activations,
            "auto (default: in memory they take 16 bits; in fp16 and bf16 wherever all rKernels that touch them can do it, in tf32 where "
            "fp16 is proven to keep what tf32 keeps) or fp32")
      ->check(CLI::IsMember({"auto", "fp32"}));
  add_value(command, "--policy", "POLICY", arguments.policy,
            "How rTasks are put on vEUs: best (default: the fastest by simulation of wavefront, greedy, sequential and list), "
            "wavefront-fastest, wavefront-launches, ios, ios-merge or ios-parallel (docs/policies.md)");
  add_value(command, "--ios-pruning", "R,S", arguments.ios_pruning,
            "Policies ios..: at most R rOperators in a group, and S groups in a stage or convolutions in one; 0 for any; default 3,8")
      ->delimiter(',')
      ->expected(2);
  add_value(command, "--search-plans", "N", arguments.search_plans,
            "Policies list and best: how many plans are simulated at most; default 1000")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000'000}));
  add_value(command, "--execution", "E", arguments.execution,
            "persistent (default): one kernel runs the network; graph: a kernel for each phase of a rOperator, for comparison");
  add_repeated(command, "--dim", "NAME=N|A:B|N,..", arguments.dims,
               "Value of a symbolic dimension of the model; 1:512: each run says which of these; 32:640:32: the same in steps of 32; "
               "16,64,256: the same of 1 to 256, with a "
               "program up to each of these values; may be repeated (docs/howto/lengths.md)");
  add_value(command, "--batch", "N|A:B|N,..", arguments.batch,
            "First extent of all inputs, also where the model was exported with another one; or values of run time, as with --dim");
  add_value(command, "--buckets", "auto|given", arguments.buckets,
            "auto (default): where one dimension is open as A:B, also programs up to B/2, B/4, .. that gain enough by the estimate; given: "
            "those that --dim and --batch list")
      ->check(CLI::IsMember({"auto", "given"}));
  add_repeated(command, "--freeze", "NAME=FILE", arguments.frozen,
               "Make an input a constant, from a .npy or .pb (TensorProto) file; may be repeated");
}

void add_generate_option(CLI::App& command, ModelArguments& arguments) {
  add_value(
      command, "--generate", "[FILE|{..}]", arguments.generation,
      "The model is a decoder: the program makes tokens, run after run in one kernel; with --dim seq=1,64 or the like prompts go in by "
      "parts. The file, or JSON in its place, says what names do not (docs/howto/generate.md)")
      ->expected(0, 1);
  command.parse_complete_callback([&command, &arguments] { arguments.generates = command.count("--generate") > 0; });
}

void add_records_option(CLI::App& command, ModelArguments& arguments) {
  add_value(command, "--records", "FILE|none", arguments.records,
            "Measured times of rKernels ('tamp tune' writes them); none: the cost model alone; default: those in tamp");
}

std::pair<std::string, std::string> split_assignment(const std::string& flag, const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
    throw bad_input(fmt::format("{} '{}': expected NAME=VALUE", flag, printable(text)));
  }
  return {text.substr(0, equals), text.substr(equals + 1)};
}

void add_ios_option(CLI::App& command, ModelArguments& arguments) {
  add_value(command, "--ios", "MODE", arguments.ios,
            "Policy ios: merge (convolutions on the same input become one), parallel (groups run beside each other), or both "
            "(default); policies ios-merge and ios-parallel are the same");
}

void add_measure_option(CLI::App& command, ModelArguments& arguments) {
  command.add_flag("--measure", arguments.measure, "Policies ios..: time each stage on the GPU instead of simulating it");
}

void add_schedule_option(CLI::App& command, ModelArguments& arguments) {
  add_value(command, "--schedule", "FILE", arguments.schedule,
            "Take rKernels, lanes and Waits from this file of 'tamp compile --save-schedule'; no policy");
}

namespace {

constexpr int64_t kMostExtent = int64_t{1} << 31;

// A positive integer, or nothing.
std::optional<int64_t> extent_of(std::string_view text) {
  int64_t extent = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), extent);
  if (failure != std::errc() || end != text.data() + text.size() || extent < 1 || extent > kMostExtent) return std::nullopt;
  return extent;
}

// "8", "1:512", "16,64,256", "8:16,64,256" or "32:640:32". A single number has smallest == buckets[0].
DimRange parse_range(const std::string& where, const std::string& value) {
  const auto wrong = [&](const std::string& why) {
    return bad_input(
        fmt::format("{}: '{}' {}; expected N, or for values of run time SMALLEST:LARGEST, SMALLEST:LARGEST:STEP or LARGEST,LARGER,..",
                    where, printable(value), why));
  };
  const auto number = [&](std::string_view text) {
    const std::optional<int64_t> extent = extent_of(text);
    if (!extent) throw wrong("is not a positive integer");
    return *extent;
  };
  DimRange range;
  std::string_view rest = value;
  const size_t colon = rest.find(':'), comma = rest.find(',');
  if (colon != std::string_view::npos) {
    range.smallest = number(rest.substr(0, colon));
    rest.remove_prefix(colon + 1);
    if (const size_t second = rest.find(':'); second != std::string_view::npos) {
      range.step = number(rest.substr(second + 1));
      rest.remove_suffix(rest.size() - second);
    }
  } else if (comma == std::string_view::npos) {
    range.smallest = number(rest);
  }
  for (size_t end = 0; end != std::string_view::npos; rest.remove_prefix(end == std::string_view::npos ? 0 : end + 1)) {
    end = rest.find(',');
    range.buckets.push_back(number(rest.substr(0, end)));
    if (range.buckets.size() > 1 && range.buckets.back() <= range.buckets.rbegin()[1]) throw wrong("does not ascend");
  }
  if (range.smallest > range.buckets.front()) throw wrong("begins behind its end");
  for (const int64_t bucket : range.buckets) {
    if (bucket % range.step != 0 || range.smallest % range.step != 0) throw wrong("has values that are no multiples of its step");
  }
  return range;
}

bool is_one_value(const DimRange& range) { return range.smallest == range.buckets.back(); }

}  // namespace

CompileOptions compile_options(const ModelArguments& arguments) {
  CompileOptions options;
  options.vdevice = arguments.vdevice;
  options.precision = arguments.precision;
  options.records = arguments.records;
  options.policy = schedule::parse_policy(arguments.policy);
  if (!arguments.ios.empty()) options.policy = schedule::ios_policy(options.policy, arguments.ios);
  if (!arguments.execution.empty()) options.execution = schedule::parse_execution(arguments.execution);
  for (const int limit : arguments.ios_pruning) {
    if (limit < 0) throw bad_input(fmt::format("--ios-pruning: {} is negative, expected R,S, each at least 0", limit));
  }
  if (!arguments.ios_pruning.empty()) options.ios.pruning = {arguments.ios_pruning[0], arguments.ios_pruning[1]};
  if (arguments.search_plans >= 0) options.search_plans = arguments.search_plans;
  options.schedule = arguments.schedule;
  for (const std::string& text : arguments.dims) {
    const auto [name, value] = split_assignment("--dim", text);
    const DimRange range = parse_range(fmt::format("--dim '{}'", printable(text)), value);
    const bool is_new = !options.dims.contains(name) && !options.ranges.contains(name);
    if (!is_new) throw bad_input(fmt::format("--dim '{}' is given twice", printable(name)));
    if (is_one_value(range))
      options.dims.emplace(name, range.smallest);
    else
      options.ranges.emplace(name, range);
  }
  if (!arguments.batch.empty()) {
    const DimRange range = parse_range("--batch", arguments.batch);
    if (range.buckets.back() > int64_t{1} << 20) throw bad_input(fmt::format("--batch {}: at most 1048576", range.buckets.back()));
    if (is_one_value(range))
      options.batch = range.smallest;
    else
      options.batches = range;
    if (options.batches && options.ranges.contains("batch"))
      throw bad_input("--dim 'batch' and --batch: two lengths of one name; give one of them");
  }
  options.chooses_buckets = arguments.buckets == "auto";
  options.narrow_activations = arguments.activations != "fp32";
  options.frozen = frozen_values(arguments.frozen);
  if (arguments.generates) {
    const std::string& given = arguments.generation;
    const bool is_text = given.empty() || given.starts_with('{');
    options.generation = parse_generation(given.empty() ? "{}" : is_text ? given : read_text(given), is_text ? "--generate" : given);
  }
  return options;
}

std::string options_text(const ModelArguments& arguments) {
  std::vector<std::string> parts;
  const auto add = [&](const char* flag, const std::string& value) { parts.push_back(fmt::format("{} {}", flag, value)); };
  add("--vdevice", file_name(arguments.vdevice));
  if (!arguments.precision.empty()) add("--precision", arguments.precision);
  if (arguments.activations == "fp32") add("--activations", arguments.activations);
  if (!arguments.execution.empty()) add("--execution", arguments.execution);
  for (const std::string& dim : arguments.dims) add("--dim", dim);
  if (!arguments.batch.empty()) add("--batch", arguments.batch);
  if (arguments.buckets != "auto") add("--buckets", arguments.buckets);
  for (const std::string& frozen : arguments.frozen) {
    const auto [name, file] = split_assignment("--freeze", frozen);
    add("--freeze", name + "=" + file_name(file));
  }
  if (arguments.generates)
    parts.push_back(arguments.generation.empty()
                        ? "--generate"
                        : "--generate " + (arguments.generation.starts_with('{') ? arguments.generation : file_name(arguments.generation)));
  if (!arguments.records.empty()) add("--records", file_name(arguments.records));
  return join(parts, " ");
}

std::map<std::string, ops::Value> frozen_values(const std::vector<std::string>& assignments) {
  std::map<std::string, ops::Value> frozen;
  for (const std::string& text : assignments) {
    const auto [name, file] = split_assignment("--freeze", text);
    if (frozen.contains(name)) throw bad_input(fmt::format("--freeze '{}' is given twice", printable(name)));
    frozen[name] = read_value(file);
  }
  return frozen;
}

std::string file_name(const std::string& path) { return std::filesystem::path(path).filename().string(); }

std::string model_name(const std::string& model_path) { return codegen::safe_name(std::filesystem::path(model_path).stem().string()); }

void require_apart(const std::vector<std::pair<std::string, std::string>>& outputs, const std::vector<std::filesystem::path>& kept) {
  namespace fs = std::filesystem;
  const auto is_same = [](const fs::path& a, const fs::path& b) {
    std::error_code ignored, of_a, of_b;
    if (fs::equivalent(a, b, ignored)) return true;
    const fs::path whole_a = fs::weakly_canonical(a, of_a), whole_b = fs::weakly_canonical(b, of_b);
    return !of_a && !of_b && whole_a == whole_b;
  };
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto& [option, file] = outputs[i];
    if (file.empty()) continue;
    for (const fs::path& other : kept) {
      if (is_same(file, other))
        throw bad_input(fmt::format("{} {}: would replace {}; give another file", option, printable(file), printable(other.string())));
    }
    for (size_t k = 0; k < i; ++k) {
      if (!outputs[k].second.empty() && is_same(file, outputs[k].second))
        throw bad_input(fmt::format("{} {}: is the file of {}, too; give another one", option, printable(file), outputs[k].first));
    }
  }
}

void require_writable(const std::string& subject, const std::filesystem::path& folder) {
  if (const std::string why = why_not_writable(folder); !why.empty())
    throw bad_input(fmt::format("{}: cannot be written: {}", subject, why));
}

std::filesystem::path folder_of(const std::string& file) { return ("." / std::filesystem::path(file)).parent_path(); }

}  // namespace tamp::cli
