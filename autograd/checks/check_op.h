// Public: one of the headers of docs/public-headers.md.
#pragma once

// Checks an op of your own as Spool's are checked, without a test framework:
//
//   const OpSample sample{.name = "squared_relu",
//                         .inputs = {{.shape = {3, 2, 7}}},
//                         .apply = [](const std::vector<Operand>& x) {
//                           return std::vector{squared_relu(*x[0].var)};
//                         }};
//   for (const std::string& failure : check_op(sample)) std::puts(failure.c_str());
//
// On the cpu it checks, in each type of the sample that applies:
//   * the gradients, against finite differences in the widest type
//   * that the op writes each gradient it asks for, and asks for each once (gradient_check.h)
//   * that a second run has the same bits, and so has one with more threads
//   * that an arena of the peak that a rehearsal foretells suffices, and is filled to the byte
//   * that recomputing and offloading what is saved keep the bits
//   * that a gradient that is not wanted leaves the others unchanged
//   * that narrow types come close to the widest
//   * that the index notation is true: chunks along each lower-case index make up the whole,
//     forward and backward, and an element matters only where its lower-case indices agree
//   * that the op's own chunks, if it has some, change nothing but rounding
//
// On another device it checks, in f32 and bf16, that results are those of the cpu and have the same
// bits again, and memory, recomputing, offloading and gradients not wanted as above.

#include <string>
#include <vector>

#include "spool/autograd/checks/op_sample.h"

namespace spool {

// The op's failures, as sentences that name the sample, the check, the tensor and the numbers;
// empty if there are none.  Throws only if the sample itself cannot work.
std::vector<std::string> check_op(const OpSample&, Device = {DeviceType::cpu});

// The same, but throws one Error (invalid) with all of the sentences.
void expect_op(const OpSample&, Device = {DeviceType::cpu});

}  // namespace spool
