// The cells of a Recurrent from text; graph_text.cpp reads everything around them.
#pragma once

#include "compiler/ir/recurrent.h"
#include "test/support/text_line.h"

namespace tamp::test {

// "[kind=LSTM steps=8 hidden=4 x=0 w=1 r=2 y=0]", as compiler/ir/print.cpp writes it.
RecurrentCell parse_cell(Line& line);

}  // namespace tamp::test
