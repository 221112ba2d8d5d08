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

  // Those of the sample that the device computes in; the first is the widest.
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

// Forward and backward in each type, twice.
void check_runs(Findings&);
// The gradients, against central differences.
void check_differences(Findings&);
// The peak that a rehearsal foretells.
void check_memory(Findings&);
// Gradients when what is saved is recomputed, or offloaded.
void check_recomputing(Findings&);
void check_offloading(Findings&);
void check_absent_gradients(Findings&);
void check_threads(Findings&);
void check_narrow_types(Findings&);
// The op's own chunks.
void check_own_chunks(Findings&);
// The index notation, and the same of an op that computes gradients in forward.
void check_notation(Findings&);
// The same of an op that no sample applies.
void check_notation(Findings&, const AppliedOp&);
// Results of another device, against the cpu's.
void check_device(Findings&);

}  // namespace spool::op_checks
