#include "compiler/frontend/lengths_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "compiler/frontend/container.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

// A range's values at which the model is read besides the largest.
std::vector<int64_t> probed(const Length& length) {
  const int64_t steps = (length.largest - length.smallest) / length.step;
  std::set<int64_t> values;
  for (const int64_t step : {int64_t{0}, steps / 3, steps / 2, steps - 1}) values.insert(length.smallest + step * length.step);
  return {values.begin(), values.end()};
}

// A model that says its batch as a number is made for another one by rules that hold for any (rebatch.h), and its own may look different.
std::vector<int64_t> probed_batches(const Length& batch) { return {batch.largest + 1, batch.largest + 2, batch.largest + 3}; }

// The model read at some lengths.
struct Reading {
  ReadOptions options;
  std::vector<int64_t> values;
  std::string where;  // for messages, of other lengths than the largest
  ReadModel model;
};

// Iterations of the first Loops and Scans of a name that there are at both lengths: how many there are in all may depend on how often one
// around them runs.
bool differ(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  return !std::equal(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(std::min(a.size(), b.size())), b.begin());
}

// Loops and Scans that run another number of times at another length become loops of run time in each reading. Returns whether there are
// more of them than before.
bool open_loops(std::vector<Reading>& readings) {
  std::set<std::string> found;
  for (const auto& [name, counts] : readings[0].model.trips) {
    for (const Reading& other : readings) {
      const auto there = other.model.trips.find(name);
      if (there != other.model.trips.end() && differ(counts, there->second)) found.insert(name);
    }
  }
  for (const std::string& name : found) {
    const bool is_known = std::all_of(readings.begin(), readings.end(), [&](Reading& reading) {
      const std::vector<int64_t>& counts = reading.model.trips[name];
      return !counts.empty() && counts[0] != Builder::kUnknownTrips && !differ(counts, std::vector(counts.size(), counts[0]));
    });
    for (Reading& reading : readings) reading.options.open_trips[name] = is_known ? reading.model.trips[name][0] : Builder::kUnknownTrips;
  }
  return !found.empty();
}

Graph at_every_length(const std::string& file, std::vector<Reading> readings) {
  std::vector<Probe> probes;
  for (Reading& reading : readings) probes.push_back({reading.values, std::move(reading.model.graph), std::move(reading.model.folded)});
  Probe read = std::move(probes.front());
  probes.erase(probes.begin());
  return with_lengths(file, std::move(read), std::move(probes));
}

// A model with lengths of run time: as it is at the largest lengths, and at some others.
class LengthsReader {
 public:
  LengthsReader(const std::string& path, const ReadOptions& options, const ReadAt& read_at)
      : path_(path), options_(options), read_at_(read_at) {
    for (const auto& [name, range] : options.ranges) lengths_.push_back({name, range.smallest, range.buckets.back(), range.step});
    if (options.batches) lengths_.push_back({"batch", options.batches->smallest, options.batches->buckets.back(), options.batches->step});
  }

  Graph read() {
    std::vector<Reading> readings = read_all();
    const std::vector<Reading> with_steps = readings;
    while (open_loops(readings)) {
      for (Reading& reading : readings) read(reading);
    }
    Graph graph = at_every_length(file_text(path_), readings);
    if (options_.lift && !readings[0].options.open_trips.empty()) graph = with_cells(std::move(graph), with_steps, readings);
    if (options_.load_weights) verify(graph);
    return graph;
  }

 private:
  std::vector<Reading> read_all() {
    Reading largest;
    largest.options = options_;
    largest.options.ranges.clear();
    largest.options.batches.reset();
    largest.options.keeps_copies = true;
    largest.options.external = std::make_shared<ExternalData>();
    for (size_t l = 0; l < lengths_.size(); ++l) set(largest, l, lengths_[l].largest);
    read(largest);
    std::vector<Reading> readings = {largest};
    Reading between = largest;  // all lengths at once are others
    for (size_t l = 0; l < lengths_.size(); ++l) {
      const std::vector<int64_t> values = is_batch(l) && own_batch_ != 0 ? probed_batches(lengths_[l]) : probed(lengths_[l]);
      set(between, l, values[values.size() / 2]);
      for (const int64_t value : values) {
        Reading other = largest;
        set(other, l, value);
        readings.push_back(std::move(other));
      }
    }
    if (lengths_.size() > 1) readings.push_back(std::move(between));
    for (size_t i = 1; i < readings.size(); ++i) {
      readings[i].where = where_of(readings[i]);
      read(readings[i]);
    }
    return readings;
  }
  bool is_batch(size_t l) const { return options_.batches && l + 1 == lengths_.size(); }
  void set(Reading& reading, size_t l, int64_t value) const {
    (is_batch(l) ? reading.options.batch : reading.options.dims[lengths_[l].name]) = value;
    reading.values.resize(lengths_.size());
    reading.values[l] = value;
  }

  std::string where_of(const Reading& reading) const {
    std::vector<std::string> texts;
    for (size_t l = 0; l < lengths_.size(); ++l) {
      if (reading.values[l] != lengths_[l].largest) texts.push_back(fmt::format("{}={}", printable(lengths_[l].name), reading.values[l]));
    }
    return join(texts, " ");
  }

  void read(Reading& reading) {
    try {
      reading.model = read_at_(path_, reading.options, lengths_, options_.batches.has_value());
    } catch (const Error& error) {
      if (reading.where.empty()) throw;
      throw unsupported("{}; that is with {}", error.what(), reading.where);
    }
    own_batch_ = reading.model.own_batch;
  }

  // Recurrent networks in place of loops: of all, or of those that can be, which is tried one by one.
  Graph with_cells(Graph graph, const std::vector<Reading>& with_steps, const std::vector<Reading>& with_loops) {
    constexpr size_t kMostTried = 8;  // each is one more reading at all lengths
    std::set<std::string> names;
    for (const auto& [name, trips] : with_loops[0].options.open_trips) names.insert(name);
    if (std::optional<Graph> made = lifted(names, with_steps)) return *std::move(made);
    if (names.size() < 2 || names.size() > kMostTried) return graph;
    std::set<std::string> written_out;
    for (const std::string& name : names) {
      written_out.insert(name);
      std::vector<Reading> readings = with_loops;
      for (Reading& reading : readings) {
        for (const std::string& written : written_out) reading.options.open_trips.erase(written);
        read(reading);
      }
      if (std::optional<Graph> made = lifted(written_out, std::move(readings)))
        graph = *std::move(made);
      else
        written_out.erase(name);
    }
    return graph;
  }

  // With recurrent networks in place of all steps of the loops `written_out`; none if that leaves other differences between the readings.
  std::optional<Graph> lifted(const std::set<std::string>& written_out, std::vector<Reading> readings) const {
    const std::vector<int64_t> before = others(readings);
    std::erase_if(readings, [&](const Reading& reading) { return has_few_steps(reading, written_out); });
    if (readings.empty() || !readings[0].where.empty()) return std::nullopt;
    const std::vector<int64_t> left = others(readings);
    for (size_t l = 0; l < lengths_.size(); ++l) {
      if (left[l] < std::min<int64_t>(before[l], 2)) return std::nullopt;
    }
    try {
      for (Reading& reading : readings) {
        reading.model.graph = options_.lift(std::move(reading.model.graph));
        reading.model.folded.clear();  // it names tensors of the graph before
      }
      return at_every_length(file_text(path_), std::move(readings));
    } catch (const Error&) {
      return std::nullopt;
    }
  }
  // Per length: how many readings there are of other values than the largest.
  std::vector<int64_t> others(const std::vector<Reading>& readings) const {
    std::vector<int64_t> counts(lengths_.size(), 0);
    for (const Reading& reading : readings) {
      for (size_t l = 0; l < lengths_.size(); ++l) counts[l] += reading.values[l] != lengths_[l].largest;
    }
    return counts;
  }
  // Of as few steps no recurrent network is to be recognised.
  static bool has_few_steps(const Reading& reading, const std::set<std::string>& written_out) {
    constexpr int64_t kFewSteps = 2;
    return std::any_of(reading.model.trips.begin(), reading.model.trips.end(), [&](const auto& trips) {
      const auto& [name, counts] = trips;
      return written_out.contains(name) && *std::min_element(counts.begin(), counts.end()) <= kFewSteps;
    });
  }

  const std::string& path_;
  const ReadOptions& options_;
  const ReadAt& read_at_;
  std::vector<Length> lengths_;
  int64_t own_batch_ = 0;
};

}  // namespace

Graph read_with_lengths(const std::string& path, const ReadOptions& options, const ReadAt& read_at) {
  return LengthsReader(path, options, read_at).read();
}

}  // namespace tamp::frontend
