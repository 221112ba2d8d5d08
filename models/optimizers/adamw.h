#pragma once

// The AdamW optimizer over all parameters of a model (formula in kernels/adamw.h), with gradients
// clipped by their global norm.  Weights of two and more dimensions decay, biases and layer norms
// do not.  Where the parameters are bf16, an f32 master of each is what is really optimised; or, to
// save its bytes, there is none, and what a step makes of a parameter is rounded stochastically.
//
// The state, which is the moments and the masters, is on the device or in memory of the host
// (offloaded_adamw.h).  Streamed through the device, the numbers are those of state that stays; so
// they are where a host updates that is the device.

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "spool/autograd/tape.h"
#include "spool/kernels/adamw.h"
#include "spool/models/optimizers/offloaded_adamw.h"

namespace spool {

// Of parameters that are bf16.
enum class Rounding { nearest, stochastic };

constexpr const char* name(Rounding r) { return r == Rounding::nearest ? "nearest" : "stochastic"; }
// "nearest" and the like; nothing for any other text.
std::optional<Rounding> parse_rounding(std::string_view text);

struct AdamWSettings {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, decay = 0.1;
  double clip = 1;  // 0: none
  Rounding rounding = Rounding::nearest;
};

// Where the state is; if not on the device, the link to the host, which outlives the optimizer.
struct OptimizerMemory {
  OptimizerState state = OptimizerState::device;
  HostLink* link = nullptr;
};

class AdamWOptimizer {
 public:
  // All state is allocated here.  Where it is on the host, an optimizer that goes waits for what it
  // has asked for.
  AdamWOptimizer(std::vector<Parameter*> parameters, const AdamWSettings&, Stream&,
                 const OptimizerMemory& = {});

  ~AdamWOptimizer();
  AdamWOptimizer(const AdamWOptimizer&) = delete;
  AdamWOptimizer& operator=(const AdamWOptimizer&) = delete;

  // Moments zero, masters from the parameters, and so what else a host that updates them has of
  // them: it knows nothing of what anybody but the optimizer makes of them later.
  void initialise();

  // The t-th step, t from 1 on: tells the device which it is, then changes the parameters by the
  // gradients there are, which are let go.  Where the norm of the gradients is not finite, nothing
  // changes but that.  `random` is what stochastic rounding draws by: i32 (4), of which the first
  // three are the seed, in two halves, and the step.
  void prepare(int64_t t, double lr);
  void update(const Tensor& random = {});
  void step(int64_t t, double lr, const Tensor& random = {}) {
    prepare(t, lr);
    update(random);
  }

  // Until the host, where it has a part in it, has done the last step; throws what it met.
  void synchronize() const;

  // f32 (3): factor, norm, finite; of the last step.
  const Tensor& clip() const { return clip_; }

  // Parallel to the parameters; there are masters where these are bf16 and rounded to nearest.  On
  // the host they are of the last step, which the call waits for, and may be read and written until
  // the next.
  const std::vector<Tensor>& first_moments() const { return synchronized(m_); }
  const std::vector<Tensor>& second_moments() const { return synchronized(v_); }
  const std::vector<Tensor>& masters() const { return synchronized(masters_); }

 private:
  void allocate(bool masters);
  const std::vector<Tensor>& synchronized(const std::vector<Tensor>&) const;
  void measure_gradients();
  void update_on_device(const AdamW&) const;
  AdamW kernel(const Tensor& random) const;
  AdamW::Entry entry(size_t i) const;

  std::vector<Parameter*> parameters_;
  AdamWSettings settings_;
  Stream& stream_;
  std::unique_ptr<OffloadedAdamW> offloaded_;
  std::vector<Tensor> m_, v_, masters_;
  Tensor schedule_, squared_, clip_;
};

// Linear warm-up to `peak` over `warmup` steps, then half a cosine down to `floor` at `steps`; step
// counts from 0.
double cosine_schedule(int64_t step, int64_t steps, int64_t warmup, double peak, double floor);

}  // namespace spool
