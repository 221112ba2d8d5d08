#include "spool/models/families/generation_config.h"

#include <algorithm>

#include "spool/runtime/files/file.h"
#include "spool/runtime/files/json.h"

namespace spool {
namespace {

struct Bounds {
  double min, max;
  bool open = false;  // the minimum itself is not allowed
};

std::optional<double> number_in(const JsonField& config, const char* key, const Bounds& bounds) {
  const auto field = config.find(key);
  if (!field || field->is_null()) return {};
  const double x = field->number();
  field->expect(x <= bounds.max && (bounds.open ? x > bounds.min : x >= bounds.min), x,
                " is not a number ", bounds.open ? "above " : "from ", bounds.min, " to ",
                bounds.max);
  return x;
}

}  // namespace

// Some files write -1 for none.
std::optional<std::vector<int32_t>> stop_tokens_in(const JsonField& config) {
  const auto field = config.find("eos_token_id");
  if (!field) return {};
  std::vector<int32_t> tokens;
  if (field->is_null()) return tokens;
  for (const JsonField& token : field->is_list() ? field->items() : std::vector{*field}) {
    const auto id = token.integer<int64_t>();
    if (id >= 0 && id <= INT32_MAX) tokens.push_back(static_cast<int32_t>(id));
  }
  return tokens;
}

GenerationConfig read_generation_config(const std::filesystem::path& directory) {
  constexpr double any = 1e9;
  const std::filesystem::path file = directory / "generation_config.json";
  GenerationConfig config;
  if (!path_exists(file)) return config;
  const JsonField all = read_json(file);
  config.stop_tokens = stop_tokens_in(all);
  config.repetition_penalty = number_in(all, "repetition_penalty", {0, any, /*open=*/true});
  const auto samples = all.find("do_sample");
  const bool is_sampled = samples && !samples->is_null() && samples->boolean();
  const auto temperature = number_in(all, "temperature", {0, any});
  const auto top_p = number_in(all, "top_p", {0, 1, /*open=*/true});
  const auto min_p = number_in(all, "min_p", {0, 1});
  const auto top_k = all.find("top_k");
  const bool has_top_k = top_k && !top_k->is_null();
  const int64_t k = has_top_k ? top_k->integer<int64_t>(-1, 1 << 24) : 0;
  if (!is_sampled) return config;
  config.temperature = temperature, config.top_p = top_p, config.min_p = min_p;
  if (has_top_k) config.top_k = std::max<int64_t>(k, 0);  // -1: none, as 0
  return config;
}

}  // namespace spool
