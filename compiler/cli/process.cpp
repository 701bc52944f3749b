#include "compiler/cli/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <spdlog/spdlog.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "compiler/support/error.h"
#include "compiler/support/files.h"
#include "compiler/support/interrupt.h"
#include "compiler/support/text.h"

extern char** environ;

namespace tamp::cli {
namespace {

// The file actions of one child: stdin is empty, stdout and stderr go into files, then the folder is changed.
class Redirections {
 public:
  Redirections(const std::string& output, const std::string& errors, const std::string& folder) {
    constexpr int kWrite = O_WRONLY | O_CREAT | O_TRUNC;
    posix_spawn_file_actions_init(&actions_);
    posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions_, STDOUT_FILENO, output.c_str(), kWrite, 0644);
    posix_spawn_file_actions_addopen(&actions_, STDERR_FILENO, errors.c_str(), kWrite, 0644);
    if (!folder.empty()) posix_spawn_file_actions_addchdir_np(&actions_, folder.c_str());
  }
  ~Redirections() { posix_spawn_file_actions_destroy(&actions_); }
  Redirections(const Redirections&) = delete;
  Redirections& operator=(const Redirections&) = delete;
  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

// The child gets its own process group, so that a signal reaches all processes that the child starts; and the signals that tamp waits for
// are not blocked in the child.
class Attributes {
 public:
  Attributes() {
    posix_spawnattr_init(&attributes_);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setpgroup(&attributes_, 0);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes_, &none);
  }
  ~Attributes() { posix_spawnattr_destroy(&attributes_); }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;
  const posix_spawnattr_t* get() const { return &attributes_; }

 private:
  posix_spawnattr_t attributes_;
};

std::vector<std::string> environment_with(const std::string& temporary) {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    if (temporary.empty() || !text.starts_with("TMPDIR=")) variables.push_back(text);
  }
  if (!temporary.empty()) variables.push_back("TMPDIR=" + temporary);
  return variables;
}

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

ProcessResult run_process(const std::vector<std::string>& arguments, const std::filesystem::path& log,
                          const std::filesystem::path& folder) {
  spdlog::debug("runs: {}", join(arguments, " "));
  const std::vector<std::string> variables = environment_with(folder.string());
  const std::vector<char*> argv = pointers_to(arguments), envp = pointers_to(variables);
  const std::string output = log.string() + ".out";
  const std::string errors = log.string() + ".err";
  const Redirections redirections(output, errors, folder.string());
  const Attributes attributes;
  const int status = wait_for_child([&] {
    pid_t child = 0;
    const int failure = posix_spawnp(&child, argv[0], redirections.get(), attributes.get(), argv.data(), envp.data());
    if (failure != 0) throw InternalError(fmt::format("{} cannot be started: {}", arguments[0], std::strerror(failure)));
    return child;
  });
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_text(output), read_text(errors)};
}

std::string find_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::stringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string candidate = folder + "/" + name;
    if (!folder.empty() && access(candidate.c_str(), X_OK) == 0 && !std::filesystem::is_directory(candidate)) return candidate;
  }
  return "";
}

TemporaryFolder::TemporaryFolder() : path_(make_scratch_folder(temporary_parent(), "tamp-")) {}

TemporaryFolder::~TemporaryFolder() {
  if (kept_)
    forget_scratch_folder(path_);
  else
    remove_scratch_folder(path_);
}

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) throw bad_input("{}: cannot be read", printable(path.string()));
  return text.str();
}

void write_text(const std::filesystem::path& path, std::string_view text) {
  const Uninterrupted whole;
  std::error_code failure;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), failure);
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (!file || failure) throw bad_input("{}: cannot be written", printable(path.string()));
}

}  // namespace tamp::cli
