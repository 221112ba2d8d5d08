#pragma once

// The parts of check_op(): each checks one property of the op, and notes what is wrong.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "spool/autograd/checks/applied_op.h"
#include "spool/autograd/checks/sample_run.h"

namespace spool::op_checks {

constexpr size_t plenty = size_t{64} << 20;  // bytes of an arena that any sample fits in

// What is wrong with one sample on one device.
class Findings {
 public:
  // The sample outlives this.
  Findings(const OpSample& of, Device on) : sample(of), device(on) {}
  Findings(OpSample&&, Device) = delete;

  const OpSample& sample;
  const Device device;

  // The sample's types that the device computes in, the widest first.
  std::vector<DType> types() const;
  const OpTolerance& tolerance(DType) const;
  std::unique_ptr<Stream> open(int threads = 1, size_t bytes = plenty) const;
  SampleValues run(const SampleOptions&, int threads = 1) const;

  // Notes a finding of this check, unless the text is empty.
  void add(const std::string& check, const std::string& text);
  // Notes the Error that the work throws, if any.
  void attempt(const std::string& check, const std::function<void()>& work);

  const std::vector<std::string>& all() const { return all_; }

 private:
  std::vector<std::string> all_;
};

// Runs forward and backward in each type, twice.
void check_runs(Findings&);
// Compares the gradients with central differences.
void check_differences(Findings&);
// Compares the peak with the one that a rehearsal foretells.
void check_memory(Findings&);
// Compares the gradients with those of saved values that are recomputed, or offloaded.
void check_recomputing(Findings&);
void check_offloading(Findings&);
void check_absent_gradients(Findings&);
void check_threads(Findings&);
void check_narrow_types(Findings&);
// Compares the op's own chunks with the whole.
void check_own_chunks(Findings&);
// Checks the index notation, again with gradients in forward if the op computes them there.
void check_notation(Findings&);
// Checks the index notation of an op without a sample.
void check_notation(Findings&, const AppliedOp&);
// Compares the results of another device with the cpu's.
void check_device(Findings&);

}  // namespace spool::op_checks
