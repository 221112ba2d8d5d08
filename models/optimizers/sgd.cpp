#include "spool/models/optimizers/sgd.h"

#include "spool/kernels/sgd.h"

namespace spool {
namespace {

class SgdRule final : public UpdateRule {
 public:
  explicit SgdRule(const SgdSettings& s)
      : momentum_(static_cast<float>(s.momentum)), nesterov_(s.nesterov) {
    check(s.momentum >= 0 && s.momentum < 1, "sgd: the momentum must be in [0, 1), not ",
          s.momentum);
    check(!s.nesterov || s.momentum > 0, "sgd: nesterov is a form of momentum, which is 0; set ",
          "it, to 0.9 for example");
  }

  const char* name() const override { return "sgd"; }
  std::vector<StateRow> rows() const override {
    return momentum_ > 0 ? std::vector<StateRow>{{"momentum"}} : std::vector<StateRow>{};
  }
  std::vector<float> schedule_at(int64_t, double learning_rate) const override {
    return {static_cast<float>(learning_rate)};
  }
  void update(const UpdateStep& step) const override {
    step.launch(Sgd{.momentum = momentum_, .nesterov = nesterov_},
                [](Sgd::Entry& to, const UpdateEntry& from) { to.momentum = from.state[0]; });
  }

 private:
  float momentum_;
  bool nesterov_;
};

}  // namespace

std::unique_ptr<const UpdateRule> make_rule(const SgdSettings& settings) {
  return std::make_unique<SgdRule>(settings);
}

}  // namespace spool
