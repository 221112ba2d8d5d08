#include "spool/models/inference/generator.h"

#include <algorithm>
#include <bit>
#include <set>
#include <utility>

#include "spool/kernels/elementwise.h"

namespace spool {
namespace {

// Tokens go through the model in powers of two up to this, so that few shapes occur.
constexpr int64_t max_at_once = 128;

int64_t at_once(int64_t tokens) {
  return std::min(static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(tokens))), max_at_once);
}

// Where what is kept of a text of so many tokens begins: at 0 up to the context, and then always
// at the last half of the context before.
int64_t first_kept(int64_t tokens, int64_t context) {
  const int64_t step = context - context / 2;
  return tokens <= context ? 0 : (tokens - context + step - 1) / step * step;
}

}  // namespace

Generator::Generator(Gpt2& model, Stream& stream)
    : model_(model),
      stream_(stream),
      cache_(model.make_cache()),
      logits_({Shape{1, model.config().padded_vocabulary()}}, stream, {.name = "logits"}),
      host_(static_cast<size_t>(logits_.numel())) {}

void Generator::begin() {
  text_.clear();
  cache_.clear();
}

void Generator::read(std::span<const int32_t> tokens) {
  const int64_t V = model_.config().vocabulary;
  for (const int32_t token : tokens) {
    check(token >= 0 && token < V, "generate: token ", token, " is not in [0, ", V,
          "), the vocabulary");
  }
  text_.insert(text_.end(), tokens.begin(), tokens.end());
}

const Tensor& Generator::logits() {
  check(!text_.empty(), "generate: there must be at least one token to continue");
  const int64_t gone = first_kept(static_cast<int64_t>(text_.size()), cache_.capacity());
  if (gone > 0) {
    text_.erase(text_.begin(), text_.begin() + gone);
    cache_.clear();
  }
  auto fresh = std::span<const int32_t>(text_).subspan(static_cast<size_t>(cache_.length()));
  while (!fresh.empty()) {
    const auto n = static_cast<size_t>(at_once(static_cast<int64_t>(fresh.size())));
    pass(fresh.first(n), n == fresh.size());
    fresh = fresh.subspan(n);
  }
  return logits_;
}

void Generator::pass(std::span<const int32_t> tokens, bool last) {
  const auto n = static_cast<int64_t>(tokens.size());
  const Label label{.name = "tokens", .purpose = Purpose::input};
  Tape tape(stream_, {.recording = false, .training = false});
  const Var ids = tape.input(make_tensor<int32_t>({1, n}, tokens, stream_, label));
  const Tensor hidden = model_.hidden(ids, cache_).tensor();
  if (!last) return;
  const Tensor row = hidden.reshape({n, model_.config().channels}).slice({n - 1, n});
  launch(Cast{.out = logits_, .in = model_.logits(tape.input(row)).tensor()}, stream_);
}

int32_t Generator::next(const SamplingOptions& options, Random& random) {
  read_bytes(logits(), /*begin_byte=*/0, std::as_writable_bytes(std::span(host_)));
  const int64_t known = model_.config().vocabulary;
  const int64_t V = options.vocabulary > 0 ? std::min(options.vocabulary, known) : known;
  const std::span<const float> some(host_.data(), static_cast<size_t>(V));
  text_.push_back(sample(some, options, random));
  return text_.back();
}

void Generator::extend(std::vector<int32_t>& tokens, int64_t count, const SamplingOptions& options,
                       Random& random, const std::function<bool(int32_t)>& seen) {
  begin();
  read(tokens);
  for (int64_t i = 0; i < count; ++i) {
    const int32_t token = next(options, random);
    if (token == options.end_of_text) return;
    tokens.push_back(token);
    if (seen && !seen(token)) return;
  }
}

void Generator::rehearse() {
  for (int64_t n = at_once(cache_.capacity()); n > 0; n /= 2) {
    begin();
    pass(std::vector<int32_t>(static_cast<size_t>(n)), /*last=*/true);
  }
  begin();
}

void Generator::rehearse(int64_t prompt, int64_t count) {
  check(prompt > 0, "generate: there must be at least one token to continue");
  const int64_t context = cache_.capacity();
  std::set<std::pair<int64_t, bool>> passes;
  int64_t read = 0, first = 0;
  // Past the second time that the context is full nothing new comes up.
  for (int64_t i = 0; i < std::min(count, 2 * context); ++i) {
    const int64_t tokens = prompt + i, kept = first_kept(tokens, context);
    int64_t fresh = tokens - (kept > first ? kept : read);
    while (fresh > 0) {
      const int64_t n = at_once(fresh);
      fresh -= n;
      passes.emplace(n, fresh == 0);
    }
    first = kept;
    read = tokens;
  }
  for (const auto& [n, last] : passes) {
    begin();
    pass(std::vector<int32_t>(static_cast<size_t>(n)), last);
  }
  begin();
}

}  // namespace spool
