// Which rTasks have nothing to do in a run of a smaller length (docs/adr/0049-lengths.md): those whose results lie behind an end of their
// tensors (Tensor::ends), where nothing is needed. They wait and signal as always, so all that is proved of order holds for every length.
#pragma once

#include "compiler/ir/rprogram.h"
#include "compiler/select/select.h"

namespace tamp::schedule {

// Sets RProgram::guards and RProgram::extents. Does nothing without lengths.
void set_guards(RProgram& program, const select::Families& families);

// Where the rTask's results begin along the axis: no element that it writes lies before that coordinate. Tensors without that axis, and
// results that the scratch of a later phase stands between, are begun at 0.
int64_t first_coordinate(const Tensor& tensor, const Run& run, int64_t dim);

}  // namespace tamp::schedule
