// The replay: test/golden/replay.txt has a line for each model of test/replay, batch, vDevice and precision, with a hash of the plan, of
// the part of NAME.cu that is the program's own, and of its weights; the estimate; and the kinds of its rOperators. A change that shall
// alter no program alters no line, and of one that shall, the diff says which models it reaches. TAMP_UPDATE_GOLDEN=1 writes the lines
// anew; `replay_test -c bert` compiles one model.
//
// The models are graphs of real networks, or of parts of them, without weights (test/replay/skeleton.py). The weights are drawn here, with
// integers only, so that they are the same everywhere.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "codegen/codegen.h"
#include "compiler/compile.h"
#include "compiler/ir/fused.h"
#include "compiler/ops/number.h"
#include "compiler/support/hash.h"
#include "compiler/support/log.h"
#include "compiler/support/parallel.h"
#include "compiler/support/text.h"
#include "compiler/support/version.h"
#include "runtime_stub/host/checksum.h"
#include "test/support/catch.h"
#include "test/support/onnx_model.h"

using namespace tamp;
namespace fs = std::filesystem;

namespace {

const fs::path kTests = fs::path(__FILE__).parent_path().parent_path();
const fs::path kGolden = kTests / "golden" / "replay.txt";

// --- models ---

// Value `i` of a constant that is drawn between low and high.
struct Draw {
  uint64_t seed = 0;
  int64_t low = 0, high = 0;
  int exponent = 0;

  uint64_t bits(uint64_t i) const {  // 24 of them (SplitMix64)
    uint64_t x = (i + 1) * 0x9E3779B97F4A7C15 + seed;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    return (x ^ (x >> 31)) >> 40;
  }
  int64_t whole(uint64_t i) const { return low + (((high - low + 1) * static_cast<int64_t>(bits(i))) >> 24); }
  float real(uint64_t i) const {
    const int64_t fine = low * (int64_t{1} << 24) + (high - low) * static_cast<int64_t>(bits(i));
    return static_cast<float>(std::ldexp(static_cast<double>(fine), exponent - 24));
  }
};

template <class T, class F>
std::string drawn_bytes(int64_t count, const F& value) {
  std::string bytes(static_cast<size_t>(count) * sizeof(T), '\0');
  for (int64_t i = 0; i < count; ++i) {
    const T one = value(static_cast<uint64_t>(i));
    std::memcpy(bytes.data() + static_cast<size_t>(i) * sizeof(T), &one, sizeof(T));
  }
  return bytes;
}

void draw_values(onnx::TensorProto& tensor) {
  std::map<std::string, int64_t> rule;
  for (const auto& entry : tensor.external_data()) rule[entry.key()] = std::stoll(entry.value());
  const Draw draw{hash_bytes(tensor.name().data(), tensor.name().size()), rule.at("low"), rule.at("high"),
                  static_cast<int>(rule.at("exponent"))};
  int64_t count = 1;
  for (const int64_t extent : tensor.dims()) count *= extent;
  const auto bytes = [&] {
    switch (tensor.data_type()) {
      case onnx::TensorProto::FLOAT: return drawn_bytes<float>(count, [&](uint64_t i) { return draw.real(i); });
      case onnx::TensorProto::FLOAT16:
        return drawn_bytes<ops::Half>(
            count, [&](uint64_t i) { return ops::half_of(std::ldexp(static_cast<double>(draw.whole(i)), draw.exponent)); });
      default: return drawn_bytes<int8_t>(count, [&](uint64_t i) { return static_cast<int8_t>(draw.whole(i)); });  // or uint8_t
    }
  };
  tensor.set_raw_data(bytes());
  tensor.clear_external_data();
  tensor.clear_data_location();
}

onnx::ModelProto model_with_weights(const std::string& name) {
  onnx::ModelProto model;
  std::ifstream file(kTests / "replay" / (name + ".onnx"), std::ios::binary);
  REQUIRE(model.ParseFromIstream(&file));
  for (onnx::TensorProto& tensor : *model.mutable_graph()->mutable_initializer()) {
    if (tensor.external_data_size() > 0) draw_values(tensor);
  }
  return model;
}

// --- programs ---

// What a program does, as text: bodies and their arguments with all addresses, lanes and events. No names, and no numbers of tensors and
// rOperators, which may change while the program does not.
class PlanText {
 public:
  explicit PlanText(const RProgram& program) : program_(program) {
    for (size_t r = 0; r < program.rkernels.size(); ++r) {
      first_record_.push_back(records_);
      for (size_t p = 0; p < program.rkernels[r].phases.size(); ++p) add_phase(r, p);
    }
    for (const std::vector<Instruction>& lane : program.lanes) add_lane(lane);
    for (const Event& event : program.events) add("{} ", event.count);
    if (program.launches) add_launches(*program.launches);
    const MemoryPlan& memory = program.memory;
    const ShapedVDevice& d = program.vdevice;
    add("{} {} {} {} {} {}\n", d.weight_stages, d.weight_stage_bytes, d.input_stages, d.input_stage_bytes, d.cluster_veus, d.voting_waits);
    add("{} {} {} {} {}\n", memory.arena_bytes, memory.words_bytes, program.weight_bytes, program.weights_in_l2, program.veus_by_sm);
  }
  const std::string& text() const { return text_; }

 private:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }

  int64_t record_of(ROperatorId rop, int32_t phase) const {
    return rop.valid() ? static_cast<int64_t>(first_record_[rop.index()]) + phase : -1;
  }

  // Of the blob that holds a constant, or of what the family packs for a phase.
  int64_t weights_offset(TensorId constant, size_t rop, size_t phase) const {
    const auto is_it = [&](const WeightBlob& blob) {
      if (constant.valid() || blob.constant.valid()) return blob.constant == constant;
      return blob.rop.index() == rop && static_cast<size_t>(blob.phase) == phase;
    };
    const auto found = std::find_if(program_.weights.begin(), program_.weights.end(), is_it);
    return found == program_.weights.end() ? -1 : found->offset;
  }

  void add_tensor(TensorId id, int64_t extra) {
    const Tensor& tensor = program_.graph.tensor(id);
    const BufferId of = tensor.place.buffer;
    if (!of.valid()) return add("none ");
    const Buffer& buffer = program_.graph.buffers[of.index()];
    const int64_t offset =
        buffer.kind == BufferKind::constant ? weights_offset(buffer.constant, 0, 0) : program_.memory.buffer_offset[of.index()];
    add("{}:{}:{}+{}+{} ", static_cast<int>(buffer.kind), buffer.io_index, offset, tensor.place.offset, extra);
  }

  void add_value(const ArgValue& value, size_t rop, size_t phase) {
    const MemoryPlan& memory = program_.memory;
    std::visit(overloaded{
                   [&](int64_t v) { add("{} ", v); },
                   [&](double v) { add("{} ", static_cast<float>(v)); },
                   [&](const TensorArg& v) { add_tensor(v.tensor, v.extra); },
                   [&](const ScratchArg& v) { add("scratch {}+{} ", memory.scratch_offset[rop], v.offset); },
                   [&](const ExchangeArg& v) { add("exchange {}+{} ", memory.exchange_offset[rop], v.offset); },
                   [&](const WordsArg& v) {
                     add_tensor(v.tensor, 0);
                     const BufferId buffer = program_.graph.tensor(v.tensor).place.buffer;
                     add("words {} {} {} ", buffer.valid() ? memory.words_offset[buffer.index()] : -1, v.bit, v.else_null);
                   },
                   [&](const PackedArg& v) { add("packed {}+{} ", weights_offset({}, rop, phase), v.offset_bytes); },
                   [&](const DivisorArg& v) { add("/{} ", v.divisor); },
                   [&](const ExtentArg& v) { add("extent {} ", largest_value(program_.graph, v)); },
                   [&](const NoTensorArg&) { add("nothing "); },
                   [&](const ArgList& list) {
                     add("{{{}: ", fmt::join(value.names, " "));
                     for (const ArgValue& element : list) add_value(element, rop, phase);
                     add("}} ");
                   },
               },
               value.value);
  }

  void add_boxes(const InputBoxes& b) {
    add_tensor(b.tensor, 0);
    add("{} {} ", fmt::join(b.extents, " "), fmt::join(b.strides, " "));
    for (const int64_t number :
         {b.box_w, b.box_h, b.tiles_w, b.tiles_h, b.images, b.begin_w, b.begin_h, b.step_w, b.step_h, b.splits, b.n_blocks, b.blocks_beside,
          b.group_channels, b.boxes, b.boxes_per_split, b.boxes_per_chunk, b.boxes_per_copy, b.value_bytes})
      add("{} ", number);
  }

  void add_phase(size_t rop, size_t number) {
    const Phase& phase = program_.rkernels[rop].phases[number];
    ++records_;
    add("{}<", phase.body);
    for (const auto& [name, value] : phase.template_args) add("{}={} ", name, value);
    add("> ");
    for (const Arg& arg : phase.args) {
      add("{} = ", arg.name);
      add_value(arg.value, rop, number);
    }
    add("{} {} {} {} {} {} {} {} {} {} {} ", phase.rtasks, phase.work_bytes, phase.stores_behind_boxes, phase.awaits_inputs, phase.words,
        phase.many_registers, phase.cluster, phase.ring.chunk_bytes, phase.ring.chunks_per_rtask, phase.ring.rtasks_per_block,
        phase.ring.blocks);
    if (phase.boxes) add_boxes(*phase.boxes);
    add("\n");
  }

  void add_lane(const std::vector<Instruction>& lane) {
    for (const Instruction& instruction : lane) {
      const RTask& rtask = instruction.rtask;
      add("{} {}", record_of(rtask.rop, rtask.phase), rtask.index);
      for (const EventId event : instruction.waits) add(" {}", event.value);
      add(" -> {}; ", instruction.signal.value);
    }
    add("\n");
  }

  void add_launches(const std::vector<PhaseLaunch>& launches) {
    for (const PhaseLaunch& launch : launches)
      add("{} after {} in {} {}; ", record_of(launch.rop, launch.phase), fmt::join(launch.after, " "), launch.stream, launch.dependent);
  }

  const RProgram& program_;
  size_t records_ = 0;
  std::vector<size_t> first_record_;  // per rOperator
  std::string text_;
};

// "Conv 3, MatMul 1"
std::string kinds_text(const Graph& graph) {
  std::map<std::string, int> count;
  for (const ROperator& rop : graph.rops) ++count[title_of(rop)];
  std::vector<std::string> texts;
  for (const auto& [kind, times] : count) texts.push_back(fmt::format("{} {}", kind, times));
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string without(std::string text, const std::string& part) {
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part)) text.erase(at, part.size());
  return text;
}

std::string digits(uint64_t hash) { return fmt::format("{:012x}", hash >> 16); }

std::string hash_text(const std::string& text) {
  tamp_host::Checksum checksum;
  checksum.add(text.data(), text.size());
  return digits(checksum.value());
}

std::string program_text(const RProgram& program, const std::string& name) {
  const codegen::OwnParts own = codegen::own_parts(program, {.name = name, .source_name = name + ".onnx"});
  const std::string source = without(own.source, '"' + std::string(version()) + '"');
  return fmt::format("plan {} cu {} weights {} {:.4g} us: {}", hash_text(PlanText(program).text()), hash_text(source),
                     digits(own.weights_hash), program.estimated_us, kinds_text(program.graph));
}

// --- the replay ---

struct Configuration {
  int64_t batch = 1;
  std::string vdevice, precision;
  schedule::Execution execution = schedule::Execution::persistent;
};

// Of models that take long, other vDevices than h200 have their default precision only.
const std::set<std::string> kLarge = {"bert",     "convnext_last", "gpt2_step",  "llama_prompt", "llama_step", "mobilenet_v3_last",
                                      "resnet18", "squeezenet",    "swin_first", "swin_last",    "vit"};

std::vector<Configuration> configurations(const std::string& model) {
  std::vector<Configuration> all;
  for (const int64_t batch : {1, 8}) {
    for (const std::string name : {"h200", "h100", "t4", "cpu"}) {
      const VDevice d = read_vdevice(name);
      const auto add = [&](Precision precision, bool has_units) {
        if (!has_units || (kLarge.contains(model) && name != "h200" && precision != d.default_precision)) return;
        all.push_back({batch, name, name_of(precision)});
      };
      add(Precision::fp32, true);
      add(Precision::tf32, d.tf32);
      add(Precision::fp16, d.fp16);
      add(Precision::bf16, d.bf16);
    }
    all.push_back({batch, "h200", "tf32", schedule::Execution::graph});
  }
  return all;
}

std::string line_of(const std::string& name, const std::string& path, const Configuration& configuration) {
  CompileOptions options;
  options.vdevice = configuration.vdevice;
  options.precision = configuration.precision;
  options.execution = configuration.execution;
  options.batch = configuration.batch == 1 ? 0 : configuration.batch;
  const bool in_graph = configuration.execution == schedule::Execution::graph;
  const std::string head =
      fmt::format("{} x{} {} {}{}: ", name, configuration.batch, configuration.vdevice, configuration.precision, in_graph ? " graph" : "");
  try {
    return head + program_text(compile(path, options).program, name);
  } catch (const Error& error) {
    constexpr size_t kShown = 100;
    return head + "refused: " + without(error.what(), fs::path(path).parent_path().string() + "/").substr(0, kShown);
  } catch (const std::exception& failure) {
    throw std::runtime_error(head + failure.what());
  }
}

std::vector<std::string> lines_of(const std::string& name) {
  const test::TempFolder folder;
  const std::string path = folder.write(model_with_weights(name), name + ".onnx");
  const std::vector<Configuration> all = configurations(name);
  std::vector<std::string> lines(all.size());
  in_parallel(all.size(), processor_count(), [&](size_t i) { lines[i] = line_of(name, path, all[i]); });
  return lines;
}

using Golden = std::map<std::string, std::vector<std::string>>;  // lines by model

Golden read_golden() {
  Golden golden;
  std::ifstream file(kGolden);
  for (std::string line; std::getline(file, line);) golden[line.substr(0, line.find(' '))].push_back(line);
  return golden;
}

void write_golden(const Golden& golden) {
  std::ofstream file(kGolden);
  for (const auto& [name, lines] : golden) file << fmt::format("{}\n", fmt::join(lines, "\n"));
}

std::set<std::string> model_names() {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(kTests / "replay")) {
    if (entry.path().extension() == ".onnx") names.insert(entry.path().stem());
  }
  return names;
}

}  // namespace

TEST_CASE("models become the programs that test/golden/replay.txt has") {
  start_logging(Verbosity::quiet);
  const bool writes = std::getenv("TAMP_UPDATE_GOLDEN") != nullptr;
  for (const std::string& name : model_names()) {
    DYNAMIC_SECTION(name) {
      const std::vector<std::string> found = lines_of(name);
      Golden golden = read_golden();
      const std::vector<std::string> expected = std::exchange(golden[name], found);
      if (writes) write_golden(golden);
      for (size_t i = 0; !writes && i < std::max(found.size(), expected.size()); ++i)
        CHECK((i < found.size() ? found[i] : "no line") == (i < expected.size() ? expected[i] : "no line"));
    }
  }
}

TEST_CASE("test/golden/replay.txt has no line of a model that is gone") {
  Golden golden = read_golden();
  std::erase_if(golden, [names = model_names()](const auto& lines) { return names.contains(lines.first); });
  CHECK(golden.empty());
}
