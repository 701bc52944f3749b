// Which integers random inputs may hold.
#include <catch2/catch.hpp>

#include "compiler/cli/index_limits.h"
#include "compiler/cli/ports.h"
#include "test/support/graph_text.h"

using namespace tamp;

TEST_CASE("an input that is an index lies below the rows of its tables") {
  const Graph graph = test::parse_graph(R"(
    ids = input i64[2,4]
    flags = input i64[2,4]
    moved = input i64[4]
    words = const f32[100,8]
    segments = const f32[30,8]
    one = const i64[] {1}
    flat = Reshape(ids) -> i64[8]
    a = Gather(words, flat) {axis=0} -> f32[8,8]
    b = Gather(segments, ids) {axis=0} -> f32[2,4,8]
    c = Elementwise(flags) {cast(i0)} -> f32[2,4]
    d = Elementwise(moved, one) {add(i0, i1)} -> i64[4]
    e = Gather(words, d) {axis=0} -> f32[4,8]
    outputs(a, b, c, e)
  )");
  CHECK(cli::index_limits(graph) == std::vector<int64_t>{30, 0, 0});  // of `moved` no limit is sure: it is added to
}

TEST_CASE("random integers cover what their limit allows") {
  const auto most_of = [](DType dtype, int64_t limit) {
    const ops::Value value = cli::random_value({.name = "i", .dtype = dtype, .shape = {10'000}, .index_limit = limit}, 1, 0);
    const cli::Statistics s = cli::statistics_of(value);
    CHECK(s.least >= 0);
    CHECK(s.least < 5);
    return s.most;
  };
  CHECK(most_of(DType::i64, 0) == 1);
  CHECK(most_of(DType::i64, 30) == 29);
  CHECK(most_of(DType::i32, 1) == 0);
  CHECK(most_of(DType::u8, 1000) == 255);
  CHECK(most_of(DType::i64, 50'000) > 49'000);
  CHECK(most_of(DType::i64, 50'000) < 50'000);
}
