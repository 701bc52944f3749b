// A rule looks at where the batch lies in the operands and says where it lies in the results, or throws Mixes. Attributes with extents in
// them get the new ones. Operands that do not depend on the batch are repeated where the operator needs an element of them for each of the
// batch, and numbers of elements become numbers in the larger tensor.
//
// Odd: a batch of 1 can lie at several places of one and the same tensor: [1,1,6] may hold it in its first or in its second dimension, and
// the bytes are the same with any batch. So a tensor has a list of places, and an rOperator takes those of its operands that its rule
// allows, by a Reshape where it is not the first.
#include "compiler/frontend/rebatch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "compiler/frontend/batch_operands.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

class Rebatch : private BatchOperands {
 public:
  Rebatch(const Graph& original, int64_t from, int64_t to, const ModelWords& words) : BatchOperands(original, from, to, words) {}

  // Mixes says why not.
  Graph run() {
    graph_.rops.clear();
    for (const TensorId id : original_.inputs) {
      if (original_.tensor(id).shape.empty()) continue;
      places_[id.index()] = {{}};
      graph_.tensor(id).shape[0] = to_;
      require_size(graph_.tensor(id));
    }
    for (const ROperator& rop : original_.rops) follow(rop);
    where_.clear();
    for (const TensorId id : original_.outputs) require_batch_in(id);
    return std::move(graph_);
  }

  const std::string& where() const { return where_; }  // the node that is not allowed, or empty

 private:
  // --- Rules ---
  void apply(const Conv&) {
    require_same_from(1, "its operand");
    if (place(0)->dim != 0) mixes_along(0, "sums over");
    result(0, *place(0));
  }

  void apply(const MatMul& op) {
    const size_t rank = result_shape().size();
    std::optional<Place> found;
    for (size_t i = 0; i < 2; ++i) {
      if (!is_stacked(i)) continue;
      const size_t last = shape(i).size() - 1, dim = place(i)->dim;
      const bool is_leading = dim + 1 < last;
      const bool is_summed = !is_leading && (i == 0 ? (dim == last) != op.trans_a : (dim == last) == op.trans_b);
      if (is_summed) mixes_along(i, "sums over");
      const Place there = place(i)->at(is_leading ? rank - 1 - last + dim : rank - (i == 0 ? 2 : 1));
      if (found && *found != there) throw Mixes{fmt::format("multiplies elements of the batch in {} with others in {}", name(0), name(1))};
      found = there;
    }
    if (!found) throw Mixes{fmt::format("adds {}, which has the batch, to a product that has none", name(2))};
    for (size_t i = 0; i < 2 && found->dim + 2 < rank; ++i) align(i, rank, *found);
    if (has(2)) align(2, rank, *found);
    result(0, *found);
  }

  void apply(const Pool&) {
    if (place(0)->dim > 1) mixes_along(0, "pools along");
    result(0, *place(0));
  }

  // The numbers count all elements of X: those of an element of the batch begin where it begins.
  void apply(const PoolIndices& op) {
    if (from_ != 1 || place(0)->dim != 0 || place(0)->before != 1) mixes_along(0, "numbers its maxima along");
    const TensorId all = emit(op, inputs_);
    const int64_t each = element_count(shape(0));
    attrs_ = step(ElementwiseOp::sub);
    inputs_ = {all, offsets(result_shape(), *place(0), each, DType::i64)};
    result(0, *place(0));
  }

  void apply(const MaxUnpool&) {
    const Place batch = common_place(first_stacked());
    if (from_ != 1 || batch.dim != 0 || batch.before != 1) mixes_along(first_stacked(), "writes by numbers that count along");
    repeat_all(batch);
    const int64_t each = element_count(result_shape());
    std::get<MaxUnpool>(attrs_).shape[0] = batch.extent(to_);
    inputs_[1] = numbered(batch, each, Outside{false, -1});
    result(0, batch);
  }

  void apply(const Reduce& op) {
    const Place& batch = *place(0);
    const auto dim = static_cast<int64_t>(batch.dim);
    if (std::find(op.axes.begin(), op.axes.end(), dim) != op.axes.end()) mixes_along(0, "reduces");
    const auto gone = std::count_if(op.axes.begin(), op.axes.end(), [&](int64_t axis) { return axis < dim; });
    result(0, batch.at(batch.dim - (op.keepdims ? 0 : static_cast<size_t>(gone))));
  }

  void apply(const Softmax& op) {
    const auto dim = static_cast<int64_t>(place(0)->dim);
    if (dim >= op.first_axis && dim <= op.last_axis) mixes_along(0, "normalises along");
    result(0, *place(0));
  }

  void apply(const Lrn&) {
    if (place(0)->dim == 1) mixes_along(0, "sums over");
    result(0, *place(0));
  }

  void apply(const BatchNorm&) {
    require_same_from(1, "its operand");
    if (place(0)->dim == 1) mixes_along(0, "takes the channels to be");
    result(0, *place(0));
  }

  void apply(const Normalize& op) {
    if (!is_stacked(0) || has(kNormalizeRows)) throw Mixes{fmt::format("has the batch in {} only", name(first_stacked()))};
    const Place& batch = *place(0);
    if (std::find(op.axes.begin(), op.axes.end(), static_cast<int64_t>(batch.dim)) != op.axes.end()) mixes_along(0, "normalises along");
    for (size_t i = 1; i < rop_->inputs.size(); ++i) {
      if (has(i)) align(i, shape(0).size(), batch);
    }
    result(0, batch);
  }

  void apply(const Elementwise& op) {
    const size_t rank = result_shape().size(), first = first_stacked();
    const Place batch = place(first)->at(rank - shape(first).size() + place(first)->dim);
    if (result_shape()[batch.dim] != batch.extent(from_)) {
      throw Mixes{fmt::format("repeats {} along dimension {}, along which the elements of the batch lie, to {}", name(first),
                              place(first)->dim, result_shape()[batch.dim])};
    }
    const bool adds = op.steps.size() == 1 && op.steps[0].op == ElementwiseOp::add;
    for (size_t i = 0; i < rop_->inputs.size(); ++i) {
      if (!has(i)) continue;
      const bool may_number = adds && !is_stacked(i) && shape(i).size() == rank;
      if (!may_number || !takes_first_numbers(i, batch)) align(i, rank, batch);
    }
    if (op.shape.size() + batch.dim >= rank) std::get<Elementwise>(attrs_).shape[op.shape.size() + batch.dim - rank] = batch.extent(to_);
    result(0, batch);
  }

  void apply(const Reshape& op) {
    const Place& batch = *place(0);
    Places found = places_of(op.shape, product(shape(0), 0, batch.dim) * batch.before, from_);
    if (found.empty() || element_count(op.shape) == 0) {
      throw Mixes{fmt::format("makes {} of {} {}, in which the batch of {} has no dimension of its own or as a factor",
                              shape_text(op.shape), name(0), shape_text(shape(0)), from_)};
    }
    if (const auto kept = words_.kept_dims.find(rop_->name); kept != words_.kept_dims.end() && kept->second.at(batch.dim) >= 0) {
      const auto said = std::find_if(found.begin(), found.end(),
                                     [&](const Place& place) { return place.dim == static_cast<size_t>(kept->second[batch.dim]); });
      if (said != found.end()) found = {*said};
    }
    const auto like = std::find_if(found.begin(), found.end(), [&](const Place& place) { return place == batch; });
    if (like != found.end()) std::rotate(found.begin(), like, like + 1);
    std::get<Reshape>(attrs_).shape = grown(op.shape, found[0]);
    results_[0] = std::move(found);
  }

  void apply(const Transpose& op) {
    const auto to = std::find(op.perm.begin(), op.perm.end(), static_cast<int64_t>(place(0)->dim));
    result(0, place(0)->at(static_cast<size_t>(to - op.perm.begin())));
  }

  // Of the batch's own dimension all is taken, or whole batches where several lie behind each other.
  void apply(const Slice& op) {
    Place batch = *place(0);
    const size_t d = batch.dim;
    auto& slice = std::get<Slice>(attrs_);
    const bool is_whole = op.starts[d] == 0 && op.extents[d] == shape(0)[d] && (op.steps[d] == 1 || op.extents[d] == 1);
    if (!is_whole) {
      const bool takes_batches =
          op.steps[d] == 1 && op.extents[d] > 0 && op.starts[d] % (from_ * batch.inner) == 0 && op.extents[d] % (from_ * batch.inner) == 0;
      if (!takes_batches) mixes_along(0, "takes a part of");
      batch.before = op.extents[d] / (from_ * batch.inner);
      slice.starts[d] = op.starts[d] / from_ * to_;
    }
    slice.steps[d] = 1;
    slice.extents[d] = batch.extent(to_);
    result(0, batch);
  }

  void apply(const Concat& op) {
    const size_t axis = static_cast<size_t>(op.axis), first = first_stacked();
    Place batch = *place(first);
    if (batch.dim == axis) return join_along_batch(axis);
    for (size_t i = 0; i < rop_->inputs.size(); ++i) {
      if (is_stacked(i) && *place(i) != batch)
        throw Mixes{fmt::format("joins the batch in {} with one at another place in {}", name(first), name(i))};
    }
    repeat_all(batch);
    result(0, batch);
  }

  // Rows of an element, one operand's behind the other's. [2,6] and [2,6] of a batch of 2 become [4,6], a batch behind a batch. Where they
  // differ in number, as of [20,8] and [12,8] with 10 and 6 rows for each element, each gets its 16.
  void join_along_batch(size_t axis) {
    const size_t first = first_stacked();
    const int64_t inner = place(first)->inner;
    Place batch{axis, 0, 0};
    bool is_equal = true, is_batch_alone = true;
    for (size_t i = 0; i < rop_->inputs.size(); ++i) {
      is_equal = is_equal && is_stacked(i) && place(i)->inner == inner;
      if (!is_stacked(i)) continue;
      if (place(i)->dim != axis) throw Mixes{fmt::format("joins the batch in {} with one at another place in {}", name(first), name(i))};
      is_batch_alone = is_batch_alone && place(i)->is_exact();
      batch.before += place(i)->before;
    }
    batch.inner = inner;
    if (is_equal) return result(0, batch);
    if (is_batch_alone || from_ != 1) mixes_along(first, "joins other rows with those of");
    batch = {axis, 1, 0};
    for (size_t i = 0; i < rop_->inputs.size(); ++i) {
      const Place own{axis, 1, shape(i)[axis]};
      if (is_stacked(i) && *place(i) != own) mixes_along(i, "joins other rows with those of");
      if (!is_stacked(i)) inputs_[i] = repeated(i, own);
      inputs_[i] = emit(Reshape{split(shape(i), own)}, {inputs_[i]});
      batch.inner += own.inner;
    }
    const TensorId joined = emit(Concat{static_cast<int64_t>(axis) + 1}, inputs_);
    attrs_ = Reshape{grown(result_shape(), batch)};
    inputs_ = {joined};
    result(0, batch);
  }

  void apply(const Pad& op) {
    const size_t d = place(0)->dim;
    if (op.before[d] != 0 || op.after[d] != 0) mixes_along(0, "pads");
    result(0, *place(0));
  }

  void apply(const Gather& op) {
    const auto axis = static_cast<size_t>(op.axis);
    if (step_of(1) != 0 && (!is_stacked(0) || place(0)->dim != axis))
      throw Mixes{fmt::format("takes elements by {}, which numbers the elements of the whole batch", name(1))};
    if (!is_stacked(0)) return result(0, place(1)->at(axis + place(1)->dim));
    const Place from = *place(0);
    if (from.dim != axis) {
      if (is_stacked(1))
        throw Mixes{fmt::format("takes the elements that {} names for one element of the batch from {} for all of them", name(1), name(0))};
      return result(0, from.at(from.dim < axis ? from.dim : from.dim - 1 + shape(1).size()));
    }
    if (from.is_exact()) mixes_along(0, "takes elements by number from");
    if (is_stacked(1)) return take_by_stacked_numbers(from);
    take_by_numbers(from);
  }

  // Each element of the batch has numbers of its own, which count its own rows.
  void take_by_stacked_numbers(const Place& from) {
    if (from_ != 1 && (from.before != 1 || step_of(1) != from.inner || !are_within(1, from.inner))) {
      throw Mixes{fmt::format("takes elements by number from dimension {} of {}, and {} is not known to keep to each element of the batch",
                              from.dim, name(0), name(1))};
    }
    inputs_[1] = from.before == 1 ? numbered(*place(1), from.inner, std::nullopt) : interleaved(*place(1), from);
    result(0, place(1)->at(from.dim + place(1)->dim));
  }

  // The numbers are the same for all elements of the batch, or constants that count the whole batch, as many for each of its elements.
  void take_by_numbers(const Place& from) {
    const Tensor& numbers = operand(1);
    if (!numbers.data) throw Mixes{fmt::format("takes elements from {} by numbers that do not depend on the batch", name(0))};
    const std::vector<int64_t> all = whole_numbers(numbers);
    const int64_t extent = shape(0)[from.dim];
    for (const Place& batch : places_of_numbers(numbers.shape)) {
      require_table(grown(numbers.shape, batch), numbers.dtype);
      const int64_t outer = product(numbers.shape, 0, batch.dim);
      const int64_t each = element_count(numbers.shape) / std::max<int64_t>(1, outer * from_);
      std::vector<int64_t> made(static_cast<size_t>(outer * to_ * each));
      bool is_same = true;
      for (int64_t i = 0; is_same && i < static_cast<int64_t>(all.size()); ++i) {
        const int64_t given = all[static_cast<size_t>(i)], number = given < 0 ? given + extent : given;
        const int64_t own = number / (from_ * from.inner) * from.inner + number % from.inner, element = number / from.inner % from_;
        const int64_t o = i / (from_ * each), b = i / each % from_, rest = i % each;
        is_same = element == b && number >= 0 && number < extent;
        for (int64_t k = 0; is_same && k < to_; ++k) {
          int64_t& there = made[static_cast<size_t>((o * to_ + k) * each + rest)];
          const int64_t here = (own / from.inner * to_ + k) * from.inner + own % from.inner;
          is_same = b == 0 || there == here;
          there = here;
        }
      }
      if (!is_same) continue;
      inputs_[1] = constant(numbers.dtype, grown(numbers.shape, batch), made);
      results_[0].push_back(batch.at(from.dim + batch.dim));
      if (from_ == 1) return add_equal_places();
      return;
    }
    mixes_along(0, "takes elements by number from");
  }

  Places places_of_numbers(const Shape& shape) const {
    Places places;
    for (size_t d = 0; d < shape.size(); ++d) {
      if (shape[d] % from_ == 0 && (from_ > 1 || d == 0)) places.push_back({d, 1, shape[d] / from_});
    }
    return places;
  }

  void add_equal_places() {
    const Place first = results_[0][0];
    for (const Place& place : places_of(result_shape(), product(result_shape(), 0, first.dim) * first.before, from_)) {
      if (place != first && place.is_exact()) results_[0].push_back(place);
    }
  }

  void apply(const GridSample&) { image_by_image(2, "samples along"); }
  void apply(const NonMaxSuppression&) { image_by_image(2, "compares boxes along"); }

  void apply(const Resample& op) {
    require_same_from(1, "its table");
    if (std::find(op.axes.begin(), op.axes.end(), static_cast<int64_t>(place(0)->dim)) != op.axes.end()) mixes_along(0, "resizes");
    result(0, *place(0));
  }

  void apply(const RoiAlign&) { regions(3); }
  void apply(const MaxRoiPool&) { regions(2); }

  void apply(const NonZero&) { mixes_along(0, "numbers and counts what is not zero along"); }

  void apply(const TopK& op) {
    if (static_cast<int64_t>(place(0)->dim) == op.axis) mixes_along(0, "sorts");
    for (size_t k = 0; k < rop_->outputs.size(); ++k) result(k, *place(0));
  }

  void apply(const Cumulate& op) {
    if (static_cast<int64_t>(place(0)->dim) == op.axis) mixes_along(0, "accumulates along");
    result(0, *place(0));
  }

  void apply(const NextToken&) { mixes_along(0, "draws a token from"); }

  void apply(const Scatter& op) {
    const auto axis = static_cast<size_t>(op.axis);
    if (place(first_stacked())->dim == axis) return scatter_along_batch(axis);
    const Place batch = common_place(first_stacked());
    for (const size_t i : {size_t{0}, size_t{1}, size_t{2}}) {
      if (i == 1 && !is_stacked(1) && shape(1)[batch.dim] == 1) continue;  // for all of them
      if (shape(i)[batch.dim] != batch.extent(from_)) mixes_along(first_stacked(), "writes to a part of");
      if (!is_stacked(i)) inputs_[i] = repeated(i, batch);
    }
    result(0, batch);
  }

  // X has several rows of each element of the batch, and the indices count those.
  void scatter_along_batch(size_t axis) {
    const int64_t each = shape(0)[axis];
    if (from_ != 1 || each == 1) mixes_along(first_stacked(), "writes by number to");
    for (size_t i = 0; i < 3; ++i) {
      const Place own{axis, 1, shape(i)[axis]};
      if (is_stacked(i) && *place(i) != own) mixes_along(i, "writes by number to");
      if (!is_stacked(i)) inputs_[i] = repeated(i, own);
    }
    inputs_[1] = numbered({axis, 1, shape(1)[axis]}, each, Outside{true, each * to_});
    result(0, {axis, 1, each});
  }

  void apply(const Recurrent& op) {
    using Axis = std::pair<int32_t, size_t>;  // operand or result, if there is one, and its dimension of the batch
    std::optional<Place> batch;
    std::vector<bool> may_be_stacked(rop_->inputs.size(), false);
    std::vector<std::pair<size_t, size_t>> sequences;
    for (const RecurrentCell& cell : op.cells) {
      for (const auto& [at, dim] : std::array<Axis, 4>{{{cell.x, 1}, {cell.lengths, 0}, {cell.h0, 0}, {cell.c0, 0}}}) {
        if (at >= 0) sequences.emplace_back(static_cast<size_t>(at), dim);
      }
    }
    for (const auto& [i, dim] : sequences) {
      may_be_stacked[i] = true;
      if (!is_stacked(i)) continue;
      if (place(i)->dim != dim) mixes_along(i, dim == 1 && place(i)->dim == 0 ? "takes the steps of a sequence from" : "sums over");
      if (batch && batch->at(dim) != *place(i)) throw Mixes{fmt::format("has the batch at another place in {}", name(i))};
      batch = place(i);
    }
    for (size_t i = 0; i < rop_->inputs.size(); ++i) {
      if (is_stacked(i) && !may_be_stacked[i])
        throw Mixes{fmt::format("its weight {} is another one for each element of the batch", name(i))};
    }
    for (const auto& [i, dim] : sequences) {
      if (!is_stacked(i)) inputs_[i] = repeated(i, batch->at(dim));
    }
    std::get<Recurrent>(attrs_).batch = batch->extent(to_);
    for (const RecurrentCell& cell : op.cells) {
      for (const auto& [at, dim] : std::array<Axis, 3>{{{cell.y, 1}, {cell.y_h, 0}, {cell.y_c, 0}}}) {
        if (at >= 0) result(static_cast<size_t>(at), batch->at(dim));
      }
    }
  }

  // What has no rule is refused: operators that passes make of those above, and new ones.
  void apply(const auto&) { throw Mixes{"is an operator that --batch does not know to keep the elements of a batch apart"}; }

  // --- Parts of rules ---
  // The first `count` operands hold an image each.
  void image_by_image(size_t count, const char* what) {
    require_same_from(count, "its operand");
    const Place batch = common_place(first_stacked());
    if (batch.dim != 0) mixes_along(first_stacked(), what);
    repeat_all(batch);
    result(0, batch);
  }

  // Regions of one image, which does not depend on the batch.
  void regions(size_t operands) {
    if (is_stacked(0))
      throw Mixes{
          fmt::format("takes regions by the numbers of their images from {}, which is another one for each element of the batch", name(0))};
    const Place batch = common_place(first_stacked());
    if (batch.dim != 0) mixes_along(first_stacked(), "takes its coordinates from");
    for (size_t i = 1; i < operands; ++i) {
      if (!is_stacked(i)) inputs_[i] = repeated(i, batch);
    }
    result(0, batch);
  }

  // --- The walk ---
  void follow(const ROperator& rop) {
    rop_ = &rop;
    const std::string& node = rop.origin.empty() ? rop.name : rop.origin.front();
    const auto op = words_.operators.find(node);
    where_ = fmt::format("node '{}' ({})", printable(node), op == words_.operators.end() ? name_of(rop.attrs) : printable(op->second));
    TAMP_CHECK(!rop.epilogue.bias.valid() && !rop.epilogue.residual.valid(), "an epilogue in the frontend");
    std::vector<size_t> counts;
    bool is_same = true;
    for (const TensorId id : rop.inputs) {
      counts.push_back(id.valid() ? places_[id.index()].size() : 0);
      is_same = is_same && counts.back() == 0;
    }
    if (is_same) return add(rop);
    std::optional<Mixes> refusal;
    std::vector<Places> found;
    std::vector<size_t> choice(counts.size(), 0);
    for (int tried = 0; tried < kMostChoices; ++tried) {
      const size_t tensors = graph_.tensors.size(), rops = graph_.rops.size();
      try {
        choose(rop, choice);
        if (found.empty()) finish(rop);
      } catch (const Mixes& mixes) {
        if (!refusal) refusal = mixes;
        results_.clear();
      }
      if (!results_.empty() && found.empty()) {
        found = results_;
      } else {
        add_equal(results_, found);
        graph_.tensors.resize(tensors);
        graph_.rops.resize(rops);
      }
      size_t i = 0;
      while (i < choice.size() && choice[i] + 1 >= counts[i]) choice[i++] = 0;
      if (i == choice.size()) break;
      ++choice[i];
    }
    if (found.empty()) throw *refusal;
    for (size_t k = 0; k < found.size(); ++k) places_[rop.outputs[k].index()] = std::move(found[k]);
  }
  static constexpr int kMostChoices = 256;

  // What another choice of places gives that means the same order in memory.
  void add_equal(const std::vector<Places>& results, std::vector<Places>& found) const {
    for (size_t k = 0; k < results.size(); ++k) {
      const Shape& shape = result_shape(k);
      const auto outer = [&](const Place& place) { return product(shape, 0, place.dim) * place.before; };
      for (const Place& place : results[k]) {
        if (outer(place) == outer(found[k][0]) && std::find(found[k].begin(), found[k].end(), place) == found[k].end())
          found[k].push_back(place);
      }
    }
  }

  // Applies the rule with place number choice[i] of operand i.
  void choose(const ROperator& rop, const std::vector<size_t>& choice) {
    attrs_ = rop.attrs;
    inputs_ = rop.inputs;
    results_.assign(rop.outputs.size(), {});
    chosen_.assign(rop.inputs.size(), std::nullopt);
    for (size_t i = 0; i < choice.size(); ++i) {
      const Places& places = rop.inputs[i].valid() ? places_[rop.inputs[i].index()] : Places();
      if (places.empty()) continue;
      chosen_[i] = places[choice[i]];
      if (choice[i] != 0) inputs_[i] = emit(Reshape{grown(shape(i), *chosen_[i])}, {rop.inputs[i]});
    }
    step_ = 0;
    for (size_t i = 0; i < rop.inputs.size(); ++i) take_step(i);
    std::visit([&](const auto& op) { apply(op); }, rop.attrs);
  }

  void finish(const ROperator& rop) {
    ROperator made = rop;
    made.attrs = std::move(attrs_);
    made.inputs = inputs_;
    const std::vector<ops::TensorType> types = types_of(made.attrs, made.inputs);
    for (size_t k = 0; k < rop.outputs.size(); ++k) {
      Tensor& tensor = graph_.tensor(rop.outputs[k]);
      TAMP_CHECK(!results_[k].empty(), "no rule for result '" + tensor.name + "'");
      tensor.shape = grown(result_shape(k), results_[k][0]);
      TAMP_CHECK(types.at(k).shape == tensor.shape && types[k].dtype == tensor.dtype,
                 "with another batch '" + tensor.name + "' has another shape");
      require_size(tensor);
      steps_[rop.outputs[k].index()] = step_;
    }
    add(std::move(made));
  }

  // An output that is the same for any batch is one that the model does not compute of its inputs.
  void require_batch_in(TensorId id) const {
    const Tensor& tensor = original_.tensor(id);
    if (steps_[id.index()] != 0) throw Mixes{fmt::format("output '{}' numbers the elements of the whole batch", printable(tensor.name))};
    if (tensor.role == Role::constant || tensor.shape.empty() || element_count(tensor.shape) == 0) return;
    if (!places_[id.index()].empty()) return require_whole(tensor, places_[id.index()][0]);
    throw Mixes{fmt::format("output '{}' has shape {} whatever the batch", printable(tensor.name), shape_text(tensor.shape))};
  }

  // A caller finds an element of the batch in an output where the batch is a dimension, or part of the first one. Not: [1,6,4] that becomes
  // [1,18,4], row r of element b as row 3 * r + b.
  void require_whole(const Tensor& tensor, const Place& place) const {
    if (place.is_exact() || place.dim == 0) return;
    throw Mixes{fmt::format("output '{}' of shape {} would have the elements of the batch within its dimension {}, among others",
                            printable(tensor.name), shape_text(tensor.shape), place.dim)};
  }
};

}  // namespace

Graph with_batch(const std::string& file, const Graph& graph, int64_t from, int64_t to, const ModelWords& words) {
  Rebatch rebatch(graph, from, to, words);
  try {
    return remove_dead(rebatch.run());
  } catch (const Mixes& mixes) {
    throw unsupported(
        "{}: --batch {}: {}{}; the model was exported with batch {} and depends on it there; export it with the "
        "batch wanted, or with a symbolic one",
        file, to, rebatch.where().empty() ? "" : rebatch.where() + ": ", mixes.why, from);
  }
}

}  // namespace tamp::frontend
