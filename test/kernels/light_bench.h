// Runs the rKernels that families offer for a list of cases (class Sample says which): writes one source file with a kernel per phase and
// the data, compiles it over the stand-in (or with nvcc), runs it, and compares with the reference. Also checks accesses(): each rTask
// writes exactly what it declares, together they write every element of the output once, and what it does not declare to
// read is poisoned when it runs.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "compiler/support/error.h"
#include "compiler/support/text.h"
#include "kernels/catalogue.h"
#include "test/kernels/light_cases.h"
#include "test/support/case_folder.h"
#include "test/support/catch.h"
#include "test/support/narrow_values.h"

namespace tamp::test {

// One rKernel of one case, its buffers: the graph's, then the scratch, then one packed blob per phase.
struct Trial {
  const Case* source;
  const kernels::Family* family;
  RKernel rkernel;
  std::vector<std::vector<uint32_t>> buffers;
  std::vector<bool> constant, narrow;
  std::vector<Accesses> accesses;  // per rTask of all phases

  size_t scratch() const { return source->graph.buffers.size(); }
  size_t buffer_of(TensorId id) const { return id.valid() ? source->graph.tensor(id).place.buffer.index() : scratch(); }
};

// --- values in and out of buffers ---------------------------------------------------------------------------------------

template <class F>
void for_each_element(const Tensor& tensor, F&& f) {
  std::vector<int64_t> at(tensor.shape.size(), 0);
  for (int64_t i = 0; i < element_count(tensor.shape); ++i) {
    int64_t offset = tensor.place.offset;
    for (size_t d = 0; d < at.size(); ++d) offset += at[d] * tensor.place.strides[d];
    f(static_cast<size_t>(i), static_cast<size_t>(offset));
    for (size_t d = at.size(); d-- > 0;) {
      if (++at[d] < tensor.shape[d]) break;
      at[d] = 0;
    }
  }
}

Trial make_trial(const Case& c, const kernels::Family& family, const RKernel& rkernel);

// --- the source file ----------------------------------------------------------------------------------------------------

std::string ref_text(size_t base, int64_t bytes);

std::string divisor_text(int64_t d);

std::string value_text(const Trial& trial, size_t phase, const ArgValue& value);

// --- the data -----------------------------------------------------------------------------------------------------------

class WordFile {
 public:
  explicit WordFile(const std::filesystem::path& path) : file_(path, std::ios::binary) {}
  void word(int64_t w) { file_.write(reinterpret_cast<const char*>(&w), sizeof w); }
  void words(const std::vector<uint32_t>& w) {
    file_.write(reinterpret_cast<const char*>(w.data()), static_cast<std::streamsize>(w.size() * 4));
  }

 private:
  std::ofstream file_;
};

void write_data(const std::vector<Trial>& trials, const std::filesystem::path& path);

// --- checks -------------------------------------------------------------------------------------------------------------

struct Results {
  std::vector<std::vector<uint32_t>> words;
  std::vector<std::vector<int32_t>> owner;
};

std::vector<ops::Value> expected_of(const Trial& trial);

// What rTasks wrote against what they declare; `owner` has -1 for elements that nobody wrote.
std::string check_writes(const Trial& trial, const Results& results);

// --- all of it ----------------------------------------------------------------------------------------------------------

// Which of a case's candidates are tried: the first two with the same bodies, over all cases, then one candidate in three, other ones from
// case to case. With TAMP_ALL_TRIALS=1 all of them, as a change of a body deserves.
class Sample {
 public:
  void next_case(size_t candidates) { case_ += 1, candidates_ = candidates; }
  bool has(const RKernel& rkernel, size_t index);

 private:
  size_t case_ = 0, candidates_ = 0;
  std::map<std::string, int> tried_;
};

ShapedVDevice small_vdevice();

// Problems found, one line each. `root` is the repository, `folder` takes the generated files.
std::vector<std::string> run_cases(const std::vector<Case>& cases, const std::vector<kernels::Family>& families,
                                   const std::filesystem::path& root, const std::filesystem::path& folder);

// The same as a check of Catch2. With TAMP_KEEP=FOLDER the generated files stay there, to be looked at.
void expect_no_problems(const std::vector<Case>& cases, const std::vector<kernels::Family>& families, const std::string& name);

}  // namespace tamp::test
