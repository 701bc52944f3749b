// Common parts of all commands. A command is one file with one function add_NAME(), which puts the command's options into the CLI11 app
// and, when the user calls the command, leaves its work in Invocation. main.cpp runs that and turns errors into exit codes.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "compiler/compile.h"
#include "compiler/support/error.h"
#include "compiler/support/log.h"

namespace tamp::cli {

struct Invocation {
  Verbosity verbosity = Verbosity::normal;
  std::function<ExitCode()> run;
};

void add_compile(CLI::App& app, Invocation& invocation);
void add_run(CLI::App& app, Invocation& invocation);
void add_compare(CLI::App& app, Invocation& invocation);
void add_tune(CLI::App& app, Invocation& invocation);
void add_weights(CLI::App& app, Invocation& invocation);
void add_inspect(CLI::App& app, Invocation& invocation);
void add_ops(CLI::App& app, Invocation& invocation);
void add_devices(CLI::App& app, Invocation& invocation);

// Adds a subcommand with -q, -v and the examples under its help.
CLI::App* add_command(CLI::App& app, Invocation& invocation, const std::string& name, const std::string& summary,
                      const std::string& examples);

// The options of all commands that compile.
struct ModelArguments {
  std::string vdevice, precision, activations = "auto", policy = "best", execution, records;
  std::vector<std::string> dims, frozen;
  std::vector<int> ios_pruning;
  std::string ios, schedule, batch, buckets = "auto";
  int64_t search_plans = -1;
  bool measure = false;
  bool generates = false;
  std::string generation;  // a file, or empty
};
void add_model_options(CLI::App& command, ModelArguments& arguments);
void add_generate_option(CLI::App& command, ModelArguments& arguments);
void add_ios_option(CLI::App& command, ModelArguments& arguments);
void add_measure_option(CLI::App& command, ModelArguments& arguments);
void add_schedule_option(CLI::App& command, ModelArguments& arguments);
void add_records_option(CLI::App& command, ModelArguments& arguments);
// Error (bad input) on a malformed --dim or --batch, or a --freeze whose file cannot be read. `arguments.vdevice` is a name or a file
// (this_gpu.h).
CompileOptions compile_options(const ModelArguments& arguments);

// The options as a user writes them, where they differ from the default: "--vdevice h200 --batch 8 --dim n=4". Files appear by name only,
// since the generated files do not depend on where they lie.
std::string options_text(const ModelArguments& arguments);

// The files of NAME=FILE arguments of --freeze. Error (bad input) names the fault.
std::map<std::string, ops::Value> frozen_values(const std::vector<std::string>& assignments);

// The name of the generated symbols and files: the model's file name made a legal identifier.
std::string model_name(const std::string& model_path);
// The model's file name without its folder.
std::string file_name(const std::string& path);

// An option with a value, or a positional argument; the help shows `text` for the value: "--batch N".
CLI::Option* add_value(CLI::App& command, const std::string& flag, const std::string& text, auto& value, const std::string& help) {
  return command.add_option(flag, value, help)->option_text(text);
}
// A list of them with one value per flag ("--dim N=8 --dim C=3"), so that it never swallows a positional argument.
void add_repeated(CLI::App& command, const std::string& flag, const std::string& text, std::vector<std::string>& values,
                  const std::string& help);

// "NAME=VALUE" -> both halves, split at the first "=". Error (bad input) names the flag.
std::pair<std::string, std::string> split_assignment(const std::string& flag, const std::string& text);

// Files that options name to be written, as {option, file}; those without a name are none. Error (bad input) if one of them is a file in
// `kept`, which is read or written otherwise, or if two are the same.
void require_apart(const std::vector<std::pair<std::string, std::string>>& outputs, const std::vector<std::filesystem::path>& kept);

// Error (bad input) about `subject`, an option or a file, if the folder cannot be made or written into.
void require_writable(const std::string& subject, const std::filesystem::path& folder);
// The folder that a file lies in.
std::filesystem::path folder_of(const std::string& file);

}  // namespace tamp::cli
