#pragma once

// Attention by the formulas of its header, in f64.

#include <cmath>
#include <limits>
#include <vector>

#include "tests/kernels/attention_testing.h"

namespace spool::testing {

using Values = std::vector<double>;

struct AttentionReference {
  Values y, lse, dqkv;
};

// One query head of one sequence.
class AttentionReferenceHead {
 public:
  AttentionReferenceHead(const AttentionCase& c, double scale, int64_t b, int64_t h)
      : c_(c), scale_(scale), b_(b), h_(h), kv_(h / (c.H / c.Hkv)) {}

  void forward(const Values& qkv, AttentionReference& out) const {
    for (int64_t i = 0; i < c_.T; ++i) {
      Values s;
      double largest = -std::numeric_limits<double>::infinity(), total = 0;
      for (int64_t j = c_.first(b_, i); j < c_.end(i); ++j) {
        s.push_back(score(qkv, i, j));
        largest = std::max(largest, s.back());
      }
      for (double x : s) total += std::exp(x - largest);
      const double lse = largest + std::log(total);
      out.lse[at_lse(i)] = lse;
      for (int64_t j = c_.first(b_, i); j < c_.end(i); ++j) {
        const double p = std::exp(score(qkv, i, j) - lse);
        for (int64_t d = 0; d < c_.D; ++d) out.y[at_y(i, d)] += p * qkv[value(j, d)];
      }
    }
  }

  void backward(const Values& qkv, const Values& dy, AttentionReference& out) const {
    for (int64_t i = 0; i < c_.T; ++i) {
      double delta = 0;
      for (int64_t d = 0; d < c_.D; ++d) delta += dy[at_y(i, d)] * out.y[at_y(i, d)];
      for (int64_t j = c_.first(b_, i); j < c_.end(i); ++j) {
        const double p = std::exp(score(qkv, i, j) - out.lse[at_lse(i)]);
        double dp = 0;
        for (int64_t d = 0; d < c_.D; ++d) dp += dy[at_y(i, d)] * qkv[value(j, d)];
        const double ds = scale_ * p * (dp - delta);
        for (int64_t d = 0; d < c_.D; ++d) {
          out.dqkv[value(j, d)] += p * dy[at_y(i, d)];
          out.dqkv[query(i, d)] += ds * qkv[key(j, d)];
          out.dqkv[key(j, d)] += ds * qkv[query(i, d)];
        }
      }
    }
  }

 private:
  size_t at(int64_t t, int64_t head, int64_t d) const {
    return static_cast<size_t>((b_ * c_.T + t) * c_.row() + head * c_.D + d);
  }
  size_t query(int64_t t, int64_t d) const { return at(t, h_, d); }
  size_t key(int64_t t, int64_t d) const { return at(t, c_.H + kv_, d); }
  size_t value(int64_t t, int64_t d) const { return at(t, c_.H + c_.Hkv + kv_, d); }
  size_t at_y(int64_t t, int64_t d) const {
    return static_cast<size_t>(((b_ * c_.T + t) * c_.H + h_) * c_.D + d);
  }
  size_t at_lse(int64_t t) const { return static_cast<size_t>((b_ * c_.H + h_) * c_.T + t); }
  double score(const Values& qkv, int64_t i, int64_t j) const {
    double s = 0;
    for (int64_t d = 0; d < c_.D; ++d) s += qkv[query(i, d)] * qkv[key(j, d)];
    return scale_ * s;
  }

  const AttentionCase& c_;
  double scale_;
  int64_t b_, h_, kv_;
};

inline AttentionReference attention_reference(const AttentionCase& c, double scale,
                                              const Values& qkv, const Values& dy) {
  AttentionReference out{Values(dy.size()), Values(static_cast<size_t>(c.B * c.H * c.T)),
                         Values(qkv.size())};
  for (int64_t b = 0; b < c.B; ++b) {
    for (int64_t h = 0; h < c.H; ++h) {
      const AttentionReferenceHead head(c, scale, b, h);
      head.forward(qkv, out);
      head.backward(qkv, dy, out);
    }
  }
  return out;
}

}  // namespace spool::testing
