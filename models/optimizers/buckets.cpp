#include "spool/models/optimizers/buckets.h"

#include <algorithm>

#include "spool/kernels/adamw.h"

namespace spool {
namespace {

constexpr int64_t in_granules(int64_t n) {
  return (n + AdamW::granule - 1) / AdamW::granule * AdamW::granule;
}

}  // namespace

Buckets::Buckets(const std::vector<int64_t>& numels) {
  constexpr int64_t about = 8;  // buckets
  for (const int64_t numel : numels) {
    begins_.push_back(elements_);
    elements_ += in_granules(numel);
  }
  const int64_t share = in_granules((elements_ + about - 1) / about);
  bucket_elements_ = std::clamp(share, AdamW::granule, max_elements);
  for (int64_t begin = 0; begin < elements_; begin += bucket_elements_) {
    all_.push_back({.elements = {begin, std::min(begin + bucket_elements_, elements_)}});
  }
  for (size_t i = 0; i < numels.size(); ++i) add(i, numels[i]);
}

void Buckets::add(size_t tensor, int64_t numel) {
  for (int64_t first = 0; first < numel;) {
    const int64_t place = begins_[tensor] + first;
    Bucket& bucket = all_[static_cast<size_t>(place / bucket_elements_)];
    const int64_t end = std::min(numel, bucket.elements.end - begins_[tensor]);
    bucket.slices.push_back(
        {.tensor = tensor, .elements = {first, end}, .at = place - bucket.elements.begin});
    first = end;
  }
}

}  // namespace spool
