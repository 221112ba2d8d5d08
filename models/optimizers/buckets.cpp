#include "spool/models/optimizers/buckets.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "spool/kernels/weights.h"
#include "spool/runtime/integer.h"

namespace spool {
namespace {

constexpr int64_t whole_granules(int64_t n) { return round_up(n, weights_granule); }

// Where each part begins if they follow one another, and the end of the last.
std::vector<int64_t> ends_of(const std::vector<Range>& parts) {
  std::vector<int64_t> all{0};
  for (const Range& part : parts) all.push_back(all.back() + whole_granules(part.size()));
  return all;
}

}  // namespace

int64_t Buckets::usual_size(int64_t elements) {
  return std::clamp(whole_granules(ceil_div(elements, int64_t{8})), weights_granule, max_elements);
}

Buckets::Buckets(const std::vector<Range>& parts)
    : Buckets(parts, ends_of(parts), ends_of(parts).back(), usual_size(ends_of(parts).back())) {}

Buckets Buckets::one(const std::vector<Range>& parts) {
  const std::vector<int64_t> ends = ends_of(parts);
  return {parts, ends, ends.back(), std::max(ends.back(), weights_granule)};
}

Buckets Buckets::of_size(const std::vector<Range>& parts, int64_t bucket_elements) {
  const std::vector<int64_t> ends = ends_of(parts);
  return {parts, ends, ends.back(), bucket_elements};
}

Buckets::Buckets(const std::vector<Range>& parts, std::vector<int64_t> begins, int64_t elements,
                 int64_t bucket_elements)
    : elements_(elements), bucket_elements_(bucket_elements), begins_(std::move(begins)) {
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
