// The tamp program. Exit codes: 0 good, 1 bad input (wrong usage included), 2 something that is not supported, 3 a bug in tamp or a failed
// build, 4 a failed --check, 128 + number where Ctrl-C or another signal ended the program. A result goes to stdout; progress and `error:`
// lines go to stderr.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "compiler/cli/command.h"
#include "compiler/cli/usage.h"
#include "compiler/support/interrupt.h"
#include "compiler/support/nearest.h"
#include "compiler/support/text.h"
#include "compiler/support/utf8.h"
#include "compiler/support/version.h"

namespace {

using tamp::ExitCode;
using tamp::cli::Invocation;

int fail(ExitCode code, const std::string& message) {
  const tamp::Uninterrupted last_word;  // a failure because a signal ends the program is not reported
  fmt::print(stderr, "error: {}\n", tamp::without_controls(message));
  return static_cast<int>(code);
}

// Returns -1 to go on, else the exit code. Where `run` stays empty, help or version was asked for and is printed.
int parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    const std::string swallowed = tamp::cli::swallowed_option(app);
    return swallowed.empty() ? -1 : fail(ExitCode::bad_input, swallowed);
  } catch (const CLI::Success& asked) {  // --help, --version
    return app.exit(asked);
  } catch (const CLI::ParseError& wrong) {
    return fail(ExitCode::bad_input, tamp::cli::usage_error(app, wrong, argc, argv));
  }
}

// `tamp help [COMMAND]` and `tamp version`: what --help and --version print.
void add_help(CLI::App& app, Invocation& invocation) {
  CLI::App* help = app.add_subcommand("help", "Show the options of a command");
  auto name = std::make_shared<std::string>();
  help->add_option("command", *name, "The command; none: all of them")->option_text("COMMAND");
  help->callback([&app, &invocation, name] {
    invocation.run = [&app, name] {
      const std::vector<CLI::App*> commands = app.get_subcommands([&](const CLI::App* command) { return command->get_name() == *name; });
      if (!name->empty() && commands.empty()) {
        throw tamp::bad_input("no command '{}'{}; see 'tamp help'", tamp::printable(*name),
                              tamp::did_you_mean(*name, tamp::cli::command_names(app)));
      }
      // app.help() would be the help of the command that was given (`help`); this is that of COMMAND.
      fmt::print("{}", name->empty() ? app.get_formatter()->make_help(&app, app.get_name(), CLI::AppFormatMode::Normal)
                                     : commands.front()->help(app.get_name()));
      return ExitCode::ok;
    };
  });
  app.add_subcommand("version", "Print the version")->callback([&invocation] {
    invocation.run = [] {
      fmt::print("tamp {}\n", tamp::version());
      return ExitCode::ok;
    };
  });
}

int run(const Invocation& invocation) {
  try {
    const ExitCode code = invocation.run();
    if (std::fflush(stdout) != 0) return fail(ExitCode::bad_input, "standard output cannot be written");
    return static_cast<int>(code);
  } catch (const tamp::Error& error) {
    return fail(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return fail(ExitCode::bad_input, "out of memory");
  } catch (const std::exception& error) {  // InternalError, and whatever a library throws
    return fail(ExitCode::internal, error.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  tamp::end_tidily_on_signals();
  CLI::App app("tamp compiles an ONNX model to one CUDA source file that runs the whole network as one persistent kernel.", "tamp");
  app.set_version_flag("-V,--version", "tamp " + std::string(tamp::version()));
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 good, 1 bad input, 2 not supported, 3 internal error or failed build, 4 failed --check, 128 + N ended by signal "
      "N.\n'tamp COMMAND --help' shows "
      "the options of a command with examples.");

  Invocation invocation;
  tamp::cli::add_compile(app, invocation);
  tamp::cli::add_run(app, invocation);
  tamp::cli::add_compare(app, invocation);
  tamp::cli::add_tune(app, invocation);
  tamp::cli::add_weights(app, invocation);
  tamp::cli::add_inspect(app, invocation);
  tamp::cli::add_ops(app, invocation);
  tamp::cli::add_devices(app, invocation);
  add_help(app, invocation);

  const int exit_code = parse(app, argc, argv);
  if (exit_code >= 0) return exit_code;
  tamp::start_logging(invocation.verbosity);
  return run(invocation);
}
