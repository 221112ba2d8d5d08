#include "spool/models/generator.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "spool/kernels/elementwise.h"

namespace spool {
namespace {

// Lengths are rounded up to this, so that few shapes occur.
constexpr int64_t bucket = 64;

}  // namespace

int32_t sample(std::span<const float> logits, const SamplingOptions& options, Random& random) {
  check(!logits.empty(), "sample: there are no logits");
  const auto likeliest = std::ranges::max_element(logits);
  check(std::isfinite(*likeliest), "sample: the model's logits are not finite");
  if (options.temperature <= 0) return static_cast<int32_t>(likeliest - logits.begin());
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  if (options.top_k > 0 && options.top_k < static_cast<int64_t>(order.size())) {
    const auto by_logit = [&](int32_t a, int32_t b) {
      const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
      return x != y ? x > y : a < b;
    };
    std::ranges::partial_sort(order, order.begin() + options.top_k, by_logit);
    order.resize(static_cast<size_t>(options.top_k));
  }
  std::vector<double> sums;
  double sum = 0;
  for (const int32_t token : order) {
    const double z = logits[static_cast<size_t>(token)] - *likeliest;
    sums.push_back(sum += std::exp(z / options.temperature));
  }
  const auto at = std::ranges::upper_bound(sums, random.uniform() * sum);
  return order[std::min(static_cast<size_t>(at - sums.begin()), order.size() - 1)];
}

Tensor Generator::next_logits(std::span<const int32_t> tokens) {
  check(!tokens.empty(), "generate: there must be at least one token to continue");
  const int64_t context = model_.config().context;
  const int64_t n = std::min(static_cast<int64_t>(tokens.size()), context);
  const int64_t T = std::min((n + bucket - 1) / bucket * bucket, context);
  std::vector<int32_t> window(static_cast<size_t>(T));
  std::ranges::copy(tokens.last(static_cast<size_t>(n)), window.begin());
  Tensor logits({Shape{1, model_.config().padded_vocabulary()}}, stream_, {.name = "logits"});
  Tape tape(stream_, {.recording = false, .training = false});
  const Var ids = tape.input(make_tensor<int32_t>({1, T}, window, stream_));
  const Tensor hidden = model_.hidden(ids).tensor();
  const Tensor last = hidden.reshape({T, model_.config().channels}).slice({n - 1, n});
  const Var row = model_.logits(tape.input(last));
  launch(Cast{.out = logits, .in = row.tensor()}, stream_);
  return logits;
}

void Generator::extend(std::vector<int32_t>& tokens, int64_t count, const SamplingOptions& options,
                       Random& random, const std::function<void(int32_t)>& seen) {
  const int64_t known = model_.config().vocabulary;
  const auto V =
      static_cast<size_t>(options.vocabulary ? std::min(options.vocabulary, known) : known);
  for (int64_t i = 0; i < count; ++i) {
    const std::vector<float> logits = read<float>(next_logits(tokens));
    tokens.push_back(sample(std::span(logits).first(V), options, random));
    if (seen) seen(tokens.back());
  }
}

void Generator::rehearse(int64_t longest) {
  const int64_t last = std::min(longest, model_.config().context);
  for (int64_t n = std::min(bucket, last); n < last; n += bucket) {
    next_logits(std::vector<int32_t>(static_cast<size_t>(n)));
  }
  next_logits(std::vector<int32_t>(static_cast<size_t>(last)));
}

}  // namespace spool
