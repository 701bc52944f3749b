#include "compiler/frontend/unfold.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "compiler/frontend/index_range.h"
#include "compiler/frontend/length_probes.h"

namespace tamp::frontend {
namespace {

class Unfold : private LengthProbes {
 public:
  Unfold(Probe& read, std::vector<Probe>& probes) : LengthProbes(read.graph, probes) {
    models_ = {&read};
    for (Probe& probe : probes) models_.push_back(&probe);
  }

  void run() {
    const size_t count = models_[0]->graph.rops.size();
    if (!std::all_of(models_.begin(), models_.end(), [&](const Probe* model) { return model->graph.rops.size() == count; })) return;
    made_.resize(models_.size());
    for (size_t i = 0; i < count; ++i) {
      Rops rops;
      for (Probe* model : models_) rops.push_back(&model->graph.rops[i]);
      take(rops);
      for (size_t m = 0; m < models_.size(); ++m) made_[m].push_back(*rops[m]);
    }
    for (size_t o = 0; o < models_[0]->graph.outputs.size(); ++o) {
      Ids ids;
      for (const Probe* model : models_) ids.push_back(model->graph.outputs[o]);
      if (changes(ids)) make(ids);
    }
    for (size_t m = 0; m < models_.size(); ++m) models_[m]->graph.rops = std::move(made_[m]);
  }

 private:
  using Rops = std::vector<ROperator*>;  // the same one of each model
  using Ids = std::vector<TensorId>;

  void take(const Rops& rops) {
    for (size_t k = 0; k < rops[0]->inputs.size(); ++k) {
      Ids ids;
      for (const ROperator* rop : rops) ids.push_back(tamp::operand(*rop, k));
      if (!changes(ids)) continue;
      if (k == 1 && takes_all_in_order(rops)) return reshape(rops);
      make(ids);
    }
  }

  const Tensor& tensor(const Ids& ids, size_t m) const { return models_[m]->graph.tensor(ids[m]); }

  // Whether the constant depends on a length, and how is not to be seen from its numbers alone.
  bool changes(const Ids& ids) {
    for (size_t m = 0; m < ids.size(); ++m) {
      if (!ids[m].valid() || tensor(ids, m).role != Role::constant || !tensor(ids, m).data) return false;
      if (tensor(ids, m).dtype != tensor(ids, 0).dtype || tensor(ids, m).shape.size() != tensor(ids, 0).shape.size()) return false;
    }
    const Other other = [&](const Probe& probe) -> const Tensor& { return tensor(ids, 1 + static_cast<size_t>(&probe - probes_.data())); };
    const Tensor& own = tensor(ids, 0);
    if (is_cut(own, other)) return false;
    const bool has_shape = std::all_of(probes_.begin(), probes_.end(), [&](const Probe& probe) { return other(probe).shape == own.shape; });
    if (!has_shape || (own.dtype != DType::i64 && element_count(own.shape) != 1)) return true;
    try {
      numbers_of(own, other);
    } catch (const Mixes&) {
      return true;
    }
    return false;
  }

  // Exporters write mask[i, j] as the numbers i * L + j of a mask in one row. Where they count all that there is, it is a Reshape.
  bool takes_all_in_order(const Rops& rops) const {
    for (size_t m = 0; m < rops.size(); ++m) {
      const auto* const gather = std::get_if<Gather>(&rops[m]->attrs);
      const Graph& graph = models_[m]->graph;
      if (!gather || graph.tensor(rops[m]->inputs[0]).role == Role::constant) return false;
      const std::vector<int64_t> numbers = whole_numbers(graph.tensor(rops[m]->inputs[1]));
      std::vector<int64_t> all(static_cast<size_t>(graph.tensor(rops[m]->inputs[0]).shape[static_cast<size_t>(gather->axis)]));
      std::iota(all.begin(), all.end(), 0);
      if (numbers != all) return false;
    }
    return true;
  }
  void reshape(const Rops& rops) {
    for (size_t m = 0; m < rops.size(); ++m) {
      rops[m]->attrs = Reshape{models_[m]->graph.tensor(rops[m]->outputs[0]).shape};
      rops[m]->inputs.resize(1);
    }
  }

  void make(const Ids& ids) {
    Rops rops;
    for (size_t m = 0; m < ids.size(); ++m) {
      const auto found = models_[m]->folded.find(ids[m]);
      if (found == models_[m]->folded.end()) return;
      rops.push_back(&found->second);
      const bool is_same = rops[m]->attrs.index() == rops[0]->attrs.index() && rops[m]->inputs.size() == rops[0]->inputs.size() &&
                           rops[m]->outputs.size() == rops[0]->outputs.size();
      if (!is_same) return;
    }
    take(rops);
    for (size_t m = 0; m < ids.size(); ++m) {
      for (const TensorId id : rops[m]->outputs) {
        models_[m]->graph.tensor(id).role = Role::activation;
        models_[m]->graph.tensor(id).data = nullptr;
      }
      made_[m].push_back(*rops[m]);
    }
  }

  std::vector<Probe*> models_;
  std::vector<std::vector<ROperator>> made_;
};

}  // namespace

void unfold(Probe& read, std::vector<Probe>& probes) { Unfold(read, probes).run(); }

}  // namespace tamp::frontend
