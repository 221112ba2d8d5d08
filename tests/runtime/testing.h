#pragma once

// What the tests share: filling tensors, and comparing them.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "spool/runtime/random.h"
#include "spool/runtime/tensor.h"
#include "spool/runtime/units.h"

namespace spool::testing {

// A tensor of normal numbers times `deviation`, any floating dtype.
Tensor normal(const Shape& shape, DType dtype, Stream& stream, uint64_t seed, double deviation = 1);

// The values of a tensor of any floating dtype.
std::vector<double> values(const Tensor& t);

// max |a - b| / max |b|; NaN if any value is NaN.
double difference(const std::vector<double>& a, const std::vector<double>& b);

// The sentence of the Error that work() throws; "" if it throws none.
std::string error_of(const std::function<void()>& work);

// Whether this machine has a GPU, real or emulated, and this build a backend for it.
bool there_is_cuda();

bool contains(const std::string& text, const std::string& part);

}  // namespace spool::testing
