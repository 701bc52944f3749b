// rKernel: one implementation of one rOperator (Rammer section 4.1): device code, its configuration, the number of
// rTasks, and what they cost. Made by the families in kernels/ (kernels/family.h), chosen by select/ and schedule/.
//
// A rKernel has one or more phases. The rTasks of a phase are independent of each other; phase p+1 starts when phase p
// is done (split-K: partial sums, then their sum). Most have one phase.
//
// A *gang* is the exception (recurrent networks): the rTasks of all its phases run at the same time, each on a vEU of its own, and exchange
// values while they run. Every exchanged word carries the epoch that says whether its value is there (data-as-flag;
// kernels/vdevice/exchange.cuh). There are events before and behind the whole gang, none inside it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "compiler/ir/graph.h"

namespace tamp {

// A value of a named field of a body's argument struct. Offsets are resolved to addresses by codegen.
struct TensorArg {  // rk::TensorRef of a placed tensor, plus `extra` elements
  TensorId tensor;
  int64_t extra = 0;
  bool operator==(const TensorArg&) const = default;
};
struct ScratchArg {  // rk::TensorRef into the rKernel's scratch buffer, in elements
  int64_t offset = 0;
  bool operator==(const ScratchArg&) const = default;
};
struct ExchangeArg {  // rk::TensorRef into the gang's exchange, in words of 8 bytes
  int64_t offset = 0;
  bool operator==(const ExchangeArg&) const = default;
};
struct WordsArg {  // rk::TensorRef of the tensor's words where Phase::words has the bit; else of the tensor, or null
  TensorId tensor;
  int bit = 0;
  bool else_null = false;
  bool operator==(const WordsArg&) const = default;
};
struct PackedArg {  // rk::TensorRef into Phase::packed, in bytes
  int64_t offset_bytes = 0;
  bool operator==(const PackedArg&) const = default;
};
struct DivisorArg {  // rk::Divisor
  int64_t divisor = 1;
  bool operator==(const DivisorArg&) const = default;
};
// An integer of 32 bits that is known only at run time (docs/adr/0049): the product of the extents, times `factor`. Tables have it for the
// largest lengths; before the body begins, that of the run takes its place.
struct ExtentArg {
  std::vector<Extent> extents;
  int64_t factor = 1;
  bool operator==(const ExtentArg&) const = default;
};
int64_t largest_value(const Graph& graph, const ExtentArg& arg);
struct NoTensorArg {
  bool operator==(const NoTensorArg&) const = default;
};  // rk::TensorRef that is null
// Nested braces: arrays and structs.
struct ArgValue;
using ArgList = std::vector<ArgValue>;
struct ArgValue {
  std::variant<int64_t, double /*printed as float*/, TensorArg, ScratchArg, ExchangeArg, WordsArg, PackedArg, DivisorArg, ExtentArg,
               NoTensorArg, ArgList>
      value;
  // Of an ArgList that is a struct: its fields, to be printed by name. Of a number that is an enumerator: that alone, as C++ text.
  std::vector<std::string> names{};
  bool operator==(const ArgValue& other) const;  // numbers bit by bit, so that NaN is NaN
};
// Must be in the order of the struct's declaration (designated initialisers); fields left out are zero.
struct Arg {
  std::string name;
  ArgValue value;
  bool operator==(const Arg&) const = default;
};

// The cost of one rTask of a phase; select/cost.cpp turns it into microseconds.
struct Cost {
  double flops = 0;  // useful and padding alike, 2 per multiply-add
  bool tensor_core = false;
  double efficiency = 0.5;       // share of the vEU's peak that the body reaches when nothing else limits it
  double activation_bytes = 0;   // read plus written, L2
  double weight_bytes = 0;       // read, L2 or DRAM
  double calibrated_cycles = 0;  // from inputs ready to results stored, as traced on a GPU; 0: not measured, by arithmetic and bytes
  double latency_us = 0;         // time that the body always waits, added to the rest: a gang's steps
  double correction = 0;         // from records (select/records.h): the rTask takes this times what the other fields say; 0: no record
  double early_us = 0;           // for so long from its begin the body loads data that need no inputs
  double kernel_factor = 1;      // in graph execution the rTask takes this many times as long: nothing is copied ahead
  bool operator==(const Cost&) const = default;
};

// Weights that come through the ring of shared-memory stages: the packed image is a sequence of equal blocks; rTask t uses block (t /
// rtasks_per_block) % blocks, chunk by chunk. Example: with rtasks_per_block = 4 and blocks = 2, rTask 9 uses block 9 / 4 % 2 = 0, and
// rTask 13 block 1. chunk_bytes is a multiple of 16 and at most VDevice::weight_stage_bytes. No ring: chunks_per_rtask = 0.
struct RingWeights {
  int64_t chunk_bytes = 0;
  int64_t chunks_per_rtask = 0;
  int64_t rtasks_per_block = 1;
  int64_t blocks = 1;
  bool operator==(const RingWeights&) const = default;
};

// Input values that come through the ring of input stages (kernels/vdevice/boxes.cuh): the waiter copies boxes of pixels x 32 channels,
// zeros where the tensor ends, as soon as the rTask's Waits have passed. rTask t of a phase is ((group * n_blocks + n_block) * splits +
// split) * tiles + tile, tile = (image * tiles_h + tile_h) * tiles_w + tile_w. Example: with n_blocks = 2, splits = 1 and tiles of 5 x 2 (w
// x h) on one image, rTask 18 is group 0, n_block 1, split 0, tile 8, which is tile_h 1, tile_w 3.
struct InputBoxes {
  static constexpr int64_t kBoxRowBytes = 128;
  TensorId tensor;                               // in the arena
  std::array<int64_t, 4> extents{}, strides{};   // channel, w, h, image; elements, strides[0] is 1
  int64_t box_w = 1, box_h = 1;                  // pixels of a box
  int64_t tiles_w = 1, tiles_h = 1, images = 1;  // of the output
  int64_t begin_w = 0, begin_h = 0;              // where the box of tile 0 begins; negative where it is padding
  int64_t step_w = 0, step_h = 0;                // from tile to tile
  int64_t splits = 1, n_blocks = 1;
  int64_t blocks_beside = 1;   // rTasks of so many n_blocks with the same input are taken one after the other (Phase::taken)
  int64_t group_channels = 0;  // from group to group
  int64_t boxes = 0, boxes_per_split = 0, boxes_per_chunk = 0;  // of a group; a chunk is a stage
  // Above 1: one copy brings a whole chunk, this many boxes without gaps between them. The last chunk is as long; channels that it reads
  // beyond its own are not used. extents[0] and group_channels are then multiples of channels(). (The reason: starting one copy takes the
  // copy engine 100 cycles.)
  int64_t boxes_per_copy = 1;
  int64_t value_bytes = 4;                                         // of the tensor's elements; a pixel of a box has 128 bytes
  int64_t channels() const { return kBoxRowBytes / value_bytes; }  // of a box
  int64_t tiles() const { return tiles_w * tiles_h * images; }
  int64_t copied_bytes() const { return box_w * box_h * kBoxRowBytes; }
  int64_t box_bytes() const { return boxes_per_copy > 1 ? copied_bytes() : (copied_bytes() + 1023) / 1024 * 1024; }  // in a stage
  bool operator==(const InputBoxes&) const = default;
};
constexpr int64_t kBoxChannels = 32;  // of a box of f32

// A buffer whose elements a body can take, or leave, as words, values that are their own flags (docs/adr/0030): if bit `bit` of its
// template argument WORDS is set.
struct WordsUse {
  BufferId buffer;
  int bit = 0;
  std::string name{};  // of 1 << bit, as C++ text: "rk::kGemvOutWords"; or empty
  bool operator==(const WordsUse&) const = default;
};

struct Phase {
  std::string header;  // "kernels/product/implicit_gemm.cuh"
  std::string body;    // device function template, "rk::implicit_gemm"; its first template argument is the vEU
  std::vector<std::pair<std::string, std::string>> template_args;  // name, C++ text: {"BLOCK_M", "64"}
  std::string args_type;                                           // "rk::ImplicitGemmArgs"
  std::vector<Arg> args;
  int64_t rtasks = 0;
  int64_t work_bytes = 0;  // dynamic shared memory of the body
  // The body stores there only when all its boxes have been read, so that its work may lie over the input stages.
  bool stores_behind_boxes = false;
  bool awaits_inputs = false;  // the body calls Task::await_inputs (kernels/vdevice/task.cuh), so it may begin before its Waits have passed
  // Operands that the body can await word by word, and results that it can publish, besides storing them. schedule/words.h decides which
  // of them it does: bits of `words`.
  std::vector<WordsUse> may_await, may_publish;
  bool awaits_all_or_none = false;  // of may_await
  uint32_t words = 0;
  bool many_registers = false;  // the body wants more registers than a block's threads have evenly (rk::kManyRegisters)
  RingWeights ring;
  std::optional<InputBoxes> boxes;
  Cost cost;  // of one rTask
  // Above 1: so many rTasks, the splits of one tile, run at the same time, each on its vEU of a cluster (ProgramShape::cluster_veus), and
  // exchange values through shared memory (kernels/vdevice/cluster.cuh). Split s is member s. Needs boxes, with as many splits. Events are
  // before and behind each rTask, as elsewhere.
  int64_t cluster = 1;
  // Of rTask `index`: which member of its cluster it is, and the number of the tile that the members share.
  int64_t member_of(int64_t index) const;
  int64_t shared_tile_of(int64_t index) const;
  // The number of the `i`-th rTask in the order in which vEUs take them: rTasks on neighbouring vEUs, and of one round of all vEUs, share
  // more of what they read. Example: 6 tiles and 4 n_blocks, of which 2 are beside each other, are taken as 0, 6, 1, 7, .. 5, 11 and
  // then 12, 18, 13, 19, .. 17, 23. Members of a cluster follow each other.
  int64_t taken(int64_t i) const;
  bool operator==(const Phase&) const = default;
};

struct RKernel {
  std::string family;  // row of kernels/catalogue.cpp, e.g. "implicit_gemm"
  std::string name;    // for people: "implicit_gemm_tf32<64x64, split 4>"
  std::vector<Phase> phases;
  int64_t scratch_elements = 0;                         // f32 words of scratch shared by the phases
  std::vector<std::pair<std::string, int64_t>> config;  // the family's own numbers ({"block_m", 64}), for pack and accesses
  bool gang = false;                                    // all rTasks of all phases at the same time
  int64_t exchange_words = 0;                           // of 8 bytes, zero before the first run, shared with nothing else; gangs only
  bool measured = false;                                // its correction comes from a record of itself
  int64_t config_value(const std::string& key) const;   // TAMP_CHECK if absent
  int64_t rtasks() const;                               // of all phases
  bool operator==(const RKernel&) const = default;
};

// Memory that a rTask touches, as runs of elements relative to the start of the tensor's *buffer*: for i < count the elements [offset + i *
// stride, offset + i * stride + length). Reads may name more elements than the rTask reads, except of scratch; writes are exact.
struct Run {
  int64_t offset = 0, count = 1, stride = 0, length = 0;
};
struct Region {
  TensorId tensor;  // none = the rKernel's scratch
  Run run;
};
struct Accesses {
  std::vector<Region> reads, writes;
  // Words of the exchange that the rTask publishes (each once in a run, exact) and that it waits for.
  std::vector<Run> publishes, awaits;
};

// The elements of the box [begin, end) of a placed tensor (logical coordinates), as few runs as it can be said in.
std::vector<Run> box_runs(const Tensor& tensor, const std::vector<int64_t>& begin, const std::vector<int64_t>& end);
std::vector<Run> whole_runs(const Tensor& tensor);
// Elements [begin, end) of the tensor in row-major logical order, all other dimensions whole: for bodies whose rTask is a
// range of the flattened output.
std::vector<Run> flat_runs(const Tensor& tensor, int64_t begin, int64_t end);

}  // namespace tamp
