// What takes the time of made-up lanes.
#include "compiler/cli/time_shares.h"
#include "test/support/catch.h"

using namespace tamp::cli;

namespace {

using Rops = std::vector<CompiledFolder::ROperatorLine>;
using Lanes = std::vector<CompiledFolder::Lane>;

CompiledFolder::ROperatorLine rop(const std::string& name, const std::string& op, double flops = 0) {
  CompiledFolder::ROperatorLine line;
  line.name = name, line.op = op, line.flops = flops;
  return line;
}

// One vEU that runs rOperator after rOperator, a microsecond each, where `us` does not say otherwise.
TimeShares one_after_another(const std::vector<std::string>& names, const std::vector<double>& us = {}) {
  Rops rops;
  Lanes lanes(1);
  double at = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    rops.push_back(rop(names[i], "Conv"));
    const double begin = at;
    at += i < us.size() ? us[i] : 1;
    lanes[0].push_back({static_cast<int64_t>(i), {}, -1, begin, at});
  }
  return time_shares(rops, lanes);
}

std::vector<std::string> names_of(const std::vector<TimeShare>& shares) {
  std::vector<std::string> names;
  for (const TimeShare& share : shares) names.push_back(share.name);
  return names;
}

}  // namespace

TEST_CASE("the critical path goes by the last signal, and shares are of it and of all vEUs") {
  // vEU 0: a from 2 to 5, then c, which waits for b, from 9 to 10. vEU 1: b from 2 to 8, and an entry that only signals.
  const Rops rops = {rop("a", "Conv", 10), rop("b", "Conv", 20), rop("c", "MatMul", 5), rop("view", "Reshape")};
  const Lanes lanes = {{{0, {}, -1, 2, 5}, {2, {1}, -1, 9, 10}}, {{1, {}, 0, 2, 8}, {-1, {0}, 1, 8, 8}}};
  const TimeShares shares = time_shares(rops, lanes);
  CHECK(shares.path == std::vector<std::pair<size_t, size_t>>{{1, 0}, {1, 1}, {0, 1}});
  CHECK(shares.launch_us == 2);
  CHECK(shares.critical_us == 8);
  CHECK(shares.computing_us == 7);
  CHECK(shares.rtasks == 2);
  REQUIRE(names_of(shares.kinds) == std::vector<std::string>{"Conv", "MatMul", "Reshape"});
  const TimeShare& conv = shares.kinds[0];
  CHECK(conv.rops == std::vector<size_t>{0, 1});
  CHECK(conv.critical_us == 6);
  CHECK(conv.critical_share == 0.75);
  CHECK(conv.busy_us == 9);
  CHECK(conv.busy_share == 0.9);
  CHECK(conv.flops == 30);
  CHECK(json_of(shares)["kinds"][1]["critical_share"] == 0.125);
}

TEST_CASE("the rTasks of a gang begin together, after what any of them waited for") {
  Rops rops = {rop("a", "Conv"), rop("g", "Recurrent")};
  rops[1].gang = true;
  const Lanes lanes = {{{0, {}, 0, 0, 3}, {1, {}, -1, 4, 6}}, {{1, {0}, -1, 4, 7}}, {{1, {}, -1, 4, 5}}};
  CHECK(time_shares(rops, lanes).path == std::vector<std::pair<size_t, size_t>>{{0, 0}, {1, 0}});
}

TEST_CASE("nothing runs, nothing takes time") {
  const TimeShares shares = time_shares({rop("view", "Reshape")}, Lanes(2));
  CHECK(shares.path.empty());
  CHECK(shares.critical_us == 0);
  CHECK(shares.kinds.at(0).critical_share == 0);
  CHECK(time_shares({}, {}).layers.empty());
}

TEST_CASE("layers are prefixes of names, as long as is needed to tell where the time goes") {
  using Names = std::vector<std::string>;
  // No layer of five has more than half: names are not cut further.
  CHECK(names_of(one_after_another({"/conv1/Conv", "/layer1/layer1.0/conv1/Conv", "/layer1/layer1.1/conv1/Conv",
                                    "/layer2/layer2.0/conv1/Conv", "/layer3/layer3.0/conv1/Conv", "/fc/Gemm"})
                     .layers) == Names{"/layer1", "/conv1", "/layer2", "/layer3", "/fc"});
  // The encoder has most of the time, and its layers come in its place; what belongs to none of them keeps its name.
  Names names = {"/m/embeddings/Gather", "/m/encoder/Cast", "/m/pooler/dense/Gemm"};
  for (int i = 0; i < 12; ++i) names.push_back("/m/encoder/layer." + std::to_string(i) + "/attention/MatMul");
  const Names cut = names_of(one_after_another(names, {1, 0.5, 3}).layers);
  CHECK(cut.size() == 15);
  CHECK(cut[0] == "/m/pooler");
  CHECK(cut[2] == "/m/encoder/layer.0");
  CHECK(cut[12] == "/m/encoder/layer.10");  // equal ones in the model's order
  CHECK(cut[14] == "/m/encoder");
  CHECK(names_of(one_after_another({"net_stage1_conv0_fwd", "net_stage1_conv1_fwd", "net_stage2_conv0_fwd"}).layers).size() == 3);
  CHECK(names_of(one_after_another({"h.0.attn.proj", "h.1.attn.proj"}).layers) == Names{"h.0.attn", "h.1.attn"});
  CHECK(names_of(one_after_another({"lstm"}).layers) == Names{"lstm"});
}
