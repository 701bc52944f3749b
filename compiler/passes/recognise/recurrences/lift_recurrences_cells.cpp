#include "compiler/passes/recognise/recurrences/lift_recurrences_cells.h"

#include <algorithm>
#include <utility>

#include "compiler/passes/recognise/recurrences/lift_recurrences_match.h"
#include "compiler/passes/view_strides.h"

namespace tamp::passes::lift {
namespace {

constexpr int kMaxViews = 256;  // of one value; a cell has about ten

bool moves_data(const OpAttrs& attrs) { return is_view(attrs) || std::holds_alternative<Concat>(attrs); }

class Finder : Source {
 public:
  explicit Finder(const Source& source) : Source(source), matcher_(source), taken_(graph_.rops.size()), is_inside_(graph_.rops.size()) {}

  std::vector<Cell> run() {
    for (size_t i = 0; i < graph_.rops.size(); ++i) {
      if (std::optional<Cell> lstm = matcher_.lstm_of(i)) {
        take(*std::move(lstm));
      } else if (std::optional<Cell> gru = matcher_.gru_of(i)) {
        take(*std::move(gru));
      }
    }
    for (size_t i = 0; i < graph_.rops.size(); ++i) {  // gates of the others look like plain cells
      if (taken_[i]) continue;
      if (std::optional<Cell> rnn = matcher_.rnn_of(i)) take(*std::move(rnn));
    }
    const auto maker = [&](const Cell& cell) { return uses_.producer[cell.h.index()]; };
    std::sort(cells_.begin(), cells_.end(), [&](const Cell& a, const Cell& b) { return maker(a) < maker(b); });
    return std::move(cells_);
  }

 private:
  void take(Cell cell) {
    std::sort(cell.inner.begin(), cell.inner.end());
    cell.inner.erase(std::unique(cell.inner.begin(), cell.inner.end()), cell.inner.end());
    if (!is_closed(cell)) return;
    for (const size_t i : cell.inner) taken_[i] = taken_[i] || !moves_data(graph_.rops[i].attrs);
    cells_.push_back(std::move(cell));
  }

  bool is_closed(const Cell& cell) {
    for (const size_t i : cell.inner) is_inside_[i] = true;
    const bool closed = std::all_of(cell.inner.begin(), cell.inner.end(), [&](size_t i) {
      const TensorId made = graph_.rops[i].outputs[0];
      if (taken_[i]) return false;
      return made == cell.h || made == cell.c || moves_data(graph_.rops[i].attrs) || !is_read_outside(graph_, uses_, made, is_inside_);
    });
    for (const size_t i : cell.inner) is_inside_[i] = false;
    return closed;
  }

  const Matcher matcher_;
  std::vector<bool> taken_, is_inside_;
  std::vector<Cell> cells_;
};

}  // namespace

bool is_read_outside(const Graph& graph, const Uses& uses, TensorId id, const std::vector<bool>& is_inside) {
  std::vector<TensorId> open = {id};
  for (int seen = 0; !open.empty(); ++seen) {
    const TensorId next = open.back();
    open.pop_back();
    if (uses.is_output[next.index()] || seen > kMaxViews) return true;
    for (const ROperatorId reader : uses.consumers[next.index()]) {
      if (is_inside[reader.index()]) continue;
      if (!moves_data(graph.rop(reader).attrs)) return true;
      open.push_back(graph.rop(reader).outputs[0]);
    }
  }
  return false;
}

std::vector<Cell> find_cells(const Source& source) { return Finder(source).run(); }

}  // namespace tamp::passes::lift
