#include "compiler/cli/time_shares.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>

namespace tamp::cli {
namespace {

using nlohmann::ordered_json;
using Lanes = std::vector<CompiledFolder::Lane>;
using Rops = std::vector<CompiledFolder::ROperatorLine>;
using Place = std::pair<size_t, size_t>;  // vEU and position in its lane

// --- the critical path -----------------------------------------------------------------------------------------------

class CriticalPath {
 public:
  CriticalPath(const Rops& rops, const Lanes& lanes) : rops_(rops), lanes_(lanes) {
    for_each([&](Place place, const CompiledFolder::LaneEntry& entry) {
      if (entry.signal >= 0) keep_later(last_signaller_[entry.signal], place);
      if (is_of_gang(entry)) gangs_[entry.rop].push_back(place);
    });
  }

  // Goes back from the entry that ends last, each time to what let it begin: the last signal that it waited for, or the entry before it on
  // its vEU. The rTasks of a gang begin together, so any of them may be the one that was waited for.
  std::vector<Place> places() const {
    std::optional<Place> at;
    for_each([&](Place place, const auto&) { keep_later(at, place); });
    std::vector<Place> path;
    for (std::set<Place> seen; at && seen.insert(*at).second; at = cause(*at)) path.push_back(*at);
    std::reverse(path.begin(), path.end());
    return path;
  }

 private:
  void for_each(const auto& f) const {
    for (size_t veu = 0; veu < lanes_.size(); ++veu) {
      for (size_t i = 0; i < lanes_[veu].size(); ++i) f(Place{veu, i}, lanes_[veu][i]);
    }
  }
  const CompiledFolder::LaneEntry& entry(Place place) const { return lanes_[place.first][place.second]; }
  bool is_of_gang(const CompiledFolder::LaneEntry& entry) const { return entry.rop >= 0 && rops_[static_cast<size_t>(entry.rop)].gang; }
  void keep_later(std::optional<Place>& best, Place place) const {
    if (!best || entry(place).end_us > entry(*best).end_us) best = place;
  }

  std::optional<Place> cause(Place place) const {
    const int64_t gang = is_of_gang(entry(place)) ? entry(place).rop : -1;
    std::optional<Place> best;
    for (const Place& member : gang >= 0 ? gangs_.at(gang) : std::vector{place}) {
      std::optional<Place> found;
      if (member.second > 0) found = Place{member.first, member.second - 1};
      for (const int64_t event : entry(member).waits) {
        const auto last = last_signaller_.find(event);
        if (last != last_signaller_.end()) keep_later(found, *last->second);
      }
      if (found && (gang < 0 || entry(*found).rop != gang)) keep_later(best, *found);
    }
    return best;
  }

  const Rops& rops_;
  const Lanes& lanes_;
  std::map<int64_t, std::optional<Place>> last_signaller_;  // of events
  std::map<int64_t, std::vector<Place>> gangs_;
};

// --- groups of rOperators --------------------------------------------------------------------------------------------

std::vector<TimeShare> kinds_of(const Rops& rops, const std::vector<TimeShare>& each) {
  std::map<std::string, TimeShare> kinds;
  for (size_t i = 0; i < rops.size(); ++i) add(kinds[rops[i].op], each[i]);
  std::vector<TimeShare> out;
  for (auto& [name, share] : kinds) out.push_back(std::move(share)), out.back().name = name;
  return out;
}

// What parts names: the first of these that at least half of them have.
char separator_of(const Rops& rops) {
  for (const char separator : {'/', '.', '_'}) {
    const auto have = [&](const auto& rop) { return rop.name.find(separator) != std::string::npos; };
    if (2 * std::count_if(rops.begin(), rops.end(), have) >= static_cast<int64_t>(rops.size())) return separator;
  }
  return '/';
}

// A layer is given by the end of its prefix of a name. Of /layer1/conv1/Conv the prefixes are /layer1 and /layer1/conv1: the last part says
// which node it is, and counts only where there is no other.
class Layers {
 public:
  Layers(const Rops& rops, const std::vector<TimeShare>& each) : rops_(rops), each_(each), separator_(separator_of(rops)) {}

  std::vector<TimeShare> shares() const {
    constexpr size_t kFew = 5;
    std::vector<Layer> layers = split(whole());
    const double all = whole().busy_us;
    while (true) {
      const auto largest = std::max_element(layers.begin(), layers.end(), [&](const Layer& a, const Layer& b) {
        return std::pair(parts(a), a.busy_us) < std::pair(parts(b), b.busy_us);
      });
      if (largest == layers.end() || !parts(*largest) || (layers.size() >= kFew && 2 * largest->busy_us <= all)) break;
      const Layer layer = *largest;
      layers.erase(largest);
      for (Layer& part : split(layer)) layers.push_back(std::move(part));
    }
    return {layers.begin(), layers.end()};
  }

 private:
  struct Layer : TimeShare {
    size_t length = 0;  // of the prefix
  };

  Layer whole() const {
    Layer all;
    for (const TimeShare& one : each_) add(all, one);
    return all;
  }
  // The end of the prefix with one part more than that of `length`, or `length` if there is none.
  size_t longer(const std::string& name, size_t length) const {
    const size_t begin = name.find_first_not_of(separator_, length);
    const size_t end = begin == std::string::npos ? begin : name.find(separator_, begin);
    return end != std::string::npos ? end : length == 0 ? name.size() : length;
  }
  // Whether it can be split.
  bool parts(const Layer& layer) const {
    return std::any_of(layer.rops.begin(), layer.rops.end(),
                       [&](size_t rop) { return longer(rops_[rop].name, layer.length) > layer.length; });
  }
  std::vector<Layer> split(const Layer& layer) const {
    std::map<std::string, Layer> found;
    for (const size_t rop : layer.rops) {
      const size_t length = longer(rops_[rop].name, layer.length);
      Layer& part = found[rops_[rop].name.substr(0, length)];
      part.length = length;
      add(part, each_[rop]);
    }
    std::vector<Layer> out;
    for (auto& [name, part] : found) out.push_back(std::move(part)), out.back().name = name;
    return out;
  }

  const Rops& rops_;
  const std::vector<TimeShare>& each_;
  char separator_;
};

void finish(std::vector<TimeShare>& shares, double critical_us, double busy_us) {
  for (TimeShare& share : shares) {
    share.critical_share = critical_us > 0 ? share.critical_us / critical_us : 0;
    share.busy_share = busy_us > 0 ? share.busy_us / busy_us : 0;
    std::sort(share.rops.begin(), share.rops.end());
  }
  // To ten nanoseconds: layers that do the same stand in the order of the model.
  const auto key = [](const TimeShare& share) {
    return std::tuple(-std::llround(100 * share.critical_us), -std::llround(100 * share.busy_us), share.rops);
  };
  std::sort(shares.begin(), shares.end(), [&](const TimeShare& a, const TimeShare& b) { return key(a) < key(b); });
}

ordered_json json_of(const std::vector<TimeShare>& shares) {
  ordered_json out = ordered_json::array();
  for (const TimeShare& share : shares)
    out.push_back({{"name", share.name},
                   {"rops", share.rops},
                   {"critical_us", share.critical_us},
                   {"critical_share", share.critical_share},
                   {"busy_us", share.busy_us},
                   {"busy_share", share.busy_share},
                   {"flops", share.flops}});
  return out;
}

}  // namespace

void add(TimeShare& sum, const TimeShare& part) {
  sum.rops.insert(sum.rops.end(), part.rops.begin(), part.rops.end());
  sum.critical_us += part.critical_us;
  sum.critical_share += part.critical_share;
  sum.busy_us += part.busy_us;
  sum.busy_share += part.busy_share;
  sum.flops += part.flops;
}

TimeShares time_shares(const Rops& rops, const Lanes& lanes) {
  TimeShares out;
  std::vector<TimeShare> each(rops.size());
  for (size_t i = 0; i < rops.size(); ++i) each[i].rops = {i}, each[i].flops = rops[i].flops;
  double busy_us = 0, begin_us = -1, end_us = 0;
  for (const auto& lane : lanes) {
    for (const auto& entry : lane) {
      if (entry.rop < 0) continue;
      begin_us = begin_us < 0 ? entry.begin_us : std::min(begin_us, entry.begin_us);
      end_us = std::max(end_us, entry.end_us);
      each[static_cast<size_t>(entry.rop)].busy_us += entry.end_us - entry.begin_us;
      busy_us += entry.end_us - entry.begin_us;
    }
  }
  out.launch_us = std::max(0.0, begin_us);
  out.critical_us = end_us - out.launch_us;
  out.path = CriticalPath(rops, lanes).places();
  for (const auto& [veu, i] : out.path) {
    const CompiledFolder::LaneEntry& entry = lanes[veu][i];
    if (entry.rop < 0) continue;
    each[static_cast<size_t>(entry.rop)].critical_us += entry.end_us - entry.begin_us;
    out.computing_us += entry.end_us - entry.begin_us;
    ++out.rtasks;
  }
  out.kinds = kinds_of(rops, each);
  out.layers = Layers(rops, each).shares();
  for (auto* shares : {&out.kinds, &out.layers}) finish(*shares, out.critical_us, busy_us);
  return out;
}

ordered_json json_of(const TimeShares& shares) {
  return {{"launch_us", shares.launch_us},    {"critical_us", shares.critical_us}, {"computing_us", shares.computing_us},
          {"critical_rtasks", shares.rtasks}, {"kinds", json_of(shares.kinds)},    {"layers", json_of(shares.layers)}};
}

}  // namespace tamp::cli
