#include "kernels/product/narrow_product.h"

#include <fmt/format.h>

#include <array>

#include "compiler/ir/products.h"
#include "kernels/half_columns.h"
#include "kernels/narrow.h"
#include "kernels/product/staged_conv_pack.h"
#include "kernels/tile/numbers.cuh"
#include "kernels/tile/product_phases.h"
#include "kernels/tile/requantised.h"

namespace tamp::kernels {
namespace {

using staged::plain_product;

bool is_small(DType dtype) { return is_narrow(dtype) || is_whole_byte(dtype); }

// Whether no pixel that a product wants lies outside its input.
bool stays_inside(const Product& p) {
  const auto stays = [&](size_t d) {
    return p.pad[d] == 0 && (p.pixels[d + 1] - 1) * p.stride[d] + (p.kernel[d] - 1) * p.dilation[d] < p.in_extent[d];
  };
  return stays(0) && stays(1);
}

}  // namespace

bool has_bytes(const Graph& graph, const Product& p) {
  const auto is_byte = [&](TensorId id) { return id.valid() && is_whole_byte(graph.tensor(id).dtype); };
  return p.byte_in || is_byte(p.out) || is_byte(p.residual);
}

bool adds_narrow(const Graph& graph, const Product& p) {
  return p.residual.valid() && !p.narrow_out && is_narrow(graph.tensor(p.residual).dtype);
}

Precision precision_of(const Request& request, const Product& p) {
  const Tensor& weights = request.graph.tensor(p.weights);
  const bool fits =
      request.precision != Precision::fp16 || p.byte_in || halves_hold(weights.data, p.alpha) || is_proven(request.graph, p.in);
  return fits ? request.precision : Precision::tf32;
}

int64_t whole_of(const Request& request, const Product& p, Precision precision) {
  const bool halves = precision == Precision::fp16 && p.narrow_in && request.graph.tensor(p.in).dtype == DType::f16;
  if (!p.byte_in && !(halves && holds_whole_numbers(request.graph, p.in))) return rk::kNotWhole;
  const Epilogue epilogue = plain_product(request.graph, request.rop).epilogue;
  if (epilogue.activation != Activation::rounded) return rk::kWholeOperands;
  if (epilogue.sum) return epilogue.sum->rounds && p.residual.valid() && p.narrow_out ? rk::kWholeSums : rk::kWholeOperands;
  if (p.residual.valid()) return rk::kWholeOperands;
  const std::optional<Requantised> again = requantised_of(request.graph, request.rop);
  if (!again) return rk::kWholeResults;
  return !again->table.valid() ? rk::kWholeRow : again->row.valid() ? rk::kWholeRowTable : rk::kWholeTable;
}

bool takes_bytes(const Request& request, const Product& p) {
  const Epilogue epilogue = plain_product(request.graph, request.rop).epilogue;
  const bool rounds = epilogue.sum ? epilogue.sum->rounds : epilogue.activation == Activation::rounded;
  if (is_whole_byte(request.graph.tensor(p.out).dtype) && !(rounds && p.narrow_in)) return false;
  if (p.residual.valid() && is_whole_byte(request.graph.tensor(p.residual).dtype) && !(p.narrow_in && p.narrow_out)) return false;
  if (!p.byte_in) return true;
  return (p.in_low == 0 || stays_inside(p)) && has_byte_scales(request.graph, p);
}

std::string narrow_math(const Graph& graph, const Product& p, int64_t whole, DType out) {
  const std::string in = value_type(graph.tensor(p.in).dtype);
  if (adds_narrow(graph, p) && whole == 0) return fmt::format("rk::Narrow<{0}, {1}, {0}>", in, value_type(out));
  const DType added =
      p.residual.valid() && is_small(graph.tensor(p.residual).dtype) && is_small(out) ? graph.tensor(p.residual).dtype : out;
  constexpr std::array kNames = {"rk::kNotWhole", "rk::kWholeOperands", "rk::kWholeResults", "rk::kWholeSums",
                                 "rk::kWholeRow", "rk::kWholeTable",    "rk::kWholeRowTable"};
  if (whole != 0 || has_bytes(graph, p))
    return fmt::format("rk::Narrow<{}, {}, {}, {}>", in, value_type(out), value_type(added), kNames.at(static_cast<size_t>(whole)));
  return fmt::format("rk::Narrow<{}, {}>", in, value_type(out));
}

}  // namespace tamp::kernels
