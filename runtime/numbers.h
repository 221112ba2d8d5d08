#pragma once

// Values of tensors on the host, for tests and checks: makes random tensors, reads tensors of any
// floating dtype as doubles, and compares two lists of them.

#include <cstdint>
#include <vector>

#include "spool/runtime/tensor.h"

namespace spool::numbers {

// A tensor of normal numbers with this standard deviation and mean, of any floating dtype.  The
// same seed gives the same numbers in each, up to rounding.
Tensor normal(const Shape& shape, DType dtype, Stream& stream, uint64_t seed, double deviation = 1,
              double mean = 0);

// The values of a tensor of any floating dtype.
std::vector<double> values(const Tensor& t);

// max |a - b| / max |b|; NaN if any of the numbers is NaN.  Throws unless both have the same size.
double difference(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace spool::numbers
