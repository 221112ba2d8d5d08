// Optimizer state that ranks divide, read in whole: rank 0 asks for a range of a row, and each of
// the others answers with those elements of it that are its own.

#include <algorithm>
#include <cstring>

#include "spool/models/optimizers/optimizer.h"
#include "spool/models/steps/exchange/gradient_exchange.h"

namespace spool {
namespace {

constexpr const char *exchange_of_state = "state", *is_done = "done", *has_failed = "failed";

// Calls copy(elements, bytes) for each stretch of the range that the rank has, in one order on all
// ranks.
template <class Each>
void for_each_stretch(const RowPieces& pieces, int rank, const StateRange& range, size_t size,
                      const Each& each) {
  for (int64_t b = 0; b < pieces.buckets(); ++b) {
    for (const OwnRow::Slice& s : pieces.slices(b, rank)) {
      if (s.parameter != range.parameter) continue;
      const Range both{std::max(s.elements.begin, range.elements.begin),
                       std::min(s.elements.end, range.elements.end)};
      if (both.begin >= both.end) continue;
      each(static_cast<size_t>(both.begin - range.elements.begin) * size,
           static_cast<size_t>(both.size()) * size);
    }
  }
}

std::string text_of(const StateRange& range) {
  return {reinterpret_cast<const char*>(&range), sizeof range};
}

}  // namespace

void GradientExchange::read_others_state(const StateRange& range, size_t element_bytes,
                                         std::span<std::byte> out) {
  if (!others_serve_) return;
  ranks_.gather(exchange_of_state, text_of(range));
  const std::vector<std::string> answers = ranks_.gather(exchange_of_state, "");
  for (int r = 1; r < ranks(); ++r) {
    const std::string& answer = answers[static_cast<size_t>(r)];
    size_t read = 0;
    for_each_stretch(pieces_, r, range, element_bytes, [&](size_t at, size_t bytes) {
      std::memcpy(out.data() + at, answer.data() + read, bytes);
      read += bytes;
    });
  }
}

bool GradientExchange::serve_state(Optimizer& optimizer) {
  for (;;) {
    const std::string asked = ranks_.gather(exchange_of_state, "").front();
    if (asked == is_done || asked == has_failed) return asked == is_done;
    StateRange range;
    std::memcpy(&range, asked.data(), sizeof range);
    const size_t size = size_of(optimizer.state_rows()[range.row].type);
    std::vector<std::byte> whole(static_cast<size_t>(range.elements.size()) * size);
    optimizer.read_state(range, whole);
    std::string own;
    for_each_stretch(pieces_, rank(), range, size, [&](size_t at, size_t bytes) {
      own.append(reinterpret_cast<const char*>(whole.data()) + at, bytes);
    });
    ranks_.gather(exchange_of_state, own);
  }
}

bool GradientExchange::share_state(Optimizer& optimizer, const std::function<void()>& work) {
  optimizer.synchronize();
  synchronize();
  if (rank() > 0) return serve_state(optimizer);
  others_serve_ = stage_ > 0 && ranks() > 1;
  try {
    work();
  } catch (const RankEnded&) {  // which the others hear by themselves
    others_serve_ = false;
    throw;
  } catch (...) {
    others_serve_ = false;
    ranks_.gather(exchange_of_state, has_failed);
    throw;
  }
  others_serve_ = false;
  ranks_.gather(exchange_of_state, is_done);
  return true;
}

}  // namespace spool
