// What is said about a command line that cannot be read.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace tamp::cli {

std::vector<std::string> command_names(const CLI::App& app);

// Why CLI11 gave up (`wrong`), in words of tamp's: the option or command that is not known and the one that it resembles, or the option
// whose value is missing. "no option '--precison' of 'tamp compile'; did you mean '--precision'?"
std::string usage_error(const CLI::App& app, const CLI::ParseError& wrong, int argc, char** argv);

// What CLI11 lets pass: an option that took the next option for its value, as in `-o --name x`. Empty: nothing.
std::string swallowed_option(const CLI::App& app);

}  // namespace tamp::cli
