#pragma once

// Numbers of tensors on the host, for tests and checks: random ones to begin with, those that a
// tensor of any floating dtype has, and how far two lists of them are apart.

#include <cstdint>
#include <vector>

#include "spool/runtime/tensor.h"

namespace spool::numbers {

// A tensor of normal numbers of this deviation and mean, of any floating dtype.  The same seed
// gives the same numbers in each, up to rounding.
Tensor normal(const Shape& shape, DType dtype, Stream& stream, uint64_t seed, double deviation = 1,
              double mean = 0);

// The numbers of a tensor of any floating dtype.
std::vector<double> values(const Tensor& t);

// max |a - b| / max |b|; NaN if any of the numbers is NaN.  Throws unless there are as many of
// each.
double difference(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace spool::numbers
