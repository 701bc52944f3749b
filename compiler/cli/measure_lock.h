// Several `tamp tune` of a user take turns in measuring.
#pragma once

#include <filesystem>

namespace tamp::cli {

// Held while something is measured, or the file of records is written. The lock is in a folder of the user's own, so that nobody
// else can hold it or stand in its way: in $XDG_RUNTIME_DIR, in the folder tamp-UID where temporary files go, or in ~/.cache/tamp.
// What others run on the same GPU is not kept away.
class MeasureLock {
 public:
  MeasureLock();  // Error (bad input) if none of the folders can be had
  ~MeasureLock();
  MeasureLock(const MeasureLock&) = delete;
  MeasureLock& operator=(const MeasureLock&) = delete;

 private:
  int file_ = -1;
};

}  // namespace tamp::cli
