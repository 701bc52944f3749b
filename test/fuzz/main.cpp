// A fuzzer that needs nothing of clang's: changes models of a folder again and again (mutate_model.h) and imports them (import_fuzz.h). It
// does not see which code an input reaches, so it finds less in an hour than libFuzzer, but it runs in any build, sanitized or not.
//
//   fuzz_models MODEL|FOLDER... [--runs N] [--seconds S] [--seed K] [--findings FOLDER] [--replay]
//
// --replay imports the files as they are. A finding that is an exception is written into --findings (default: here) and the search goes
// on; one that ends the process leaves the model in FINDINGS/last.onnx. The last line is "N passed, N failed": the whole search is one
// test.
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "test/fuzz/import_fuzz.h"
#include "test/fuzz/mutate_model.h"

namespace {

namespace fs = std::filesystem;

struct Options {
  std::vector<std::string> models;
  long runs = -1;
  double seconds = 60;
  unsigned seed = 1;
  fs::path findings = ".";
  bool replay = false;
};

constexpr time_t kSecondsOfOne = 20;               // one model takes no more of a processor, or SIGPROF ends the process
constexpr rlim_t kBytes = rlim_t{4} << 30;         // nor more memory; the address sanitizer needs all addresses for itself
constexpr std::uintmax_t kMostBytes = 256 * 1024;  // of a model to start from

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_file(const fs::path& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

std::vector<fs::path> models_in(const std::vector<std::string>& names) {
  std::vector<fs::path> found;
  for (const std::string& name : names) {
    if (!fs::is_directory(name)) {
      found.emplace_back(name);
      continue;
    }
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(name)) {
      if (entry.is_regular_file() && entry.path().extension() == ".onnx" && entry.file_size() <= kMostBytes) found.push_back(entry.path());
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

// Of processor time, so that a busy machine is no finding; 0: no limit.
void limit_seconds(time_t seconds) {
  const itimerval limit = {{0, 0}, {seconds, 0}};
  setitimer(ITIMER_PROF, &limit, nullptr);
}

class Search {
 public:
  explicit Search(const Options& options) : options_(options), models_(models_in(options.models)), random_(options.seed) {}

  int run() {
    if (models_.empty()) {
      std::fprintf(stderr, "no models to start from\n");
      return 1;
    }
    if (options_.replay) {
      for (const fs::path& model : models_) import(read_file(model), model.string());
    } else {
      search();
    }
    std::error_code ignored;
    fs::remove(last(), ignored);
    std::printf("%ld models, of which tamp takes %ld\n%d passed, %ld failed\n", runs_, taken_, findings_ == 0 ? 1 : 0, findings_);
    return findings_ == 0 ? 0 : 1;
  }

 private:
  fs::path last() const { return options_.findings / "last.onnx"; }

  void search() {
    const auto begin = std::chrono::steady_clock::now();
    const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
    while (options_.runs >= 0 ? runs_ < options_.runs : seconds() < options_.seconds) {
      onnx::ModelProto model;
      if (!model.ParseFromString(read_file(models_[random_() % models_.size()]))) continue;
      std::string bytes;
      tamp::test::mutate(model, random_);
      if (!model.SerializeToString(&bytes)) continue;
      import(bytes, "run " + std::to_string(runs_));
    }
  }

  void import(const std::string& bytes, const std::string& name) {
    write_file(last(), bytes);
    limit_seconds(kSecondsOfOne);
    ++runs_;
    try {
      taken_ += tamp::test::try_import(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    } catch (const std::exception& exception) {
      const fs::path kept = options_.findings / ("finding" + std::to_string(++findings_) + ".onnx");
      write_file(kept, bytes);
      std::printf("FINDING %s, %s: %s\n", kept.c_str(), name.c_str(), exception.what());
      std::fflush(stdout);
    }
    limit_seconds(0);
  }

  const Options& options_;
  std::vector<fs::path> models_;
  std::mt19937 random_;
  long runs_ = 0, taken_ = 0, findings_ = 0;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&] {
      return i + 1 < argc ? argv[++i] : (std::fprintf(stderr, "%s needs a value\n", word.c_str()), std::exit(2), "");
    };
    if (word == "--runs")
      options.runs = std::atol(value());
    else if (word == "--seconds")
      options.seconds = std::atof(value());
    else if (word == "--seed")
      options.seed = static_cast<unsigned>(std::atol(value()));
    else if (word == "--findings")
      options.findings = value();
    else if (word == "--replay")
      options.replay = true;
    else
      options.models.push_back(word);
  }
  return options;
}

void limit_memory() {
#if !defined(__SANITIZE_ADDRESS__)
  const rlimit limit{kBytes, kBytes};
  setrlimit(RLIMIT_AS, &limit);
#endif
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  spdlog::set_level(spdlog::level::off);
  limit_memory();
  return Search(options).run();
}
