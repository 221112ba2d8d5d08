#include "spool/models/optimizers/adamw.h"

#include <cmath>

#include "spool/kernels/adamw.h"

namespace spool {
namespace {

class AdamWRule final : public UpdateRule {
 public:
  explicit AdamWRule(const AdamWSettings& s) : beta1_(s.beta1), beta2_(s.beta2), eps_(s.eps) {
    const auto is_beta = [](double x) { return x >= 0 && x < 1; };
    check(is_beta(s.beta1) && is_beta(s.beta2), "adamw: beta1 and beta2 must be in [0, 1), not ",
          s.beta1, " and ", s.beta2);
    check(std::isfinite(s.eps) && s.eps >= 0, "adamw: eps must be a finite number from 0 on, not ",
          s.eps);
  }

  const char* name() const override { return "adamw"; }
  std::vector<StateRow> rows() const override { return {{"m"}, {"v"}}; }

  std::vector<float> schedule_at(int64_t t, double learning_rate) const override {
    const auto corrected = [&](double beta) {
      return static_cast<float>(1 - std::pow(beta, static_cast<double>(t)));
    };
    return {static_cast<float>(learning_rate), corrected(beta1_), corrected(beta2_)};
  }

  void update(const UpdateStep& step) const override {
    step.launch(AdamW{.beta1 = static_cast<float>(beta1_),
                      .beta2 = static_cast<float>(beta2_),
                      .eps = static_cast<float>(eps_)},
                [](AdamW::Entry& to, const UpdateEntry& from) {
                  to.m = from.state[0];
                  to.v = from.state[1];
                });
  }

 private:
  double beta1_, beta2_, eps_;
};

}  // namespace

std::unique_ptr<const UpdateRule> make_rule(const AdamWSettings& settings) {
  return std::make_unique<AdamWRule>(settings);
}

}  // namespace spool
