#include "spool/models/formats/constant_tensors.h"

#include <algorithm>
#include <array>

namespace spool {

using namespace std::string_view_literals;

bool is_constant_tensor(std::string_view name) {
  constexpr std::array constants = {"attn.bias"sv, "attn.masked_bias"sv, "rotary_emb.inv_freq"sv,
                                    "rotary_emb.cos_cached"sv, "rotary_emb.sin_cached"sv};
  return std::ranges::any_of(constants, [&](std::string_view constant) {
    if (!name.ends_with(constant)) return false;
    const std::string_view before = name.substr(0, name.size() - constant.size());
    return before.empty() || before.ends_with('.');
  });
}

}  // namespace spool
