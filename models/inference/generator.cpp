#include "spool/models/inference/generator.h"

#include <algorithm>
#include <set>
#include <utility>

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

Generator::Generator(Model& model, Stream& stream, int64_t tokens, const ShardedModel* shared)
    : model_(model),
      reader_(model, stream, /*texts=*/1, std::min(tokens, model.longest_row()), shared),
      host_(static_cast<size_t>(reader_.logits().numel())) {}

void Generator::begin() {
  text_.clear();
  reader_.clear();
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
  const int64_t dropped = first_cached(static_cast<int64_t>(text_.size()), reader_.capacity());
  if (dropped > 0) {
    text_.erase(text_.begin(), text_.begin() + dropped);
    reader_.clear();
  }
  auto fresh = std::span<const int32_t>(text_).subspan(static_cast<size_t>(reader_.length()));
  while (!fresh.empty()) {
    const auto n = static_cast<size_t>(pass_length(static_cast<int64_t>(fresh.size())));
    reader_.read({.tokens = fresh.first(n)}, n == fresh.size());
    fresh = fresh.subspan(n);
  }
  return reader_.logits();
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
  for (int64_t n = pass_length(reader_.capacity()); n > 0; n /= 2) {
    begin();
    reader_.read({.tokens = std::vector<int32_t>(static_cast<size_t>(n))}, /*last=*/true);
  }
  begin();
}

void Generator::rehearse(int64_t prompt, int64_t count) {
  check(prompt > 0, "generate: the text must have at least one token");
  const int64_t context = reader_.capacity();
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
    reader_.read({.tokens = std::vector<int32_t>(static_cast<size_t>(n))}, last);
  }
  begin();
}

}  // namespace spool
