// Loop and If whose trip counts or conditions are known only at run time: a LoopBegin, the body, a LoopEnd (docs/adr/0050).
#pragma once

#include "compiler/frontend/node_import.h"

namespace tamp::frontend {

void import_run_time_if(NodeImport& n);
void import_run_time_loop(NodeImport& n);

}  // namespace tamp::frontend
