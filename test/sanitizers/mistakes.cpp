// Mistakes that the sanitizers must notice, so that a build in which they do not is noticed: `mistakes heap` or `mistakes overflow`.
#include <cstdio>
#include <cstring>
#include <memory>

int main(int count, char** words) {
  if (count == 2 && std::strcmp(words[1], "heap") == 0) {
    const auto values = std::make_unique<int[]>(static_cast<size_t>(count));
    const int* const past = values.get() + count;
    std::printf("%d\n", *past);
  }
  if (count == 2 && std::strcmp(words[1], "overflow") == 0) std::printf("%d\n", count + 0x7fffffff);
}
