#pragma once

// Compares what an op computes; the result is a sentence for people, empty if nothing differs.

#include <string>
#include <string_view>

#include "spool/autograd/checks/sample_run.h"

namespace spool::op_checks {

// The first number whose bits differ: "element 5 of output 0 is 1.5, not 1.25".
std::string different_bits(const SampleValues& found, const SampleValues& wanted);

// What too_far() compares, and what the wanted numbers come from: "the gradient of input 0", "by
// finite differences".
struct Compared {
  std::string what;
  std::string_view by;
};

// Names the number that is furthest from the wanted one, if the tensors differ by more than `bound`
// times the largest wanted number, or have a NaN.
std::string too_far(const Compared&, const Numbers& found, const Numbers& wanted, double bound);
// The same for each tensor of a list, up to the first difference; `what` names its number.
std::string too_far_output(std::string_view by, const SampleValues& found,
                           const SampleValues& wanted, double bound);
std::string too_far_gradient(std::string_view by, const SampleValues& found,
                             const SampleValues& wanted, double bound);

std::string gradient_of(size_t input);

}  // namespace spool::op_checks
