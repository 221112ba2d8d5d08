#include "spool/autograd/checks/check_op.h"

#include <algorithm>

#include "spool/autograd/checks/gradient_check.h"
#include "spool/autograd/checks/op_check.h"

namespace spool {
namespace {

using op_checks::Findings;

bool is_wide(DType type) { return type == DType::f64 || type == DType::f32; }

void check_sample(const OpSample& sample) {
  check(bool(sample.apply), sample.name, ": the sample has no function `apply`");
  check(!sample.types.empty() && is_wide(sample.types.front()), sample.name,
        ": the sample's types begin with f64 or f32, in which differences are formed");
  const auto floating = [](DType t) { return is_wide(t) || t == DType::bf16; };
  check(std::ranges::all_of(sample.types, floating), sample.name,
        ": the sample's types are f64, f32 and bf16; integers are inputs with a `below`");
  const auto has_gradient = [](const SampleInput& input) { return input.has_gradient(); };
  check(std::ranges::any_of(sample.inputs, has_gradient), sample.name,
        ": no input of the sample has a gradient");
}

void check_on_cpu(Findings& findings) {
  check_differences(findings);
  check_memory(findings);
  check_recomputing(findings);
  check_offloading(findings);
  check_absent_gradients(findings);
  check_threads(findings);
  check_narrow_types(findings);
  check_own_chunks(findings);
  check_notation(findings);
}

void check_elsewhere(Findings& findings) {
  check_device(findings);
  check_memory(findings);
  check_recomputing(findings);
  check_offloading(findings);
  check_absent_gradients(findings);
}

}  // namespace

std::vector<std::string> check_op(const OpSample& sample, Device device) {
  check_sample(sample);
  const WithGradientChecks unwritten;
  Findings findings(sample, device);
  check(!findings.types().empty(), sample.name, ": the sample has neither f32 nor bf16, in which ",
        name(device.type), " computes");
  check_runs(findings);
  if (!findings.all().empty()) return findings.all();  // the rest would say the same again
  if (device.type == DeviceType::cpu) {
    check_on_cpu(findings);
  } else {
    check_elsewhere(findings);
  }
  return findings.all();
}

void expect_op(const OpSample& sample, Device device) {
  const std::vector<std::string> failures = check_op(sample, device);
  std::string all;
  for (const std::string& failure : failures) all += (all.empty() ? "" : "\n") + failure;
  check(failures.empty(), all);
}

}  // namespace spool
