#pragma once

// Sums over ranks to try, with what each rank's term is, and the same sums by plain loops.

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "spool/kernels/sum_ranks.h"
#include "tests/kernels/kernel_testing.h"

namespace spool::testing {

struct RankCase {
  int ranks = 1, own = 0;
  DType type = DType::f32, own_type = DType::f32, sent = DType::f32;
  bool accumulate = false, in_place = false;  // `out` is `own`
  int64_t skip = 0;                           // elements before a slice: 1 makes it unaligned

  std::string words() const {
    return sentence(ranks, " ranks, ", own, " of ", name(own_type), " and ", name(sent), " to ",
                    name(type), accumulate ? ", accumulates" : "", in_place ? ", in place" : "",
                    ", skip ", skip);
  }
};

// Numbers of ranks that sent this type, with this one in several places; and every way with three
// ranks.
inline std::vector<RankCase> rank_cases(DType type) {
  constexpr int most = SumRanks::max_ranks;
  std::vector<RankCase> all;
  for (const auto& [ranks, own] : std::vector<std::pair<int, int>>{
           {1, 0}, {2, 0}, {2, 1}, {4, 3}, {5, 4}, {9, 4}, {most, most / 2}}) {
    all.push_back({.ranks = ranks, .own = own, .type = type, .own_type = type, .sent = type});
  }
  for (const bool accumulate : {false, true}) {
    for (const int64_t skip : {0, 1}) {
      const RankCase one{3, 1, type, type, type, accumulate, /*in_place=*/false, skip};
      all.push_back(one);
      all.push_back(one);
      all.back().in_place = true;
      if (type == DType::f64) continue;
      all.push_back(one);
      all.back().type = DType::f32;
      all.back().own_type = DType::bf16;
    }
  }
  return all;
}

// Ends within and at the ends of vectors, blocks, packs and pieces.
inline const std::vector<int64_t> slice_counts{1, 0, 7, 1023, 2047, 2048, 2049, 4103};

// Terms of some slices, and where their sum goes.
class RankTensors {
 public:
  RankTensors(const RankCase& c, Stream& stream) : case_(c) {
    int64_t end = 0;
    for (const int64_t n : slice_counts) {
      at_.push_back(end + c.skip);
      end += c.skip + (n + 7) / 8 * 8;
    }
    for (int r = 0; r < c.ranks; ++r) {
      const DType t = r == c.own ? c.own_type : c.sent;
      terms_.push_back(normal({end, 1}, t, stream, static_cast<uint64_t>(r + 1)));
    }
    const Tensor& own = terms_[static_cast<size_t>(c.own)];
    out_ = c.in_place     ? own
           : c.accumulate ? normal({end, 1}, c.type, stream, 99)
                          : unset({end, 1}, c.type, stream);
  }

  SumRanks kernel() const {
    SumRanks k;
    const Tensor& own = terms_[static_cast<size_t>(case_.own)];
    for (size_t i = 0; i < at_.size(); ++i) {
      const Range part{at_[i], at_[i] + slice_counts[i]};
      k.slices.add(
          {.out = {out_.slice(part), case_.accumulate}, .own = own.slice(part), .at = at_[i]});
    }
    for (const Tensor& t : terms_) k.pieces.add(&t == &own ? nullptr : t.view().data());
    if (case_.sent == DType::bf16) k.sent = case_.sent;
    return k;
  }
  Numbers sums() const { return values(out_); }

  // What sums() is after the kernel, with additions in A, and one more rounding to a bf16.
  template <class A>
  Numbers wanted() const {
    Numbers sum = values(out_);
    std::vector<Numbers> terms;
    for (const Tensor& t : terms_) terms.push_back(values(t));
    for (size_t s = 0; s < at_.size(); ++s) {
      const auto begin = static_cast<size_t>(at_[s]);
      for (size_t i = begin; i < begin + static_cast<size_t>(slice_counts[s]); ++i) {
        A total = static_cast<A>(case_.accumulate ? sum[i] : terms[0][i]);
        for (size_t r = case_.accumulate ? 0 : 1; r < terms.size(); ++r) {
          total += static_cast<A>(terms[r][i]);
        }
        const bool is_bf16 = case_.type == DType::bf16;
        sum[i] = is_bf16 ? double{bf16(static_cast<float>(total))} : double{total};
      }
    }
    return sum;
  }

 private:
  RankCase case_;
  std::vector<int64_t> at_;
  std::vector<Tensor> terms_;
  Tensor out_;
};

// Bits of numbers.  What was not written is NaN, whose bits depend on the device.
inline std::vector<uint64_t> bits_of(const Numbers& all) {
  std::vector<uint64_t> bits;
  for (const double x : all) {
    const double number = std::isnan(x) ? std::numeric_limits<double>::quiet_NaN() : x;
    bits.push_back(std::bit_cast<uint64_t>(number));
  }
  return bits;
}

}  // namespace spool::testing
