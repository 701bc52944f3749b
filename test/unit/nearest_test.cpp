// What a user probably meant.
#include "compiler/support/nearest.h"

#include <catch2/catch.hpp>

using namespace tamp;

TEST_CASE("the nearest word is found whatever its case, and nothing where none is near") {
  const std::vector<std::string> known = {"compile", "compare", "run", "MatMul", "h200", "h100", "fp16"};
  const std::vector<std::pair<std::string, std::string>> rows = {
      {"compil", "compile"},
      {"comiple", "compile"},
      {"COMPARE", "compare"},
      {"matmul", "MatMul"},
      {"MatMull", "MatMul"},
      {"rnu", "run"},
      {"H200", "h200"},
      {"h20O", "h200"},
      {"destroy", ""},
      {"xyz", ""},
      {"", ""},
      {"r", ""},
      {"fp8", ""},
  };
  for (const auto& [word, meant] : rows) {
    INFO(word);
    CHECK(nearest(word, known) == meant);
  }
  CHECK(did_you_mean("rnu", known) == "; did you mean 'run'?");
  CHECK(did_you_mean("destroy", known).empty());
  CHECK(nearest(std::string(1'000'000, 'a'), known).empty());
}
