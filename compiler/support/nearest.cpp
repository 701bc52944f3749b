#include "compiler/support/nearest.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/support/text.h"

namespace tamp {
namespace {

constexpr size_t kLongest = 60;  // letters; the distance takes the product of two lengths

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

// Damerau's distance, where a letter is swapped at most once.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& known) {
  if (word.empty() || word.size() > kLongest) return "";
  std::string best;
  size_t least = word.size() < 3 ? 1 : word.size() / 3 + 1;  // the first distance that is too large
  for (const std::string& candidate : known) {
    if (candidate.size() > kLongest) continue;
    const size_t found = distance(lower(word), lower(candidate));
    if (found >= least || found >= candidate.size()) continue;
    least = found;
    best = candidate;
  }
  return best;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& known) {
  const std::string found = nearest(word, known);
  return found.empty() ? "" : fmt::format("; did you mean '{}'?", printable(found));
}

}  // namespace tamp
