#include "spool/models/inference/batch_generator.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "spool/models/inference/pass_length.h"

namespace spool {

BatchGenerator::BatchGenerator(Model& model, Stream& stream, int64_t rows, int64_t tokens,
                               const ShardedModel* shared)
    : model_(model), reader_(model, stream, rows, tokens, shared) {
  check(tokens <= model.longest_row(), "generate: texts of ", tokens,
        " tokens, and the model reads rows of at most ", model.longest_row());
}

void BatchGenerator::begin(std::span<Row> texts) {
  const int64_t V = model_.shape().vocabulary;
  size_t longest = 0;
  for (const Row& text : texts) {
    check(!text.tokens.empty(), "generate: the text must have at least one token");
    for (const int32_t token : text.tokens) {
      check(token >= 0 && token < V, "generate: token ", token, " is not in [0, ", V,
            "), the vocabulary");
    }
    longest = std::max(longest, text.tokens.size());
  }
  reader_.clear();
  check(std::ssize(texts) <= rows(), "generate: ", texts.size(), " texts, and there is room for ",
        rows());
  std::vector<int64_t> used(texts.size());
  std::iota(used.begin(), used.end(), 0);
  reader_.keep_rows(used);
  text_of_.assign(used.begin(), used.end());
  first_.clear();
  for (const Row& text : texts)
    first_.push_back(static_cast<int32_t>(longest - text.tokens.size()));
  has_ended_.assign(texts.size(), false);
  next_.assign(texts.size(), 0);
}

void BatchGenerator::pass(const Columns& columns, bool last) {
  reader_.read({.tokens = columns.tokens, .positions = columns.positions, .first = first_}, last);
}

void BatchGenerator::draw(std::span<Row> texts, const SamplingOptions& options,
                          const OnToken& on_token) {
  const int64_t known = model_.shape().vocabulary;
  const int64_t V = options.vocabulary > 0 ? std::min(options.vocabulary, known) : known;
  const auto row_size = static_cast<size_t>(reader_.logits().shape()[1]);
  host_.resize(static_cast<size_t>(rows()) * row_size);
  read_bytes(reader_.logits(), /*begin_byte=*/0, std::as_writable_bytes(std::span(host_)));
  for (size_t r = 0; r < text_of_.size(); ++r) {
    if (has_ended_[r]) continue;
    Row& text = texts[text_of_[r]];
    const auto logits = std::span<const float>(host_).subspan(r * row_size, static_cast<size_t>(V));
    const int32_t token = sample(logits, options, text.random, text.tokens);
    has_ended_[r] = options.stops_at(token);
    if (has_ended_[r]) continue;
    text.tokens.push_back(token);
    next_[r] = token;
    has_ended_[r] = on_token && !on_token(text_of_[r], token);
  }
}

void BatchGenerator::drop_ended() {
  const auto left = static_cast<uint64_t>(std::ranges::count(has_ended_, false));
  const uint64_t wanted = std::bit_ceil(left);
  if (left == 0 || wanted >= has_ended_.size()) return;
  uint64_t spare = wanted - left;  // rows whose texts have ended, but that stay
  std::vector<int64_t> kept;
  for (size_t r = 0; r < has_ended_.size(); ++r) {
    if (has_ended_[r] && spare == 0) continue;
    if (has_ended_[r]) --spare;
    const size_t to = kept.size();
    text_of_[to] = text_of_[r], first_[to] = first_[r], next_[to] = next_[r];
    has_ended_[to] = has_ended_[r];
    kept.push_back(static_cast<int64_t>(r));
  }
  reader_.keep_rows(kept);
  text_of_.resize(wanted), first_.resize(wanted), next_.resize(wanted);
  has_ended_.resize(wanted);
}

void BatchGenerator::extend(std::span<Row> texts, int64_t count, const SamplingOptions& options,
                            const OnToken& on_token) {
  if (texts.empty() || count <= 0) return;
  begin(texts);
  const int64_t longest = first_[0] + std::ssize(texts[0].tokens);
  const auto columns = [&](int64_t begin, int64_t n, const auto& token_at) {
    Columns some;
    for (size_t r = 0; r < text_of_.size(); ++r) {
      for (int64_t at = begin - first_[r]; at < begin - first_[r] + n; ++at) {
        some.tokens.push_back(at < 0 ? 0 : token_at(r, static_cast<size_t>(at)));
        some.positions.push_back(static_cast<int32_t>(std::max<int64_t>(at, 0)));
      }
    }
    return some;
  };
  const auto of_prompt = [&](size_t r, size_t at) { return texts[text_of_[r]].tokens[at]; };
  const auto drawn = [&](size_t r, size_t) { return next_[r]; };
  for (int64_t done = 0; done < longest;) {
    const int64_t n = pass_length(longest - done);
    pass(columns(done, n, of_prompt), done + n == longest);
    done += n;
  }
  for (int64_t i = 0;; ++i) {
    draw(texts, options, on_token);
    if (i + 1 == count || std::ranges::count(has_ended_, false) == 0) return;
    drop_ended();
    pass(columns(longest + i, 1, drawn), /*last=*/true);
  }
}

void BatchGenerator::rehearse(int64_t B, int64_t longest, int64_t count) {
  const auto any = [&](int64_t rows, int64_t n, bool last) {
    std::vector<int64_t> used(static_cast<size_t>(rows));
    std::iota(used.begin(), used.end(), 0);
    reader_.clear();
    reader_.keep_rows(used);
    first_.assign(used.size(), 0);
    const std::vector<int32_t> zeros(static_cast<size_t>(rows * n));
    pass({.tokens = zeros, .positions = zeros}, last);
  };
  for (int64_t done = 0; done < longest;) {
    const int64_t n = pass_length(longest - done);
    done += n;
    any(B, n, done == longest);
  }
  if (count > 1) any(B, 1, /*last=*/true);
  for (int64_t rows = B - 1; count > 1 && rows > 0; --rows) {
    if (std::has_single_bit(static_cast<uint64_t>(rows))) any(rows, 1, /*last=*/true);
  }
  reader_.clear();
}

}  // namespace spool
