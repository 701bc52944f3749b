#include "test/support/tiny_programs.h"

#include <algorithm>

namespace tamp::test {
namespace {

constexpr int64_t kFlops = 12'000'000;  // of every rOperator: 12 us on one vEU

int64_t elements_of(const Graph& graph, const ROperator& rop) { return element_count(graph.tensor(rop.outputs[0]).shape); }

void read_all(const Graph& graph, const ROperator& rop, bool with_constants, Accesses& out) {
  for (const TensorId id : reads_of(rop)) {
    if (!with_constants && graph.tensor(id).role == Role::constant) continue;
    for (const Run& run : whole_runs(graph.tensor(id))) out.reads.push_back({id, run});
  }
}

// Piece `index` of `count` nearly equal ones of [0, total).
std::pair<int64_t, int64_t> piece(int64_t total, int64_t count, int64_t index) {
  return {total * index / count, total * (index + 1) / count};
}

Phase phase_of(const std::string& body, int64_t rtasks) {
  Phase phase;
  phase.body = body;
  phase.rtasks = rtasks;
  phase.cost.flops = static_cast<double>(kFlops) / static_cast<double>(rtasks);
  phase.cost.efficiency = 1;
  return phase;
}

std::vector<RKernel> tiles_candidates(const kernels::Request& request) {
  std::vector<RKernel> found;
  if (!std::holds_alternative<Elementwise>(request.rop.attrs)) return found;
  for (const int64_t tiles : {1, 2, 3, 4, 6}) {
    if (tiles > elements_of(request.graph, request.rop)) continue;
    RKernel rkernel{"tiles", "tiles<" + std::to_string(tiles) + ">", {phase_of("rk::tiles", tiles)}, 0, {{"tiles", tiles}}};
    for (const TensorId id : reads_of(request.rop)) rkernel.phases[0].args.push_back({"in", {TensorArg{id, 0}}});
    found.push_back(std::move(rkernel));
  }
  return found;
}

void tiles_accesses(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int, int64_t index, Accesses& out) {
  read_all(graph, rop, /*with_constants=*/true, out);
  const auto [begin, end] = piece(elements_of(graph, rop), rkernel.config_value("tiles"), index);
  for (const Run& run : flat_runs(graph.tensor(rop.outputs[0]), begin, end)) out.writes.push_back({rop.outputs[0], run});
}

std::vector<RKernel> split_candidates(const kernels::Request& request) {
  std::vector<RKernel> found;
  if (!std::holds_alternative<MatMul>(request.rop.attrs)) return found;
  const int64_t elements = elements_of(request.graph, request.rop);
  for (const int64_t parts : {2, 3}) {
    Phase partial = phase_of("rk::partial", parts);
    partial.ring = {64, 2, 1, parts};
    found.push_back({"split",
                     "split<" + std::to_string(parts) + ">",
                     {partial, phase_of("rk::sum", std::min<int64_t>(2, elements))},
                     parts * elements,
                     {{"parts", parts}}});
  }
  return found;
}

// Made from the last operand alone.
Bytes split_pack(const Graph&, const ROperator& rop, const RKernel& rkernel, int phase) {
  return phase == 0 ? Bytes(static_cast<size_t>(128 * rkernel.config_value("parts")), static_cast<std::byte>(rop.inputs.back().value))
                    : Bytes();
}

void split_accesses(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int phase, int64_t index, Accesses& out) {
  const int64_t elements = elements_of(graph, rop), parts = rkernel.config_value("parts");
  if (phase == 0) {
    read_all(graph, rop, /*with_constants=*/false, out);  // those are packed
    out.writes.push_back({TensorId(), {index * elements, 1, 0, elements}});
    return;
  }
  const auto [begin, end] = piece(elements, rkernel.phases[1].rtasks, index);
  out.reads.push_back({TensorId(), {begin, parts, elements, end - begin}});
  for (const Run& run : flat_runs(graph.tensor(rop.outputs[0]), begin, end)) out.writes.push_back({rop.outputs[0], run});
}

Bytes pack_nothing(const Graph&, const ROperator&, const RKernel&, int) { return {}; }

NamedGraph chain() {
  GraphBuilder b;
  TensorId t = b.input("x", {7});
  for (const char* name : {"a", "b", "c", "d", "e"}) t = b.tiles(name, {t}, {7});
  b.output(t);
  return {"chain", b.take()};
}

NamedGraph diamond() {
  GraphBuilder b;
  const TensorId x = b.input("x", {5, 3});
  const TensorId a = b.tiles("a", {x}, {5, 3});
  const TensorId left = b.tiles("left", {a}, {5, 3}), right = b.tiles("right", {a}, {1, 4});
  const TensorId side = b.tiles("side", {right}, {9});
  b.output(b.tiles("join", {left, side}, {3}));
  return {"diamond", b.take()};
}

NamedGraph concat() {
  GraphBuilder b;
  const TensorId x = b.input("x", {4, 2});
  const TensorId p = b.tiles("p", {x}, {4, 1}), q = b.tiles("q", {x}, {4, 3}), r = b.tiles("r", {p}, {4, 2});
  const TensorId all = b.concat_last("all", {p, q, r});
  const TensorId of_all = b.tiles("of_all", {all}, {6}), of_q = b.tiles("of_q", {q}, {5});
  b.output(b.tiles("join", {of_all, of_q}, {4}));
  return {"concat", b.take()};
}

NamedGraph split_sum() {
  GraphBuilder b;
  const TensorId x = b.input("x", {1, 5}), w = b.constant("w", {5, 3});
  const TensorId a = b.split("a", {x, w}, {1, 3});
  const TensorId c = b.split("b", {a}, {1, 1});
  b.output(b.tiles("end", {c}, {2}));
  return {"split", b.take()};
}

NamedGraph wide() {
  GraphBuilder b;
  const TensorId x = b.input("x", {4});
  std::vector<TensorId> branches;
  for (const char* name : {"b0", "b1", "b2"}) branches.push_back(b.tiles(name, {b.tiles(std::string(name) + "_", {x}, {300})}, {80}));
  b.output(branches[1]);
  b.output(b.tiles("join", branches, {2}));
  return {"wide", b.take()};
}

NamedGraph constants() {
  GraphBuilder b;
  const TensorId x = b.input("x", {6}), c = b.constant("c", {4});
  b.output(b.tiles("b", {b.tiles("a", {x, c}, {5}), c}, {3}));
  return {"constants", b.take()};
}

}  // namespace

ShapedVDevice tiny_vdevice(int64_t veus) {
  ShapedVDevice d;
  d.name = "tiny";
  d.arch = "cpu";
  d.sms = veus;
  d.smem_bytes = 100 * 1024;
  d.weight_stages = 2;
  d.weight_stage_bytes = 4096;
  d.fp32_tflops = static_cast<double>(veus);
  d.l2_bytes = 1e6;
  d.l2_gb_per_s = d.dram_gb_per_s = static_cast<double>(veus);
  d.edge_us = 1;
  d.same_veu_us = 0;
  d.rtask_us = 1;
  d.barrier_us = 2;
  d.launch_us = 5;
  return d;
}

void GraphBuilder::place(TensorId id, Buffer buffer) {
  Tensor& tensor = graph_.tensor(id);
  buffer.elements = element_count(tensor.shape);
  graph_.buffers.push_back(buffer);
  tensor.place = {BufferId(static_cast<int64_t>(graph_.buffers.size()) - 1), 0, row_major_strides(tensor.shape)};
}

TensorId GraphBuilder::input(const std::string& name, Shape shape) {
  const TensorId id = add_tensor(graph_, {name, DType::f32, std::move(shape), Role::input, nullptr, {}});
  Buffer buffer;
  buffer.kind = BufferKind::input;
  buffer.io_index = static_cast<int32_t>(graph_.inputs.size());
  graph_.inputs.push_back(id);
  place(id, buffer);
  return id;
}

TensorId GraphBuilder::constant(const std::string& name, Shape shape) {
  const std::vector<float> values(static_cast<size_t>(element_count(shape)), 1.0F);
  const TensorId id = add_f32_constant(graph_, name, std::move(shape), values);
  Buffer buffer;
  buffer.kind = BufferKind::constant;
  buffer.constant = id;
  place(id, buffer);
  return id;
}

TensorId GraphBuilder::make(const std::string& name, OpAttrs attrs, const std::vector<TensorId>& inputs, Shape shape) {
  const TensorId id = add_tensor(graph_, {name, DType::f32, std::move(shape), Role::activation, nullptr, {}});
  place(id, {});
  graph_.rops.push_back({name, std::move(attrs), {}, inputs, {id}, {name}});
  return id;
}

TensorId GraphBuilder::tiles(const std::string& name, const std::vector<TensorId>& inputs, Shape shape) {
  return make(name, Elementwise{}, inputs, std::move(shape));
}

TensorId GraphBuilder::split(const std::string& name, const std::vector<TensorId>& inputs, Shape shape) {
  return make(name, MatMul{}, inputs, std::move(shape));
}

TensorId GraphBuilder::concat_last(const std::string& name, const std::vector<TensorId>& parts) {
  Shape shape = graph_.tensor(parts[0]).shape;
  shape.back() = 0;
  for (const TensorId id : parts) shape.back() += graph_.tensor(id).shape.back();
  const TensorId all = make(name, Concat{static_cast<int64_t>(shape.size()) - 1}, parts, shape);
  int64_t offset = 0;
  for (const TensorId id : parts) {
    Tensor& part = graph_.tensor(id);
    graph_.buffers[part.place.buffer.index()].elements = 0;  // nobody's now
    part.place = graph_.tensor(all).place;
    part.place.offset = offset;
    if (part.shape.back() == 1) part.place.strides.back() = 0;
    offset += part.shape.back();
  }
  return all;
}

void GraphBuilder::output(TensorId id) {
  Buffer& buffer = graph_.buffers[graph_.tensor(id).place.buffer.index()];
  buffer.kind = BufferKind::output;
  buffer.io_index = static_cast<int32_t>(graph_.outputs.size());
  graph_.outputs.push_back(id);
}

const select::Families& tiny_families() {
  static const select::Families families = {{"tiles", tiles_candidates, pack_nothing, tiles_accesses},
                                            {"split", split_candidates, split_pack, split_accesses}};
  return families;
}

std::vector<NamedGraph> tiny_graphs() {
  std::vector<NamedGraph> all;
  for (const auto make : {chain, diamond, concat, split_sum, wide, constants}) all.push_back(make());
  return all;
}

}  // namespace tamp::test
