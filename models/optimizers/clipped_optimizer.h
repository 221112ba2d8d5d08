// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// What AdamW and SGD share: gradients are clipped by their global norm, and a step whose norm is
// not finite changes nothing; each bf16 parameter has an f32 master unless it is rounded
// stochastically; parameters have a rate and a decay each (parameter_groups.h); the state is
// initialised when it is first needed.
//
// If update() throws because it was misused or lacks memory, nothing has changed, and it may be
// called again.  If it throws later, when a stream fails, some parameters and their state are a
// step ahead of others, which cannot be undone: gradients are freed, and the optimizer refuses to
// go on, or to show its state, until initialise(), after which a run resumes from a checkpoint.  An
// update that fails while it is captured counts as one that failed later.

#include <vector>

#include "spool/kernels/launch.h"
#include "spool/models/optimizers/optimizer.h"
#include "spool/models/optimizers/parameter_groups.h"

namespace spool {

// The settings that both have.
struct ClippedSettings {
  double decay = 0;
  double clip = 0;  // maximum norm of the gradients; 0: no limit
  Rounding rounding = Rounding::nearest;
  const std::vector<ParameterGroup>& groups;
};

// Those of AdamWSettings or SgdSettings, which must outlive them.
template <class Settings>
ClippedSettings clipped_settings(const Settings& s) {
  return {.decay = s.decay, .clip = s.clip, .rounding = s.rounding, .groups = s.groups};
}

// Whether the parameters, all of one type, have f32 masters.
inline bool has_masters(const std::vector<Parameter*>& parameters, Rounding rounding) {
  return !parameters.empty() && parameters.front()->data.dtype() == DType::bf16 &&
         rounding == Rounding::nearest;
}

class ClippedOptimizer : public Optimizer {
 public:
  void initialise() final;
  void prepare(int64_t t, double learning_rate) final;
  void update(const Tensor& random = {}) final;
  void synchronize() const override {}
  const Tensor& clip() const final { return clip_; }

 protected:
  // `who` begins its errors; `scheduled` numbers change from step to step.
  ClippedOptimizer(const char* who, std::vector<Parameter*> parameters, const ClippedSettings&,
                   int64_t scheduled, Stream&);

  // Sets the state from the parameters.
  virtual void initialise_state() = 0;
  // The numbers of schedule() at step t.
  virtual std::vector<float> schedule_at(int64_t t, double learning_rate) const = 0;
  // Whatever a step's state waits for on the host.
  virtual void begin_step() {}
  // Updates the parameters that have a gradient.
  virtual void update_all(const Tensor& random) = 0;
  virtual bool half_updated() const { return half_updated_; }

  // Before the state is shown.
  void make_ready();

  const char* who() const { return who_; }
  const std::vector<Parameter*>& parameters() const { return parameters_; }
  const ParameterRate& rate_of(size_t parameter) const { return rates_[parameter]; }
  Stream& stream() const { return stream_; }
  bool has_masters() const { return spool::has_masters(parameters_, rounding_); }
  const Tensor& schedule() const { return schedule_; }  // f32
  // What a kernel draws from: absent if parameters are rounded to nearest.
  View random_of(const Tensor& random) const;

  // State on the device: a tensor for each parameter; filled with zeros, or with the parameters.
  std::vector<Tensor> make_row() const;
  void set_to_zero(const std::vector<Tensor>& row) const;
  void set_to_parameters(const std::vector<Tensor>& row) const;
  // Launches the kernel, which has no tensors yet, on entry(i) of each parameter i with a gradient.
  template <class Kernel, class EntryOf>
  void launch_all(const Kernel& kernel, const EntryOf& entry) {
    half_updated_ = true;
    for (size_t next = 0; next < parameters_.size();) {
      Kernel k = kernel;
      for (; next < parameters_.size() && !k.tensors.full(); ++next) {
        if (parameters_[next]->grad) k.tensors.add(entry(next));
      }
      if (k.tensors.size() > 0) launch(k, stream_);
    }
    half_updated_ = false;
  }

 private:
  void check_whole() const;
  void check_update() const;
  void measure_gradients();
  void free_gradients() const {
    for (Parameter* p : parameters_) p->grad = {};
  }

  const char* who_;
  std::vector<Parameter*> parameters_;
  std::vector<ParameterRate> rates_;
  float limit_;  // of the norm
  Rounding rounding_;
  Stream& stream_;
  Tensor schedule_, squared_, clip_;
  int64_t prepared_ = 0;  // the step, or 0
  bool initialised_ = false, half_updated_ = false;
};

}  // namespace spool
