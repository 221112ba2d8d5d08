#include "spool/models/inference/sampling.h"

#include <cmath>
#include <limits>

#include "spool/kernels/cpu/fold.h"
#include "spool/kernels/cpu/scalar.h"

namespace spool {
namespace {

int64_t size_of(std::span<const float> all) { return static_cast<int64_t>(all.size()); }

// Draws an index with weights exp(factor * (logit - largest)).  It keeps the sum of each block of
// weights and computes the weights of one block a second time, which is cheaper than storing them.
class Weights {
 public:
  Weights(std::span<const float> logits, float largest, double temperature)
      : logits_(logits),
        largest_(largest),
        factor_(static_cast<float>(
            std::min(1 / temperature, double{std::numeric_limits<float>::max()}))) {}

  size_t draw(double uniform) const {
    std::vector<double> sums;
    double sum = 0;
    for (size_t begin = 0; begin < logits_.size(); begin += block) {
      const auto some = logits_.subspan(begin, std::min(block, logits_.size() - begin));
      sum += cpu::sum<float>(size_of(some), [=, this](int64_t i) { return weight(some[at(i)]); });
      sums.push_back(sum);
    }
    const double drawn = uniform * sum;
    const auto above = std::ranges::upper_bound(sums, drawn);
    const auto index = std::min(at(above - sums.begin()), sums.size() - 1);
    return draw_within(index * block, drawn - (index ? sums[index - 1] : 0));
  }

 private:
  static constexpr size_t block = 256;
  static size_t at(int64_t i) { return static_cast<size_t>(i); }

  [[gnu::always_inline]] float weight(float logit) const {
    return cpu::exp(factor_ * (logit - largest_));
  }

  // If rounding leaves `left` above 0 at the block's end, returns its last token with a weight.
  size_t draw_within(size_t begin, double left) const {
    const size_t end = std::min(begin + block, logits_.size());
    size_t last = begin;
    for (size_t i = begin; i < end; ++i) {
      const float w = weight(logits_[i]);
      if (w > 0) last = i;
      left -= double{w};
      if (left < 0) break;
    }
    return last;
  }

  std::span<const float> logits_;
  float largest_, factor_;
};

// The `count` tokens of the largest logits, in no particular order.
std::vector<int32_t> likeliest(std::span<const float> logits, int64_t count) {
  const auto logit = [all = logits.data()](int32_t token) { return all[token]; };
  const auto likelier = [&](int32_t a, int32_t b) {
    return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
  };
  std::vector<int32_t> heap;  // the least likely token is in front
  for (int32_t token = 0; token < size_of(logits); ++token) {
    if (token < count) {
      heap.push_back(token);
      std::ranges::push_heap(heap, likelier);
    } else if (logit(token) > logit(heap.front())) {
      std::ranges::pop_heap(heap, likelier);
      heap.back() = token;
      std::ranges::push_heap(heap, likelier);
    }
  }
  return heap;
}

// The fewest of the likeliest tokens that reach the share top_p of the probability, of all tokens
// or of the top_k; without tokens below min_p times the probability of the first one.
class Nucleus {
 public:
  Nucleus(std::span<const float> logits, float largest, const SamplingOptions& options)
      : logits_(logits), largest_(largest), options_(options) {}

  // Sorted, the likeliest first.  Few tokens have most of the probability, so more are sorted only
  // if these do not suffice.
  std::vector<int32_t> tokens() const {
    constexpr int64_t first_tried = 256, times = 8;
    const int64_t count = size_of(logits_);
    const bool has_top_k = options_.top_k > 0 && options_.top_k < count;
    const int64_t max = has_top_k ? options_.top_k : count;
    for (int64_t n = has_top_k ? max : std::min(max, first_tried);; n = std::min(max, times * n)) {
      std::vector<int32_t> some = sorted(n);
      const size_t kept = begin_of(some, has_top_k ? sum_of(some) : sum_of_all());
      if (kept == some.size() && n < max) continue;
      some.resize(kept);
      return some;
    }
  }

 private:
  float logit(int32_t token) const { return logits_[static_cast<size_t>(token)]; }
  double weight(float logit) const {
    return std::exp((double{logit} - double{largest_}) / options_.temperature);
  }
  double sum_of_all() const {
    double sum = 0;
    for (const float x : logits_) sum += weight(x);
    return sum;
  }
  double sum_of(const std::vector<int32_t>& tokens) const {
    double sum = 0;
    for (const int32_t token : tokens) sum += weight(logit(token));
    return sum;
  }

  std::vector<int32_t> sorted(int64_t n) const {
    std::vector<int32_t> some = likeliest(logits_, n);
    std::ranges::sort(some, [&](int32_t a, int32_t b) {
      return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
    });
    return some;
  }

  // How many of these tokens are kept; `all` is the sum of weights that top_p is a share of.
  size_t begin_of(const std::vector<int32_t>& some, double all) const {
    double before = 0;
    for (size_t kept = 0; kept < some.size(); ++kept) {
      const double w = weight(logit(some[kept]));
      if (kept > 0 && (before >= options_.top_p * all || w < options_.min_p)) return kept;
      before += w;
    }
    return some.size();
  }

  std::span<const float> logits_;
  float largest_;
  const SamplingOptions& options_;
};

int32_t draw_among(const std::vector<int32_t>& some, std::span<const float> logits, float largest,
                   double temperature, Random& random) {
  std::vector<float> some_logits;
  for (const int32_t token : some) some_logits.push_back(logits[static_cast<size_t>(token)]);
  return some[Weights(some_logits, largest, temperature).draw(random.uniform())];
}

std::vector<float> penalised(std::span<const float> logits, std::span<const int32_t> text,
                             double penalty) {
  std::vector<float> changed(logits.begin(), logits.end());
  for (const int32_t token : text) {
    const auto i = static_cast<size_t>(token);
    if (token < 0 || i >= logits.size()) continue;
    const double x = double{logits[i]};
    changed[i] = static_cast<float>(x > 0 ? x / penalty : x * penalty);
  }
  return changed;
}

}  // namespace

int32_t sample(std::span<const float> logits, const SamplingOptions& options, Random& random,
               std::span<const int32_t> text) {
  if (options.repetition_penalty != 1 && !text.empty()) {
    SamplingOptions others = options;
    others.repetition_penalty = 1;
    return sample(penalised(logits, text, options.repetition_penalty), others, random);
  }
  check(!logits.empty(), "sample: no logits were given");
  const float* const all = logits.data();
  const int64_t count = size_of(logits);
  const float zero = cpu::sum<float>(count, [=](int64_t i) { return 0 * all[i]; });
  if (zero != 0) fail(ErrorKind::numeric, "the model's logits are not finite");
  const float largest = cpu::largest<float>(count, [=](int64_t i) { return all[i]; });
  if (options.temperature <= 0) {
    return static_cast<int32_t>(std::ranges::find(logits, largest) - logits.begin());
  }
  if (options.top_p < 1 || options.min_p > 0) {
    return draw_among(Nucleus(logits, largest, options).tokens(), logits, largest,
                      options.temperature, random);
  }
  if (options.top_k <= 0 || options.top_k >= count) {
    return static_cast<int32_t>(
        Weights(logits, largest, options.temperature).draw(random.uniform()));
  }
  return draw_among(likeliest(logits, options.top_k), logits, largest, options.temperature, random);
}

}  // namespace spool
