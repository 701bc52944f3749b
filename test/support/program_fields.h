// Every field of an rProgram, for tests that change them one by one. Structs are taken apart by structured bindings, so that a field that
// is added to one of them does not compile until it is named here. What operators compute (ROperator::attrs) and the values of constants
// are no fields: they say what the program is to do.
#pragma once

#include <array>
#include <concepts>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "compiler/ir/rprogram.h"

namespace tamp::test {

// A field, as "rkernels.phases.boxes.step_w"; elements of a list have the same path. `change` makes another value of it in the way `how`,
// any number, and returns what undoes that; nothing if there is no other value.
struct Field {
  std::string path;
  std::function<std::function<void()>(unsigned how)> change;
};

class FieldsOf {
 public:
  explicit FieldsOf(RProgram& program) { visit("", program); }
  std::vector<Field> take() { return std::move(fields_); }

 private:
  template <class T, class Other>
  void leaf(const std::string& path, T& value, Other other) {
    fields_.push_back({path, [&value, other](unsigned how) -> std::function<void()> {
                         T now = other(value, how);
                         if (now == value) return nullptr;
                         return [&value, was = std::exchange(value, std::move(now))] { value = was; };
                       }});
  }
  void visit(const std::string& path, bool& value) {
    leaf(path, value, [](bool was, unsigned) { return !was; });
  }
  template <std::integral T>
  void visit(const std::string& path, T& value) {
    leaf(path, value, [](T was, unsigned how) {
      const auto now = static_cast<int64_t>(was);
      const std::array<int64_t, 8> others = {now + 1, now - 1, 2 * now, 0, now + 256, now - 256, now * 1000, -1000};
      return static_cast<T>(others[how % others.size()]);
    });
  }
  template <std::floating_point T>
  void visit(const std::string& path, T& value) {
    leaf(path, value, [](T was, unsigned how) { return how % 2 == 0 ? 2 * was + 1 : T(0); });
  }
  template <class T>
  requires std::is_enum_v<T>
  void visit(const std::string& path, T& value) {
    leaf(path, value, [](T was, unsigned how) { return static_cast<T>((static_cast<unsigned>(was) + 1 + how % 2) % 4); });
  }
  template <class Tag>
  void visit(const std::string& path, StrongId<Tag>& value) {
    leaf(path, value, [](StrongId<Tag> was, unsigned how) {
      const std::array<int64_t, 5> others = {was.value + 1, was.value - 1, -1, 0, 99999};
      return StrongId<Tag>(others[how % others.size()]);
    });
  }
  void visit(const std::string& path, std::string& value) {
    leaf(path, value, [](const std::string& was, unsigned how) { return how % 2 == 0 ? was + "1" : std::string(); });
  }
  void visit(const std::string&, TensorData&) {}
  void visit(const std::string&, std::map<std::string, double, std::less<>>&) {}  // costs of a vDevice
  void visit(const std::string&, OpAttrs&) {}
  void visit(const std::string&, NoTensorArg&) {}

  template <class T>
  void visit(const std::string& path, std::vector<T>& list) {
    for (T& element : list) visit(path, element);
    // The elements' own fields point into the list, so that must come back itself.
    const auto other_length = [&list](bool shorter) {
      return [&list, shorter](unsigned) -> std::function<void()> {
        if (list.empty()) return nullptr;
        std::vector<T> other = list;
        if (shorter)
          other.pop_back();
        else
          other.push_back(T(other.back()));
        list.swap(other);
        return [&list, was = std::make_shared<std::vector<T>>(std::move(other))] { list.swap(*was); };
      };
    };
    fields_.push_back({path + ".shorter", other_length(true)});
    fields_.push_back({path + ".longer", other_length(false)});
  }
  template <class T, size_t N>
  void visit(const std::string& path, std::array<T, N>& list) {
    for (T& element : list) visit(path, element);
  }
  template <class A, class B>
  void visit(const std::string& path, std::pair<A, B>& pair) {
    visit(path, pair.first);
    visit(path, pair.second);
  }
  template <class T>
  void visit(const std::string& path, std::optional<T>& value) {
    if (value) visit(path, *value);
    fields_.push_back({path + ".is_there", [&value](unsigned) -> std::function<void()> {
                         if (!value) return nullptr;
                         auto was = std::make_shared<T>(std::move(*value));  // inner lists stay where they are
                         value.reset();
                         return [&value, was] { value.emplace(std::move(*was)); };
                       }});
  }
  void visit(const std::string& path, ArgValue& value) {
    std::visit([&](auto& v) { visit(path, v); }, value.value);
    visit(path + ".names", value.names);
  }

  template <class... T>
  void members(const std::string& path, const std::array<const char*, sizeof...(T)>& names, T&... values) {
    size_t next = 0;
    (visit((path.empty() ? "" : path + ".") + names[next++], values), ...);
  }

  void visit(const std::string& path, RTask& v) {
    auto& [rop, phase, index] = v;
    members(path, {"rop", "phase", "index"}, rop, phase, index);
  }
  void visit(const std::string& path, Instruction& v) {
    auto& [rtask, waits, signal, turn, loop] = v;
    members(path, {"rtask", "waits", "signal", "turn", "loop"}, rtask, waits, signal, turn, loop);
  }
  void visit(const std::string& path, Event& v) {
    auto& [name, count] = v;
    members(path, {"name", "count"}, name, count);
  }
  void visit(const std::string& path, MemoryPlan& v) {
    auto& [arena_bytes, buffers, scratch, exchange, words, words_bytes] = v;
    members(path, {"arena_bytes", "buffer_offset", "scratch_offset", "exchange_offset", "words_offset", "words_bytes"}, arena_bytes,
            buffers, scratch, exchange, words, words_bytes);
  }
  void visit(const std::string& path, WeightBlob& v) {
    auto& [name, constant, rop, phase, offset, bytes] = v;
    members(path, {"name", "constant", "rop", "phase", "offset", "bytes"}, name, constant, rop, phase, offset, bytes);
  }
  void visit(const std::string& path, PhaseLaunch& v) {
    auto& [rop, phase, after, stream, dependent] = v;
    members(path, {"rop", "phase", "after", "stream", "dependent"}, rop, phase, after, stream, dependent);
  }
  void visit(const std::string& path, TensorArg& v) {
    auto& [tensor, extra] = v;
    members(path, {"tensor", "extra"}, tensor, extra);
  }
  void visit(const std::string& path, ScratchArg& v) { visit(path + ".scratch", v.offset); }
  void visit(const std::string& path, ExchangeArg& v) { visit(path + ".exchange", v.offset); }
  void visit(const std::string& path, PackedArg& v) { visit(path + ".packed", v.offset_bytes); }
  void visit(const std::string& path, DivisorArg& v) { visit(path + ".divisor", v.divisor); }
  void visit(const std::string& path, ExtentArg& v) {
    auto& [extents, factor] = v;
    members(path, {"extents", "factor"}, extents, factor);
  }
  void visit(const std::string& path, Extent& v) {
    auto& [length, times, plus, over] = v;
    members(path, {"length", "times", "plus", "over"}, length, times, plus, over);
  }
  void visit(const std::string& path, LengthAxis& v) {
    auto& [dim, extent] = v;
    members(path, {"dim", "extent"}, dim, extent);
  }
  void visit(const std::string& path, Length& v) {
    auto& [name, smallest, largest, step] = v;
    members(path, {"name", "smallest", "largest", "step"}, name, smallest, largest, step);
  }
  void visit(const std::string& path, ExtentProduct& v) {
    auto& [left, right] = v;
    members(path, {"left", "right"}, left, right);
  }
  void visit(const std::string& path, Guard& v) {
    auto& [extent, begins] = v;
    members(path, {"extent", "begins"}, extent, begins);
  }
  void visit(const std::string& path, WordsArg& v) {
    auto& [tensor, bit, else_null] = v;
    members(path, {"words", "bit", "else_null"}, tensor, bit, else_null);
  }
  void visit(const std::string& path, Arg& v) {
    auto& [name, value] = v;
    members(path, {"name", "value"}, name, value);
  }
  void visit(const std::string& path, Cost& v) {
    auto& [flops, tensor_core, efficiency, activations, weights, cycles, latency, correction, early, factor] = v;
    members(path,
            {"flops", "tensor_core", "efficiency", "activation_bytes", "weight_bytes", "calibrated_cycles", "latency_us", "correction",
             "early_us", "kernel_factor"},
            flops, tensor_core, efficiency, activations, weights, cycles, latency, correction, early, factor);
  }
  void visit(const std::string& path, RingWeights& v) {
    auto& [chunk_bytes, chunks, per_block, blocks] = v;
    members(path, {"chunk_bytes", "chunks_per_rtask", "rtasks_per_block", "blocks"}, chunk_bytes, chunks, per_block, blocks);
  }
  void visit(const std::string& path, InputBoxes& v) {
    auto& [tensor, extents, strides, box_w, box_h, tiles_w, tiles_h, images, begin_w, begin_h, step_w, step_h, splits, n_blocks, beside,
           group_channels, boxes, per_split, per_chunk, per_copy, value_bytes] = v;
    members(path, {"tensor",        "extents",        "strides", "box_w",           "box_h",           "tiles_w",        "tiles_h",
                   "images",        "begin_w",        "begin_h", "step_w",          "step_h",          "splits",         "n_blocks",
                   "blocks_beside", "group_channels", "boxes",   "boxes_per_split", "boxes_per_chunk", "boxes_per_copy", "value_bytes"},
            tensor, extents, strides, box_w, box_h, tiles_w, tiles_h, images, begin_w, begin_h, step_w, step_h, splits, n_blocks, beside,
            group_channels, boxes, per_split, per_chunk, per_copy, value_bytes);
  }
  void visit(const std::string& path, WordsUse& v) {
    auto& [buffer, bit, name] = v;
    members(path, {"buffer", "bit", "name"}, buffer, bit, name);
  }
  void visit(const std::string& path, Phase& v) {
    auto& [header, body, template_args, args_type, args, rtasks, work_bytes, behind, awaits, may_await, may_publish, all_or_none, words,
           registers, ring, boxes, cost, cluster] = v;
    members(path,
            {"header", "body", "template_args", "args_type", "args", "rtasks", "work_bytes", "stores_behind_boxes", "awaits_inputs",
             "may_await", "may_publish", "awaits_all_or_none", "words", "many_registers", "ring", "boxes", "cost", "cluster"},
            header, body, template_args, args_type, args, rtasks, work_bytes, behind, awaits, may_await, may_publish, all_or_none, words,
            registers, ring, boxes, cost, cluster);
  }
  void visit(const std::string& path, RKernel& v) {
    auto& [family, name, phases, scratch, config, gang, exchange, measured] = v;
    members(path, {"family", "name", "phases", "scratch_elements", "config", "gang", "exchange_words", "measured"}, family, name, phases,
            scratch, config, gang, exchange, measured);
  }
  void visit(const std::string& path, Placement& v) {
    auto& [buffer, offset, strides] = v;
    members(path, {"buffer", "offset", "strides"}, buffer, offset, strides);
  }
  void visit(const std::string& path, Tensor& v) {
    auto& [name, dtype, shape, role, data, place, ends] = v;
    members(path, {"name", "dtype", "shape", "role", "data", "place", "ends"}, name, dtype, shape, role, data, place, ends);
  }
  void visit(const std::string& path, Buffer& v) {
    auto& [kind, elements, dtype, io_index, constant, narrowed, low, largest] = v;
    members(path, {"kind", "elements", "dtype", "io_index", "constant", "narrowed", "low", "largest"}, kind, elements, dtype, io_index,
            constant, narrowed, low, largest);
  }
  void visit(const std::string& path, Epilogue& v) {
    auto& [bias, residual, activation, a, b, residual_after, sum] = v;
    members(path, {"bias", "residual", "activation", "a", "b", "residual_after_activation", "sum"}, bias, residual, activation, a, b,
            residual_after, sum);
  }
  void visit(const std::string& path, ScaledSum& v) {
    auto& [scale, residual_scale, rounds, low, high] = v;
    members(path, {"scale", "residual_scale", "rounds", "low", "high"}, scale, residual_scale, rounds, low, high);
  }
  void visit(const std::string& path, ROperator& v) {
    auto& [name, attrs, epilogue, inputs, outputs, origin, loop, ends_iteration] = v;
    members(path, {"name", "attrs", "epilogue", "inputs", "outputs", "origin", "loop", "ends_iteration"}, name, attrs, epilogue, inputs,
            outputs, origin, loop, ends_iteration);
  }
  void visit(const std::string& path, Loop& v) {
    auto& [name, condition, parent] = v;
    members(path, {"name", "condition", "parent"}, name, condition, parent);
  }
  void visit(const std::string& path, PaddedOutput& v) {
    auto& [output, count, axis] = v;
    members(path, {"output", "count", "axis"}, output, count, axis);
  }
  void visit(const std::string& path, Graph& v) {
    auto& [name, tensors, rops, inputs, outputs, input_types, output_types, has_quantised_weights, padded, lengths, products, input_axes,
           output_axes, buffers, loops] = v;
    (void)has_quantised_weights;  // asked before weights are packed, and never again
    members(path,
            {"name", "tensors", "rops", "inputs", "outputs", "input_types", "output_types", "padded", "lengths", "products", "input_axes",
             "output_axes", "buffers", "loops"},
            name, tensors, rops, inputs, outputs, input_types, output_types, padded, lengths, products, input_axes, output_axes, buffers,
            loops);
  }
  // What a program is emitted by; its costs choose plans.
  void visit(const std::string& path, ShapedVDevice& v) {
    members(path,
            {"arch", "sms", "veus_per_sm", "compute_threads", "smem_bytes", "weight_stages", "weight_stage_bytes", "input_stages",
             "input_stage_bytes", "wide_products", "more_tiles", "even_stages", "voting_waits", "cluster_veus", "products_over_inputs"},
            v.arch, v.sms, v.veus_per_sm, v.compute_threads, v.smem_bytes, v.weight_stages, v.weight_stage_bytes, v.input_stages,
            v.input_stage_bytes, v.wide_products, v.more_tiles, v.even_stages, v.voting_waits, v.cluster_veus, v.products_over_inputs);
  }
  void visit(const std::string& path, Advanced& v) {
    auto& [input, advance, element, plus, is_each, is_last] = v;
    members(path, {"input", "advance", "element", "plus", "is_each", "is_last"}, input, advance, element, plus, is_each, is_last);
  }
  void visit(const std::string& path, Feed& v) {
    auto& [output, input] = v;
    members(path, {"output", "input"}, output, input);
  }
  void visit(const std::string& path, Generation& v) {
    auto& [inputs, feeds, scores, token, amounts, draw, seen, words, places, stops, rows, length] = v;
    members(path, {"inputs", "feeds", "scores", "token", "amounts", "draw", "seen", "words", "places", "stops", "rows", "length"}, inputs,
            feeds, scores, token, amounts, draw, seen, words, places, stops, rows, length);
  }
  void visit(const std::string& path, RProgram& v) {
    auto& [vdevice, precision, policy, graph, merges, rkernels, depth, lanes, events, launches, memory, weights, weight_bytes, guards,
           extents, us, in_l2, generation, boundary, by_sm, smaller] = v;
    members(path, {"vdevice", "precision",    "policy",        "graph",      "merges",   "rkernels",     "depth",
                   "lanes",   "events",       "launches",      "memory",     "weights",  "weight_bytes", "guards",
                   "extents", "estimated_us", "weights_in_l2", "generation", "boundary", "veus_by_sm",   "smaller"},
            vdevice, precision, policy, graph, merges, rkernels, depth, lanes, events, launches, memory, weights, weight_bytes, guards,
            extents, us, in_l2, generation, boundary, by_sm, smaller);
  }

  std::vector<Field> fields_;
};

}  // namespace tamp::test
