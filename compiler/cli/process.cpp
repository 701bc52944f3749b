#include "compiler/cli/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <spdlog/spdlog.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "compiler/support/error.h"
#include "compiler/support/text.h"

extern char** environ;

namespace tamp::cli {
namespace {

// The file actions of one child: stdin from nowhere, stdout and stderr into files, then the folder.
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

int wait_for(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    TAMP_CHECK(errno == EINTR, "waitpid failed");
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

ProcessResult run_process(const std::vector<std::string>& arguments, const std::filesystem::path& log,
                          const std::filesystem::path& folder) {
  spdlog::debug("runs: {}", join(arguments, " "));
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const std::string output = log.string() + ".out";
  const std::string errors = log.string() + ".err";
  const Redirections redirections(output, errors, folder.string());
  pid_t child = 0;
  const int failure = posix_spawnp(&child, argv[0], redirections.get(), nullptr, argv.data(), environ);
  if (failure != 0) throw InternalError(fmt::format("{} cannot be started: {}", arguments[0], std::strerror(failure)));
  const int exit_code = wait_for(child);
  return {exit_code, read_text(output), read_text(errors)};
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

TemporaryFolder::TemporaryFolder() {
  std::error_code failure;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(failure);
  std::string name = (failure ? std::filesystem::path("/tmp") : parent) / "tamp-XXXXXX";
  if (mkdtemp(name.data()) == nullptr) throw bad_input(fmt::format("{}: cannot be created: {}", name, std::strerror(errno)));
  path_ = std::filesystem::absolute(name);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!kept_) std::filesystem::remove_all(path_, ignored);
}

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) throw bad_input(fmt::format("{}: cannot be read", printable(path.string())));
  return text.str();
}

void write_text(const std::filesystem::path& path, std::string_view text) {
  std::error_code failure;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), failure);
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (!file || failure) throw bad_input(fmt::format("{}: cannot be written", printable(path.string())));
}

}  // namespace tamp::cli
