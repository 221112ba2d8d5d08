#include "spool/models/inference/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "spool/kernels/cpu/fold.h"
#include "spool/kernels/cpu/scalar.h"

namespace spool {
namespace {

int64_t size_of(std::span<const float> all) { return static_cast<int64_t>(all.size()); }

// A draw in proportion to the weights exp(factor * (logit - largest)).  It keeps the sum of each
// block of weights, and then computes the weights of one block a second time, which is cheaper than
// keeping them all.
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

  // Rounding may leave `left` above 0 at the end of the block: then its last token with a weight.
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

}  // namespace

int32_t sample(std::span<const float> logits, const SamplingOptions& options, Random& random) {
  check(!logits.empty(), "sample: no logits were given");
  const float* const all = logits.data();
  const int64_t count = size_of(logits);
  const float zero = cpu::sum<float>(count, [=](int64_t i) { return 0 * all[i]; });
  if (zero != 0) fail(ErrorKind::numeric, "the model's logits are not finite");
  const float largest = cpu::largest<float>(count, [=](int64_t i) { return all[i]; });
  if (options.temperature <= 0) {
    return static_cast<int32_t>(std::ranges::find(logits, largest) - logits.begin());
  }
  if (options.top_k <= 0 || options.top_k >= count) {
    return static_cast<int32_t>(
        Weights(logits, largest, options.temperature).draw(random.uniform()));
  }
  const std::vector<int32_t> some = likeliest(logits, options.top_k);
  std::vector<float> some_logits;
  for (const int32_t token : some) some_logits.push_back(all[token]);
  return some[Weights(some_logits, largest, options.temperature).draw(random.uniform())];
}

}  // namespace spool
