// Bytes that are made when they are read, and loops that read them in order while the next are made.
#include "compiler/ir/tensor_data.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <vector>

#include "compiler/support/parallel.h"
#include "test/support/catch.h"

using namespace tamp;

TEST_CASE("large bytes are made when they are read, and again when they were forgotten") {
  constexpr size_t kLarge = size_t{2} << 20;
  int made = 0;
  const TensorData data = TensorData::made_by(kLarge, [&] {
    ++made;
    Bytes bytes = zero_bytes(kLarge);
    bytes.back() = std::byte{7};
    return bytes;
  });
  const TensorData copy = data;
  CHECK(data.size() == kLarge);
  CHECK(made == 0);
  CHECK(data.in_memory() == nullptr);
  {
    const std::shared_ptr<const Bytes> held = data.hold();
    CHECK(held == copy.hold());
    CHECK(made == 1);
  }
  CHECK(copy->back() == std::byte{7});
  CHECK(&*data == &*copy);
  CHECK(made == 2);
  const std::shared_ptr<const Bytes> held = data.hold();
  data.forget();
  CHECK(held->back() == std::byte{7});
  CHECK(&*data == held.get());
  CHECK(made == 2);
}

TEST_CASE("small bytes stay, and data are equal to their copies alone") {
  int made = 0;
  const auto make = [&] {
    ++made;
    return Bytes(8);
  };
  const TensorData first = TensorData::made_by(8, make), second = TensorData::made_by(8, make);
  first.forget();
  CHECK(*first == *second);
  CHECK(first.in_memory() == &*first);
  CHECK(made == 2);
  CHECK(first != second);
  CHECK(first == TensorData(first));
  CHECK_FALSE(TensorData(nullptr));
  std::weak_ptr<const void> life = first.life();
  CHECK_FALSE(life.expired());
  life = TensorData(std::make_shared<const Bytes>(8)).life();
  CHECK(life.expired());
}

TEST_CASE("what is made beside each other is taken in order, and is never too much") {
  const std::vector<size_t> costs = {3, 1, 9, 2, 2, 2, 4, 1, 1, 5, 3, 2};  // the third is more than there may be
  std::atomic<size_t> open = 0, most = 0;
  std::vector<int> made(costs.size(), 0);
  std::vector<size_t> taken;
  make_in_order(
      costs, 6,
      [&](size_t i) {
        const size_t now = open += costs[i];
        for (size_t seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
        }
        made[i] = 1;
      },
      [&](size_t i) {
        CHECK(made[i] == 1);
        taken.push_back(i);
        open -= costs[i];
      });
  CHECK(taken.size() == costs.size());
  CHECK(std::is_sorted(taken.begin(), taken.end()));
  CHECK(most <= 9);
  const auto fail = [](size_t i) {
    if (i == 4) throw std::runtime_error("four");
  };
  const auto nothing = [](size_t) {};
  CHECK_THROWS_WITH(make_in_order(costs, 6, fail, nothing), "four");
  CHECK_THROWS_WITH(make_in_order(costs, 6, nothing, fail), "four");
  make_in_order({}, 6, fail, fail);
}
