#include "compiler/cli/compiled_folder.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <nlohmann/json.hpp>

#include "codegen/codegen.h"
#include "compiler/cli/generation_file.h"
#include "compiler/cli/process.h"
#include "compiler/schedule/dependencies.h"
#include "compiler/schedule/schedule.h"
#include "compiler/schedule/schedule_file.h"
#include "compiler/select/records.h"
#include "compiler/support/error.h"
#include "compiler/support/hash.h"
#include "compiler/support/parallel.h"
#include "compiler/support/text.h"

namespace tamp::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kSuffix = ".rprogram.json";

std::vector<fs::path> rprogram_files(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(folder, failure)) {
    if (entry.path().filename().string().ends_with(kSuffix)) files.push_back(entry.path());
  }
  if (failure) throw bad_input("{}: cannot be read: {}", printable(folder.string()), failure.message());
  return files;
}

DType parse_dtype(const std::string& name) {
  for (int i = 0; i <= static_cast<int>(DType::whole_u8); ++i) {
    if (name == name_of(static_cast<DType>(i))) return static_cast<DType>(i);
  }
  throw bad_input("element type '{}' is not known", printable(name));
}

// A dimension with several axes has the product of their numbers.
Shape shape_at(const Port& port, const std::vector<int64_t>& values) {
  Shape shape = port.shape;
  for (const auto& [dim, extent] : port.axes) shape[static_cast<size_t>(dim)] = 1;
  for (const auto& [dim, extent] : port.axes) shape[static_cast<size_t>(dim)] *= extent.at(values[static_cast<size_t>(extent.length)]);
  return shape;
}

std::vector<Port> read_ports(const json& ports) {
  std::vector<Port> out;
  for (const json& port : ports) {
    out.push_back({port.at("name"), parse_dtype(port.at("dtype")), port.at("shape").get<Shape>(), port.value("count", int64_t{-1}),
                   port.value("count_axis", int64_t{0}), port.value("in_place", int64_t{-1})});
    for (const json& axis : port.value("axes", json::array())) {
      LengthAxis& read = out.back().axes.emplace_back();
      axis.at("dim").get_to(read.dim);
      axis.at("length").get_to(read.extent.length);
      axis.at("times").get_to(read.extent.times);
      axis.at("plus").get_to(read.extent.plus);
      axis.at("over").get_to(read.extent.over);
    }
  }
  return out;
}

CompiledFolder::ROperatorLine read_rop(const json& rop) {
  CompiledFolder::ROperatorLine line;
  rop.at("name").get_to(line.name);
  rop.at("op").get_to(line.op);
  rop.at("rkernel").get_to(line.rkernel);
  rop.at("chosen_by").get_to(line.chosen_by);
  rop.at("origin").get_to(line.origin);
  line.dtype = parse_dtype(rop.at("dtype"));
  rop.at("shape").get_to(line.shape);
  rop.at("rtasks").get_to(line.rtasks);
  rop.at("veus").get_to(line.veus);
  rop.at("waits").get_to(line.waits);
  rop.at("flops").get_to(line.flops);
  rop.at("bytes").get_to(line.bytes);
  rop.at("weight_bytes").get_to(line.weight_bytes);
  rop.at("estimated_us").get_to(line.estimated_us);
  rop.at("gang").get_to(line.gang);
  return line;
}

std::vector<CompiledFolder::Lane> read_lanes(const json& lanes) {
  std::vector<CompiledFolder::Lane> out;
  for (const json& lane : lanes) {
    CompiledFolder::Lane& entries = out.emplace_back();
    for (const json& entry : lane)
      entries.push_back(
          {entry.at("rop").get<int64_t>(), entry.at("waits").get<std::vector<int64_t>>(), entry.at("signal").get<int64_t>(), 0, 0});
  }
  return out;
}

// `planned_ns` holds begin and end of each entry. Programs that are only measured have none.
void read_times(const json& planned_ns, std::vector<CompiledFolder::Lane>& lanes) {
  if (planned_ns.empty()) return;
  for (size_t veu = 0; veu < lanes.size(); ++veu) {
    const auto times = planned_ns.at(veu).get<std::vector<int64_t>>();
    if (times.size() != 2 * lanes[veu].size() || planned_ns.size() != lanes.size())
      throw bad_input("field 'planned_ns' does not fit 'lanes'");
    for (size_t i = 0; i < lanes[veu].size(); ++i) {
      lanes[veu][i].begin_us = static_cast<double>(times[2 * i]) / 1e3;
      lanes[veu][i].end_us = static_cast<double>(times[2 * i + 1]) / 1e3;
    }
  }
}

DimRange read_range(const json& object) {
  DimRange range{object.at("smallest"), object.at("buckets").get<std::vector<int64_t>>(), object.value("chosen", false),
                 object.value("step", int64_t{1})};
  if (range.smallest < 1 || range.buckets.empty() || !std::is_sorted(range.buckets.begin(), range.buckets.end()) ||
      range.smallest > range.buckets.front())
    throw bad_input("field 'ranges' or 'batches' is not a range");
  return range;
}

void read_lengths(const json& object, CompiledFolder& out) {
  for (const json& length : object.value("lengths", json::array()))
    out.lengths.push_back({length.at("name"), length.at("smallest"), length.at("largest"), length.value("step", int64_t{1})});
  if (out.lengths.empty()) return;
  const auto add = [&](const json& program) {
    CompiledFolder::Bucket& bucket = out.buckets.emplace_back();
    for (const json& length : program.at("lengths")) bucket.largest[length.at("name")] = length.at("largest").get<int64_t>();
    program.at("estimated_us").get_to(bucket.estimated_us);
  };
  for (const json& program : object.value("smaller", json::array())) add(program);
  add(object);
}

std::optional<codegen::ModelOrigin> read_origin(const json& object) {
  const auto found = object.find("model");
  if (found == object.end() || found->is_null()) return std::nullopt;
  codegen::ModelOrigin origin;
  found->at("dims").get_to(origin.dims);
  const json ranges = found->value("ranges", json::object());
  for (const auto& [name, range] : ranges.items()) origin.ranges.emplace(name, read_range(range));
  if (found->contains("batches")) origin.batches = read_range(found->at("batches"));
  origin.frozen = found->value("frozen", origin.frozen);
  origin.batch = found->value("batch", origin.batch);
  origin.narrow_activations = found->value("activations", "auto") != "fp32";
  if (found->contains("generation")) origin.generation = found->at("generation").dump();
  const auto content = found->at("content").get<std::string>();
  const auto [end, failure] = std::from_chars(content.data(), content.data() + content.size(), origin.content, 16);
  if (failure != std::errc() || end != content.data() + content.size()) throw bad_input("field 'content' is not a hash");
  return origin;
}

CompiledFolder read_object(const json& object) {
  CompiledFolder out;
  object.at("name").get_to(out.name);
  object.at("source").get_to(out.source);
  out.origin = read_origin(object);
  const json& vdevice = object.at("vdevice");
  vdevice.at("name").get_to(out.vdevice);
  vdevice.at("arch").get_to(out.arch);
  vdevice.at("veus").get_to(out.veus);
  vdevice.at("threads").get_to(out.threads);
  vdevice.at("smem_bytes").get_to(out.smem_bytes);
  object.at("precision").get_to(out.precision);
  object.at("policy").get_to(out.policy);
  object.at("execution").get_to(out.execution);
  object.at("embedded_weights").get_to(out.embedded_weights);
  object.at("estimated_us").get_to(out.estimated_us);
  object.at("depth").get_to(out.depth);
  object.at("arena_bytes").get_to(out.arena_bytes);
  object.at("weight_bytes").get_to(out.weight_bytes);
  object.at("waits").get_to(out.waits);
  out.events = static_cast<int64_t>(object.at("events").size());
  for (const json& launch : object.at("launches")) {
    ++out.launches;
    out.dependent_launches += launch.value("dependent", false) ? 1 : 0;
    out.streams = std::max(out.streams, launch.at("stream").get<int64_t>() + 1);
  }
  out.inputs = read_ports(object.at("inputs"));
  out.outputs = read_ports(object.at("outputs"));
  read_lengths(object, out);
  if (const auto generation = object.find("generation"); generation != object.end()) {
    out.makes_tokens = true;
    generation->at("held").get_to(out.held);
  }
  for (const json& rop : object.at("rops")) out.rops.push_back(read_rop(rop));
  out.lanes = read_lanes(object.at("lanes"));
  read_times(object.at("planned_ns"), out.lanes);
  return out;
}

// Checks what other code relies on: the name becomes file names and compiler arguments, and lane entries become indices.
void check(const CompiledFolder& read) {
  if (read.name.empty() || identifier(read.name) != read.name) throw bad_input("field 'name' is not an identifier");
  if (read.veus < 1 || read.veus > (1 << 20)) throw bad_input("field 'veus' is out of range");
  if (identifier(read.arch) != read.arch) throw bad_input("field 'arch' is not an architecture");
  constexpr double kMostUs = 1e12;  // eleven days
  for (const auto& lane : read.lanes) {
    for (const auto& entry : lane) {
      if (entry.rop < -1 || entry.rop >= static_cast<int64_t>(read.rops.size()))
        throw bad_input("field 'lanes' names a rOperator that is not there");
      const auto is_event = [&](int64_t event) { return event >= 0 && event < read.events; };
      if (!std::all_of(entry.waits.begin(), entry.waits.end(), is_event) || (entry.signal != -1 && !is_event(entry.signal)))
        throw bad_input("field 'lanes' names an event that is not there");
      if (!(0 <= entry.begin_us && entry.begin_us <= entry.end_us && entry.end_us <= kMostUs))
        throw bad_input("field 'planned_ns' is out of range");
    }
  }
  for (const Length& length : read.lengths) {
    if (length.smallest < 1 || length.smallest > length.largest || length.largest > (int64_t{1} << 31) || length.step < 1)
      throw bad_input("field 'lengths' is out of range");
    for (const CompiledFolder::Bucket& bucket : read.buckets) {
      if (!bucket.largest.contains(length.name)) throw bad_input("field 'smaller' has other lengths");
    }
  }
  for (const auto& ports : {read.inputs, read.outputs}) {
    for (const Port& port : ports) {
      std::vector<int64_t> largest;
      for (const Length& length : read.lengths) largest.push_back(length.largest);
      for (const auto& [dim, extent] : port.axes) {
        const bool is_there = dim >= 0 && dim < static_cast<int64_t>(port.shape.size()) && extent.length >= 0 &&
                              static_cast<size_t>(extent.length) < read.lengths.size() && extent.times >= 1 && extent.over >= 1;
        if (!is_there) throw bad_input("a port's field 'axes' does not fit its shape");
      }
      if (shape_at(port, largest) != port.shape) throw bad_input("a port's field 'axes' does not fit its shape");
      for (const int64_t extent : port.shape) {
        if (extent < 0 || extent > (int64_t{1} << 40)) throw bad_input("a port's field 'shape' is out of range");
      }
    }
  }
  for (const Port& port : read.outputs) {
    if (port.count < 0) continue;
    const bool is_count = port.count < static_cast<int64_t>(read.outputs.size()) &&
                          read.outputs[static_cast<size_t>(port.count)].dtype == DType::i64 &&
                          read.outputs[static_cast<size_t>(port.count)].shape == Shape{1};
    if (!is_count || port.count_axis < 0 || port.count_axis >= static_cast<int64_t>(port.shape.size()))
      throw bad_input("an output's field 'count' or 'count_axis' is out of range");
  }
  for (const int64_t held : read.held) {
    if (held < 0 || held >= static_cast<int64_t>(read.inputs.size())) throw bad_input("field 'held' names an input that is not there");
  }
  for (const Port& port : read.outputs) {
    if (port.in_place >= static_cast<int64_t>(read.inputs.size())) throw bad_input("an output's field 'in_place' is out of range");
  }
}

}  // namespace

CompiledFolder read_rprogram(const json& rprogram) {
  CompiledFolder out = read_object(rprogram);
  check(out);
  return out;
}

std::string rprogram_json_of(const CompiledFolder& compiled) { return read_text(compiled.folder / (compiled.name + std::string(kSuffix))); }

CompiledFolder read_compiled_folder(const std::string& folder) {
  const std::vector<fs::path> files = rprogram_files(folder);
  if (files.empty()) throw bad_input("{}: holds no NAME{}; 'tamp compile' writes such a folder", printable(folder), kSuffix);
  if (files.size() > 1) throw bad_input("{}: holds more than one compiled model", printable(folder));
  const std::string path = printable(files[0].string());
  const json object = json::parse(read_text(files[0]), nullptr, /*allow_exceptions=*/false);
  if (object.is_discarded()) throw bad_input("{}: is not JSON", path);
  try {
    CompiledFolder out = read_rprogram(object);
    out.folder = folder;
    return out;
  } catch (const json::exception& wrong) {
    throw bad_input("{}: is not what tamp writes: {}", path, wrong.what());
  } catch (const Error& wrong) {
    throw bad_input("{}: {}", path, wrong.what());
  }
}

CompiledFolder at_values(CompiledFolder compiled, const std::vector<int64_t>& values) {
  TAMP_CHECK(values.size() == compiled.lengths.size(), "values of other lengths");
  for (size_t i = 0; i < values.size(); ++i) {
    const Length& length = compiled.lengths[i];
    if (values[i] < length.smallest || values[i] > length.largest || values[i] % length.step != 0)
      throw bad_input("{}: length '{}' is {}, allowed are {}", compiled.name, printable(length.name), values[i], values_text(length));
  }
  for (auto* ports : {&compiled.inputs, &compiled.outputs}) {
    for (Port& port : *ports) port.shape = shape_at(port, values);
  }
  compiled.values = values;
  return compiled;
}

size_t bucket_of(const CompiledFolder& compiled) {
  for (size_t b = 0; b + 1 < compiled.buckets.size() && !compiled.values.empty(); ++b) {
    bool holds = true;
    for (size_t i = 0; i < compiled.lengths.size(); ++i)
      holds = holds && compiled.values[i] <= compiled.buckets[b].largest.at(compiled.lengths[i].name);
    if (holds) return b;
  }
  return std::max<size_t>(compiled.buckets.size(), 1) - 1;
}

bool is_largest(const CompiledFolder& compiled) {
  bool found = true;
  for (size_t i = 0; i < compiled.values.size(); ++i)
    found = found && compiled.values[i] == compiled.buckets[bucket_of(compiled)].largest.at(compiled.lengths[i].name);
  return found;
}

std::string port_text(const CompiledFolder& compiled, const Port& port) {
  std::vector<std::string> extents;
  for (const int64_t extent : port.shape) extents.push_back(std::to_string(extent));
  int64_t last = -1;
  for (const auto& [dim, extent] : port.axes) {
    std::string text = printable(compiled.lengths[static_cast<size_t>(extent.length)].name);
    if (extent.times != 1) text = fmt::format("{}*{}", extent.times, text);
    if (extent.plus != 0) text += fmt::format("{:+}", extent.plus);
    if (extent.over != 1) text = fmt::format("({})/{}", text, extent.over);
    std::string& shown = extents[static_cast<size_t>(dim)];
    shown = dim == last ? fmt::format("{}*{}", shown, text) : text;
    last = dim;
  }
  return fmt::format("{}[{}]", name_of(port.dtype), join(extents, ","));
}

void add_schedule(const RProgram& program, codegen::EmitOptions& options) {
  codegen::ProgramFacts& facts = options.facts.emplace_back();
  facts.producers = schedule::find_dependencies(program.graph).producers;
  for (const auto& lane : schedule::timeline(program).lanes) {
    auto& spans = facts.planned.emplace_back();
    for (const schedule::Span& span : lane) spans.push_back({span.begin_us, span.end_us});
  }
  for (const ROperator& rop : program.graph.rops) facts.signatures.push_back(select::signature(program.graph, rop));
  if (options.origin) facts.schedule = schedule::schedule_text(program, options.origin->batch);
  for (const RProgram& smaller : program.smaller) add_schedule(smaller, options);
}

namespace {

// hash_bytes of a file, some at a time: a model with its weights may be large.
uint64_t hash_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> some(size_t{1} << 20);  // bytes; a multiple of hash_bytes' words
  uint64_t hash = kHashSeed;
  while (file) {
    file.read(some.data(), static_cast<std::streamsize>(some.size()));
    hash = hash_bytes(some.data(), static_cast<size_t>(file.gcount()), hash);
  }
  if (!file.eof()) throw bad_input("{}: cannot be read", printable(path));
  return hash;
}

// A model's weights may be in files of their own. The next ones are read while some are hashed.
uint64_t hash_constants(const Graph& graph, uint64_t hash) {
  std::vector<TensorData> data;
  std::vector<size_t> costs;
  for (const Tensor& tensor : graph.tensors) {
    if (!tensor.data) continue;
    data.push_back(tensor.data);
    costs.push_back(tensor.data.size());
  }
  std::vector<std::shared_ptr<const Bytes>> held(data.size());
  make_in_order(
      costs, kPackingBytes, [&](size_t i) { held[i] = data[i].hold(); },
      [&](size_t i) {
        const std::shared_ptr<const Bytes> bytes = std::move(held[i]);
        hash = hash_bytes(bytes->data(), bytes->size(), hash);
      });
  return hash;
}

}  // namespace

codegen::ModelOrigin origin_of(const std::string& path, const Graph& source, const CompileOptions& options) {
  codegen::ModelOrigin origin{hash_constants(source, hash_file(path)), options.dims, options.ranges, options.batches};
  for (const auto& [name, value] : options.frozen) {
    origin.frozen.push_back(name);
    const std::string type = name_of(value.dtype) + shape_text(value.shape);
    origin.content = hash_bytes(type.data(), type.size(), origin.content);
    origin.content = hash_bytes(value.data->data(), value.data.size(), origin.content);
  }
  origin.batch = options.batch;
  origin.narrow_activations = options.narrow_activations;
  if (options.generation) origin.generation = generation_text(*options.generation);
  return origin;
}

CompileOptions reading_options(const codegen::ModelOrigin& origin, const std::map<std::string, ops::Value>& frozen) {
  CompileOptions options;
  options.dims = origin.dims;
  options.ranges = origin.ranges;
  options.batches = origin.batches;
  options.frozen = frozen;
  options.batch = origin.batch;
  if (!origin.generation.empty()) options.generation = parse_generation(origin.generation, "NAME.rprogram.json");
  return options;
}

Graph read_model_of(const CompiledFolder& compiled, const std::string& given, const std::map<std::string, ops::Value>& frozen) {
  const std::string folder = printable(compiled.folder.string());
  if (!compiled.origin) throw bad_input("{}: does not say what it was compiled from; compile the model again", folder);
  const fs::path name = fs::path(compiled.source).filename();
  std::vector<fs::path> places = {compiled.folder / name, compiled.folder / ".." / name, name};
  if (!given.empty()) places = {given};
  std::error_code ignored;
  const auto is_file = [&](const fs::path& place) { return fs::is_regular_file(place, ignored); };
  const auto found = std::find_if(places.begin(), places.end(), is_file);
  if (found == places.end()) {
    if (!given.empty()) throw bad_input("--model {}: no such file", printable(given));
    throw bad_input("--check: the model {} is not in {}, not beside it and not here; give it with --model FILE", printable(name.string()),
                    folder);
  }
  const std::string path = found->lexically_normal().string();
  for (const std::string& input : compiled.origin->frozen) {
    if (!frozen.contains(input)) throw bad_input("--check: {} was compiled with --freeze {}=FILE; give it again", folder, printable(input));
  }
  const CompileOptions options = reading_options(*compiled.origin, frozen);
  Graph graph = read_source(path, buckets_of(options).options.back());
  if (origin_of(path, graph, options).content == compiled.origin->content)
    return compiled.values.empty() ? graph : read_source(path, at_values(options, compiled.values));
  throw bad_input("{}: is not the model that {} was compiled from, or has changed since (its weights count, too); compile it again",
                  printable(path), folder);
}

void require_own_folder(const std::string& folder, const std::string& name) {
  codegen::check_output(folder, {.name = name, .source_name = {}});
}

}  // namespace tamp::cli
