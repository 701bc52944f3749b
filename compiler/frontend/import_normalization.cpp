// BatchNormalization, LRN, Softmax and LogSoftmax, Dropout: operators that a compiler for inference reads differently from a training
// framework.
#include "compiler/frontend/importers.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

// Versions 1 and 6 say by is_test whether the node is an inference node; the default is training.
void expect_test_mode(NodeImport& n) {
  if (!n.attr_flag("is_test", false)) throw n.refuse("attribute 'is_test' is 0 (training), supported: 1 (inference)");
}

}  // namespace

void import_batch_normalization(NodeImport& n) {
  n.expect_counts(5, 5, n.version() >= 14 ? 3 : 5);
  if (n.version() >= 14 && n.attr_flag("training_mode", false)) {
    throw n.refuse(
        "attribute 'training_mode' is 1 (it normalises by the batch at hand), supported: 0, as models have it that are exported after "
        "eval()");
  }
  for (size_t k = 1; k < n.output_count(); ++k) {
    if (n.wants(k)) throw n.refuse("output {} is used, which is of training only; supported: Y alone", k);
  }
  if (n.version() == 1) n.ignore("consumed_inputs");
  if (n.version() < 7) expect_test_mode(n);
  const bool by_element = n.version() < 9 && !n.attr_flag("spatial", true);
  n.ignore("momentum");
  const float epsilon = n.attr_float("epsilon", 1e-5F);

  for (size_t i = 1; i < 5; ++i) n.expect_float({n.in(0), n.in(i)});
  std::vector<TensorId> operands = {n.in(0), n.in(1), n.in(2), n.in(3), n.in(4)};
  const Shape shape = n.shape(operands[0]);
  if (by_element && shape.size() > 2) {  // each element of an image is a channel
    const Shape each(shape.begin() + 1, shape.end());
    const int64_t channels = element_count(each);
    for (size_t i = 1; i < operands.size(); ++i) {
      if (n.shape(operands[i]) != each) {
        throw n.bad("attribute 'spatial' is 0, and input {} has shape {}, expected {}", i, shape_text(n.shape(operands[i])),
                    shape_text(each));
      }
      operands[i] = n.reshape(operands[i], {channels});
    }
    operands[0] = n.reshape(operands[0], {shape[0], channels});
  }
  n.result(0, n.reshape(n.add(BatchNorm{epsilon}, operands), shape));
}

void import_lrn(NodeImport& n) {
  n.expect_counts(1, 1);
  const TensorId x = n.float_in(0);
  const std::optional<int64_t> size = n.find_int("size");
  if (!size) throw n.bad("attribute 'size' is missing");
  if (*size < 1 || *size > kMaxElements) throw n.bad("attribute 'size' is {}, it must be at least 1", *size);
  const Lrn lrn{*size, n.attr_float("alpha", 1e-4F), n.attr_float("beta", 0.75F), n.attr_float("bias", 1.0F)};
  n.result(0, n.add(lrn, {x}));
}

// Before version 13 the input counts as a matrix [prod(:axis), prod(axis:)]; from 13 on only `axis` itself is normalised.
void import_softmax(NodeImport& n, bool log) {
  n.expect_counts(1, 1);
  const TensorId x = n.float_in(0);
  const bool single = n.version() >= 13;
  const int64_t given = n.attr_int("axis", single ? -1 : 1);
  const int64_t rank = n.rank(x);
  const int64_t axis = n.axis(given, rank, "attribute 'axis'");
  n.result(0, n.add(Softmax{axis, single ? axis : rank - 1, log}, {x}));
}

// The identity at inference. The mask, if somebody asks for it, is all true (before version 10: all ones, of X's type).
void import_dropout(NodeImport& n) {
  n.expect_counts(1, n.version() >= 12 ? 3 : 1, 2);
  const TensorId x = n.in(0);
  if (n.version() == 1) n.ignore("consumed_inputs");
  if (n.version() < 7) expect_test_mode(n);
  if (n.version() < 12) n.ignore("ratio");
  if (n.version() >= 12) n.ignore("seed");
  if (n.has(2) && n.truth(2, "training_mode") && (!n.has(1) || n.number(1, "ratio") != 0)) {
    throw n.refuse("training_mode is true, supported: inference");
  }
  n.result(0, x);
  if (!n.wants(1)) return;
  const DType dtype = n.version() >= 10 ? DType::boolean : n.dtype(x);
  const Shape shape = n.shape(x);
  n.charge(element_count(shape) * bytes_of(dtype));
  n.result(1, n.expand(n.cast(n.constant_f32(1), dtype), shape));
}

}  // namespace tamp::frontend
