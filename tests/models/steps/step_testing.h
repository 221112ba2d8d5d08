#pragma once

// A small model whose steps fail where a test chooses: in the upload of a batch, or in forward or
// backward of several ops.

#include <memory>
#include <vector>

#include "spool/models/steps/step_executor.h"
#include "tests/models/optimizers/failing_link.h"
#include "tests/models/optimizers/optimizer_testing.h"

namespace spool::testing {

// Two layers and a loss, on random rows.
class SmallModel final : public StepModel {
 public:
  // With these parameters on the host, but for Homes.
  SmallModel(Stream&, CallCounter&, const std::vector<bool>& away = {});

  Parameters& parameters() override { return parameters_; }
  Var loss(Tape&) override;
  void upload_placeholder() override;
  void upload(int64_t micro);

  // Counts the calls that may fail.
  CallCounter& calls() { return calls_; }
  int64_t placeholders() const { return placeholders_; }

  static constexpr int64_t rows = 24, channels = 16, classes = 40;
  // On one tape.
  static constexpr size_t values = 10;
  // The plan's units: one of each matrix, with everything away.
  static void place_away(Plan&);

 private:
  CallCounter& calls_;
  Parameters parameters_;
  Parameter &up_, &down_;
  Tensor x_, targets_;
  int64_t placeholders_ = 0;
};

// An initialised runner of the model.
struct SmallRun {
  Stream& stream;
  CallCounter calls;
  SmallModel model;
  StepExecutor runner;

  SmallRun(Stream&, const StepConfig&, const StepPlans&);

  // Sets parameters and state to what they begin with.
  void initialise();
  void step(int64_t number);
  // Whether an update has failed halfway: then the optimizer is to be initialised.
  bool is_half_updated();
  // Losses, norms and state.
  struct Results {
    std::vector<float> numbers;
    Bytes state;
    bool operator==(const Results&) const = default;
  };
  // Runs steps from `first` to 2, and returns their results.
  Results steps_from(int64_t first);
};

// A way to run steps, by name.
struct StepForm {
  const char* name;
  StepConfig config = {};
  StepPlans plans = {};
};
// Every place of the optimizer's state, with and without micro-batches, a layout, offloaded and
// recomputed values, and parameters and gradients on the host, updated at the end and in backward.
std::vector<StepForm> step_forms(const Architecture&);

// Fails steps at every call that can fail, or every `stride`-th, and at the end of memory; `open`
// opens a stream of `bytes` bytes.  Expects that nothing stays live, and that the following steps
// have the bits of steps without failures; if some parameters were updated in backward, once all is
// initialised again.
using OpenStream = std::function<std::unique_ptr<Stream>(size_t bytes)>;
void expect_no_trace_of_failed_steps(const StepForm&, const OpenStream& open, int64_t stride = 1);

}  // namespace spool::testing
