#include "compiler/passes/place/merge_convolutions.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "compiler/passes/rewrite.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"
#include "compiler/support/unique_names.h"

namespace tamp::passes {
namespace {

// Convolutions with equal keys can be merged. Taps of two kernels lie on one grid if what is padded in front of them differs by a multiple
// of the dilation.
using Key = std::tuple<TensorId, std::vector<int64_t>, std::vector<int64_t>, Shape, std::vector<int64_t>, Activation, float, float,
                       Activation, float, float>;

std::optional<Key> key_of(const Graph& graph, const ROperator& rop) {
  const auto* conv = std::get_if<Conv>(&rop.attrs);
  if (!conv || conv->group != 1 || conv->depthwise || rop.inputs.size() != 2 || rop.epilogue.residual.valid() || rop.epilogue.sum)
    return std::nullopt;
  const Tensor &x = graph.tensor(rop.inputs[0]), &y = graph.tensor(rop.outputs[0]);
  if (!is_f32_constant(graph, rop.inputs[1]) || x.dtype != DType::f32 || y.dtype != DType::f32) return std::nullopt;
  if (x.role == Role::constant || element_count(y.shape) == 0 || element_count(x.shape) == 0) return std::nullopt;
  if (rop.epilogue.bias.valid() && !is_f32_constant(graph, rop.epilogue.bias)) return std::nullopt;
  Shape extents = y.shape;
  extents[1] = 0;
  std::vector<int64_t> grid;
  for (size_t d = 0; d < conv->kernel.size(); ++d) grid.push_back(conv->pads_begin[d] % conv->dilations[d]);
  const ActivationCall& before = conv->input_activation;
  const Epilogue& e = rop.epilogue;
  return Key{rop.inputs[0], conv->strides, conv->dilations, extents, grid, before.kind, before.a, before.b, e.activation, e.a, e.b};
}

// One kernel that covers the kernels of all convolutions, and the place of each kernel in it.
struct Cover {
  Conv conv;
  std::vector<std::vector<int64_t>> lead;  // per convolution and dimension: taps of zeros in front of its own
};

// Example along one dimension: a kernel of 1 without pads and a kernel of 3 with pads of 1 are covered by a kernel of 3 with pads of 1. The
// first kernel then has one tap of zeros in front and one behind.
Cover cover_of(const std::vector<const Conv*>& convs) {
  Cover cover{*convs[0], std::vector<std::vector<int64_t>>(convs.size())};
  for (size_t d = 0; d < cover.conv.kernel.size(); ++d) {
    const int64_t dilation = cover.conv.dilations[d];
    int64_t &pad = cover.conv.pads_begin[d], &kernel = cover.conv.kernel[d];
    for (const Conv* conv : convs) pad = std::max(pad, conv->pads_begin[d]);
    for (size_t i = 0; i < convs.size(); ++i) {
      cover.lead[i].push_back((pad - convs[i]->pads_begin[d]) / dilation);
      kernel = std::max(kernel, cover.lead[i][d] + convs[i]->kernel[d]);
    }
    // Each convolution gives its present number of elements with some amount of padding at the end; all of these amounts work, so the least
    // is taken.
    int64_t& pad_end = cover.conv.pads_end[d];
    for (size_t i = 0; i < convs.size(); ++i) {
      const int64_t behind = kernel - cover.lead[i][d] - convs[i]->kernel[d];
      const int64_t needed = convs[i]->pads_end[d] + dilation * behind;
      pad_end = i == 0 ? needed : std::min(pad_end, needed);
    }
  }
  return cover;
}

// Writes the taps of one filter into one of the covering kernel.
void copy_filter(const float* from, const std::vector<int64_t>& kernel, const std::vector<int64_t>& lead, float* to,
                 const std::vector<int64_t>& cover) {
  for (int64_t i = 0; i < element_count(kernel); ++i) {
    int64_t rest = i, at = 0, step = 1;
    for (size_t d = kernel.size(); d-- > 0;) {
      at += (lead[d] + rest % kernel[d]) * step;
      rest /= kernel[d];
      step *= cover[d];
    }
    to[at] = from[i];
  }
}

class Merging {
 public:
  explicit Merging(Graph graph)
      : graph_(std::move(graph)), uses_(uses_of(graph_)), inserted_(graph_.rops.size()), dead_(graph_.rops.size(), false) {
    for (size_t i = 0; i < graph_.rops.size(); ++i) {
      number_of_[graph_.rops[i].name] = i;
      names_.take(graph_.rops[i].name);
    }
  }

  Graph run(const std::vector<Merge>& merges) {
    for (const Merge& merge : merges) {
      std::vector<size_t> members = members_of(merge);
      sort_as_read(members);
      unite(members);
    }
    std::vector<ROperator> rops;
    for (size_t i = 0; i < graph_.rops.size(); ++i) {
      for (ROperator& rop : inserted_[i]) rops.push_back(std::move(rop));
      if (!dead_[i]) rops.push_back(std::move(graph_.rops[i]));
    }
    graph_.rops = std::move(rops);
    return remove_dead(std::move(graph_));
  }

 private:
  // A slice of channels of a merged result.
  struct Part {
    TensorId whole;
    int64_t begin = 0, end = 0;
  };

  [[noreturn]] static void refuse(const Merge& merge, const std::string& why) {
    std::vector<std::string> names;
    for (const std::string& name : merge) names.push_back(fmt::format("'{}'", printable(name)));
    throw bad_input("{} cannot be one convolution: {}", join(names, ", "), why);
  }

  std::vector<size_t> members_of(const Merge& merge) {
    if (merge.size() < 2) refuse(merge, "two or more are needed");
    std::vector<size_t> members;
    std::optional<Key> key;
    for (const std::string& name : merge) {
      const auto found = number_of_.find(name);
      if (found == number_of_.end()) refuse(merge, fmt::format("the model has no rOperator '{}'", printable(name)));
      if (!taken_.insert(found->second).second) refuse(merge, fmt::format("'{}' is merged twice", printable(name)));
      const std::optional<Key> own = key_of(graph_, graph_.rops[found->second]);
      if (!own) refuse(merge, fmt::format("'{}' is none that can be merged", printable(name)));
      if (key && *key != *own) refuse(merge, "they differ in input, strides, dilations, output extents or activation");
      key = own;
      members.push_back(found->second);
    }
    std::sort(members.begin(), members.end());
    return members;
  }

  // The Concat of channels that reads most of the convolutions decides their order; those that it does not read come behind.
  void sort_as_read(std::vector<size_t>& members) const {
    std::map<size_t, std::vector<size_t>> by_concat;  // members in the order of its operands
    for (const size_t member : members) {
      for (const ROperatorId reader : uses_.consumers[made_by(member).index()]) {
        const auto* concat = std::get_if<Concat>(&graph_.rop(reader).attrs);
        if (concat && concat->axis == 1) by_concat.try_emplace(reader.index());
      }
    }
    std::vector<size_t> order;
    for (auto& [concat, read] : by_concat) {
      for (const TensorId operand : graph_.rops[concat].inputs) {
        const auto found = std::find_if(members.begin(), members.end(), [&](size_t m) { return made_by(m) == operand; });
        if (found != members.end() && std::find(read.begin(), read.end(), *found) == read.end()) read.push_back(*found);
      }
      if (read.size() > order.size()) order = read;
    }
    for (const size_t member : members) {
      if (std::find(order.begin(), order.end(), member) == order.end()) order.push_back(member);
    }
    members = std::move(order);
  }

  TensorId made_by(size_t rop) const { return graph_.rops[rop].outputs[0]; }

  void unite(const std::vector<size_t>& members) {
    ROperator merged = joined(members);
    const TensorId whole = merged.outputs[0];
    // The merged convolution stands in front of the first of them: all read the same input, and none of their results is read before that.
    const size_t at = *std::min_element(members.begin(), members.end());
    std::map<TensorId, Part> parts;
    int64_t begin = 0;
    for (const size_t member : members) {
      const int64_t end = begin + graph_.tensor(made_by(member)).shape[1];
      parts[made_by(member)] = {whole, begin, end};
      begin = end;
      dead_[member] = true;
    }
    inserted_[at].push_back(std::move(merged));
    for (const size_t member : members) insert_slice(at, graph_.rops[member].name, parts.at(made_by(member)), made_by(member));
    std::set<size_t> concats;
    for (const auto& [id, part] : parts) {
      for (const ROperatorId reader : uses_.consumers[id.index()]) {
        const auto* concat = std::get_if<Concat>(&graph_.rop(reader).attrs);
        if (concat && concat->axis == 1) concats.insert(reader.index());
      }
    }
    for (const size_t concat : concats) shorten(concat, at, parts);
  }

  ROperator joined(const std::vector<size_t>& members) {
    std::vector<const Conv*> convs;
    std::vector<std::string> texts;
    int64_t channels = 0;
    bool has_bias = false;
    for (const size_t member : members) {
      const ROperator& rop = graph_.rops[member];
      convs.push_back(&std::get<Conv>(rop.attrs));
      texts.push_back(rop.name);
      channels += graph_.tensor(rop.outputs[0]).shape[1];
      has_bias = has_bias || rop.epilogue.bias.valid();
    }
    const Cover cover = cover_of(convs);
    ROperator merged;
    merged.name = names_.unique(join(texts, "+"), ".");
    merged.attrs = cover.conv;
    merged.epilogue = graph_.rops[members[0]].epilogue;
    merged.epilogue.bias = TensorId();
    for (const size_t member : members)
      merged.origin.insert(merged.origin.end(), graph_.rops[member].origin.begin(), graph_.rops[member].origin.end());
    merged.inputs = {graph_.rops[members[0]].inputs[0], add_weights(merged.name, members, cover, channels)};
    if (has_bias) merged.epilogue.bias = add_bias(merged.name, members);
    Shape shape = graph_.tensor(made_by(members[0])).shape;
    shape[1] = channels;
    merged.outputs = {add_tensor(graph_, {merged.name, DType::f32, shape})};
    return merged;
  }

  TensorId add_weights(const std::string& name, const std::vector<size_t>& members, const Cover& cover, int64_t channels) {
    const int64_t in_channels = graph_.tensor(graph_.rops[members[0]].inputs[0]).shape[1], taps = element_count(cover.conv.kernel);
    std::vector<float> values(static_cast<size_t>(channels * in_channels * taps), 0.0F);
    float* to = values.data();
    for (size_t i = 0; i < members.size(); ++i) {
      const ROperator& rop = graph_.rops[members[i]];
      const Tensor& weights = graph_.tensor(rop.inputs[1]);
      const std::vector<int64_t>& kernel = std::get<Conv>(rop.attrs).kernel;
      const float* from = f32_data(weights);
      for (int64_t f = 0; f < weights.shape[0] * in_channels; ++f, from += element_count(kernel), to += taps)
        copy_filter(from, kernel, cover.lead[i], to, cover.conv.kernel);
    }
    Shape shape{channels, in_channels};
    shape.insert(shape.end(), cover.conv.kernel.begin(), cover.conv.kernel.end());
    return add_f32_constant(graph_, name + ".weights", std::move(shape), values);
  }

  TensorId add_bias(const std::string& name, const std::vector<size_t>& members) {
    std::vector<float> values;
    for (const size_t member : members) {
      const ROperator& rop = graph_.rops[member];
      const auto channels = static_cast<size_t>(graph_.tensor(rop.outputs[0]).shape[1]);
      const float* bias = f32_data_or_null(graph_, rop.epilogue.bias);
      for (size_t c = 0; c < channels; ++c) values.push_back(bias ? bias[c] : 0.0F);
    }
    return add_f32_constant(graph_, name + ".bias", {static_cast<int64_t>(values.size())}, values);
  }

  void insert_slice(size_t at, const std::string& name, const Part& part, TensorId to) {
    const Shape& whole = graph_.tensor(part.whole).shape;
    Slice slice = whole_slice(whole);
    slice.starts[1] = part.begin;
    slice.extents[1] = part.end - part.begin;
    inserted_[at].push_back({name, std::move(slice), {}, {part.whole}, {to}, {}});
  }

  // Parts of the merged result that a Concat puts side by side in the order in which they lie already become one operand of the Concat. If
  // that is its only operand and the whole result, the Concat is removed.
  void shorten(size_t at, size_t merged_at, const std::map<TensorId, Part>& parts) {
    ROperator& concat = graph_.rops[at];
    std::vector<TensorId> operands;
    for (size_t i = 0; i < concat.inputs.size();) {
      const auto first = parts.find(concat.inputs[i]);
      if (first == parts.end()) {
        operands.push_back(concat.inputs[i++]);
        continue;
      }
      Part row = first->second;
      const size_t begin = i++;
      for (; i < concat.inputs.size(); ++i) {
        const auto next = parts.find(concat.inputs[i]);
        if (next == parts.end() || next->second.begin != row.end) break;
        row.end = next->second.end;
      }
      operands.push_back(i == begin + 1 ? concat.inputs[begin] : operand_of(row, merged_at));
    }
    concat.inputs = std::move(operands);
    if (concat.inputs.size() != 1) return;
    const TensorId whole = parts.begin()->second.whole;
    ROperator& merged = inserted_[merged_at].front();
    if (concat.inputs[0] != whole || merged.outputs[0] != whole) return;  // not the whole result, or a second Concat of it
    // The convolution now makes the Concat's result.
    const TensorId made = concat.outputs[0];
    for (ROperator& rop : inserted_[merged_at]) {
      if (rop.inputs[0] == whole) rop.inputs[0] = made;
    }
    for (ROperator& rop : graph_.rops) std::replace(rop.inputs.begin(), rop.inputs.end(), whole, made);  // other Concats
    merged.outputs[0] = made;
    merged.origin.insert(merged.origin.end(), concat.origin.begin(), concat.origin.end());
    dead_[at] = true;
    replaced_[whole] = made;
  }

  TensorId operand_of(const Part& row, size_t merged_at) {
    const auto now = replaced_.find(row.whole);
    const Part part{now == replaced_.end() ? row.whole : now->second, row.begin, row.end};
    if (part.end - part.begin == graph_.tensor(part.whole).shape[1]) return part.whole;
    Shape shape = graph_.tensor(part.whole).shape;
    shape[1] = part.end - part.begin;
    const TensorId id = add_like(graph_, part.whole, fmt::format("{}.{}to{}", graph_.tensor(part.whole).name, part.begin, part.end), shape);
    insert_slice(merged_at, names_.unique(graph_.tensor(id).name, "."), part, id);
    return id;
  }

  Graph graph_;
  const Uses uses_;
  std::map<std::string, size_t> number_of_;
  UniqueNames names_;
  std::set<size_t> taken_;
  std::vector<std::vector<ROperator>> inserted_;  // in front of each rOperator of before
  std::vector<bool> dead_;
  std::map<TensorId, TensorId> replaced_;  // merged results that a Concat's result took the place of
};

}  // namespace

std::vector<Merge> mergeable(const Graph& graph) {
  std::vector<std::pair<Key, Merge>> classes;
  for (const ROperator& rop : graph.rops) {
    const std::optional<Key> key = key_of(graph, rop);
    if (!key) continue;
    const auto found = std::find_if(classes.begin(), classes.end(), [&](const auto& known) { return known.first == *key; });
    if (found == classes.end())
      classes.push_back({*key, {rop.name}});
    else
      found->second.push_back(rop.name);
  }
  std::vector<Merge> all;
  for (auto& [key, merge] : classes) {
    if (merge.size() > 1) all.push_back(std::move(merge));
  }
  return all;
}

Graph merge_convolutions(Graph graph, const std::vector<Merge>& merges) { return Merging(std::move(graph)).run(merges); }

}  // namespace tamp::passes
