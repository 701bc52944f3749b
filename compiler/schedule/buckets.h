// Programs of several buckets (RProgram::smaller): one context of the API has all of them, and runs one at a time, in the order of its
// stream. So they use the same memory, but for what must stay as it was from one run of a program to its next.
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/rprogram.h"
#include "compiler/select/select.h"
#include "kernels/catalogue.h"

namespace tamp::schedule {

// Gives `program` and `program.smaller` one arena and one weights file, whose bytes all of them have as their own.
void share_memory(RProgram& program, const select::Families& families = kernels::families());

// For each program whose exchange or words another one may overwrite: a sentence. A reader would take the other's number for a word's
// epoch.
std::vector<std::string> verify_apart(const RProgram& program);

}  // namespace tamp::schedule
