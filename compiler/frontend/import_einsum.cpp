// Einsum, operand by operand. For each operand: take the diagonals of repeated indices, sum over indices that nothing else reads, then
// multiply by the product of the operands before, as a MatMul if an index is summed over, else elementwise.
//
// Indices are numbers: a letter is its character, and the dimensions that an ellipsis stands for are kEllipsis + their distance from the
// ellipsis' end, so that operands' ellipses align at their ends as numpy's broadcasting does.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "compiler/frontend/importers.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

constexpr int kEllipsis = 256;
using Indices = std::vector<int>;

bool contains(const Indices& indices, int index) { return std::find(indices.begin(), indices.end(), index) != indices.end(); }

// A tensor with the index of each of its dimensions.
struct Term {
  TensorId id;
  Indices indices;
};

struct Parsed {
  std::vector<std::string> inputs;  // an ellipsis is one '.'
  std::optional<std::string> output;
};

Parsed parse(const NodeImport& n, const std::string& equation) {
  std::string text;
  const auto bad = [&](const std::string& why) { return n.bad("attribute 'equation' is '{}': {}", printable(equation), why); };
  for (size_t i = 0; i < equation.size(); ++i) {
    const char c = equation[i];
    if (c == ' ') continue;
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (is_letter || c == ',') {
      text += c;
    } else if (equation.compare(i, 3, "...") == 0) {
      text += '.';
      i += 2;
    } else if (equation.compare(i, 2, "->") == 0) {
      text += '>';
      ++i;
    } else {
      throw bad(fmt::format("'{}' is no letter, comma, ellipsis, or arrow", printable(std::string(1, c))));
    }
  }
  Parsed parsed;
  const size_t arrow = text.find('>');
  if (arrow != std::string::npos) {
    parsed.output = text.substr(arrow + 1);
    if (parsed.output->find_first_of(">,") != std::string::npos) throw bad("more than one output");
  }
  std::string rest = text.substr(0, arrow);
  for (size_t comma = rest.find(','); comma != std::string::npos; comma = rest.find(',')) {
    parsed.inputs.push_back(rest.substr(0, comma));
    rest.erase(0, comma + 1);
  }
  parsed.inputs.push_back(rest);
  for (const std::string& term : parsed.inputs) {
    if (std::count(term.begin(), term.end(), '.') > 1) throw bad("an operand has more than one ellipsis");
  }
  return parsed;
}

class Einsum {
 public:
  explicit Einsum(NodeImport& n) : n_(n), equation_(n.attr_string("equation", "")) {}

  TensorId run() {
    const Parsed parsed = parse(n_, equation_);
    if (parsed.inputs.size() != n_.input_count())
      throw bad(fmt::format("it has {} operands, the node has {} inputs", parsed.inputs.size(), n_.input_count()));
    std::vector<Term> terms;
    for (size_t i = 0; i < parsed.inputs.size(); ++i) terms.push_back(term_of(parsed.inputs[i], i));
    output_ = parsed.output ? explicit_output(*parsed.output) : implicit_output(parsed);
    for (size_t i = 0; i < terms.size(); ++i) terms[i] = diagonals(terms[i]);
    Term result = terms[0];
    for (size_t i = 1; i < terms.size(); ++i) {
      Indices later = output_;
      for (size_t k = i + 1; k < terms.size(); ++k) later.insert(later.end(), terms[k].indices.begin(), terms[k].indices.end());
      result = product(result, terms[i], later);
    }
    result = sum_out(result, output_);
    return arranged(result, output_);
  }

 private:
  Error bad(const std::string& why) const { return n_.bad("attribute 'equation' is '{}': {}", printable(equation_), why); }

  static std::string name_of_index(int index) {
    return index >= kEllipsis ? "the ellipsis" : fmt::format("'{}'", static_cast<char>(index));
  }

  // Notes the extents; an extent of 1 is repeated to what others say.
  Term term_of(const std::string& text, size_t number) {
    Term term{n_.in(number), {}};
    const Shape shape = n_.shape(term.id);
    const bool has_ellipsis = text.find('.') != std::string::npos;
    const size_t letters = text.size() - (has_ellipsis ? 1 : 0);
    if (letters > shape.size() || (letters < shape.size() && !has_ellipsis))
      throw bad(fmt::format("operand '{}' does not fit input {} of shape {}", text, number, shape_text(shape)));
    const size_t hidden = shape.size() - letters;
    ellipsis_ = std::max(ellipsis_, hidden);
    for (const char c : text) {
      if (c != '.') term.indices.push_back(c);
      for (size_t k = hidden; c == '.' && k > 0; --k) term.indices.push_back(kEllipsis + static_cast<int>(k) - 1);
    }
    for (size_t d = 0; d < shape.size(); ++d) {
      int64_t& extent = extents_.try_emplace(term.indices[d], 1).first->second;
      if (extent == 1) extent = shape[d];
      if (shape[d] == 1 || shape[d] == extent) continue;
      throw bad(fmt::format("index {} has extents {} and {}", name_of_index(term.indices[d]), extent, shape[d]));
    }
    return term;
  }

  Indices ellipsis_indices() const {
    Indices indices;
    for (size_t k = ellipsis_; k > 0; --k) indices.push_back(kEllipsis + static_cast<int>(k) - 1);
    return indices;
  }

  Indices explicit_output(const std::string& text) const {
    Indices indices;
    bool has_ellipsis = false;
    for (const char c : text) {
      if (c == '.') {
        if (has_ellipsis) throw bad("the output has more than one ellipsis");
        has_ellipsis = true;
        const Indices hidden = ellipsis_indices();
        indices.insert(indices.end(), hidden.begin(), hidden.end());
        continue;
      }
      if (!extents_.contains(c)) throw bad(fmt::format("index {} of the output is in no operand", name_of_index(c)));
      if (contains(indices, c)) throw bad(fmt::format("index {} is twice in the output", name_of_index(c)));
      indices.push_back(c);
    }
    if (ellipsis_ > 0 && !has_ellipsis) throw bad("an operand has an ellipsis, the output has none");
    return indices;
  }

  // The ellipsis, then the letters that are there once, in the order of their characters.
  Indices implicit_output(const Parsed& parsed) const {
    std::map<char, int> counts;
    for (const std::string& term : parsed.inputs) {
      for (const char c : term) {
        if (c != '.') ++counts[c];
      }
    }
    Indices indices = ellipsis_indices();
    for (const auto& [c, count] : counts) {
      if (count == 1) indices.push_back(c);
    }
    return indices;
  }

  TensorId transposed(TensorId id, const Ints& perm) {
    for (size_t d = 0; d < perm.size(); ++d) {
      if (perm[d] != static_cast<int64_t>(d)) return n_.add(Transpose{perm}, {id});
    }
    return id;
  }

  // Takes the diagonal x[.., i, .., i, ..] of every index that appears twice: both dimensions are moved to the end and joined to one, of
  // which every (extent + 1)th element is taken. With extent 3: elements 0, 4, 8 of 9.
  Term diagonals(Term term) {
    for (size_t d = 0; d < term.indices.size(); ++d) {
      const auto other = std::find(term.indices.begin() + static_cast<std::ptrdiff_t>(d) + 1, term.indices.end(), term.indices[d]);
      if (other == term.indices.end()) continue;
      const auto e = static_cast<size_t>(other - term.indices.begin());
      Shape shape = n_.shape(term.id);
      if (shape[d] != shape[e])
        throw bad(fmt::format("index {} has extents {} and {}", name_of_index(term.indices[d]), shape[d], shape[e]));
      Ints perm;
      Term next{term.id, {}};
      Shape joined;
      for (size_t k = 0; k < shape.size(); ++k) {
        if (k == d || k == e) continue;
        perm.push_back(static_cast<int64_t>(k));
        next.indices.push_back(term.indices[k]);
        joined.push_back(shape[k]);
      }
      perm.insert(perm.end(), {static_cast<int64_t>(d), static_cast<int64_t>(e)});
      next.indices.push_back(term.indices[d]);
      const int64_t extent = shape[d];
      joined.push_back(extent * extent);
      next.id = n_.reshape(transposed(term.id, perm), joined);
      if (extent > 1) {
        Slice slice = whole_slice(joined);
        slice.steps.back() = extent + 1;
        slice.extents.back() = extent;
        next.id = n_.add(slice, {next.id});
      }
      return diagonals(next);
    }
    return term;
  }

  // Sums over the indices that are not among `kept`.
  Term sum_out(const Term& term, const Indices& kept) {
    Reduce reduce{ReduceKind::sum, {}, /*keepdims=*/false};
    Term result{term.id, {}};
    int64_t repeats = 1;  // of a dimension of extent 1 that other operands repeat
    for (size_t d = 0; d < term.indices.size(); ++d) {
      if (contains(kept, term.indices[d])) {
        result.indices.push_back(term.indices[d]);
        continue;
      }
      reduce.axes.push_back(static_cast<int64_t>(d));
      if (n_.shape(term.id)[d] != extents_.at(term.indices[d])) repeats *= extents_.at(term.indices[d]);
    }
    if (reduce.axes.empty()) return term;
    TAMP_CHECK(repeats == 1, "an index is summed over before it is repeated");
    result.id = n_.add(reduce, {term.id});
    return result;
  }

  // The term with its dimensions in the order of `indices`, extent 1 where it lacks an index; with `repeat`, repeated to the extents of the
  // other operands.
  TensorId arranged(const Term& term, const Indices& indices, bool repeat = true) {
    Ints perm;
    Shape shape, whole;
    for (const int index : indices) {
      const auto found = std::find(term.indices.begin(), term.indices.end(), index);
      if (found != term.indices.end()) perm.push_back(found - term.indices.begin());
      shape.push_back(found == term.indices.end() ? 1 : n_.shape(term.id)[static_cast<size_t>(found - term.indices.begin())]);
      whole.push_back(found == term.indices.end() && !repeat ? 1 : extents_.at(index));
    }
    if (shape.size() > kMaxRank) throw n_.refuse("a product of {} dimensions, supported: up to {}", shape.size(), kMaxRank);
    const TensorId laid = n_.reshape(transposed(term.id, perm), shape);
    return repeat ? n_.expand(laid, whole) : laid;
  }

  int64_t extent_of(const Indices& indices) const {
    int64_t product = 1;
    for (const int index : indices) product *= extents_.at(index);
    return product;
  }

  // a times b, summed over the indices that are not among `later`.
  Term product(Term a, Term b, const Indices& later) {
    Indices of_a = later, of_b = later;
    of_a.insert(of_a.end(), b.indices.begin(), b.indices.end());
    of_b.insert(of_b.end(), a.indices.begin(), a.indices.end());
    a = sum_out(a, of_a);
    b = sum_out(b, of_b);
    Indices batch, rows, columns, summed;
    for (const int index : a.indices) {
      if (!contains(b.indices, index))
        rows.push_back(index);
      else
        (contains(later, index) ? batch : summed).push_back(index);
    }
    for (const int index : b.indices) {
      if (!contains(a.indices, index)) columns.push_back(index);
    }
    const auto join = [](std::initializer_list<Indices> parts) {
      Indices all;
      for (const Indices& part : parts) all.insert(all.end(), part.begin(), part.end());
      return all;
    };
    const Indices result = join({batch, rows, columns});
    if (summed.empty()) {
      return {n_.elementwise(ElementwiseOp::mul, {arranged(a, result, /*repeat=*/false), arranged(b, result, /*repeat=*/false)}), result};
    }
    Shape shape, a_shape, b_shape;
    for (const int index : batch) shape.push_back(extents_.at(index));
    a_shape = b_shape = shape;
    a_shape.insert(a_shape.end(), {extent_of(rows), extent_of(summed)});
    b_shape.insert(b_shape.end(), {extent_of(summed), extent_of(columns)});
    const TensorId left = n_.reshape(arranged(a, join({batch, rows, summed})), a_shape);
    const TensorId right = n_.reshape(arranged(b, join({batch, summed, columns})), b_shape);
    for (const int index : join({rows, columns})) shape.push_back(extents_.at(index));
    return {n_.reshape(matrix_product(n_, left, right), shape), result};
  }

  NodeImport& n_;
  std::string equation_;
  std::map<int, int64_t> extents_;
  size_t ellipsis_ = 0;  // dimensions that it stands for
  Indices output_;
};

}  // namespace

void import_einsum(NodeImport& n) {
  n.expect_counts(1, 64);
  std::vector<TensorId> operands;
  for (size_t i = 0; i < n.input_count(); ++i) operands.push_back(n.in(i));
  n.expect_number(operands);
  n.result(0, Einsum(n).run());
}

}  // namespace tamp::frontend
