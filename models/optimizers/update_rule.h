#pragma once

// Defines an optimizer's update of one parameter: the rows of its state, the numbers that change
// from step to step, and the kernel.  adamw.cpp and sgd.cpp have rules; where the state lives, the
// order of updates, clipping, masters and rounding are the same for all of them (optimizer.h).
//
//   class Momentum final : public UpdateRule {
//     const char* name() const override { return "momentum"; }
//     std::vector<StateRow> rows() const override { return {{"velocity", DType::bf16}}; }
//     std::vector<float> schedule_at(int64_t, double rate) const override { return {float(rate)}; }
//     void update(const UpdateStep& step) const override {
//       step.launch(MomentumKernel{}, [](MomentumKernel::Entry& to, const UpdateEntry& from) {
//         to.velocity = from.state[0];
//       });
//     }
//   };
//
// A kernel is like those of kernels/adamw.h: `tensors` is a List of entries with the members
// parameter, master, grad, rate, decay, index and first, and it reads schedule, clip and random
// from device memory.  It updates each element by itself, so slices of a tensor have the same bits.

#include <array>
#include <functional>
#include <utility>
#include <vector>

#include "spool/kernels/launch.h"

namespace spool {

// A row of an optimizer's state: one element of this type per element of the parameters.
struct StateRow {
  const char* name = "";  // "m", "v", "momentum", "master"
  DType type = DType::f32;
};

// Elements of one parameter, from element `first` on, a multiple of 2048.
struct UpdateEntry {
  static constexpr size_t max_rows = 4;

  View parameter = {}, master = {}, grad = {};  // master is absent if there are none
  std::array<View, max_rows> state = {};        // in the order of the rule's rows
  float rate = 1, decay = 0;
  uint32_t index = 0;  // of the parameter, for random bits
  int64_t first = 0;
};

// A part of a step, on the device or on the host.
class UpdateStep {
 public:
  struct Scalars {
    View schedule, clip, random;  // random is absent if parameters are rounded to nearest
  };

  // Entry i of `count`; entries without a gradient are skipped.
  using EntryOf = std::function<UpdateEntry(size_t i)>;

  // `host`: the cpu stream that does the work of `queue`, if the entries are in host memory.
  UpdateStep(size_t count, EntryOf entry_of, const Scalars& scalars, Stream& queue,
             Stream* host = nullptr)
      : count_(count),
        entry_of_(std::move(entry_of)),
        scalars_(scalars),
        queue_(queue),
        host_(host) {}

  // Launches the kernel on all entries, in as few lists as possible, after setting its tensors and
  // scalars; set_state(Kernel::Entry&, const UpdateEntry&) sets the members for the state.
  template <class Kernel, class SetState>
  void launch(Kernel kernel, const SetState& set_state) const {
    kernel.schedule = scalars_.schedule;
    kernel.clip = scalars_.clip;
    kernel.random = scalars_.random;
    for (size_t i = 0; i < count_; ++i) {
      const UpdateEntry from = entry_of_(i);
      if (!from.grad) continue;
      if (kernel.tensors.full()) {
        launch_list(kernel);
        kernel.tensors = {};
      }
      typename Kernel::Entry to;
      to.parameter = from.parameter;
      to.master = from.master;
      to.grad = from.grad;
      to.rate = from.rate;
      to.decay = from.decay;
      to.index = from.index;
      to.first = from.first;
      set_state(to, from);
      kernel.tensors.add(to);
    }
    if (kernel.tensors.size() > 0) launch_list(kernel);
  }

 private:
  template <class Kernel>
  void launch_list(const Kernel& kernel) const {
    if (host_) return launch_on_host(kernel, *host_, queue_);
    spool::launch(kernel, queue_);
  }

  size_t count_;
  EntryOf entry_of_;
  Scalars scalars_;
  Stream& queue_;
  Stream* host_;
};

class UpdateRule {
 public:
  UpdateRule() = default;
  virtual ~UpdateRule() = default;
  UpdateRule(const UpdateRule&) = delete;
  UpdateRule& operator=(const UpdateRule&) = delete;

  virtual const char* name() const = 0;  // begins the optimizer's errors
  // At most UpdateEntry::max_rows rows, which begin as zeros.
  virtual std::vector<StateRow> rows() const = 0;
  // The numbers of step t, counted from 1; the same amount for every step.
  virtual std::vector<float> schedule_at(int64_t t, double learning_rate) const = 0;
  virtual void update(const UpdateStep&) const = 0;
};

}  // namespace spool
