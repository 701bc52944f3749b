// Loop, Scan and If whose trip counts or conditions are known only at run time: a LoopBegin, the body, a LoopEnd (docs/adr/0050).
#pragma once

#include "compiler/frontend/node_import.h"

namespace tamp::frontend {

void import_run_time_if(NodeImport& n);
void import_run_time_loop(NodeImport& n);

// The attributes of a Scan, checked.
struct ScanForm {
  size_t states = 0, stacked = 0;
  int64_t steps = -1;
  Ints axes, output_axes;                // of the inputs and outputs that are taken apart; those of the latter as the model has them
  std::vector<bool> backward, in_front;  // whether they are taken, and put, from the end on
};
void import_run_time_scan(NodeImport& n, const ScanForm& scan);

}  // namespace tamp::frontend
