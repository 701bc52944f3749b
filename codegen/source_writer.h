// Lines of C++ text: indentation, blocks and blank lines are the writer's business, never the caller's.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace tamp::codegen {

class SourceWriter {
 public:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    text(fmt::format(format, std::forward<Args>(args)...));
  }
  void text(std::string_view one_line);
  void blank() { out_ += '\n'; }
  // "head {" ... "}tail"
  void open(std::string_view head);
  void close(std::string_view tail = "");
  // Text of a real file, as it is.
  void verbatim(std::string_view text);
  // A comment of its own that heads a section of the output.
  void section(std::string_view title);
  const std::string& str() const { return out_; }

 private:
  std::string out_;
  int depth_ = 0;
};

}  // namespace tamp::codegen
