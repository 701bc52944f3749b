// Recurrent rOperators with values, for recurrent_bench.h.
#pragma once

#include <cmath>

#include "test/kernels/light_cases.h"

namespace tamp::test {

// One network: cells are added one after the other.
class RecurrentMaker {
 public:
  RecurrentMaker(std::string name, int64_t batch) : maker_(std::move(name)) { recurrent_.batch = batch; }

  struct Sizes {
    CellKind kind;
    int64_t steps, input, hidden;
  };
  struct Links {
    int32_t x_cell = -1, h0_cell = -1, c0_cell = -1;
    bool initial = false, x_is_gates = false, bias = true, results = true;
  };

  // A cell with the usual functions; `change` may make it another.
  template <class Change>
  RecurrentMaker& cell(const Sizes& s, const Links& links, const Change& change) {
    const int64_t rows = gates_of(s.kind) * s.hidden, batch = recurrent_.batch;
    const float scale = 1.0F / std::sqrt(static_cast<float>(s.hidden));
    RecurrentCell cell;
    cell.kind = s.kind;
    cell.steps = s.steps;
    cell.hidden = s.hidden;
    cell.linear_before_reset = s.kind == CellKind::gru;
    cell.functions = default_functions(s.kind);
    cell.x_is_gates = links.x_is_gates;
    cell.x_cell = links.x_cell;
    maker_.set_range(-1, 1);
    if (links.x_cell < 0) cell.x = add(maker_.input({s.steps, batch, links.x_is_gates ? rows : s.input}));
    cell.h0_cell = links.h0_cell;
    cell.c0_cell = links.c0_cell;
    if (links.initial && links.h0_cell < 0) cell.h0 = add(maker_.input({batch, s.hidden}));
    if (links.initial && links.c0_cell < 0 && s.kind == CellKind::lstm) cell.c0 = add(maker_.input({batch, s.hidden}));
    maker_.set_range(-2 * scale, 2 * scale);
    if (!links.x_is_gates) cell.w = add(maker_.constant({rows, s.input}));
    cell.r = add(maker_.constant({rows, s.hidden}));
    if (links.bias) cell.bias = add(maker_.constant({2 * rows}));
    if (links.results) {
      cell.y = result({s.steps, batch, s.hidden});
      cell.y_h = result({batch, s.hidden});
      if (s.kind == CellKind::lstm) cell.y_c = result({batch, s.hidden});
    }
    change(*this, cell);
    recurrent_.cells.push_back(cell);
    return *this;
  }
  RecurrentMaker& cell(const Sizes& s, const Links& links) {
    return cell(s, links, [](RecurrentMaker&, RecurrentCell&) {});
  }

  int32_t add(TensorId id) {
    inputs_.push_back(id);
    return static_cast<int32_t>(inputs_.size() - 1);
  }
  int32_t result(const Shape& shape, Lay lay = Lay::rows) {
    outputs_.push_back(maker_.output(shape, lay));
    return static_cast<int32_t>(outputs_.size() - 1);
  }
  int32_t lengths(const std::vector<int32_t>& values) {
    std::vector<float> bits(values.size());
    std::memcpy(bits.data(), values.data(), values.size() * 4);
    lengths_.push_back(maker_.input({static_cast<int64_t>(values.size())}, Lay::rows, bits));
    return add(lengths_.back());
  }
  CaseMaker& maker() { return maker_; }

  Case finish() {
    Case made = maker_.finish(recurrent_, inputs_, outputs_.at(0));
    made.graph.rops[0].outputs = outputs_;
    made.graph.outputs = outputs_;
    for (const TensorId id : lengths_) {
      made.graph.tensor(id).dtype = DType::i32;
      made.graph.buffers[made.graph.tensor(id).place.buffer.index()].dtype = DType::i32;
      made.values[id.index()].dtype = DType::i32;
    }
    return made;
  }

 private:
  CaseMaker maker_;
  Recurrent recurrent_;
  std::vector<TensorId> inputs_, outputs_, lengths_;
};

}  // namespace tamp::test
