#include "spool/models/data/batch.h"

#include <algorithm>
#include <vector>

namespace spool {
namespace {

Tensor make_input(const char* name, int64_t batch, int64_t seq, Stream& stream) {
  return Tensor({{batch, seq}, DType::i32}, stream, {.name = name, .purpose = Purpose::input});
}

}  // namespace

BatchInput::BatchInput(int64_t batch, int64_t seq, Stream& stream)
    : tokens(make_input("tokens", batch, seq, stream)),
      targets(make_input("targets", batch, seq, stream)) {}

void BatchInput::upload(const Rows& rows) {
  constexpr int64_t max_tokens_at_once = 16 * 1024;
  const int64_t B = tokens.shape()[0], T = tokens.shape()[1];
  const int64_t max_rows = std::clamp<int64_t>(max_tokens_at_once / T, 1, B);
  const auto row_length = static_cast<size_t>(T);
  std::vector<int32_t> some_tokens(static_cast<size_t>(max_rows * T));
  std::vector<int32_t> some_targets(some_tokens.size());
  for (int64_t first = 0; first < B; first += max_rows) {
    const Range range{first, std::min(first + max_rows, B)};
    for (int64_t b = range.begin; b < range.end; ++b) {
      const auto at = static_cast<size_t>((b - first) * T);
      rows(b, std::span(some_tokens).subspan(at, row_length),
           std::span(some_targets).subspan(at, row_length));
    }
    const auto count = static_cast<size_t>(range.size() * T);
    write<int32_t>(tokens.slice(range), std::span(some_tokens).first(count));
    write<int32_t>(targets.slice(range), std::span(some_targets).first(count));
  }
}

}  // namespace spool
