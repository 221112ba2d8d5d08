#include "spool/models/data/batch.h"

#include <algorithm>

namespace spool {
namespace {

Tensor make_input(Name name, int64_t batch, int64_t seq, Stream& stream) {
  return Tensor({{batch, seq}, DType::i32}, stream, {.name = name, .purpose = Purpose::input});
}

// The rows of each upload: few enough for a stream to buffer them, so that it need not wait for its
// work to end.
std::vector<Range> pieces(int64_t B, int64_t T) {
  constexpr int64_t max_tokens = 16 * 1024;
  const int64_t rows = std::clamp<int64_t>(max_tokens / T, 1, B);
  std::vector<Range> all;
  for (int64_t b = 0; b < B; b += rows) all.push_back({b, std::min(b + rows, B)});
  return all;
}

}  // namespace

void TokenBatch::clear(int64_t rows, int64_t tokens_of_row, bool packed) {
  const auto count = static_cast<size_t>(rows * tokens_of_row);
  T = tokens_of_row;
  tokens.assign(count, 0);
  targets.assign(count, ignored_target);
  valid = 0;
  positions.assign(packed ? count : 0, 0);
  first.resize(packed ? count : 0);
  for (size_t i = 0; i < first.size(); ++i) {
    first[i] = static_cast<int32_t>(static_cast<int64_t>(i) % tokens_of_row);
  }
}

BatchInput::BatchInput(int64_t batch, int64_t seq, Stream& stream, bool packed)
    : tokens(make_input("tokens", batch, seq, stream)),
      targets(make_input("targets", batch, seq, stream)) {
  if (!packed) return;
  positions = make_input("positions", batch, seq, stream);
  firsts = make_input("first tokens", batch, seq, stream);
}

void BatchInput::upload(const TokenBatch& batch, int64_t first) {
  const int64_t B = tokens.shape()[0], T = tokens.shape()[1];
  check(batch.T == T && first >= 0 && first <= batch.rows() - B &&
            batch.targets.size() == batch.tokens.size(),
        "rows ", first, " to ", first + B, " of ", T, " tokens are not in a batch of ",
        batch.rows(), " rows of ", batch.T, " tokens, with ", batch.targets.size(), " targets");
  const bool packed{positions};
  const size_t places = packed ? batch.tokens.size() : 0;
  check(batch.positions.size() == places && batch.first.size() == places, "rows of ",
        packed ? "several texts have" : "one text each have no",
        " positions and first tokens: ", places, " of each, not ", batch.positions.size(), " and ",
        batch.first.size());
  for (const Range some : pieces(B, T)) {
    const auto at = static_cast<size_t>((first + some.begin) * T),
               count = static_cast<size_t>(some.size() * T);
    write(tokens.slice(some), std::span(batch.tokens).subspan(at, count));
    write(targets.slice(some), std::span(batch.targets).subspan(at, count));
    if (!packed) continue;
    write(positions.slice(some), std::span(batch.positions).subspan(at, count));
    write(firsts.slice(some), std::span(batch.first).subspan(at, count));
  }
}

void BatchInput::upload_placeholder() {
  const int64_t T = tokens.shape()[1];
  const std::vector<Range> all = pieces(tokens.shape()[0], T);
  const std::vector<int32_t> zeros(static_cast<size_t>(all.front().size() * T));
  for (const Range some : all) {
    const auto piece = std::span(zeros).first(static_cast<size_t>(some.size() * T));
    write(tokens.slice(some), piece);
    write(targets.slice(some), piece);
    if (!positions) continue;
    write(positions.slice(some), piece);
    write(firsts.slice(some), piece);
  }
}

}  // namespace spool
