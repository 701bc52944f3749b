// Writes lines of C++ text; indentation, blocks and blank lines are this class's business, not the caller's.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tamp::codegen {

class SourceWriter {
 public:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    text(fmt::format(format, std::forward<Args>(args)...));
  }
  void text(std::string_view one_line);
  void blank() { text(""); }
  // "head {" ... "}tail"
  void open(std::string_view head);
  void close(std::string_view tail = "");
  // Text of a file, unchanged.
  void verbatim(std::string_view text);
  // A comment that heads a section of the output.
  void section(std::string_view title);
  const std::string& str() const { return out_; }

  int64_t next_line() const { return next_line_; }  // number of the next line; the first is 1
  struct Section {
    std::string title;
    int64_t line = 0;
  };
  const std::vector<Section>& sections() const { return sections_; }

 private:
  std::string out_;
  std::vector<Section> sections_;
  int64_t next_line_ = 1;
  int depth_ = 0;
};

}  // namespace tamp::codegen
