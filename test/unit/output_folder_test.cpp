// A compilation's folder: nobody's files are lost, nothing is left half-written, and a name that somebody planted is not followed.
#include "codegen/output_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "compiler/support/files.h"
#include "test/support/catch.h"
#include "test/support/thrown.h"

using namespace tamp;
using tamp::test::message_of;
namespace fs = std::filesystem;

namespace {

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// As emit() does it: the list of files goes into the last of them.
void write_model(const fs::path& folder, const std::string& source) {
  codegen::OutputFolder out(folder.string());
  out.write("m.cu", source);
  out.write("m.weights", [&](NewFile& file) {
    file.append("none");
    file.append(source);
    file.overwrite("head", 0);
  });
  std::string json = R"({"name": "m", "files": {)";
  for (const auto& file : out.files()) json += "\"" + file.name + "\": \"" + file.print + (file.name == "m.cu" ? "\", " : "\"}}");
  out.write("m.rprogram.json", json);
  out.finish();
}

std::string refusal(const fs::path& folder, const std::string& name = "m") {
  try {
    codegen::check_folder(folder.string(), name, {"m.cu", "m.weights", "m.rprogram.json"});
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

size_t entries_in(const fs::path& folder) { return static_cast<size_t>(std::distance(fs::directory_iterator(folder), {})); }

struct Scratch : ScratchFolder {
  Scratch() : ScratchFolder(temporary_parent(), "tamp-output-") {}
};

}  // namespace

TEST_CASE("a new folder is made with what is above it, and replaced as often as one likes") {
  const Scratch scratch;
  const fs::path folder = scratch.path() / "a" / "b" / "out";
  for (const char* source : {"one", "two", "three, which is longer"}) {
    CHECK(refusal(folder) == "");
    write_model(folder, source);
    CHECK(text_of(folder / "m.cu") == source);
    CHECK(text_of(folder / "m.weights") == "head" + std::string(source));
    CHECK(entries_in(folder) == 3);
    CHECK(entries_in(folder.parent_path()) == 1);
  }
  struct stat made = {}, usual = {};
  fs::create_directory(scratch.path() / "usual");
  stat(folder.c_str(), &made);
  stat((scratch.path() / "usual").c_str(), &usual);
  CHECK(made.st_mode == usual.st_mode);  // not that of the scratch folder
}

TEST_CASE("what tamp did not write, or was changed since, is refused and stays") {
  const Scratch scratch;
  const fs::path folder = scratch.path();
  std::ofstream(folder / "mine.txt") << "mine";
  CHECK(refusal(folder) == "");
  std::ofstream(folder / "m.cu") << "my own";
  CHECK(refusal(folder).find("holds a m.cu that tamp did not write") != std::string::npos);
  std::ofstream(folder / "m.rprogram.json") << R"({"name": "m"})";  // no list: it says nothing about m.cu
  CHECK(refusal(folder).find("holds a m.cu that tamp did not write") != std::string::npos);
  fs::remove(folder / "m.cu");
  CHECK(refusal(folder).find("holds a m.rprogram.json that tamp did not write") != std::string::npos);
  fs::remove(folder / "m.rprogram.json");

  write_model(folder, "source");
  CHECK(refusal(folder) == "");
  CHECK(refusal(folder, "other").find("holds another compiled model, m.rprogram.json") != std::string::npos);
  std::ofstream(folder / "m.weights", std::ios::app) << "x";
  CHECK(refusal(folder).find("holds a m.weights that tamp did not write, or that was changed since") != std::string::npos);
  CHECK(text_of(folder / "mine.txt") == "mine");
}

TEST_CASE("neither links nor folders are taken for files of tamp") {
  const Scratch scratch;
  write_model(scratch.path() / "out", "source");
  fs::rename(scratch.path() / "out" / "m.cu", scratch.path() / "precious.cu");
  fs::create_symlink(scratch.path() / "precious.cu", scratch.path() / "out" / "m.cu");
  CHECK(refusal(scratch.path() / "out").find("holds a m.cu") != std::string::npos);
  fs::remove(scratch.path() / "out" / "m.cu");
  fs::create_directory(scratch.path() / "out" / "m.cu");
  CHECK(refusal(scratch.path() / "out").find("holds a m.cu") != std::string::npos);
  fs::create_symlink("nowhere", scratch.path() / "link");
  CHECK(refusal(scratch.path() / "link").find("exists and is not a folder") != std::string::npos);
  CHECK(refusal(scratch.path() / "precious.cu").find("exists and is not a folder") != std::string::npos);
  CHECK(refusal(scratch.path() / "precious.cu" / "deeper").find("is not a folder") != std::string::npos);
}

TEST_CASE("a file that cannot be moved brings back those that were") {
  const Scratch scratch;
  const fs::path folder = scratch.path() / "out";
  write_model(folder, "old");
  fs::remove(folder / "m.weights");
  fs::create_directory(folder / "m.weights");
  {
    codegen::OutputFolder out(folder.string());
    for (const char* name : {"m.cu", "m.h", "m.weights"}) out.write(name, "new");
    CHECK(message_of([&] { out.finish(); }).find("m.weights: cannot be written") != std::string::npos);
  }
  CHECK(text_of(folder / "m.cu") == "old");
  CHECK(fs::is_directory(folder / "m.weights"));
  CHECK(entries_in(folder) == 3);
}
