#include "spool/models/optimizers/buckets.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "spool/kernels/weights.h"
#include "spool/runtime/integer.h"

namespace spool {
namespace {

constexpr int64_t whole_granules(int64_t n) { return round_up(n, weights_granule); }

}  // namespace

Buckets::Buckets(const std::vector<Range>& parts) : Buckets(parts, /*count=*/8, max_elements) {}

Buckets Buckets::one(const std::vector<Range>& parts) {
  return Buckets(parts, /*count=*/1, std::numeric_limits<int64_t>::max());
}

Buckets::Buckets(const std::vector<Range>& parts, int64_t count, int64_t max) {
  for (const Range& part : parts) {
    begins_.push_back(elements_);
    elements_ += whole_granules(part.size());
  }
  const int64_t size = whole_granules(ceil_div(elements_, count));
  bucket_elements_ = std::clamp(size, weights_granule, max);
  for (int64_t begin = 0; begin < elements_; begin += bucket_elements_) {
    all_.push_back({.elements = {begin, std::min(begin + bucket_elements_, elements_)}});
  }
  for (size_t i = 0; i < parts.size(); ++i) add_slices(i, parts[i]);
}

void Buckets::add_slices(size_t part, Range elements) {
  for (int64_t first = elements.begin; first < elements.end;) {
    const int64_t offset = begins_[part] + first - elements.begin;
    Bucket& bucket = *std::next(all_.begin(), offset / bucket_elements_);
    const int64_t end = std::min(elements.end, first + bucket.elements.end - offset);
    bucket.slices.push_back(
        {.part = part, .elements = {first, end}, .at = offset - bucket.elements.begin});
    first = end;
  }
}

}  // namespace spool
