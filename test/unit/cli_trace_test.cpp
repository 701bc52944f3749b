// What `tamp run --trace` makes of stamps: made-up stamps of two vEUs. `a` runs on both and is slow on vEU 1; `b` needs both,
// on vEU 0; `c` follows it without an event.
#include <functional>
#include <nlohmann/json.hpp>

#include "compiler/cli/trace.h"
#include "compiler/support/error.h"
#include "test/support/catch.h"
#include "test/support/thrown.h"

using namespace tamp;
using namespace tamp::cli;
using nlohmann::json;
using tamp::test::message_of;

namespace {

constexpr uint64_t kStart = 1'763'700'000'000'000'000;

json entry(int rop, std::vector<int> waits = {}, int signal = -1, int index = 0, int phase = 0) {
  return {{"rop", rop}, {"phase", phase}, {"index", index}, {"waits", std::move(waits)}, {"signal", signal}};
}

json program(json lanes) {
  json rops = json::array();
  for (const char* name : {"a", "b", "c"}) rops.push_back({{"name", name}, {"rkernel", std::string("kernel_of_") + name}});
  return {{"name", "two"}, {"rops", std::move(rops)}, {"lanes", std::move(lanes)}};
}

json two_lanes() {
  return program(
      json::array({json::array({entry(0, {}, 0), entry(1, {0}, 1), entry(2, {}, -1, 0, 1)}), json::array({entry(0, {}, 0, 1)})}));
}

// Rows of us: waiting, inputs ready, started, computed, signalled; a negative time was not stamped.
std::vector<uint64_t> stamps_of(const std::vector<std::vector<double>>& rows) {
  std::vector<uint64_t> out;
  for (const auto& row : rows) {
    for (const double time : row) out.push_back(time < 0 ? 0 : kStart + static_cast<uint64_t>(time * 1000));
  }
  return out;
}

// b starts before its inputs are there, as bodies with boxes do.
std::vector<uint64_t> stamps_of_two_lanes() {
  return stamps_of({{0, 0, 0, 3, 3.5}, {0.5, 7, 6, 9, 9.5}, {8, 8, 9.25, 10, -1}, {0, 0, 0, 6, 6.5}});
}

json slices(const TraceReport& report) {
  const json read = json::parse(report.events);
  json out = json::array();
  for (const json& event : read.at("traceEvents")) {
    if (event.at("ph") == "X") out.push_back(event);
  }
  return out;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string line_with(const std::string& text, const std::string& part) {
  const size_t at = text.find(part);
  if (at == std::string::npos) return "";
  const size_t begin = text.rfind('\n', at) + 1;
  return text.substr(begin, text.find('\n', at) - begin);
}

}  // namespace

TEST_CASE("stamps of a program with loops are refused") {
  json loops = two_lanes();
  json turn = entry(-1);
  turn["turn"] = "enter";
  loops["lanes"][0].push_back(turn);
  CHECK(has(message_of([&] { trace_report(loops.dump(), stamps_of_two_lanes()); }, ExitCode::unsupported),
            "a trace of a program with loops of run time"));
}

TEST_CASE("the time of all vEUs divides into parts that add up") {
  const std::string text = trace_report(two_lanes().dump(), stamps_of_two_lanes()).text;
  INFO(text);
  CHECK(has(text, "trace   10.0 us, 4 rTasks on 2 vEUs"));
  // Of 20 us: vEU 0 has a 0-3, waits for the other a until 6, for its signal until 7, b 7-9, start 0.25, c until 10. vEU 1 has
  // a 0-6 and is idle then.
  struct Row {
    const char *name, *share, *us;
  };
  for (const Row& row : {Row{"computing", "58.8", "5.88"}, Row{"waiting: producers", "15.0", "1.50"},
                         Row{"waiting: signals", "5.0", "0.50"}, Row{"starting", "1.2", "0.12"}, Row{"idle", "20.0", "2.00"}}) {
    const std::string line = line_with(text, std::string("\n") + row.name);
    INFO(row.name << ": " << line);
    CHECK(has(text, row.name));
    CHECK(has(text, std::string(row.share) + "  "));
    CHECK(has(text, std::string(row.us) + "  "));
  }
}

TEST_CASE("the critical path goes back through the last signal, longest rOperators first") {
  const std::string text = trace_report(two_lanes().dump(), stamps_of_two_lanes()).text;
  INFO(text);
  CHECK(has(text, "critical path: 3 rTasks, 8.8 us computing, 1.2 us before and between them"));
  CHECK(has(text,
            "a          kernel_of_a       1          6.00          0.00\n"
            "b          kernel_of_b       1          2.00          1.00\n"
            "c.1        kernel_of_c       1          0.75          0.25\n"));
}

TEST_CASE("a long critical path is cut and what is left out is summed") {
  json rops = json::array(), lane = json::array();
  std::vector<std::vector<double>> rows;
  for (int i = 0; i < 23; ++i) {
    rops.push_back({{"name", "rop" + std::to_string(i)}, {"rkernel", "k"}});
    lane.push_back(entry(i));
    const double at = 2.0 * i;
    rows.push_back({at, at, at, at + (i < 20 ? 2 : 1), -1});
  }
  const json one = {{"name", "one"}, {"rops", rops}, {"lanes", json::array({lane})}};
  const std::string text = trace_report(one.dump(), stamps_of(rows)).text;
  INFO(text);
  CHECK(has(text, "critical path: 23 rTasks, 43.0 us computing, 2.0 us before"));
  CHECK(has(text, "3 more"));
  CHECK(!has(text, "rop20"));
}

TEST_CASE("a trace for a viewer has a track for each vEU and a slice for each rTask") {
  const TraceReport report = trace_report(two_lanes().dump(), stamps_of_two_lanes());
  const json found = slices(report);
  struct Row {
    const char* name;
    int veu;
    double ts, dur, waited;
  };
  const Row rows[] = {{"a", 0, 0, 3, 0}, {"b", 0, 7, 2, 4}, {"c.1", 0, 9.25, 0.75, 0.25}, {"a", 1, 0, 6, 0}};
  REQUIRE(found.size() == 4);
  for (size_t i = 0; i < 4; ++i) {
    CHECK(found[i].at("name") == rows[i].name);
    CHECK(found[i].at("tid") == rows[i].veu);
    CHECK(found[i].at("ts") == rows[i].ts);
    CHECK(found[i].at("dur") == rows[i].dur);
    CHECK(found[i].at("args").at("waited us") == rows[i].waited);
    CHECK(found[i].at("args").at("rKernel") == std::string("kernel_of_") + rows[i].name[0]);
  }
  CHECK(found[3].at("args").at("rTask") == 1);
  CHECK(has(report.events, R"("args":{"name":"vEU 1"})"));
  CHECK(trace_report(two_lanes().dump(), stamps_of_two_lanes()).events == report.events);
}

TEST_CASE("further Waits and entries without rTask take rows of their own") {
  const std::vector<double> none = {-1, -1, -1, -1, -1}, first = {0, 0, 0, 1, 2}, last = {1, 3, 3, 5, -1};
  struct Row {
    std::vector<int> waits;
    size_t rows_before;
  };
  for (const Row& row : {Row{{}, 0}, Row{{0, 1, 2}, 0}, Row{{0, 1, 2, 3}, 1}, Row{{0, 1, 2, 3, 4, 5}, 1}, Row{{0, 1, 2, 3, 4, 5, 6}, 2}}) {
    const json one = program(json::array({json::array({entry(0, {}, 0), entry(-1, {}, 7), entry(1, row.waits)})}));
    std::vector<std::vector<double>> rows = {first, none};
    for (size_t i = 0; i < row.rows_before; ++i) rows.push_back(none);
    rows.push_back(last);
    const json found = slices(trace_report(one.dump(), stamps_of(rows)));
    REQUIRE(found.size() == 2);
    CHECK(found[1].at("name") == "b");
    CHECK(found[1].at("ts") == 3);
  }
}

TEST_CASE("a rOperator takes from its inputs' last signal to its own, less what its vEUs did for others") {
  // a: until vEU 1 has signalled. b: from then on. c, on the same vEU without an event: after b.
  CHECK(rop_times(two_lanes().dump(), stamps_of_two_lanes()) == std::vector<double>{6.5, 3, 1});

  // Phase 1 of `a` follows phase 0, on another vEU; `b` was ready when its vEU was still at `a`; `c` does not run.
  const json phases = program(json::array({json::array({entry(0, {}, 0), entry(1, {}, -1)}), json::array({entry(0, {0}, -1, 0, 1)})}));
  CHECK(rop_times(phases.dump(), stamps_of({{0, 0, 0, 4, 5}, {0, 1, 4, 6, -1}, {0, 6, 6, 9, -1}})) == std::vector<double>{5 + 4, 2, -1});
}

TEST_CASE("of several runs a rOperator takes the median") {
  std::vector<uint64_t> runs;
  for (const double scale : {1.0, 3.0, 2.0}) {
    const auto run = stamps_of({{0, 0, 0, 3 * scale, 3.5 * scale},
                                {0.5, 7 * scale, 6, 9 * scale, 9.5 * scale},
                                {8, 8, 9.25 * scale, 10 * scale, -1},
                                {0, 0, 0, 6 * scale, 6.5 * scale}});
    runs.insert(runs.end(), run.begin(), run.end());
  }
  CHECK(rop_times(two_lanes().dump(), runs) == std::vector<double>{13, 6, 2});
  runs.pop_back();
  CHECK(has(message_of([&] { rop_times(two_lanes().dump(), runs); }), "not of runs of the rProgram"));
  CHECK(has(message_of([&] { rop_times(two_lanes().dump(), {}); }), "not of runs of the rProgram"));
}

TEST_CASE("a trace that does not fit the rProgram is refused") {
  const std::string two = two_lanes().dump();
  std::vector<uint64_t> stamps = stamps_of_two_lanes();
  stamps.pop_back();
  CHECK(has(message_of([&] { trace_report(two, stamps); }), "19 stamps, the rProgram has 4 rows of 5"));
  CHECK(has(message_of([&] { trace_report(two, {}); }), "0 stamps"));
  CHECK(has(message_of([&] { trace_report(two, std::vector<uint64_t>(20, 0)); }), "lacks the time"));
  CHECK(has(message_of([&] { trace_report(program(json::array()).dump(), {}); }), "no rTasks"));
  for (const char* text : {"", "{", "[]", "{}", R"({"lanes": [[{}]]})", R"({"lanes": 3})"})
    CHECK(has(message_of([&] { trace_report(text, std::vector<uint64_t>(5, kStart)); }), "not what tamp writes"));
  json other = two_lanes();
  other["lanes"][0][0]["rop"] = 99;
  CHECK(has(message_of([&] { trace_report(other.dump(), stamps_of_two_lanes()); }), "not what tamp writes"));
}

TEST_CASE("a trace is valid JSON whatever the names are") {
  json strange = two_lanes();
  strange["rops"][0]["name"] = "a\"\n\\";
  const TraceReport report = trace_report(strange.dump(), stamps_of_two_lanes());
  CHECK(slices(report)[0].at("name") == "a\"\n\\");
  CHECK(!has(report.text, "a\"\n"));
}
