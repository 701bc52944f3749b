// Makes names unique, whatever names a model uses: the first wish for a name gets it, later wishes for the same name get a number behind
// it.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>

namespace tamp {

class UniqueNames {
 public:
  void take(const std::string& name) { taken_.insert(name); }
  // `wish`, or `wish` + `separator` + the first number from 2 on that makes a name that nobody has.
  std::string unique(const std::string& wish, const std::string& separator) {
    std::string name = wish;
    while (!taken_.insert(name).second) name = wish + separator + std::to_string(next_.try_emplace(wish, 2).first->second++);
    return name;
  }

 private:
  std::unordered_set<std::string> taken_;
  std::unordered_map<std::string, int64_t> next_;  // so that a million equal wishes are not a quadratic search
};

}  // namespace tamp
