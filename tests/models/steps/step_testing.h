#pragma once

// A small model whose steps fail where a test chooses: when a batch is uploaded, and in forward and
// backward of several ops.

#include <memory>
#include <vector>

#include "spool/models/steps/step_executor.h"
#include "tests/models/optimizers/failing_link.h"
#include "tests/models/optimizers/optimizer_testing.h"

namespace spool::testing {

// Two layers and a loss, on rows at random.
class SmallModel final : public StepModel {
 public:
  SmallModel(Stream&, CallCounter&);

  Parameters& parameters() override { return parameters_; }
  Var loss(Tape&) override;
  void upload_placeholder() override;
  void upload(int64_t micro);

  // Counts what may fail.
  CallCounter& calls() { return calls_; }
  int64_t placeholders() const { return placeholders_; }

  static constexpr int64_t rows = 24, channels = 16, classes = 40;
  // Of one tape.
  static constexpr size_t values = 10;

 private:
  CallCounter& calls_;
  Parameters parameters_;
  Parameter &up_, &down_;
  Tensor x_, targets_;
  int64_t placeholders_ = 0;
};

// A runner of the model, initialised.
struct SmallRun {
  Stream& stream;
  CallCounter calls;
  SmallModel model;
  StepExecutor runner;

  SmallRun(Stream&, const StepConfig&, const StepPlans&);

  void step(int64_t number);
  // Losses, norms and state.
  struct Results {
    std::vector<float> numbers;
    Bytes state;
    bool operator==(const Results&) const = default;
  };
  // Runs steps from `first` to 2, and returns the results of these.
  Results steps_from(int64_t first);
};

// A way to run steps.
struct StepForm {
  const char* name;
  StepConfig config = {};
  StepPlans plans = {};
};
// Every place of the optimizer's state, with and without micro-batches, a layout, offloaded and
// recomputed values.
std::vector<StepForm> step_forms(const Architecture&);

// Fails steps at every call that can fail, or every `stride`-th, and where memory ends; `open`
// makes a stream of so many bytes.  Nothing stays live, and the steps that follow have the bits of
// steps without failures.
using OpenStream = std::function<std::unique_ptr<Stream>(size_t bytes)>;
void expect_no_trace_of_failed_steps(const StepForm&, const OpenStream& open, int64_t stride = 1);

}  // namespace spool::testing
