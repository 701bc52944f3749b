#include "compiler/frontend/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>

#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

constexpr const char* kHint = "say so in the file of --generate (docs/howto/generate.md)";

// Inputs as exporters call them. A number is what is added to the token's position, from 0.
using Positions = std::map<std::string, int64_t>;
const Positions kPositions = {
    {"position_ids", 0},         {"positions", 0},   {"position", 0},    {"pos", 0}, {"cache_position", 0}, {"write_indices", 0},
    {"past_sequence_length", 0}, {"past_length", 0}, {"past_seq_len", 0}};
const Positions kEnds = {
    {"seqlens_k", 0}, {"nonpad_kv_seqlen", 1}, {"total_sequence_length", 1}, {"total_length", 1}, {"total_seq_len", 1}};
const std::set<std::string> kTokens = {"input_ids", "decoder_input_ids", "ids", "token", "tokens", "token_id", "token_ids"};
const std::set<std::string> kScores = {"logits", "scores", "lm_logits"};
const std::set<std::string> kMasks = {"attention_mask", "mask", "padding_mask"};

// What of a name is the same for a cache that is read and the one that is written: "past_key_values.3.key" and "present.3.key" are
// "3.key", "key_cache_0" and "new_key_cache_0" are "key.0".
std::string stem_of(const std::string& name) {
  static const std::set<std::string> directions = {"past",   "present", "old",  "new",  "in",       "out",     "input",
                                                   "output", "prev",    "next", "last", "previous", "current", "updated"};
  static const std::set<std::string> kinds = {"cache", "caches", "kv", "state", "states"};
  std::vector<std::string> words(1);
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else if (!words.back().empty())
      words.emplace_back();
  }
  std::vector<std::string> kept, kind;
  for (size_t i = 0; i < words.size(); ++i) {
    const bool is_group = i + 1 < words.size() && words[i] == "key" && (words[i + 1] == "values" || words[i + 1] == "value");
    if (is_group) ++i;
    if (is_group || words[i].empty() || directions.contains(words[i])) continue;
    (kinds.contains(words[i]) ? kind : kept).push_back(words[i]);
  }
  return join(kept.empty() ? kind : kept, ".");
}

class GenerationFinder {
 public:
  GenerationFinder(Graph& graph, const GenerationRequest& request) : graph_(graph), request_(request) {}

  Generation run() {
    taken_.assign(graph_.inputs.size(), false);
    for (const std::string& name : request_.held) take(input_named(name));
    find_token();
    find_positions();
    find_masks();
    find_feeds();
    for (size_t i = 0; i < taken_.size(); ++i) {
      if (!taken_[i]) throw unsupported("input '{}': has no part in making tokens that is known; {}", printable(input(i).name), kHint);
    }
    require_constant_shapes();
    find_scores();
    set_places();
    out_.stops = request_.stops;
    for (const int64_t stop : out_.stops) {
      if (stop < 0 || stop >= out_.words)
        throw bad_input("--generate: token {} that ends the text is not below the {} words", stop, out_.words);
    }
    append_draw();
    return std::move(out_);
  }

 private:
  const Tensor& input(size_t i) const { return graph_.tensor(graph_.inputs[i]); }
  const Tensor& output(size_t i) const { return graph_.tensor(graph_.outputs[i]); }
  size_t port_named(const std::vector<TensorId>& ports, const char* what, const std::string& name) const {
    for (size_t i = 0; i < ports.size(); ++i) {
      if (graph_.tensor(ports[i]).name == name) return i;
    }
    throw bad_input("--generate: the model has no {} '{}'", what, printable(name));
  }
  size_t input_named(const std::string& name) const { return port_named(graph_.inputs, "input", name); }
  size_t output_named(const std::string& name) const { return port_named(graph_.outputs, "output", name); }

  void take(size_t i) {
    if (taken_[i]) throw bad_input("--generate: input '{}' has two parts in making tokens", printable(input(i).name));
    taken_[i] = true;
  }
  void add(const Advanced& advanced) {
    take(static_cast<size_t>(advanced.input));
    out_.inputs.push_back(advanced);
  }
  const LengthAxes& axes(size_t i) const {
    static const LengthAxes none;
    return i < graph_.input_axes.size() ? graph_.input_axes[i] : none;
  }
  // Integers, one or in a row.
  bool is_row(size_t i) const {
    const Shape& shape = input(i).shape;
    return is_integer(input(i).dtype) && element_count(shape) == (shape.empty() ? 1 : shape.back());
  }
  bool is_one_integer(size_t i) const { return is_row(i) && element_count(input(i).shape) == 1; }
  bool is_known(const std::string& name) const {
    return kPositions.contains(name) || kEnds.contains(name) || kMasks.contains(name) || request_.positions.contains(name) ||
           request_.ends.contains(name) || request_.masks.contains(name);
  }

  void find_token() {
    std::vector<size_t> found;
    if (!request_.token.empty()) {
      found = {input_named(request_.token)};
    } else {
      for (size_t i = 0; i < graph_.inputs.size(); ++i) {
        if (!taken_[i] && kTokens.contains(input(i).name)) found.push_back(i);
      }
      for (size_t i = 0; i < graph_.inputs.size() && found.empty(); ++i) {
        if (!taken_[i] && (is_one_integer(i) || !axes(i).empty()) && is_row(i) && !is_known(input(i).name)) found.push_back(i);
      }
    }
    if (found.size() != 1) throw unsupported("--generate: which input is the token's number is not clear; {}", kHint);
    const size_t token = found[0];
    if (!is_row(token) || axes(token).size() > 1)
      throw unsupported("input '{}' {}{}: is the token, supported: the number of one, or of several of one text",
                        printable(input(token).name), name_of(input(token).dtype), shape_text(input(token).shape));
    out_.rows = element_count(input(token).shape);
    if (!axes(token).empty()) out_.length = axes(token)[0].extent.length;
    rows_ = axes(token).empty() ? std::nullopt : std::optional(axes(token)[0].extent);
    add({static_cast<int64_t>(token), Advance::token, 0, 0, is_each(token)});
  }

  // Whether the input has an element for each token of a run, which may have several.
  bool is_each(size_t i) const {
    return !out_.is_step() && is_row(i) && element_count(input(i).shape) == out_.rows &&
           (axes(i).empty() ? !rows_ : axes(i).size() == 1 && axes(i)[0].extent == rows_);
  }

  void find_positions() {
    add_positions(request_.positions, kPositions, /*is_last=*/false);
    add_positions(request_.ends, kEnds, /*is_last=*/true);
  }
  void add_positions(Positions positions, const Positions& known, bool is_last) {
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      const std::string& name = input(i).name;
      if (!taken_[i] && known.contains(name) && !request_.positions.contains(name) && !request_.ends.contains(name))
        positions.emplace(*known.find(name));
    }
    for (const auto& [name, plus] : positions) {
      const size_t i = input_named(name);
      if (!is_one_integer(i) && !is_each(i))
        throw unsupported("input '{}' {}{}: is a position, supported: an integer{}", printable(name), name_of(input(i).dtype),
                          shape_text(input(i).shape), out_.is_step() ? "" : ", or one for each token of a run");
      const bool is_end = is_last || kEnds.contains(name);
      if (!out_.is_step() && !is_each(i) && !is_end && plus != 0)
        throw unsupported("input '{}': is one integer for several tokens of a run, the position {:+}; supported: of the first, {}",
                          printable(name), plus, "or in \"ends\", of the last (docs/howto/generate.md)");
      add({static_cast<int64_t>(i), Advance::position, 0, plus, is_each(i), is_end});
    }
  }

  void find_masks() {
    std::set<std::string> masks = request_.masks;
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      const bool is_mask = kMasks.contains(input(i).name) && !is_float(input(i).dtype);
      if (!taken_[i] && is_mask) masks.insert(input(i).name);
    }
    for (const std::string& name : masks) {
      const size_t i = input_named(name);
      const Shape& shape = input(i).shape;
      if (shape.empty() || element_count(shape) != shape.back())
        throw unsupported("input '{}' {}: is a mask, supported: one element for each place", printable(name), shape_text(shape));
      note_places(shape.back());
      add({static_cast<int64_t>(i), Advance::mark_position});
    }
  }

  // Of what changes from run to run nothing has other extents than the tokens, and of what each call gives nothing has theirs.
  void require_constant_shapes() const {
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      const bool is_of_rows = std::any_of(out_.inputs.begin(), out_.inputs.end(), [&](const Advanced& advanced) {
        return advanced.input == static_cast<int64_t>(i) && advanced.is_each;
      });
      const bool is_held =
          request_.held.contains(input(i).name) &&
          std::none_of(axes(i).begin(), axes(i).end(), [&](const LengthAxis& axis) { return axis.extent.length == out_.length; });
      if (axes(i).empty() || is_of_rows || is_held) continue;
      const std::string& length = graph_.lengths[static_cast<size_t>(std::max(axes(i)[0].extent.length, 0))].name;
      throw unsupported("input '{}': ends at length '{}', supported with --generate: of constant size (--dim {}=N), or \"held\"",
                        printable(input(i).name), printable(length), printable(length));
    }
  }

  bool fit(size_t o, size_t i) const { return output(o).dtype == input(i).dtype && output(o).shape == input(i).shape; }
  bool is_fed(size_t o) const {
    return std::any_of(out_.feeds.begin(), out_.feeds.end(), [&](const Feed& feed) { return feed.output == static_cast<int64_t>(o); });
  }
  void feed(size_t o, size_t i) {
    if (!fit(o, i))
      throw unsupported("output '{}' {} becomes input '{}' {}, supported: of the same type and shape, as caches of constant size are",
                        printable(output(o).name), shape_text(output(o).shape), printable(input(i).name), shape_text(input(i).shape));
    if (is_fed(o)) throw bad_input("--generate: output '{}' becomes two inputs", printable(output(o).name));
    take(i);
    out_.feeds.push_back({static_cast<int64_t>(o), static_cast<int64_t>(i)});
  }
  // The input that the output is, but for some elements.
  std::optional<size_t> scattered_into(size_t o) const {
    for (const ROperator& rop : graph_.rops) {
      if (!std::holds_alternative<Scatter>(rop.attrs) || rop.outputs[0] != graph_.outputs[o]) continue;
      const auto found = std::find(graph_.inputs.begin(), graph_.inputs.end(), rop.inputs[0]);
      if (found != graph_.inputs.end()) return static_cast<size_t>(found - graph_.inputs.begin());
    }
    return std::nullopt;
  }

  void find_feeds() {
    for (const auto& [from, to] : request_.feeds) feed(output_named(from), input_named(to));
    for (size_t o = 0; o < graph_.outputs.size(); ++o) {
      const std::optional<size_t> i = scattered_into(o);
      if (i && !is_fed(o) && !taken_[*i]) feed(o, *i);
    }
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      if (taken_[i]) continue;
      std::vector<size_t> found;
      for (size_t o = 0; o < graph_.outputs.size(); ++o) {
        const std::string stem = stem_of(output(o).name);
        if (!is_fed(o) && !stem.empty() && stem == stem_of(input(i).name)) found.push_back(o);
      }
      if (found.size() == 1) feed(found[0], i);
    }
    // A cache [.., places, width].
    for (const Feed& feed : out_.feeds) {
      const Shape& shape = input(static_cast<size_t>(feed.input)).shape;
      if (shape.size() >= 3 &&
          std::any_of(out_.inputs.begin(), out_.inputs.end(), [](const Advanced& a) { return a.advance == Advance::position; }))
        note_places(shape[shape.size() - 2]);
    }
  }

  void find_scores() {
    std::vector<size_t> found;
    if (!request_.scores.empty()) {
      found = {output_named(request_.scores)};
    } else {
      for (size_t o = 0; o < graph_.outputs.size(); ++o) {
        if (!is_fed(o) && kScores.contains(output(o).name)) found.push_back(o);
      }
      for (size_t o = 0; o < graph_.outputs.size() && found.empty(); ++o) {
        if (!is_fed(o) && is_float(output(o).dtype)) found.push_back(o);
      }
    }
    if (found.size() != 1) throw unsupported("--generate: which output has the scores of the words is not clear; {}", kHint);
    const Tensor& scores = output(found[0]);
    const int64_t rows = scores.shape.empty() || scores.shape.back() == 0 ? 0 : element_count(scores.shape) / scores.shape.back();
    if ((rows != 1 && rows != out_.rows) || !is_float(scores.dtype))
      throw unsupported("output '{}' {}{}: are the scores, supported: those of one token{}", printable(scores.name), name_of(scores.dtype),
                        shape_text(scores.shape), out_.is_step() ? "" : ", or of each");
    out_.scores = static_cast<int64_t>(found[0]);
    out_.words = scores.shape.back();
  }

  // Whether each row (along dimension `d`) of the result is made of that of the first operand, by constants that know nothing of rows.
  bool is_row_by_row(const ROperator& rop, size_t d) const {
    const Shape &from = graph_.tensor(rop.inputs[0]).shape, &to = graph_.tensor(rop.outputs[0]).shape;
    if (from.size() != to.size() || from[d] != to[d]) return false;
    const auto is_plain = [&](TensorId id, size_t rank) {
      return graph_.tensor(id).role == Role::constant && graph_.tensor(id).shape.size() <= rank;
    };
    if (const auto* product = std::get_if<MatMul>(&rop.attrs))
      return !product->trans_a && d + 2 == to.size() && rop.inputs.size() == 2 && is_plain(rop.inputs[1], 2);
    const auto* work = std::get_if<Elementwise>(&rop.attrs);
    return work != nullptr && work->shape.empty() &&
           std::all_of(rop.inputs.begin() + 1, rop.inputs.end(), [&](TensorId id) { return is_plain(id, to.size() - 1 - d); });
  }

  // Scores are those of a run's last token, also where a length says which that is. Rows before it take no part in what is made row by row.
  void keep_last_row() {
    TensorId& scores = graph_.outputs[static_cast<size_t>(out_.scores)];
    const Shape whole = graph_.tensor(scores).shape;
    if (whole.size() < 2 || out_.is_step()) return;
    const auto many = std::find_if(whole.begin(), whole.end() - 1, [](int64_t extent) { return extent > 1; });
    const size_t d = many == whole.end() - 1 ? whole.size() - 2 : static_cast<size_t>(many - whole.begin());
    const Uses uses = uses_of(graph_);
    size_t at = graph_.rops.size();
    TensorId rows = scores;
    std::vector<TensorId> of_one;  // tensors that get one row
    const auto is_free = [&] { return rows == scores ? uses.consumers[rows.index()].empty() : uses.only_reader(rows).valid(); };
    for (ROperatorId maker; is_free() && (maker = uses.producer[rows.index()]).valid() && is_row_by_row(graph_.rop(maker), d);) {
      of_one.push_back(rows);
      at = maker.index();
      rows = graph_.rop(maker).inputs[0];
    }
    Slice last{Shape(whole.size(), 0), Shape(whole.size(), 1), graph_.tensor(rows).shape};
    last.starts[d] = std::exchange(last.extents[d], 1) - 1;
    const TensorId row = add_tensor(graph_, {.name = "tamp.last_row", .dtype = graph_.tensor(rows).dtype, .shape = last.extents});
    for (const TensorId id : of_one) graph_.tensor(id).shape[d] = 1;
    if (of_one.empty()) {
      std::swap(graph_.tensor(row).name, graph_.tensor(scores).name);
      scores = row;
    } else {
      graph_.rops[at].inputs[0] = row;
    }
    ROperator taking{
        .name = "tamp.last_row", .attrs = last, .epilogue = {}, .inputs = {rows}, .outputs = {row}, .origin = {"tamp.last_row"}};
    graph_.rops.insert(graph_.rops.begin() + static_cast<std::ptrdiff_t>(at), std::move(taking));
  }

  void note_places(int64_t places) { places_ = places_ == 0 ? places : std::min(places_, places); }
  void set_places() {
    if (places_ > 0 && request_.places > places_)
      throw bad_input("--generate: {} places, the caches and masks have {}", request_.places, places_);
    out_.places = request_.places > 0 ? request_.places : places_;
  }

  int64_t add_input(const char* name, DType dtype, Shape shape) {
    for (const Tensor& tensor : graph_.tensors) {
      if (tensor.name == name)
        throw unsupported("--generate: the model has a tensor '{}', which is the name of an input that is added", name);
    }
    graph_.inputs.push_back(add_tensor(graph_, {.name = name, .dtype = dtype, .shape = std::move(shape), .role = Role::input}));
    if (!graph_.input_axes.empty()) graph_.input_axes.emplace_back();
    return static_cast<int64_t>(graph_.inputs.size()) - 1;
  }

  void append_draw() {
    keep_last_row();
    TensorId scores = graph_.outputs[static_cast<size_t>(out_.scores)];
    if (graph_.tensor(scores).dtype != DType::f32) {
      const TensorId wide = add_tensor(graph_, {.name = "tamp.scores", .dtype = DType::f32, .shape = graph_.tensor(scores).shape});
      graph_.rops.push_back({.name = "tamp.scores",
                             .attrs = Elementwise{{{ElementwiseOp::cast, {0}}}, {}, DType::f32},
                             .epilogue = {},
                             .inputs = {scores},
                             .outputs = {wide},
                             .origin = {"tamp.scores"}});
      scores = wide;
    }
    out_.amounts = add_input(kAddedInputs[0], DType::f32, {3});
    out_.draw = add_input(kAddedInputs[1], DType::i64, {3});
    out_.seen = add_input(kAddedInputs[2], DType::boolean, {out_.words});
    out_.inputs.push_back({out_.draw, Advance::position, 2, 0, /*is_each=*/false, /*is_last=*/true});
    out_.inputs.push_back({out_.seen, Advance::mark_token});
    const TensorId token = add_tensor(graph_, {.name = "tamp.token", .dtype = DType::i64, .shape = {1}});
    const auto operand = [&](int64_t i) { return graph_.inputs[static_cast<size_t>(i)]; };
    graph_.rops.push_back({.name = "tamp.token",
                           .attrs = NextToken{},
                           .epilogue = {},
                           .inputs = {scores, operand(out_.amounts), operand(out_.draw), operand(out_.seen)},
                           .outputs = {token},
                           .origin = {"tamp.token"}});
    out_.token = static_cast<int64_t>(graph_.outputs.size());
    graph_.outputs.push_back(token);
  }

  Graph& graph_;
  const GenerationRequest& request_;
  Generation out_;
  std::vector<bool> taken_;     // inputs
  std::optional<Extent> rows_;  // of a run's tokens, where a length says how many there are
  int64_t places_ = 0;
};

}  // namespace

Generation add_generation(Graph& graph, const GenerationRequest& request) { return GenerationFinder(graph, request).run(); }

std::vector<std::string> describe(const Graph& graph, const Generation& generation) {
  std::vector<std::string> lines;
  const auto name = [&](const std::vector<TensorId>& ports, int64_t i) {
    return printable(graph.tensor(ports[static_cast<size_t>(i)]).name);
  };
  for (const Advanced& advanced : generation.inputs) {
    const std::string input = name(graph.inputs, advanced.input);
    switch (advanced.advance) {
      case Advance::token: lines.push_back(fmt::format("'{}' is the token", input)); break;
      case Advance::position:
        lines.push_back(fmt::format("'{}'[{}] is the position{}", input, advanced.element,
                                    advanced.plus == 0 ? "" : fmt::format(" {:+}", advanced.plus)));
        break;
      case Advance::mark_position: lines.push_back(fmt::format("'{}' has a 1 for each place in use", input)); break;
      case Advance::mark_token: lines.push_back(fmt::format("'{}' has a 1 for each token seen", input)); break;
    }
  }
  for (const Feed& feed : generation.feeds)
    lines.push_back(fmt::format("'{}' becomes '{}'", name(graph.outputs, feed.output), name(graph.inputs, feed.input)));
  lines.push_back(fmt::format("tokens are drawn from '{}'", name(graph.outputs, generation.scores)));
  if (generation.places > 0) lines.push_back(fmt::format("a text has at most {} tokens", generation.places));
  return lines;
}

}  // namespace tamp::frontend
