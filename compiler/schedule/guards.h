// Which rTasks have nothing to do in a run of a smaller length (docs/adr/0049-lengths.md): those whose results lie behind an end of their
// tensors (Tensor::ends), where nothing is needed. They wait and signal as always, so all that is proved of order holds for every length.
#pragma once

#include "compiler/ir/rprogram.h"
#include "compiler/select/select.h"

namespace tamp::schedule {

// Sets RProgram::guards and RProgram::extents. Does nothing without lengths.
void set_guards(RProgram& program, const select::Families& families);

}  // namespace tamp::schedule
