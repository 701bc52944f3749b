// One Conv with its epilogue as a case of light_bench.h, from a row of a table.
#pragma once

#include <optional>

#include "test/kernels/light_bench.h"

namespace tamp::test {

struct ConvRow {
  const char* name;
  Shape in;
  int64_t out_channels;
  std::vector<int64_t> kernel, strides = {1, 1}, dilations = {1, 1}, pads_begin = {0, 0}, pads_end = {0, 0};
  int64_t group = 1;
  std::optional<Lay> in_lay = {};
  Lay out_lay = Lay::channels_last;
  Activation activation = Activation::none;
  int residual = 0;  // 1: before the activation, 2: after
  bool bias = true;
  std::vector<float> values = {};  // of the input, over and over; empty: random
};

// `usual`: how inputs lie whose row does not say it.
inline Case conv_case(const ConvRow& row, Lay usual = Lay::channels_last) {
  CaseMaker maker(row.name);
  const size_t spatial = row.kernel.size();
  Conv conv;
  conv.kernel = row.kernel;
  conv.group = row.group;
  Shape weights = {row.out_channels, row.in[1] / row.group}, out = {row.in[0], row.out_channels};
  for (size_t d = 0; d < spatial; ++d) {
    conv.strides.push_back(row.strides[d]);
    conv.dilations.push_back(row.dilations[d]);
    conv.pads_begin.push_back(row.pads_begin[d]);
    conv.pads_end.push_back(row.pads_end[d]);
    weights.push_back(row.kernel[d]);
    out.push_back((row.in[d + 2] + row.pads_begin[d] + row.pads_end[d] - (row.kernel[d] - 1) * row.dilations[d] - 1) / row.strides[d] + 1);
  }
  Epilogue epilogue;
  std::vector<float> values(row.values.empty() ? 0 : static_cast<size_t>(element_count(row.in)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = row.values[i % row.values.size()];
  const Lay lay = row.in_lay.value_or(usual);
  const TensorId x = values.empty() ? maker.input(row.in, lay) : maker.input(row.in, lay, values);
  const TensorId w = maker.constant(weights);
  if (row.bias) epilogue.bias = maker.constant({row.out_channels});
  if (row.residual != 0) epilogue.residual = maker.input(out, row.out_lay);
  epilogue.residual_after_activation = row.residual == 2;
  epilogue.activation = row.activation;
  epilogue.a = row.activation == Activation::clip ? -0.25F : 0.1F;
  epilogue.b = 0.5F;
  return maker.finish(conv, {x, w}, maker.output(out, row.out_lay), epilogue);
}

}  // namespace tamp::test
