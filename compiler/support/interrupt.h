// Removes folders of unfinished work, and ends child processes, when Ctrl-C, SIGTERM or SIGHUP ends the program.
//
// A thread of its own waits for these signals. It takes the lock that every Uninterrupted shares, and keeps it, so that nobody makes
// anything new; then it ends the children, removes the folders, and leaves with the exit code 128 + signal.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>

namespace tamp {

// To be called first, while the program has one thread. A signal that is ignored (nohup, a job in the background) stays ignored.
void end_tidily_on_signals();

// While an Uninterrupted lives, no signal ends the program. A thread that makes one after a signal has come waits until the program ends.
// Uninterrupted objects must not nest.
class Uninterrupted {
 public:
  Uninterrupted();
  ~Uninterrupted();
  Uninterrupted(const Uninterrupted&) = delete;
  Uninterrupted& operator=(const Uninterrupted&) = delete;
};

// Folders that are removed with everything in them if a signal ends the program. Both are called with an Uninterrupted alive.
void remove_on_signal(const std::filesystem::path& folder);
void keep_on_signal(const std::filesystem::path& folder);

// Calls `start`, which starts a child in a process group of its own, waits for the child and returns its status (waitpid). The whole
// group ends with the program.
int wait_for_child(const std::function<pid_t()>& start);

}  // namespace tamp
