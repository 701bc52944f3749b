#include "test/support/cell_text.h"

#include <map>

namespace tamp::test {
namespace {

CellKind parse_cell_kind(Line& line) {
  const std::string word = line.name();
  for (const CellKind kind : {CellKind::lstm, CellKind::gru, CellKind::rnn}) {
    if (word == name_of(kind)) return kind;
  }
  line.fail("a kind of cell, not '" + word + "'");
}

CellFunction parse_cell_function(Line& line) {
  for (int i = 0; i <= static_cast<int>(CellFunctionKind::softplus); ++i) {
    CellFunction function{static_cast<CellFunctionKind>(i)};
    if (!line.take(std::string(name_of(function.kind)) + ":")) continue;
    function.a = static_cast<float>(line.number());
    line.expect(":");
    function.b = static_cast<float>(line.number());
    return function;
  }
  line.fail("a function of a cell");
}

}  // namespace

RecurrentCell parse_cell(Line& line) {
  RecurrentCell cell;
  const std::map<std::string, int32_t*> places = {{"x", &cell.x},
                                                  {"x_cell", &cell.x_cell},
                                                  {"w", &cell.w},
                                                  {"r", &cell.r},
                                                  {"bias", &cell.bias},
                                                  {"h0_cell", &cell.h0_cell},
                                                  {"h0", &cell.h0},
                                                  {"c0", &cell.c0},
                                                  {"lengths", &cell.lengths},
                                                  {"c0_cell", &cell.c0_cell},
                                                  {"y", &cell.y},
                                                  {"y_h", &cell.y_h},
                                                  {"y_c", &cell.y_c},
                                                  {"peepholes", &cell.peepholes}};
  const std::map<std::string, bool*> flags = {{"reverse", &cell.reverse},
                                              {"linear_before_reset", &cell.linear_before_reset},
                                              {"input_forget", &cell.input_forget},
                                              {"x_is_gates", &cell.x_is_gates}};
  line.expect("[");
  while (!line.take("]")) {
    const std::string key = line.name();
    line.expect("=");
    if (const auto place = places.find(key); place != places.end()) {
      *place->second = static_cast<int32_t>(line.integer());
    } else if (const auto flag = flags.find(key); flag != flags.end()) {
      *flag->second = line.integer() != 0;
    } else if (key == "kind") {
      cell.kind = parse_cell_kind(line);
      cell.functions = default_functions(cell.kind);
    } else if (key == "steps") {
      cell.steps = line.integer();
    } else if (key == "hidden") {
      cell.hidden = line.integer();
    } else if (key == "clip") {
      cell.clip = static_cast<float>(line.number());
    } else if (key == "functions") {
      for (size_t i = 0; i < cell.functions.size(); ++i) {
        if (i > 0) line.expect("/");
        cell.functions[i] = parse_cell_function(line);
      }
    } else {
      line.fail("a part of a cell, not '" + key + "'");
    }
  }
  return cell;
}

}  // namespace tamp::test
