#pragma once

// The AdamW optimizer over all parameters of a model, with gradients clipped by their global norm.
// The arithmetic (update, rounding, clipping) is in kernels/adamw.h; this file has the state and
// the order of a step.  Parameters of two and more dimensions decay, biases and layer norms do not.
//
// Each bf16 parameter has an f32 master, which a step updates and rounds to the parameter.  With
// stochastic rounding there are no masters: a step updates the bf16 parameter itself.
//
// The state (moments and masters) is on the device or in host memory (offloaded_adamw.h), or, if it
// is streamed, partly on each.  State that is streamed through the device gives the same bits as
// state that stays there.  So does state that the host updates, if the device is a CPU.

#include <array>
#include <memory>
#include <vector>

#include "spool/autograd/tape.h"
#include "spool/kernels/adamw.h"
#include "spool/models/optimizers/offloaded_adamw.h"
#include "spool/runtime/names.h"

namespace spool {

// How a step rounds parameters that are bf16.
enum class Rounding { nearest, stochastic };
template <>
inline constexpr std::array enumerator_names<Rounding>{"nearest", "stochastic"};

struct AdamWSettings {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, decay = 0.1;
  double clip = 1;  // maximum norm of the gradients; 0: no limit
  Rounding rounding = Rounding::nearest;
};

struct OptimizerMemory {
  OptimizerState state = OptimizerState::device;
  HostLink* link = nullptr;    // required unless the state is on the device; outlives the optimizer
  size_t bytes_on_device = 0;  // of streamed state, the share that stays on the device, at most
};

// Where the state of these parameters is: on the device too if it is streamed and its share is all.
OptimizerState place_of_state(const std::vector<Parameter*>&, const AdamWSettings&,
                              const OptimizerMemory&);

class AdamWOptimizer {
 public:
  // Allocates all state.
  AdamWOptimizer(std::vector<Parameter*> parameters, const AdamWSettings&, Stream&,
                 const OptimizerMemory& = {});

  // Waits for the host's part of the last step.
  ~AdamWOptimizer();
  AdamWOptimizer(const AdamWOptimizer&) = delete;
  AdamWOptimizer& operator=(const AdamWOptimizer&) = delete;

  // Sets the moments to zero and copies the parameters to the masters, and to the host if it
  // updates.  Later changes to the parameters, except by update(), do not reach these copies.
  // Required before the first step, but for one on meta, and before stored state is written to the
  // tensors below.
  void initialise();

  // The t-th step, t from 1 on.  prepare() writes t and lr to the device; update() changes the
  // parameters that have a gradient, at least one, and frees the gradients.  If their norm is not
  // finite, it frees them and changes nothing else.  `random` seeds stochastic rounding: i32 (4),
  // the seed's lower and upper half, the step, and an element that is not read.
  //
  // If update() throws because it was misused or lacks memory, nothing has changed, and it may be
  // called again.  If it throws later, when a stream fails, some parameters and their state are a
  // step ahead of others, which cannot be undone: gradients are freed, and the optimizer refuses to
  // go on, or to show its state, until initialise(), after which a run resumes from a checkpoint.
  // An update that fails while it is captured counts as one that failed later.
  void prepare(int64_t t, double lr);
  void update(const Tensor& random = {});
  void step(int64_t t, double lr, const Tensor& random = {}) {
    prepare(t, lr);
    update(random);
  }

  // Waits for the host's part of the last step, if any; throws the errors of its work.
  void synchronize() const;

  // f32 (3): clip factor, norm of the gradients, and whether it is finite; of the last step.
  const Tensor& clip() const { return clip_; }

  // Parallel to the parameters; masters() is empty unless these are bf16 and rounded to nearest.
  // If any state is on the host, the call waits for the last step, and the tensors may be read and
  // written until the next prepare() or initialise(), and are not to be kept.
  const std::vector<Tensor>& first_moments() const { return state().m; }
  const std::vector<Tensor>& second_moments() const { return state().v; }
  const std::vector<Tensor>& masters() const { return state().masters; }

 private:
  void allocate(bool masters);
  bool half_updated() const { return offloaded_ ? offloaded_->half_updated() : half_updated_; }
  void initialise_on_device();
  void check_whole() const;
  void check_ready() const;
  void check_update() const;
  void free_gradients() const {
    for (Parameter* p : parameters_) p->grad = {};
  }
  void update_all(const AdamW&);
  const AdamWState& state() const;
  void measure_gradients();
  void update_on_device(const AdamW&);
  AdamW kernel(const Tensor& random) const;
  AdamW::Entry entry(size_t i) const;

  std::vector<Parameter*> parameters_;
  AdamWSettings settings_;
  Stream& stream_;
  std::unique_ptr<OffloadedAdamW> offloaded_;
  AdamWState state_;  // if all of it is on the device
  Tensor schedule_, squared_, clip_;
  bool initialised_ = false, prepared_ = false;
  bool half_updated_ = false;  // state_
};

// Linear warm-up to `peak` over `warmup` steps, then half a cosine down to `floor` at `steps`; step
// counts from 0.
double cosine_schedule(int64_t step, int64_t steps, int64_t warmup, double peak, double floor);

}  // namespace spool
