// Gradients against central differences of a weighted sum of the outputs.

#include "spool/autograd/checks/comparison.h"
#include "spool/autograd/checks/op_check.h"
#include "spool/runtime/numbers.h"

namespace spool::op_checks {
namespace {

double rounded(double x, DType type) {
  return type == DType::f64 ? x : static_cast<double>(static_cast<float>(x));
}

// Balances the error of the rounding, which grows as 1 / h, and that of the curve, as h^2.
double step_of(DType type) { return type == DType::f64 ? 1e-5 : 1.0 / 128; }

// d sum / d x of an input, one element at a time.
Numbers differences(SampleRun& run, size_t input, DType type) {
  Numbers x = numbers::values(run.inputs()[input]), found(x.size());
  const double h = step_of(type);
  for (size_t k = 0; k < x.size(); ++k) {
    const double before = x[k];
    const double above = rounded(before + h, type), below = rounded(before - h, type);
    const auto sum_at = [&](double at) {
      x[k] = at;
      run.set_input(input, x);
      run.rewind();
      run.forward();
      return run.weighted_sum();
    };
    found[k] = (sum_at(above) - sum_at(below)) / (above - below);
    x[k] = before;
  }
  run.set_input(input, x);
  return found;
}

}  // namespace

void check_differences(Findings& findings) {
  const DType type = findings.types().front();
  const std::string check = sentence("gradients in ", name(type));
  findings.attempt(check, [&] {
    const auto stream = findings.open();
    SampleRun run(findings.sample, *stream, {.dtype = type});
    run.forward();
    run.backward();
    const std::vector<Numbers> gradients = run.gradients();
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (!findings.sample.inputs[i].has_gradient()) continue;
      findings.add(check,
                   too_far({.what = gradient_of(i), .by = "by finite differences"}, gradients[i],
                           differences(run, i, type), findings.tolerance(type).differences));
    }
  });
}

}  // namespace spool::op_checks
