#include "compiler/cli/generation_file.h"

#include <nlohmann/json.hpp>
#include <set>

#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::cli {

using nlohmann::ordered_json;

frontend::GenerationRequest parse_generation(const std::string& text, const std::string& source) {
  static const std::set<std::string> known = {"token", "scores", "positions", "ends", "masks", "feeds", "held", "stops", "places"};
  frontend::GenerationRequest request;
  try {
    const auto object = ordered_json::parse(text);
    if (!object.is_object()) throw bad_input("{}: is not a JSON object", printable(source));
    for (const auto& [field, value] : object.items()) {
      if (!known.contains(field))
        throw bad_input("{}: field '{}' is not known, there are {}", printable(source), printable(field),
                        join(std::vector<std::string>(known.begin(), known.end()), ", "));
    }
    const auto take = [&](const char* field, auto& value, const char* expected) {
      if (!object.contains(field)) return;
      try {
        object.at(field).get_to(value);
      } catch (const ordered_json::exception&) {
        throw bad_input("{}: field '{}' is of type {}, expected {}", printable(source), field, object.at(field).type_name(), expected);
      }
    };
    take("token", request.token, "an input's name");
    take("scores", request.scores, "an output's name");
    take("positions", request.positions, "numbers by names of inputs, as {\"step\": 0}");
    take("ends", request.ends, "numbers by names of inputs, as {\"length\": 1}");
    take("masks", request.masks, "a list of names of inputs");
    take("feeds", request.feeds, "names of inputs by names of outputs, as {\"new_k\": \"k\"}");
    take("held", request.held, "a list of names of inputs");
    take("stops", request.stops, "a list of tokens");
    take("places", request.places, "a number");
  } catch (const ordered_json::exception& wrong) {
    throw bad_input("{}: is not as expected: {}", printable(source), printable(wrong.what()));
  }
  constexpr size_t kMostStops = 16;
  if (request.stops.size() > kMostStops)
    throw bad_input("{}: {} tokens end the text, supported: up to {}", printable(source), request.stops.size(), kMostStops);
  if (request.places < 0) throw bad_input("{}: {} places", printable(source), request.places);
  return request;
}

std::string generation_text(const frontend::GenerationRequest& request) {
  ordered_json out = ordered_json::object();
  const auto add = [&](const char* field, const auto& value) {
    if (!value.empty()) out[field] = value;
  };
  add("token", request.token);
  add("scores", request.scores);
  add("positions", request.positions);
  add("ends", request.ends);
  add("masks", request.masks);
  add("feeds", request.feeds);
  add("held", request.held);
  add("stops", request.stops);
  if (request.places > 0) out["places"] = request.places;
  return out.dump();
}

}  // namespace tamp::cli
