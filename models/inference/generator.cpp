#include "spool/models/inference/generator.h"

#include <algorithm>
#include <set>
#include <utility>

#include "spool/kernels/elementwise.h"
#include "spool/models/inference/pass_length.h"
#include "spool/runtime/integer.h"

namespace spool {
namespace {

// The index in the text of the first cached token: 0 while the text fits into the context, then
// half a context further whenever it is full.
int64_t first_cached(int64_t tokens, int64_t context) {
  const int64_t step = context - context / 2;
  return tokens <= context ? 0 : round_up(tokens - context, step);
}

}  // namespace

Generator::Generator(Model& model, Stream& stream, int64_t tokens)
    : model_(model),
      stream_(stream),
      cache_(model.make_cache(1, tokens == 0 ? 0 : std::min(tokens, model.longest_row()))),
      logits_({Shape{1, model.shape().padded_vocabulary()}}, stream, {.name = "logits"}),
      token_pass_(model, logits_, stream),
      host_(static_cast<size_t>(logits_.numel())) {}

void Generator::begin() {
  text_.clear();
  cache_.clear();
}

void Generator::read(std::span<const int32_t> tokens) {
  const int64_t V = model_.shape().vocabulary;
  for (const int32_t token : tokens) {
    check(token >= 0 && token < V, "generate: token ", token, " is not in [0, ", V,
          "), the vocabulary");
  }
  text_.insert(text_.end(), tokens.begin(), tokens.end());
}

const Tensor& Generator::logits() {
  check(!text_.empty(), "generate: the text must have at least one token");
  const int64_t dropped = first_cached(static_cast<int64_t>(text_.size()), cache_.capacity());
  if (dropped > 0) {
    text_.erase(text_.begin(), text_.begin() + dropped);
    cache_.clear();
  }
  auto fresh = std::span<const int32_t>(text_).subspan(static_cast<size_t>(cache_.length()));
  while (!fresh.empty()) {
    const auto n = static_cast<size_t>(pass_length(static_cast<int64_t>(fresh.size())));
    pass(fresh.first(n), n == fresh.size());
    fresh = fresh.subspan(n);
  }
  return logits_;
}

void Generator::pass(std::span<const int32_t> tokens, bool last) {
  const auto n = static_cast<int64_t>(tokens.size());
  token_pass_.prepare(cache_);
  if (token_pass_.takes(n)) {
    const auto position = static_cast<int32_t>(cache_.length());
    constexpr int32_t first = 0;
    return token_pass_.run(
        cache_,
        {.tokens = tokens, .positions = std::span(&position, 1), .first = std::span(&first, 1)});
  }
  const Label label{.name = "tokens", .purpose = Purpose::input};
  Tape tape(stream_, {.recording = false, .training = false});
  const Var ids = tape.input(make_tensor<int32_t>({1, n}, tokens, stream_, label));
  const Tensor hidden = model_.hidden(ids, cache_).tensor();
  if (!last) return;
  const Tensor row = hidden.reshape({n, model_.shape().channels}).slice({n - 1, n});
  launch(Cast{.out = logits_, .in = model_.logits(tape.input(row)).tensor()}, stream_);
}

int32_t Generator::next(const SamplingOptions& options, Random& random) {
  read_bytes(logits(), /*begin_byte=*/0, std::as_writable_bytes(std::span(host_)));
  const int64_t known = model_.shape().vocabulary;
  const int64_t V = options.vocabulary > 0 ? std::min(options.vocabulary, known) : known;
  const std::span<const float> some(host_.data(), static_cast<size_t>(V));
  text_.push_back(sample(some, options, random, text_));
  return text_.back();
}

void Generator::extend(std::vector<int32_t>& tokens, int64_t count, const SamplingOptions& options,
                       Random& random, const std::function<bool(int32_t)>& on_token) {
  begin();
  read(tokens);
  for (int64_t i = 0; i < count; ++i) {
    const int32_t token = next(options, random);
    if (options.stops_at(token)) return;
    tokens.push_back(token);
    if (on_token && !on_token(token)) return;
  }
}

void Generator::rehearse() {
  for (int64_t n = pass_length(cache_.capacity()); n > 0; n /= 2) {
    begin();
    pass(std::vector<int32_t>(static_cast<size_t>(n)), /*last=*/true);
  }
  begin();
}

void Generator::rehearse(int64_t prompt, int64_t count) {
  check(prompt > 0, "generate: the text must have at least one token");
  const int64_t context = cache_.capacity();
  std::set<std::pair<int64_t, bool>> passes;
  int64_t read = 0, first = 0;
  // After the context has been full twice, the same shapes recur.
  for (int64_t i = 0; i < std::min(count, 2 * context); ++i) {
    const int64_t tokens = prompt + i, begin = first_cached(tokens, context);
    int64_t fresh = tokens - (begin > first ? begin : read);
    while (fresh > 0) {
      const int64_t n = pass_length(fresh);
      fresh -= n;
      passes.emplace(n, fresh == 0);
    }
    first = begin;
    read = tokens;
  }
  for (const auto& [n, last] : passes) {
    begin();
    pass(std::vector<int32_t>(static_cast<size_t>(n)), last);
  }
  begin();
}

}  // namespace spool
