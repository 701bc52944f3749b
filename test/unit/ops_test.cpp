// The CPU reference of the operators against values worked out by hand, against plain loops (Conv), and at the edges that
// models and passes run into: broadcasting, negative steps, NaN, empty sets, integer overflow, indices out of range.
// Elementwise operators have a test of their own, ops_elementwise_test.
#include "compiler/ops/ops.h"

#include "compiler/ir/flops.h"
#include "test/support/graph_text.h"
#include "test/support/one_rop.h"

namespace tamp {

using namespace test;

TEST_CASE("shapes broadcast as in numpy") {
  struct Row {
    Shape a, b, joint;
  };
  const Row row = GENERATE(values<Row>(
      {{{}, {}, {}}, {{}, {3}, {3}}, {{2, 1}, {3}, {2, 3}}, {{5, 1, 4}, {7, 1}, {5, 7, 4}}, {{0}, {1}, {0}}, {{1, 3}, {2, 3}, {2, 3}}}));
  CHECK(ops::broadcast(row.a, row.b) == row.joint);
  CHECK(ops::broadcast(row.b, row.a) == row.joint);
}

TEST_CASE("shapes that do not broadcast are a user's error that names both") {
  CHECK_THROWS_WITH(ops::broadcast({2, 3}, {4}), Contains("[2,3]") && Contains("[4]"));
  CHECK_THROWS_AS(ops::broadcast({0}, {2}), Error);
}

TEST_CASE("convolution equals its definition for groups, strides, dilations and asymmetric pads") {
  struct Row {
    int64_t n, c, h, w, m, group;
    std::vector<int64_t> kernel, strides, dilations, begin, end;
  };
  const Row row = GENERATE(values<Row>({{1, 1, 1, 1, 1, 1, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
                                        {2, 3, 5, 7, 4, 1, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
                                        {1, 4, 9, 6, 6, 2, {3, 2}, {2, 3}, {1, 1}, {1, 0}, {0, 2}},
                                        {3, 5, 8, 8, 5, 5, {3, 3}, {2, 2}, {1, 1}, {0, 1}, {1, 0}},
                                        {1, 2, 9, 9, 3, 1, {3, 3}, {1, 2}, {2, 3}, {2, 2}, {2, 2}},
                                        {1, 64, 61, 59, 33, 1, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},      // fp32, columns in strips
                                        {1, 128, 41, 41, 97, 1, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}}}));  // fp32, no columns
  const int64_t cg = row.c / row.group, mg = row.m / row.group, kh = row.kernel[0], kw = row.kernel[1];
  const auto out = [&](size_t d, int64_t in) {
    return (in + row.begin[d] + row.end[d] - (row.kernel[d] - 1) * row.dilations[d] - 1) / row.strides[d] + 1;
  };
  const int64_t oh = out(0, row.h), ow = out(1, row.w);
  const Value x = varied({row.n, row.c, row.h, row.w}, 1), w = varied({row.m, cg, kh, kw}, 5), b = varied({row.m}, 3);
  const std::vector<float> xs = floats(x), ws = floats(w), bs = floats(b);

  std::vector<float> expected;
  const auto at = [&](int64_t n, int64_t m, int64_t oy, int64_t ox) {
    double sum = bs[static_cast<size_t>(m)];
    for (int64_t c = 0; c < cg; ++c) {
      for (int64_t ky = 0; ky < kh; ++ky) {
        for (int64_t kx = 0; kx < kw; ++kx) {
          const int64_t iy = oy * row.strides[0] - row.begin[0] + ky * row.dilations[0];
          const int64_t ix = ox * row.strides[1] - row.begin[1] + kx * row.dilations[1];
          if (iy < 0 || iy >= row.h || ix < 0 || ix >= row.w) continue;
          const int64_t channel = n * row.c + m / mg * cg + c;
          sum += xs[static_cast<size_t>((channel * row.h + iy) * row.w + ix)] * ws[static_cast<size_t>(((m * cg + c) * kh + ky) * kw + kx)];
        }
      }
    }
    return static_cast<float>(sum);
  };
  for (int64_t n = 0; n < row.n; ++n) {
    for (int64_t m = 0; m < row.m; ++m) {
      for (int64_t p = 0; p < oh * ow; ++p) expected.push_back(at(n, m, p / ow, p % ow));
    }
  }
  const Conv attrs{row.kernel, row.strides, row.dilations, row.begin, row.end, row.group};
  CHECK(floats(eval(attrs, {x, w, b}, {row.n, row.m, oh, ow})) == expected);
}

TEST_CASE("convolution takes one spatial dimension and no bias") {
  const Conv attrs{{2}, {2}, {1}, {1}, {0}, 1};
  const Value y = eval(attrs, {f32({1, 1, 5}, {1, 2, 3, 4, 5}), f32({1, 1, 2}, {10, 1}), Value{}}, {1, 1, 3});
  CHECK(floats(y) == std::vector<float>{1, 23, 45});
}

TEST_CASE("matrix products broadcast batches, transpose, scale and add C") {
  const Value a = f32({2, 3}, {1, 2, 3, 4, 5, 6});
  const Value b = f32({3, 2}, {1, 0, 0, 1, 2, 2});
  const std::vector<float> ab{7, 8, 16, 17};
  CHECK(floats(eval(MatMul{}, {a, b}, {2, 2})) == ab);
  CHECK(floats(eval(MatMul{true, false}, {f32({3, 2}, {1, 4, 2, 5, 3, 6}), b}, {2, 2})) == ab);
  CHECK(floats(eval(MatMul{false, true}, {a, f32({2, 3}, {1, 0, 2, 0, 1, 2})}, {2, 2})) == ab);
  CHECK(floats(eval(MatMul{true, true}, {b, a}, {2, 2})) == std::vector<float>{7, 16, 8, 17});
  CHECK(floats(eval(MatMul{false, false, 2, 3}, {a, b, f32({2}, {1, -1})}, {2, 2})) == std::vector<float>{17, 13, 35, 31});
  CHECK(floats(eval(MatMul{}, {a, b, f32({2, 1}, {1, -1})}, {2, 2})) == std::vector<float>{8, 9, 15, 16});

  const Value batched = eval(MatMul{}, {counting({2, 1, 1, 2}), counting({3, 2, 1})}, {2, 3, 1, 1});
  CHECK(floats(batched) == std::vector<float>{1, 3, 5, 3, 13, 23});
  CHECK(floats(eval(MatMul{}, {counting({2, 1, 2}), f32({2, 1}, {1, 10})}, {2, 1, 1})) == std::vector<float>{10, 32});
}

TEST_CASE("a matrix product over no elements is zero, and integers wrap") {
  CHECK(floats(eval(MatMul{}, {f32({2, 0}, {}), f32({0, 2}, {})}, {2, 2})) == std::vector<float>(4, 0));
  CHECK(eval(MatMul{}, {f32({0, 3}, {}), f32({3, 2}, {1, 2, 3, 4, 5, 6})}, {0, 2}).data->empty());
  const Value y = eval(MatMul{}, {i32({1, 2}, {65536, -2}), i32({2, 1}, {65536, 5})}, {1, 1}, DType::i32);
  CHECK(elements_of<int32_t>(y) == std::vector<int32_t>{-10});
}

TEST_CASE("large matrix products agree with small ones") {
  const int64_t m = 130, k = 515, n = 259;  // beyond what is computed in double
  const std::vector<float> a = floats(varied({m, k}, 2)), b = floats(varied({k, n}, 4));
  const std::vector<float> y = floats(eval(MatMul{}, {f32({m, k}, a), f32({k, n}, b)}, {m, n}));
  for (const int64_t i : {int64_t{0}, m / 2, m - 1}) {
    const std::vector<float> row(a.begin() + i * k, a.begin() + (i + 1) * k);
    const std::vector<float> expected = floats(eval(MatMul{}, {f32({1, k}, row), f32({k, n}, b)}, {1, n}));
    CHECK(std::vector<float>(y.begin() + i * n, y.begin() + (i + 1) * n) == expected);
  }
}

TEST_CASE("max pooling ignores pads and passes NaN on") {
  const Pool attrs{PoolKind::max, {2, 2}, {1, 1}, {1, 1}, {1, 1}, {0, 0}};
  CHECK(floats(eval(attrs, {f32({1, 1, 2, 2}, {-1, -2, -3, -4})}, {1, 1, 2, 2})) == std::vector<float>{-1, -1, -1, -1});
  check_close(floats(eval(attrs, {f32({1, 1, 2, 2}, {kNan, 2, 3, 4})}, {1, 1, 2, 2})), {kNan, kNan, kNan, kNan});
  const Pool dilated{PoolKind::max, {2}, {1}, {3}, {0}, {0}};
  CHECK(floats(eval(dilated, {f32({1, 1, 5}, {5, 4, 3, 2, 9})}, {1, 1, 2})) == std::vector<float>{5, 9});
}

TEST_CASE("average pooling counts pads only if told, and never what ceil_mode adds") {
  const Value x = f32({1, 1, 4}, {1, 2, 3, 4});
  // window 3, stride 2, one pad on each side; the third window (only with ceil_mode) starts at 3 and ends one past the pad
  Pool attrs{PoolKind::average, {3}, {2}, {1}, {1}, {1}};
  attrs.ceil_mode = true;
  check_close(floats(eval(attrs, {x}, {1, 1, 3})), {1.5F, 3, 4});
  attrs.count_include_pad = true;
  check_close(floats(eval(attrs, {x}, {1, 1, 3})), {1, 3, 2});
  attrs.ceil_mode = false;
  check_close(floats(eval(attrs, {x}, {1, 1, 2})), {1, 3});
}

TEST_CASE("reductions of every kind, over any axes") {
  const Value x = f32({2, 3}, {1, 2, 3, -4, 5, 6});
  const auto over = [&](ReduceKind kind, std::vector<int64_t> axes, Shape shape, bool keep) {
    return floats(eval(Reduce{kind, std::move(axes), keep}, {x}, std::move(shape)));
  };
  CHECK(over(ReduceKind::sum, {0}, {3}, false) == std::vector<float>{-3, 7, 9});
  CHECK(over(ReduceKind::sum, {1}, {2, 1}, true) == std::vector<float>{6, 7});
  CHECK(over(ReduceKind::sum, {0, 1}, {}, false) == std::vector<float>{13});
  CHECK(over(ReduceKind::sum, {}, {2, 3}, true) == floats(x));
  check_close(over(ReduceKind::mean, {1}, {2}, false), {2, 7.0F / 3});
  CHECK(over(ReduceKind::max, {1}, {2}, false) == std::vector<float>{3, 6});
  CHECK(over(ReduceKind::min, {1}, {2}, false) == std::vector<float>{1, -4});
  CHECK(over(ReduceKind::prod, {1}, {2}, false) == std::vector<float>{6, -120});
  CHECK(over(ReduceKind::l1, {1}, {2}, false) == std::vector<float>{6, 15});
  check_close(over(ReduceKind::l2, {1}, {2}, false), {std::sqrt(14.0F), std::sqrt(77.0F)});
  CHECK(over(ReduceKind::sum_square, {1}, {2}, false) == std::vector<float>{14, 77});
  check_close(over(ReduceKind::log_sum, {1}, {2}, false), {std::log(6.0F), std::log(7.0F)});
  check_close(over(ReduceKind::log_sum_exp, {1}, {2}, false), {3.407606F, 6.313295F});
  check_close(floats(eval(Reduce{ReduceKind::log_sum_exp, {0}, false}, {f32({2}, {1000, 1000})}, {})), {1000.693147F});
  check_close(floats(eval(Reduce{ReduceKind::max, {0}, false}, {f32({3}, {1, kNan, 2})}, {})), {kNan});
}

TEST_CASE("what an empty set reduces to") {
  const auto [kind, expected] = GENERATE(table<ReduceKind, float>({{ReduceKind::sum, 0.0F},
                                                                   {ReduceKind::prod, 1.0F},
                                                                   {ReduceKind::max, -kInf},
                                                                   {ReduceKind::min, kInf},
                                                                   {ReduceKind::mean, kNan},
                                                                   {ReduceKind::l2, 0.0F},
                                                                   {ReduceKind::log_sum, -kInf},
                                                                   {ReduceKind::log_sum_exp, -kInf}}));
  check_close(floats(eval(Reduce{kind, {1}, true}, {f32({2, 0}, {})}, {2, 1})), {expected, expected});
}

TEST_CASE("integers reduce as integers") {
  const Value x = i64({4}, {5, -7, 2, -1});
  CHECK(whole(eval(Reduce{ReduceKind::sum, {0}, false}, {x}, {}, DType::i64)) == std::vector<int64_t>{-1});
  CHECK(whole(eval(Reduce{ReduceKind::prod, {0}, false}, {x}, {}, DType::i64)) == std::vector<int64_t>{70});
  CHECK(whole(eval(Reduce{ReduceKind::max, {0}, false}, {x}, {}, DType::i64)) == std::vector<int64_t>{5});
  CHECK(whole(eval(Reduce{ReduceKind::min, {0}, false}, {i64({0}, {})}, {}, DType::i64)) == std::vector<int64_t>{~kMin64});
  CHECK(whole(eval(Reduce{ReduceKind::sum, {0}, false}, {i64({2}, {kMin64, -1})}, {}, DType::i64)) == std::vector<int64_t>{~kMin64});
  check_error(Case(Reduce{ReduceKind::mean, {0}, false}, {i64({0}, {})}, {}, DType::i64), ExitCode::bad_input, "mean of no elements");
}

TEST_CASE("softmax over one or several dimensions does not overflow") {
  const Value x = f32({2, 2}, {1000, 1000, 0, std::log(3.0F)});
  check_close(floats(eval(Softmax{1, 1, false}, {x}, {2, 2})), {0.5F, 0.5F, 0.25F, 0.75F});
  check_close(floats(eval(Softmax{0, 0, false}, {x}, {2, 2})), {1, 1, 0, 0});
  check_close(floats(eval(Softmax{0, 1, false}, {f32({2, 2}, {0, 0, 0, 0})}, {2, 2})), {0.25F, 0.25F, 0.25F, 0.25F});
  check_close(floats(eval(Softmax{1, 1, true}, {x}, {2, 2})), {-0.693147F, -0.693147F, -1.386294F, -0.287682F});
}

TEST_CASE("local response normalisation takes one neighbour more above for even sizes") {
  // size 2: channels c and c + 1
  const Value y = eval(Lrn{2, 2, 1, 1}, {f32({1, 3, 1}, {1, 2, 3})}, {1, 3, 1});
  check_close(floats(y), {1.0F / 6, 2.0F / 14, 3.0F / 10});
}

TEST_CASE("batch normalisation scales every channel by its own statistics") {
  const std::vector<Value> inputs{f32({1, 2, 2}, {1, 3, 10, 20}), f32({2}, {2, 1}), f32({2}, {0.5F, -1}), f32({2}, {1, 10}),
                                  f32({2}, {3, 99})};
  check_close(floats(eval(BatchNorm{1}, inputs, {1, 2, 2})), {0.5F, 2.5F, -1, 0});
}

TEST_CASE("data movement of every element size") {
  CHECK(floats(eval(Reshape{}, {counting({2, 3})}, {3, 2, 1})) == floats(counting({6})));
  CHECK(floats(eval(Transpose{{1, 0}}, {counting({2, 3})}, {3, 2})) == std::vector<float>{0, 3, 1, 4, 2, 5});
  CHECK(floats(eval(Transpose{{}}, {counting({})}, {})) == std::vector<float>{0});
  CHECK(elements_of<uint8_t>(eval(Transpose{{1, 0}}, {boolean({2, 2}, {0, 1, 0, 1})}, {2, 2}, DType::boolean)) ==
        std::vector<uint8_t>{0, 0, 1, 1});
  CHECK(floats(eval(Slice{{1, 3}, {1, -2}}, {counting({3, 4})}, {2, 2})) == std::vector<float>{7, 5, 11, 9});
  CHECK(eval(Slice{{4}, {1}}, {counting({4})}, {0}).data->empty());
  CHECK(whole(eval(Concat{0}, {i64({1}, {1}), i64({0}, {}), i64({2}, {2, 3})}, {3}, DType::i64)) == std::vector<int64_t>{1, 2, 3});
  CHECK(floats(eval(Concat{1}, {counting({2, 1}), counting({2, 2})}, {2, 3})) == std::vector<float>{0, 0, 1, 1, 2, 3});
}

TEST_CASE("padding repeats, reflects, wraps and crops") {
  struct Row {
    PadMode mode;
    int64_t before, after;
    std::vector<float> expected;
  };
  const Row row = GENERATE(values<Row>({{PadMode::constant, 1, 2, {9, 0, 1, 2, 9, 9}},
                                        {PadMode::edge, 2, 1, {0, 0, 0, 1, 2, 2}},
                                        {PadMode::reflect, 2, 2, {2, 1, 0, 1, 2, 1, 0}},
                                        {PadMode::reflect, 0, 2, {0, 1, 2, 1, 0}},
                                        {PadMode::wrap, 1, 4, {2, 0, 1, 2, 0, 1, 2, 0}},
                                        {PadMode::constant, -1, 1, {1, 2, 9}},
                                        {PadMode::constant, -2, -1, {}}}));
  const Shape shape{static_cast<int64_t>(row.expected.size())};
  CHECK(floats(eval(Pad{{row.before}, {row.after}, row.mode, 9}, {counting({3})}, shape)) == row.expected);
}

TEST_CASE("padding of inner dimensions leaves rows apart") {
  CHECK(floats(eval(Pad{{0, 1}, {1, 0}, PadMode::constant, -1}, {counting({2, 2})}, {3, 3})) ==
        std::vector<float>{-1, 0, 1, -1, 2, 3, -1, -1, -1});
}

TEST_CASE("gather takes rows by index, negative ones from the end") {
  const Value x = counting({3, 2});
  CHECK(floats(eval(Gather{0}, {x, i64({2}, {2, -3})}, {2, 2})) == std::vector<float>{4, 5, 0, 1});
  CHECK(floats(eval(Gather{1}, {x, i32({}, {1})}, {3})) == std::vector<float>{1, 3, 5});
  CHECK(eval(Gather{0}, {x, i64({0}, {})}, {0, 2}).data->empty());
  check_error(Case(Gather{0}, {x, i64({1}, {3})}, {1, 2}), ExitCode::bad_input, "index 3 is out of range for axis 0 of shape [3,2]");
  check_error(Case(Gather{0}, {x, i64({1}, {-4})}, {1, 2}), ExitCode::bad_input, "index -4");
}

TEST_CASE("the epilogue adds bias and residual before or after the activation") {
  const Conv attrs{{1}, {1}, {1}, {0}, {0}, 1};
  Case model(attrs, {f32({1, 1, 2}, {1, -5}), f32({2, 1, 1}, {1, 2})}, {1, 2, 2});
  model.epilogue().bias = model.constant(f32({2}, {1, 2}));
  CHECK(floats(model.result()) == std::vector<float>{2, -4, 4, -8});
  model.epilogue().activation = Activation::relu;
  model.epilogue().residual = model.constant(f32({1, 2, 2}, {-3, 5, 1, 1}));
  CHECK(floats(model.result()) == std::vector<float>{0, 1, 5, 0});
  model.epilogue().residual_after_activation = true;
  CHECK(floats(model.result()) == std::vector<float>{-1, 5, 5, 1});

  Case product(MatMul{}, {f32({2, 1}, {1, 2}), f32({1, 2}, {1, 10})}, {2, 2});
  product.epilogue().bias = product.constant(f32({2}, {100, 200}));
  CHECK(floats(product.result()) == std::vector<float>{101, 210, 102, 220});
}

TEST_CASE("every activation of the epilogue") {
  struct Row {
    Activation activation;
    float a, b;
    std::vector<float> expected;
  };
  const Row row = GENERATE(values<Row>({{Activation::none, 0, 0, {-2, 0, 3}},
                                        {Activation::relu, 0, 0, {0, 0, 3}},
                                        {Activation::clip, -1, 2, {-1, 0, 2}},
                                        {Activation::sigmoid, 0, 0, {0.11920292F, 0.5F, 0.95257413F}},
                                        {Activation::tanh, 0, 0, {-0.96402758F, 0, 0.99505475F}},
                                        {Activation::hard_sigmoid, 0.25F, 0.5F, {0, 0.5F, 1}},
                                        {Activation::hard_swish, 0, 0, {-1.0F / 3, 0, 3}},
                                        {Activation::leaky_relu, 0.5F, 0, {-1, 0, 3}},
                                        {Activation::silu, 0, 0, {-0.23840584F, 0, 2.85772238F}},
                                        {Activation::gelu, 0, 0, {-0.04550026F, 0, 2.99595031F}},
                                        {Activation::gelu_tanh, 0, 0, {-0.04540231F, 0, 2.99636261F}}}));
  INFO(name_of(row.activation));
  Case model(MatMul{}, {f32({1, 1}, {1}), f32({1, 3}, {-2, 0, 3})}, {1, 3});
  model.epilogue().activation = row.activation;
  model.epilogue().a = row.a;
  model.epilogue().b = row.b;
  check_close(floats(model.result()), row.expected);
}

TEST_CASE("run passes inputs, constants and results along, and returns any tensor that is an output") {
  Graph graph;
  Tensor tensor;
  tensor.name = "x";
  tensor.shape = {2};
  tensor.role = Role::input;
  const TensorId x = add_tensor(graph, tensor);
  const TensorId c = add_f32_constant(graph, "c", {2}, {10, 20});
  tensor.role = Role::activation;
  const TensorId sum = add_tensor(graph, tensor), product = add_tensor(graph, tensor);
  graph.rops.push_back(ROperator{"sum", one_step(ElementwiseOp::add), {}, {x, c}, {sum}, {}});
  graph.rops.push_back(ROperator{"product", one_step(ElementwiseOp::mul), {}, {sum, sum}, {product}, {}});
  graph.inputs = {x};
  graph.outputs = {product, x, c};

  const std::vector<Value> outputs = ops::run(graph, {f32({2}, {1, 2})});
  REQUIRE(outputs.size() == 3);
  CHECK(floats(outputs[0]) == std::vector<float>{121, 484});
  CHECK(floats(outputs[1]) == std::vector<float>{1, 2});
  CHECK(floats(outputs[2]) == std::vector<float>{10, 20});

  CHECK_THROWS_WITH(ops::run(graph, {}), Contains("1 inputs, 0 were given"));
  CHECK_THROWS_WITH(ops::run(graph, {f32({3}, {1, 2, 3})}), Contains("input 'x' has shape [3], expected [2]"));
  CHECK_THROWS_WITH(ops::run(graph, {i64({2}, {1, 2})}), Contains("input 'x' has element type i64, expected f32"));
}

TEST_CASE("verify_shapes finds an output shape that does not follow from the operands") {
  const Value x = counting({2, 3, 4, 5});
  const Conv pointwise{{1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, 1};
  const std::vector<Case> wrong = {
      Case(pointwise, {x, counting({7, 3, 1, 1})}, {2, 7, 4, 4}),
      Case(pointwise, {x, counting({7, 2, 1, 1})}, {2, 7, 4, 5}),
      Case(MatMul{}, {counting({2, 3}), counting({4, 2})}, {2, 2}),
      Case(MatMul{}, {counting({2, 3}), counting({3, 2})}, {2, 3}),
      Case(Pool{PoolKind::max, {2, 2}, {2, 2}, {1, 1}, {0, 0}, {0, 0}}, {x}, {2, 3, 2, 4}),
      Case(Reduce{ReduceKind::sum, {1}, true}, {x}, {2, 4, 5}),
      Case(Reduce{ReduceKind::sum, {4}, false}, {x}, {2, 3, 4, 5}),
      Case(Softmax{3, 4, false}, {x}, {2, 3, 4, 5}),
      Case(BatchNorm{}, {x, counting({4}), counting({4}), counting({4}), counting({4})}, {2, 3, 4, 5}),
      Case(one_step(ElementwiseOp::add), {counting({2}), counting({3})}, {3}),
      Case(one_step(ElementwiseOp::add), {counting({2}), counting({1})}, {2, 2}),
      Case(Reshape{}, {x}, {2, 3, 4}),
      Case(Transpose{{0, 1, 1, 3}}, {x}, {2, 3, 3, 5}),
      Case(Slice{{2}, {2}}, {counting({4})}, {2}),
      Case(Concat{0}, {counting({2, 2}), counting({2, 3})}, {4, 2}),
      Case(Pad{{1}, {0}, PadMode::edge, 0}, {f32({0}, {})}, {1}),
      Case(Gather{0}, {counting({3, 2}), i64({2}, {0, 0})}, {2}),
  };
  for (size_t i = 0; i < wrong.size(); ++i) {
    INFO("case " << i);
    CHECK_THROWS_AS(ops::verify_shapes(wrong[i].graph), InternalError);
    CHECK_THROWS_AS(wrong[i].result(), InternalError);
  }
}

TEST_CASE("FLOP are the additions, multiplications and functions of the operator") {
  const Graph graph = parse_graph(R"(
    x = input f32[2,3,8,8]
    q = input f32[1,4,6,16]
    k = input f32[1,4,10,16]
    r = input f32[1,10]
    w = const f32[5,3,3,3]
    b = const f32[5]
    m = const f32[10,20]
    c = Conv(x, w) {kernel=[3,3], pads=[1,1,1,1]} epilogue{bias=b, act=relu} -> f32[2,5,8,8]
    p = MaxPool(c) {kernel=[2,2], strides=[2,2]} -> f32[2,5,4,4]
    s = Softmax(r) {axes=[1,1]} -> f32[1,10]
    y = MatMul(s, m) {} -> f32[1,20]
    a = Attention(q, k, k) {scale=0.25} -> f32[1,4,6,16]
    v = Reshape(p) -> f32[2,80]
    outputs(y, a, v)
  )");
  std::vector<double> flops;
  for (const ROperator& rop : graph.rops) flops.push_back(flops_of(graph, rop));
  const double conv = 2 * 5 * 64 * (2 * 27 + 1 + 1), attention = 4 * 6 * 10 * (2 * 16 + 2 * 16 + 5 + 1);
  CHECK(flops == std::vector<double>{conv, 2 * 5 * 16 * 4, 50, 2 * 10 * 20, attention, 0});
}

}  // namespace tamp
