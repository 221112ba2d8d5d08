#pragma once

// Low-rank adapters, which are trained in place of a model's weights (LoRA; Hu et al. 2021): of a
// linear y = x W^T + b, to y is added scale drop(x) A^T B^T, with A (rank, in) and B (out, rank).
// A begins random and B zero, so that training begins from the model as it is.

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace spool {

inline constexpr double max_lora_alpha = 1e6;

struct LoraConfig {
  int64_t rank = 0;  // 0: there are none
  double alpha = 0;
  bool rank_stabilised = false;  // scale alpha / sqrt(rank) (Kalajdzievski 2023), not alpha / rank
  float dropout = 0;             // probability, of what adapters read
  // Linears as transformers names them, whole or by what comes behind a dot; none: all of the
  // blocks.
  std::vector<std::string> targets = {};

  explicit operator bool() const { return rank > 0; }
  double scale() const {
    const auto r = static_cast<double>(rank);
    return alpha / (rank_stabilised ? std::sqrt(r) : r);
  }
  bool operator==(const LoraConfig&) const = default;
};

// "rank 16, scale 2, of q_proj, v_proj".
std::string in_words(const LoraConfig&);

}  // namespace spool
