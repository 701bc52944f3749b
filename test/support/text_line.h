// A line of text that is read from left to right; whatever is not as expected is a std::runtime_error that shows line and column.
#pragma once

#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace tamp::test {

// One line of text and a place in it.
class Line {
 public:
  explicit Line(std::string text) : text_(std::move(text)) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error("graph text: expected " + what + " at column " + std::to_string(at_ + 1) + " of: " + text_);
  }
  bool done() {
    skip_space();
    return at_ == text_.size();
  }
  bool at(char c) {
    skip_space();
    return at_ < text_.size() && text_[at_] == c;
  }
  bool take(const std::string& token) {
    skip_space();
    if (text_.compare(at_, token.size(), token) != 0) return false;
    at_ += token.size();
    return true;
  }
  void expect(const std::string& token) {
    if (!take(token)) fail("'" + token + "'");
  }
  std::string name() {
    skip_space();
    if (at('"')) return quoted();
    const size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || std::strchr("_./:%-", text_[at_])) && !arrow())
      ++at_;
    if (at_ == begin) fail("a name");
    return text_.substr(begin, at_ - begin);
  }
  double number() {
    skip_space();
    char* end = nullptr;
    const double value = std::strtod(text_.c_str() + at_, &end);
    if (end == text_.c_str() + at_) fail("a number");
    at_ = static_cast<size_t>(end - text_.c_str());
    return value;
  }
  int64_t integer() {
    skip_space();
    char* end = nullptr;
    const int64_t value = std::strtoll(text_.c_str() + at_, &end, 10);
    if (end == text_.c_str() + at_) fail("an integer");
    at_ = static_cast<size_t>(end - text_.c_str());
    return value;
  }
  std::vector<int64_t> list() {
    std::vector<int64_t> values;
    expect("[");
    while (!take("]")) {
      values.push_back(integer());
      take(",");
    }
    return values;
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool arrow() const { return text_.compare(at_, 2, "->") == 0 || text_.compare(at_, 2, "//") == 0; }
  std::string quoted() {
    std::string out;
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (text_.compare(at_, 2, "\\x") != 0) {
        out += text_[at_];
        continue;
      }
      out += static_cast<char>(std::stoi(text_.substr(at_ + 2, 2), nullptr, 16));
      at_ += 3;
    }
    expect("\"");
    return out;
  }
  std::string text_;
  size_t at_ = 0;
};

}  // namespace tamp::test
