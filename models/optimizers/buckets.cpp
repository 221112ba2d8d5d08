#include "spool/models/optimizers/buckets.h"

#include <algorithm>
#include <iterator>

#include "spool/kernels/adamw.h"
#include "spool/runtime/integer.h"

namespace spool {
namespace {

constexpr int64_t whole_granules(int64_t n) { return round_up(n, AdamW::granule); }

}  // namespace

Buckets::Buckets(const std::vector<Range>& parts) {
  constexpr int64_t intended_buckets = 8;
  for (const Range& part : parts) {
    begins_.push_back(elements_);
    elements_ += whole_granules(part.size());
  }
  const int64_t size = whole_granules(ceil_div(elements_, intended_buckets));
  bucket_elements_ = std::clamp(size, AdamW::granule, max_elements);
  for (int64_t begin = 0; begin < elements_; begin += bucket_elements_) {
    all_.push_back({.elements = {begin, std::min(begin + bucket_elements_, elements_)}});
  }
  for (size_t i = 0; i < parts.size(); ++i) add_slices(i, parts[i]);
}

void Buckets::add_slices(size_t tensor, Range part) {
  for (int64_t first = part.begin; first < part.end;) {
    const int64_t offset = begins_[tensor] + first - part.begin;
    Bucket& bucket = *std::next(all_.begin(), offset / bucket_elements_);
    const int64_t end = std::min(part.end, first + bucket.elements.end - offset);
    bucket.slices.push_back(
        {.tensor = tensor, .elements = {first, end}, .at = offset - bucket.elements.begin});
    first = end;
  }
}

}  // namespace spool
