// Odd: a global object, since signals belong to the process. It is never destroyed, since the thread that waits for signals may need it
// until the process ends.
#include "compiler/support/interrupt.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <system_error>
#include <thread>

#include "compiler/support/error.h"

namespace tamp {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};
constexpr std::chrono::seconds kGrace(2);  // for a child to remove what it made
constexpr std::chrono::milliseconds kTick(5);

struct Leftovers {
  std::shared_mutex gate;  // held by every Uninterrupted; in the end, for good, by the thread
  std::mutex registry;     // guards the rest
  std::set<std::filesystem::path> folders;
  std::set<pid_t> children;  // leaders of process groups
};

Leftovers& leftovers() {
  static Leftovers* const all = new Leftovers;
  return *all;
}

bool has_ended(pid_t child) {
  siginfo_t info = {};
  return waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0;
}

void wait_until(const auto& holds) {
  const Clock::time_point deadline = Clock::now() + kGrace;
  while (!holds() && Clock::now() < deadline) std::this_thread::sleep_for(kTick);
}

// A leader that has ended is not reaped before its group is: its number must not become another's.
void end_children(const std::set<pid_t>& children, int signal) {
  for (const pid_t child : children) kill(-child, signal);
  for (const pid_t child : children) wait_until([child] { return has_ended(child); });
  for (const pid_t child : children) kill(-child, SIGKILL);
  for (const pid_t child : children) {
    while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
    wait_until([child] { return kill(-child, 0) != 0; });
  }
}

void wait_for_signals(sigset_t signals) {
  int signal = 0;
  while (sigwait(&signals, &signal) != 0) {
  }
  Leftovers& all = leftovers();
  all.gate.lock();
  end_children(all.children, signal);
  std::error_code ignored;
  for (const auto& folder : all.folders) std::filesystem::remove_all(folder, ignored);
  fmt::print(stderr, "error: ended by signal {} ({})\n", signal, strsignal(signal));
  _exit(128 + signal);
}

}  // namespace

void end_tidily_on_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : kSignals) {
    struct sigaction action = {};
    if (sigaction(signal, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) sigaddset(&signals, signal);
  }
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // inherited by every thread, so that only sigwait sees them
  std::thread(wait_for_signals, signals).detach();
}

Uninterrupted::Uninterrupted() { leftovers().gate.lock_shared(); }
Uninterrupted::~Uninterrupted() { leftovers().gate.unlock_shared(); }

void remove_on_signal(const std::filesystem::path& folder) {
  const std::lock_guard lock(leftovers().registry);
  leftovers().folders.insert(folder);
}

void keep_on_signal(const std::filesystem::path& folder) {
  const std::lock_guard lock(leftovers().registry);
  leftovers().folders.erase(folder);
}

int wait_for_child(const std::function<pid_t()>& start) {
  Leftovers& all = leftovers();
  pid_t child = -1;
  {
    const Uninterrupted whole;
    child = start();
    const std::lock_guard lock(all.registry);
    all.children.insert(child);
  }
  siginfo_t info = {};
  while (waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
  }
  const Uninterrupted whole;  // a child that ended by the signal that ends the program is not reported
  int status = 0;
  while (waitpid(child, &status, 0) < 0) TAMP_CHECK(errno == EINTR, "waitpid failed");
  const std::lock_guard lock(all.registry);
  all.children.erase(child);
  return status;
}

}  // namespace tamp
