#include "codegen/source_writer.h"

#include <algorithm>

namespace tamp::codegen {

void SourceWriter::text(std::string_view one_line) {
  if (!one_line.empty()) out_.append(static_cast<size_t>(depth_) * 2, ' ');
  out_ += one_line;
  out_ += '\n';
  ++next_line_;
}

void SourceWriter::open(std::string_view head) {
  text(fmt::format("{}{}{{", head, head.ends_with('{') ? "" : " "));
  ++depth_;
}

void SourceWriter::close(std::string_view tail) {
  --depth_;
  text(fmt::format("}}{}", tail));
}

void SourceWriter::verbatim(std::string_view file) {
  out_ += file;
  next_line_ += std::count(file.begin(), file.end(), '\n');
  if (file.empty() || file.back() == '\n') return;
  out_ += '\n';
  ++next_line_;
}

void SourceWriter::section(std::string_view title) {
  blank();
  sections_.push_back({std::string(title), next_line_});
  const std::string head = fmt::format("// --- {} ", title);
  text(head + std::string(head.size() < 118 ? 118 - head.size() : 0, '-'));
  blank();
}

}  // namespace tamp::codegen
