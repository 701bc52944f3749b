// The parts of the command line that need no model: .npy files, random inputs, comparison, tables, child processes.
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "compiler/cli/command.h"
#include "compiler/cli/compare.h"
#include "compiler/cli/compiled_folder.h"
#include "compiler/cli/measure_lock.h"
#include "compiler/cli/measure_vdevice.h"
#include "compiler/cli/npy.h"
#include "compiler/cli/ports.h"
#include "compiler/cli/process.h"
#include "compiler/cli/table.h"
#include "test/support/catch.h"
#include "test/support/thrown.h"

using namespace tamp;
using namespace tamp::cli;
using tamp::test::message_of;

namespace {

ops::Value floats(Shape shape, const std::vector<float>& numbers) {
  auto data = std::make_shared<Bytes>(numbers.size() * sizeof(float));
  if (!numbers.empty()) std::memcpy(data->data(), numbers.data(), data->size());
  return {DType::f32, std::move(shape), std::move(data)};
}

std::string npy_text(const std::string& header, const std::string& data, char major = 1) {
  std::string out = std::string("\x93NUMPY") + major + '\0' + static_cast<char>(header.size()) + '\0';
  if (major == 2) out += std::string(2, '\0');
  return out + header + data;
}

}  // namespace

TEST_CASE("a value written as .npy is read back unchanged") {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "x.npy";
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{3}, Shape{2, 3}, Shape{0, 4}, Shape{1, 3, 5, 7}}) {
    for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::i64, DType::i32, DType::u8, DType::boolean}) {
      const ops::Value value = random_value({"x", dtype, shape}, 7, 0);
      write_npy(path, value);
      const ops::Value read = read_npy(path);
      CHECK(read.dtype == dtype);
      CHECK(read.shape == shape);
      CHECK(*read.data == *value.data);
      CHECK((std::filesystem::file_size(path) - value.data->size()) % 64 == 0);  // data starts aligned, as NumPy writes it
    }
  }
}

TEST_CASE(".npy versions 1 and 2 are read, with keys in any order") {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "x.npy";
  const std::string data("\0\0\x80\x3f\0\0\0\x40", 8);  // 1, 2
  for (const char major : {'\1', '\2'}) {
    write_text(path, npy_text("{'shape': (2,), 'fortran_order': False, 'descr': '<f4'}\n", data, major));
    const ops::Value read = read_npy(path);
    CHECK(read.shape == Shape{2});
    CHECK(number_at(read, 1) == 2.0);
  }
}

TEST_CASE("a wrong .npy file is refused by name") {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "bad.npy";
  const std::string eight(8, '\0');
  struct Row {
    std::string text, message;
  };
  const Row rows[] = {
      {"", "not a .npy file"},
      {"PK\3\4 something else", "not a .npy file"},
      {npy_text("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", eight, 3), "version 3"},
      {npy_text("{'descr': '<f4', 'fortran_order': True, 'shape': (2,), }", eight), "Fortran order"},
      {npy_text("{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }", eight), "element type '>f4'"},
      {npy_text("{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }", eight), "element type '<c8'"},
      {npy_text("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", eight),
       "holds 8 bytes of data, its shape [3] of f32 needs 12"},
      {npy_text("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", eight), "needs 4"},
      {npy_text("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296, 2), }", eight), "more than memory has"},
      {npy_text("{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }", eight), "header cannot be read"},
      {npy_text("{'descr': '<f4', 'shape': (2,), }", eight), "lacks"},
      {npy_text("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'x': 1}", eight), "unknown key 'x'"},
      {npy_text("import os", eight), "header cannot be read"},
      {npy_text("{'descr': '<f4", eight), "header cannot be read"},
      {npy_text("{", ""), "header cannot be read"},
      {"\x93NUMPY\1", "not a .npy file"},
      {std::string("\x93NUMPY\1\0\xff\xff{", 11), "cut short"},
  };
  for (const Row& row : rows) {
    write_text(path, row.text);
    const std::string message = message_of([&] { read_npy(path); });
    INFO(message);
    CHECK(message.find("bad.npy") != std::string::npos);
    CHECK(message.find(row.message) != std::string::npos);
  }
  CHECK(message_of([&] { read_npy(path + ".none"); }).find("cannot be opened") != std::string::npos);
}

TEST_CASE("random inputs have mean 0 and variance 1 and depend on the seed and the position only") {
  const Port port{"x", DType::f32, {100, 101}};
  const ops::Value value = random_value(port, 1, 0);
  double sum = 0, squares = 0;
  const int64_t n = element_count(port.shape);
  for (int64_t i = 0; i < n; ++i) {
    sum += number_at(value, i);
    squares += number_at(value, i) * number_at(value, i);
  }
  CHECK(std::abs(sum / n) < 0.05);
  CHECK(std::abs(squares / n - 1) < 0.05);
  CHECK(*random_value(port, 1, 0).data == *value.data);
  CHECK(*random_value(port, 2, 0).data != *value.data);
  CHECK(*random_value(port, 1, 1).data != *value.data);
  const ops::Value whole = random_value({"i", DType::i64, {64}}, 1, 0);
  for (int64_t i = 0; i < 64; ++i) CHECK((number_at(whole, i) == 0 || number_at(whole, i) == 1));
}

TEST_CASE("inputs come from files of the right name, type and shape") {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "a.npy";
  write_npy(path, floats({2}, {1, 2}));
  const std::vector<Port> ports = {{"x", DType::f32, {2}}, {"x=y", DType::f32, {2}}};
  CHECK(number_at(read_inputs(ports, {"x=" + path}, 1)[0], 1) == 2);
  CHECK(number_at(read_inputs(ports, {"x=y=" + path}, 1)[1], 1) == 2);  // the longest name of an input wins
  CHECK(message_of([&] { read_inputs(ports, {"z=" + path}, 1); }).find("an input of the model: 'x', 'x=y'") != std::string::npos);
  CHECK(message_of([&] { read_inputs(ports, {"x=" + path, "x=" + path}, 1); }).find("given twice") != std::string::npos);
  CHECK(message_of([&] { read_inputs(ports, {"x=a.txt"}, 1); }).find("known: .npy, .pb") != std::string::npos);
  CHECK(message_of([&] {
          read_inputs({{"x", DType::f32, {1, 2}}}, {"x=" + path}, 1);
        }).find("holds f32[2], input 'x' is f32[1,2]") != std::string::npos);
  CHECK(message_of([&] { read_inputs({{"x", DType::i64, {2}}}, {"x=" + path}, 1); }).find("input 'x' is i64[2]") != std::string::npos);
}

TEST_CASE("the comparison finds the worst element and never passes what is not finite") {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const Difference equal = difference(floats({3}, {1, nan, inf}), floats({3}, {1, nan, inf}));
  CHECK(equal.relative_l2 == 0);
  CHECK(equal.worst == -1);
  const Difference some = difference(floats({2, 2}, {3, 4, 0, 1}), floats({2, 2}, {3, 4, 0, 0}));
  CHECK(some.relative_l2 == Approx(0.2));
  CHECK(some.worst == 3);
  CHECK(index_text(some.worst, {2, 2}) == "[1,1]");
  CHECK(std::isinf(difference(floats({1}, {nan}), floats({1}, {1})).relative_l2));
  CHECK(std::isinf(difference(floats({1}, {1}), floats({1}, {nan})).relative_l2));
  CHECK(std::isinf(difference(floats({1}, {inf}), floats({1}, {-inf})).relative_l2));
  CHECK(difference(floats({1}, {1e-3f}), floats({1}, {0})).relative_l2 == Approx(1e-3));
  CHECK(difference(floats({0}, {}), floats({0}, {})).relative_l2 == 0);
  CHECK(tolerance(Precision::fp32, DType::f32) == 1e-4);
  CHECK(tolerance(Precision::tf32, DType::f32) == 5e-3);
  CHECK(tolerance(Precision::tf32, DType::i64) == 0);
}

TEST_CASE("the comparison sees every bit of an integer") {
  const auto wholes = [](DType dtype, const std::vector<int64_t>& numbers) {
    Bytes bytes(numbers.size() * sizeof(int64_t));
    std::memcpy(bytes.data(), numbers.data(), bytes.size());
    return ops::Value{dtype, {static_cast<int64_t>(numbers.size())}, std::make_shared<const Bytes>(std::move(bytes))};
  };
  constexpr int64_t kLarge = int64_t{1} << 53, kLeast = std::numeric_limits<int64_t>::min();
  const Difference next = difference(wholes(DType::i64, {1, kLarge + 1}), wholes(DType::i64, {1, kLarge}));
  CHECK(next.relative_l2 > 0);
  CHECK(next.worst == 1);
  CHECK(difference(wholes(DType::i64, {kLeast}), wholes(DType::i64, {kLeast})).relative_l2 == 0);
  CHECK(difference(wholes(DType::u64, {-1}), wholes(DType::u64, {-2})).relative_l2 > 0);
  CHECK(element_text(wholes(DType::i64, {kLarge + 1}), 0, 7) == "9007199254740993");
  CHECK(element_text(wholes(DType::u64, {-1}), 0, 7) == "18446744073709551615");
  CHECK(element_text(floats({1}, {0.1F}), 0, 7) == "0.1");
}

TEST_CASE("outputs are written under legal, different names") {
  const TemporaryFolder folder;
  const std::string out = folder.path() / "out";
  write_outputs(out, {{"a/b", DType::f32, {1}}, {"a.b", DType::f32, {1}}, {"../../x", DType::f32, {1}}},
                {floats({1}, {1}), floats({1}, {2}), floats({1}, {3})});
  CHECK(number_at(read_npy(out + "/a_b.npy"), 0) == 1);
  CHECK(number_at(read_npy(out + "/a_b_2.npy"), 0) == 2);
  CHECK(number_at(read_npy(out + "/x.npy"), 0) == 3);
  CHECK(read_text(out + "/outputs.json") == "{\n \"a/b\": \"a_b.npy\",\n \"a.b\": \"a_b_2.npy\",\n \"../../x\": \"x.npy\"\n}\n");
}

TEST_CASE("no output takes another's file") {
  const TemporaryFolder folder;
  const std::string out = folder.path();
  const std::vector<Port> ports = {
      {"a b", DType::f32, {1}}, {"a_b", DType::f32, {1}}, {"a_b_2", DType::f32, {1}}, {"a_b_1", DType::f32, {1}}};
  write_outputs(out, ports, {floats({1}, {1}), floats({1}, {2}), floats({1}, {3}), floats({1}, {4})});
  const auto names = nlohmann::json::parse(read_text(out + "/outputs.json"));
  float expected = 1;
  for (const Port& port : ports) CHECK(number_at(read_npy(out + "/" + names.at(port.name).get<std::string>()), 0) == expected++);
}

TEST_CASE("a summary shows range, NaNs and the first elements") {
  CHECK(summary(floats({2}, {1, -3})) == "f32[2]  min -3  max 1  mean -1  first 1 -3");
  CHECK(summary(floats({5}, {1, 2, 3, 4, NAN})) == "f32[5]  min 1  max 4  mean 2.5  1 NaN  first 1 2 3 4 ...");
  CHECK(summary(floats({0}, {})) == "f32[0]");
}

TEST_CASE("tables line up and numbers are grouped") {
  Table table({{"NAME"}, {"N", Table::Align::right, 8}});
  table.row({"a", "1"});
  table.row({"long name", "1234567890"});
  CHECK(table.text() == "NAME              N\na                 1\nlong name  12345...\n");
  CHECK(grouped(0) == "0");
  CHECK(grouped(123) == "123");
  CHECK(grouped(1234567) == "1,234,567");
  CHECK(grouped(-123456) == "-123,456");
}

TEST_CASE("child processes get their arguments as they are") {
  const TemporaryFolder folder;
  const ProcessResult echoed = run_process({"printf", "%s|", "a b", "$(touch x)", ";"}, folder.path() / "echo", folder.path());
  CHECK(echoed.ok());
  CHECK(echoed.output == "a b|$(touch x)|;|");
  CHECK(!std::filesystem::exists(folder.path() / "x"));
  CHECK(run_process({"false"}, folder.path() / "false").exit_code == 1);
  CHECK(run_process({"sh", "-c", "kill -9 $$"}, folder.path() / "kill").exit_code == 128 + 9);
  CHECK_THROWS_AS(run_process({"no-such-program-of-tamp"}, folder.path() / "none"), InternalError);
  CHECK(find_program("no-such-program-of-tamp").empty());
  CHECK(!find_program("sh").empty());
}

TEST_CASE("the lock of measurements is the user's own, whatever stands in the shared temporary folder") {
  const TemporaryFolder shared;
  const std::string uid = std::to_string(geteuid());
  write_text(shared.path() / "planted", "");
  std::filesystem::create_directory(shared.path() / "tamp-measure.lock");  // where it was once: in everybody's way
  std::filesystem::create_symlink("planted", shared.path() / ("tamp-" + uid));
  setenv("TMPDIR", shared.path().c_str(), 1);
  setenv("HOME", (shared.path() / "home").c_str(), 1);
  unsetenv("XDG_RUNTIME_DIR");
  { const MeasureLock lock; }
  CHECK(std::filesystem::exists(shared.path() / "home/.cache/tamp/tamp-measure.lock"));
  std::filesystem::remove(shared.path() / ("tamp-" + uid));
  { const MeasureLock lock; }
  CHECK(std::filesystem::exists(shared.path() / ("tamp-" + uid) / "tamp-measure.lock"));
  std::filesystem::permissions(shared.path() / ("tamp-" + uid), std::filesystem::perms::all);  // others could put things there
  setenv("HOME", "nowhere", 1);
  CHECK(message_of([] { const MeasureLock lock; }).find("set XDG_RUNTIME_DIR") != std::string::npos);
  setenv("XDG_RUNTIME_DIR", (shared.path() / "home").c_str(), 1);
  { const MeasureLock lock; }
  CHECK(std::filesystem::exists(shared.path() / "home/tamp-measure.lock"));
  unsetenv("XDG_RUNTIME_DIR");
  unsetenv("TMPDIR");
}

TEST_CASE("temporary folders go away unless kept") {
  std::filesystem::path gone, kept;
  {
    TemporaryFolder first, second;
    gone = first.path();
    kept = second.path();
    write_text(gone / "deep" / "file", "x");
    second.keep();
  }
  CHECK(!std::filesystem::exists(gone));
  CHECK(std::filesystem::exists(kept));
  std::filesystem::remove_all(kept);
}

TEST_CASE("a folder is only written into if it is tamp's or has nothing to lose") {
  const TemporaryFolder folder;
  const std::string path = folder.path();
  CHECK_NOTHROW(require_own_folder(path, "m"));
  CHECK_NOTHROW(require_own_folder(path + "/new", "m"));
  write_text(folder.path() / "CMakeLists.txt", "project(precious)");
  CHECK(message_of([&] { require_own_folder(path, "m"); }).find("CMakeLists.txt that tamp did not write") != std::string::npos);
  write_text(folder.path() / "m.rprogram.json", "{}");
  CHECK(message_of([&] { require_own_folder(path, "m"); }).find("CMakeLists.txt that tamp did not write") != std::string::npos);
  CHECK(message_of([&] { require_own_folder(path, "other"); }).find("another compiled model") != std::string::npos);
  CHECK(message_of([&] { require_own_folder(path + "/CMakeLists.txt", "m"); }).find("not a folder") != std::string::npos);
}

TEST_CASE("a damaged rprogram.json is refused by name") {
  const TemporaryFolder folder;
  const std::string path = folder.path();
  CHECK(message_of([&] { read_compiled_folder(path); }).find("holds no NAME.rprogram.json") != std::string::npos);
  for (const char* text : {"", "{", "[]", "{}", "{\"name\": 3}", "null"}) {
    write_text(folder.path() / "m.rprogram.json", text);
    CHECK(message_of([&] { read_compiled_folder(path); }).find("m.rprogram.json") != std::string::npos);
  }
  write_text(folder.path() / "n.rprogram.json", "{}");
  CHECK(message_of([&] { read_compiled_folder(path); }).find("more than one") != std::string::npos);
}

TEST_CASE("a measured GPU is a vDevice like its own, or like the newest that is not newer") {
  const std::string text =
      "product NVIDIA H200\ncapability 90\nsms 132\nsmem_bytes 232448\nl2_bytes 52428800\nclock_ghz 1.98\nedge_us 1.6123\n"
      "lone_edge_us 1.1\nkernel_edge_us 2.4\nl2_gb_per_s 2801.4\ndram_gb_per_s 4300\nfp32_tflops 55\nfp16_tflops 601\ntf32_tflops 200\n";
  const VDevice own = parse_vdevice(vdevice_text("mine", parse_measurements(text)), "mine.json");
  CHECK(own.name == "mine");
  CHECK(own.arch == "sm_90a");
  CHECK(own.edge_us == 1.61);
  CHECK(own.edge_spread_us == 0.512);
  CHECK(own.l2_gb_per_s == 2800);
  CHECK(own.weight_stages == read_vdevice("h200").weight_stages);
  const std::string product = "NVIDIA H200", other = std::string(text).replace(text.find(product), product.size(), "Abacus");
  const auto with = [&](const std::string& from, const std::string& to) {
    return std::string(other).replace(other.find(from), from.size(), to);
  };
  // Another product of the same architecture may have its SMs in other groups, of which clusters take fewer.
  CHECK(own.sms_in_clusters == read_vdevice("h200").sms_in_clusters);
  const std::string fewer = with("sms 132", "sms 78");
  CHECK(parse_vdevice(vdevice_text("mine", parse_measurements(fewer)), "").sms_in_clusters == 60);
  CHECK(parse_vdevice(vdevice_text("mine", parse_measurements(with("sms 132", "sms 16"))), "").sms_in_clusters == 0);
  // sm_100 has a vDevice; a newer GPU has the newest one's layout, and its own architecture.
  CHECK(parse_vdevice(vdevice_text("mine", parse_measurements(with("capability 90", "capability 110"))), "").arch == "sm_110");
  const VDevice small = parse_vdevice(vdevice_text("mine", parse_measurements(with("smem_bytes 232448", "smem_bytes 101376"))), "");
  CHECK(small.smem_bytes <= 101376);
  CHECK(small.arch == "sm_90");
  CHECK_THROWS_AS(vdevice_text("mine", parse_measurements(with("capability 90", "capability 70"))), Error);
  CHECK_THROWS_AS(parse_measurements(with("edge_us 1.6123", "edge_us nan")), InternalError);
  CHECK_THROWS_AS(parse_measurements("product x\n"), InternalError);
}

TEST_CASE("a malformed --dim is refused") {
  ModelArguments arguments;
  arguments.vdevice = "a100";
  arguments.dims = {"N=8", "sequence=128"};
  CHECK(compile_options(arguments).dims == std::map<std::string, int64_t>{{"N", 8}, {"sequence", 128}});
  CHECK(compile_options(arguments).vdevice == "a100");
  for (const char* text : {"N", "N=", "=8", "N=x", "N=8x", "N=0", "N=-1", "N=99999999999999999999"}) {
    arguments.dims = {text};
    CHECK(message_of([&] { compile_options(arguments); }).find("--dim") != std::string::npos);
  }
  arguments.dims = {"N=8", "N=9"};
  CHECK(message_of([&] { compile_options(arguments); }).find("twice") != std::string::npos);
}
