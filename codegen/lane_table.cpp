#include "codegen/codegen.h"
#include "codegen/emit.h"
#include "compiler/support/error.h"
#include "kernels/vdevice/numbers.cuh"

namespace tamp::codegen {
namespace {

constexpr uint32_t kNone16 = 0xffff, kHeaderWords = 4, kRowWords = 4;

uint32_t number16(bool is_there, size_t number) {
  if (!is_there) return kNone16;
  TAMP_CHECK(number < kNone16, "more records or events than an instruction can name");
  return static_cast<uint32_t>(number);
}

}  // namespace

std::vector<LaneRow> lane_rows(const std::vector<Instruction>& lane) {
  std::vector<LaneRow> rows;
  for (Instruction row : lane) {
    while (row.waits.size() > rk::kWaits) {
      rows.push_back({{}, {row.waits.end() - rk::kWaits, row.waits.end()}, {}});
      row.waits.resize(row.waits.size() - rk::kWaits);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<uint32_t> lane_table(const RProgram& program, const std::vector<std::vector<Instruction>>& lanes,
                                 const std::vector<Event>& events) {
  static_assert(rk::kWaits == 3, "four numbers behind the rTask's");
  std::vector<size_t> first_record;
  size_t records = 0;
  for (const RKernel& rkernel : program.rkernels) {
    first_record.push_back(records);
    records += rkernel.phases.size();
  }
  std::vector<uint32_t> begin = {0}, rows;
  for (const auto& lane : lanes) {
    for (const LaneRow& row : lane_rows(lane)) {
      const bool runs = row.rtask.rop.valid();
      const uint32_t record = number16(runs, runs ? first_record[row.rtask.rop.index()] + static_cast<size_t>(row.rtask.phase) : 0);
      const uint32_t signal = number16(row.signal.valid(), row.signal.valid() ? row.signal.index() : 0);
      const auto wait = [&](size_t n) { return number16(n < row.waits.size(), n < row.waits.size() ? row.waits[n].index() : 0); };
      rows.insert(rows.end(), {record | signal << 16, static_cast<uint32_t>(row.rtask.index), wait(0) | wait(1) << 16, wait(2)});
    }
    begin.push_back(static_cast<uint32_t>(rows.size() / kRowWords));
  }
  std::vector<uint32_t> table(kHeaderWords);
  table.insert(table.end(), begin.begin(), begin.end());
  for (const Event& event : events) table.push_back(static_cast<uint32_t>(event.count));
  table.resize((table.size() + kRowWords - 1) / kRowWords * kRowWords);
  table[1] = static_cast<uint32_t>(events.size());
  table[2] = static_cast<uint32_t>(table.size());
  table.insert(table.end(), rows.begin(), rows.end());
  table[0] = static_cast<uint32_t>(table.size());
  return table;
}

}  // namespace tamp::codegen
