// Several `tamp tune` processes of one user take turns in measuring.
#pragma once

namespace tamp::cli {

// Held while something is measured, or the file of records is written. The lock is in a folder of the user's own, so that no other user can
// hold it or prevent it: in $XDG_RUNTIME_DIR, in the folder tamp-UID where temporary files go, or in ~/.cache/tamp. Other programs on the
// same GPU are not kept away.
class MeasureLock {
 public:
  MeasureLock();  // Error (bad input) if none of the folders can be used
  ~MeasureLock();
  MeasureLock(const MeasureLock&) = delete;
  MeasureLock& operator=(const MeasureLock&) = delete;

 private:
  int file_ = -1;
};

}  // namespace tamp::cli
