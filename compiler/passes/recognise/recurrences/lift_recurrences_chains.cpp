#include "compiler/passes/recognise/recurrences/lift_recurrences_chains.h"

#include <algorithm>
#include <unordered_map>

namespace tamp::passes::lift {
namespace {

class Linker : Source {
 public:
  Linker(const Source& source, const std::vector<Cell>& cells)
      : Source(source), cells_(cells), links_(cells.size()), is_inside_(graph_.rops.size()) {}

  std::vector<Chain> run() {
    for (size_t i = 0; i < cells_.size(); ++i) {
      link(i);
      by_h_[cells_[i].h.index()] = i;
      if (cells_[i].c.valid()) by_c_[cells_[i].c.index()] = i;
    }
    std::vector<Chain> chains;
    for (size_t i = 0; i < cells_.size(); ++i) {
      if (!links_[i].has_before && links_[i].next && !links_[i].roles.inputs.empty()) chains.push_back(chain_from(i));
    }
    return chains;
  }

 private:
  struct Link {
    bool has_before = false, has_roles = false;
    std::optional<size_t> next;
    Roles roles;
  };

  Chain chain_from(size_t first) {
    Chain chain;
    for (std::optional<size_t> i = first; i; i = links_[*i].next) {
      chain.cells.push_back(*i);
      chain.roles.push_back(links_[*i].roles);
    }
    mark(chain, true);
    for (const size_t i : chain.cells) {
      chain.is_cut.push_back(cells_[i].c.valid() && is_read_outside(graph_, uses_, cells_[i].c, is_inside_));
    }
    mark(chain, false);
    cut_at_inputs(chain);
    return chain;
  }

  void mark(const Chain& chain, bool is_inside) {
    for (const size_t i : chain.cells) {
      for (const size_t rop : cells_[i].inner) is_inside_[rop] = is_inside;
    }
  }

  // Cell states that the chain itself reads as an input.
  void cut_at_inputs(Chain& chain) const {
    std::unordered_map<size_t, size_t> steps;
    for (size_t t = 0; t < chain.cells.size(); ++t) {
      for (const size_t p : chain.roles[t].inputs) {
        const auto made = steps.find(cells_[chain.cells[t]].parts[p].operand.root.index());
        if (made != steps.end()) chain.is_cut[made->second] = true;
      }
      if (cells_[chain.cells[t]].c.valid()) steps[cells_[chain.cells[t]].c.index()] = t;
    }
  }

  void link(size_t i) {
    const Cell& cell = cells_[i];
    if (cell.kind == CellKind::rnn) {
      for (size_t p = 0; p < cell.parts.size(); ++p) {
        const auto before = by_h_.find(cell.parts[p].operand.root.index());
        if (before != by_h_.end() && link(i, before->second)) return;
      }
      return;
    }
    const auto& made = cell.kind == CellKind::lstm ? by_c_ : by_h_;
    const TensorId state = cell.kind == CellKind::lstm ? cell.c_before : cell.h_before;
    if (!state.valid()) return;
    const auto before = made.find(views_.whole_of(state).index());
    if (before != made.end()) link(i, before->second);
  }

  // Links step `i` behind step `b` if the two are neighbours in a chain.
  bool link(size_t i, size_t b) {
    const Cell &cell = cells_[i], &before = cells_[b];
    Link &made = links_[i], &from = links_[b];
    if (from.next || cell.kind != before.kind || cell.functions != before.functions || cell.batch != before.batch ||
        cell.hidden != before.hidden || cell.linear_before_reset != before.linear_before_reset || !same_bias(cell, before)) {
      return false;
    }
    Roles roles;
    for (size_t p = 0; p < cell.parts.size(); ++p) {
      if (cell.parts[p].operand == all_rows(graph_, before.h)) {
        roles.state = p;
      } else {
        roles.inputs.push_back(p);
      }
    }
    if (!roles.state || roles.inputs.empty()) return false;
    const std::optional<Roles> earlier = roles_like(cell, roles, before, from);
    if (!earlier) return false;
    from.roles = *earlier;
    from.has_roles = made.has_roles = true;
    from.next = i;
    made.roles = roles;
    made.has_before = true;
    return true;
  }

  bool same_bias(const Cell& a, const Cell& b) const {
    for (size_t g = 0; g < static_cast<size_t>(gates_of(a.kind)); ++g) {
      const bool is_left_out = a.kind == CellKind::lstm && g == 2 && !(a.has_forget_gate && b.has_forget_gate);
      if (!is_left_out && !constants_.same(a.bias[g], b.bias[g])) return false;
    }
    return constants_.same(a.inner_bias, b.inner_bias);
  }

  bool same_blocks(const Part& a, const Part& b) const {
    for (size_t g = 0; g < a.blocks.size(); ++g) {
      if (a.blocks[g] && b.blocks[g] && !constants_.same(*a.blocks[g], *b.blocks[g])) return false;
    }
    return a.blocks[0] && b.blocks[0] && a.operand.cols == b.operand.cols;
  }

  // The roles of the parts of the step before: known if that step was linked already; for the first step found by the weights.
  std::optional<Roles> roles_like(const Cell& cell, const Roles& roles, const Cell& before, const Link& from) const {
    if (from.has_roles) {
      const Roles& known = from.roles;
      if (known.inputs.size() != roles.inputs.size() || !known.state) return std::nullopt;
      if (!same_blocks(cell.parts[*roles.state], before.parts[*known.state])) return std::nullopt;
      for (size_t p = 0; p < roles.inputs.size(); ++p) {
        if (!same_blocks(cell.parts[roles.inputs[p]], before.parts[known.inputs[p]])) return std::nullopt;
      }
      return known;
    }
    Roles found;
    std::vector<bool> is_used(before.parts.size(), false);
    const auto take = [&](const Part& like) -> std::optional<size_t> {
      for (size_t p = 0; p < before.parts.size(); ++p) {
        if (is_used[p] || !same_blocks(like, before.parts[p])) continue;
        is_used[p] = true;
        return p;
      }
      return std::nullopt;
    };
    for (const size_t p : roles.inputs) {
      const std::optional<size_t> input = take(cell.parts[p]);
      if (!input) return std::nullopt;
      found.inputs.push_back(*input);
    }
    found.state = take(cell.parts[*roles.state]);
    if (std::find(is_used.begin(), is_used.end(), false) != is_used.end()) return std::nullopt;
    return is_initial_state(before, found.state) ? std::optional(found) : std::nullopt;
  }

  bool is_initial_state(const Cell& cell, std::optional<size_t> state) const {
    if (state && !cell.parts[*state].tensor.valid()) return false;
    if (cell.kind != CellKind::gru) return true;
    if (!state) return !cell.h_before.valid();
    return cell.h_before.valid() && cell.parts[*state].operand == views_.rows_of(cell.h_before);
  }

  const std::vector<Cell>& cells_;
  std::vector<Link> links_;
  std::vector<bool> is_inside_;
  std::unordered_map<size_t, size_t> by_h_, by_c_;  // cells by what they make
};

}  // namespace

std::vector<Chain> chains_of(const Source& source, const std::vector<Cell>& cells) { return Linker(source, cells).run(); }

}  // namespace tamp::passes::lift
