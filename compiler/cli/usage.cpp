// CLI11 stops at the first rule that is broken, and looks at words that it does not know last: `tamp compile m.onnx --ouput x` would say
// that --output is missing. So the words that are left over are looked at first.
#include "compiler/cli/usage.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/support/nearest.h"
#include "compiler/support/text.h"

namespace tamp::cli {
namespace {

// The command that was given, or the program itself.
const CLI::App& command_of(const CLI::App& app) {
  const std::vector<const CLI::App*> given = app.get_subcommands([](const CLI::App* command) { return command->parsed(); });
  return given.empty() ? app : *given.front();
}

std::string full_name(const CLI::App& app, const CLI::App& command) {
  return &command == &app ? app.get_name() : app.get_name() + " " + command.get_name();
}

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

bool is_option(const std::string& word) { return word.size() > 1 && word.front() == '-'; }

// About the words that nothing has taken.
std::string about_rest(const CLI::App& app, const CLI::App& command, const std::vector<std::string>& rest) {
  const auto option = std::find_if(rest.begin(), rest.end(), is_option);
  if (option != rest.end()) {
    const std::string name = option->substr(0, option->find('='));
    std::string hint = did_you_mean(name, option_names(command));
    for (const CLI::App* other : app.get_subcommands([&](const CLI::App* one) { return one->get_option_no_throw(name) != nullptr; }))
      hint = &command == &app ? "; it comes behind the command" : fmt::format("; '{}' has it", full_name(app, *other));
    return fmt::format("no option '{}' of '{}'{}", printable(name), full_name(app, command), hint);
  }
  if (&command == &app) return fmt::format("no command '{}'{}", printable(rest.front()), did_you_mean(rest.front(), command_names(app)));
  return fmt::format("'{}' does not expect '{}'", full_name(app, command), printable(rest.front()));
}

// Of an option that has fewer or more values than it takes: "--output: 1 required TEXT missing".
std::string about_count(const CLI::App& command, const std::string& message, int argc, char** argv) {
  const std::string name = message.substr(0, message.find(':'));
  const CLI::Option* option = command.get_option_no_throw(name);
  if (!option) return message;
  const auto is_option = [&](const std::string& word) { return option->check_name(word.substr(0, word.find('='))); };
  if (std::count_if(argv + 1, argv + argc, is_option) > 1) return fmt::format("{} is given twice", name);
  const bool has_some = option->results().size() + 1 == static_cast<size_t>(option->get_expected_min()) && !option->results().empty();
  return fmt::format("{}: {}, expected {} {}", name, has_some ? "one value is missing" : "its value is missing", name,
                     option->get_option_text());
}

}  // namespace

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) names.push_back(command->get_name());
  return names;
}

std::string usage_error(const CLI::App& app, const CLI::ParseError& wrong, int argc, char** argv) {
  const CLI::App& command = command_of(app);
  const std::string help = fmt::format("; see '{} --help'", full_name(app, command));
  // CLI11 complains that a command is missing before it looks at the word in the command's place.
  if (&command == &app && argc > 1) return about_rest(app, app, {argv[1]}) + help;
  if (&command == &app) return fmt::format("no command is given, known: {}", join(command_names(app), ", ")) + help;
  if (const std::vector<std::string> rest = app.remaining(); !rest.empty()) return about_rest(app, app, rest) + help;
  if (const std::vector<std::string> rest = command.remaining(); !rest.empty()) {
    const std::string swallowed = swallowed_option(app);
    return (swallowed.empty() ? about_rest(app, command, rest) : swallowed) + help;
  }
  std::string message = wrong.what();
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&wrong)) message = about_count(command, message, argc, argv);
  std::replace(message.begin(), message.end(), '\n', ' ');
  return message + help;
}

std::string swallowed_option(const CLI::App& app) {
  const CLI::App& command = command_of(app);
  const std::vector<std::string> names = option_names(command);
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& value : option->results()) {
      if (std::find(names.begin(), names.end(), value) == names.end()) continue;
      return fmt::format("{}: its value is missing, found the option {}", option->get_name(), value);
    }
  }
  return "";
}

}  // namespace tamp::cli
