// What models call their things reaches terminals, messages and comments of generated code: none of it may be obeyed there.
#include "compiler/support/text.h"

#include <chrono>

#include "codegen/names.h"
#include "compiler/support/utf8.h"
#include "test/support/catch.h"

using namespace tamp;

TEST_CASE("what a terminal or an editor would obey is escaped") {
  struct Row {
    std::string text, shown;
  };
  const Row rows[] = {
      {"a\nb\x1b[31m\x7f", "a\\x0ab\\x1b[31m\\x7f"},
      {"\xc2\x9b[31m", "\\xc2\\x9b[31m"},  // C1: a terminal may take it for ESC [
      {"\x9b[31m", "\\x9b[31m"},           // the same byte alone, which is no UTF-8
      {"a\xe2\x80\xae"
       "b",
       "a\\xe2\\x80\\xaeb"},                                                             // U+202E, right-to-left override
      {"\xe2\x80\xaa\xe2\x80\xac", "\\xe2\\x80\\xaa\\xe2\\x80\\xac"},                    // U+202A, U+202C
      {"\xe2\x81\xa6\xe2\x81\xa9", "\\xe2\\x81\\xa6\\xe2\\x81\\xa9"},                    // U+2066, U+2069
      {"\xd8\x9c\xe2\x80\x8e\xe2\x80\x8f", "\\xd8\\x9c\\xe2\\x80\\x8e\\xe2\\x80\\x8f"},  // marks
      {"\xe2\x80\xa8\xe2\x80\xa9\xc2\x85", "\\xe2\\x80\\xa8\\xe2\\x80\\xa9\\xc2\\x85"},  // ends of lines
      {"\xf3\xa0\x81\x81", "\\xf3\\xa0\\x81\\x81"},                                      // a tag: invisible
      {"\xc0\xaf \xed\xa0\x80 \xf4\x90\x80\x80 \xe2\x82", "\\xc0\\xaf \\xed\\xa0\\x80 \\xf4\\x90\\x80\\x80 \\xe2\\x82"},  // no UTF-8
      {"a */ b /* c", "a \\x2a/ b \\x2f* c"},
  };
  for (const Row& row : rows) {
    CHECK(printable(row.text) == row.shown);
    CHECK(codegen::comment(row.text) == row.shown);
  }
}

TEST_CASE("a message keeps its lines and its quotes, but no controls") {
  CHECK(without_controls("a: 'b\\x1b' \"c\"\nd\x1b\t\xe2\x80\xae\xc3\xa9\xff") ==
        "a: 'b\\x1b' \"c\"\nd\\x1b\\x09\\xe2\\x80\\xae\xc3\xa9\\xff");
}

TEST_CASE("20,000 names that share what is left of them take no quadratic time") {
  codegen::Names names;
  const std::string shared(100, 'x'), kept(64, 'x');
  const auto begin = std::chrono::steady_clock::now();
  std::string last;
  for (int i = 0; i < 20000; ++i) last = names.unique(shared + std::to_string(i));
  CHECK(last == kept + "_20000");
  CHECK(names.unique(kept) == kept + "_20001");
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
}

TEST_CASE("a number that a name has already is not given again") {
  codegen::Names names;
  CHECK(names.unique("a_2") == "a_2");
  CHECK(names.unique("a") == "a");
  CHECK(names.unique("a b") == "a_b");
  CHECK(names.unique("a") == "a_3");
  CHECK(names.unique("a_b") == "a_b_2");
  CHECK(names.unique("a_b_2") == "a_b_2_2");
}

TEST_CASE("other text stays as it is, and is never cut inside a character") {
  const std::string text =
      "conv1/\xc3\xa9t\xc3\xa9 \xe5\xb1\x82 \xd7\xa9\xd7\x9b\xd7\x91\xd7\x94 \xf0\x9f\x99\x82";  // French, Chinese, Hebrew, a smile
  CHECK(printable(text) == text);
  CHECK(printable("\xe5\xb1\x82\xe5\xb1\x82", 1) == "\xe5\xb1\x82...");
  CHECK(printable("abc", 3) == "abc");
  CHECK(printable("abcd", 3) == "abc...");
  CHECK(printable(std::string("\0", 1)) == "\\x00");
}
