// runs: threads
// An optimizer starts initialised, and counts its steps.

#include "spool/kernels/elementwise.h"
#include "spool/models/optimizers/optimizer_choice.h"
#include "spool/runtime/cpu/bf16_products.h"
#include "spool/runtime/meta/stream.h"
#include "tests/models/optimizers/optimizer_testing.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

const std::vector<int64_t> numels{5000, 70001, 3};
const OptimizerForm forms[] = {{}, {.type = DType::bf16, .gradient = DType::bf16}};

std::unique_ptr<HostLink> ample_link(Stream& stream) {
  return std::make_unique<HostLink>(stream, OptimizerRun::host_bytes);
}

// Overwrites the parameters, as if they were loaded.
void load_parameters(OptimizerRun& run) {
  for (size_t i = 0; i < run.parameters.size(); ++i) {
    const Tensor& to = run.parameters[i].data;
    const Tensor from = normal(to.shape(), to.dtype(), run.stream, 50 + i);
    Bytes bytes(to.nbytes());
    read_bytes(from, 0, bytes);
    write_bytes(to, 0, bytes);
  }
}

void expect_loaded_parameters_count(const std::function<void(OptimizerRun&)>& begin) {
  for (const OptimizerForm& form : forms) {
    for (const OptimizerState state : optimizer_states) {
      SCOPED_TRACE(sentence(name(form.type), ", ", name(state)));
      OptimizerRun run(numels, form, state, ample_link), wanted(numels, form, state, ample_link);
      load_parameters(run);
      load_parameters(wanted);
      wanted.optimizer->initialise();
      begin(run);
      for (int64_t t = 1; t <= 3; ++t) {
        for (OptimizerRun* each : {&run, &wanted}) {
          each->make_gradients(t);
          each->step(t);
        }
      }
      EXPECT_TRUE(run.bytes() == wanted.bytes());
    }
  }
}

TEST(OptimizerSteps, StartFromTheParametersAtTheFirstStep) {
  expect_loaded_parameters_count([](OptimizerRun&) {});
}

TEST(OptimizerSteps, StartFromTheParametersWhenTheStateWasRead) {
  expect_loaded_parameters_count([](OptimizerRun& run) { (void)read_row(*run.optimizer, 0, 0); });
}

TEST(OptimizerSteps, AreCounted) {
  for (const OptimizerState state : optimizer_states) {
    OptimizerRun run(numels, {}, state, ample_link), wanted(numels, {}, state);
    AdamWOptimizer& optimizer = *run.optimizer;
    EXPECT_EQ(optimizer.steps(), 0);
    for (int64_t t = 1; t <= 3; ++t) {
      run.make_gradients(t);
      optimizer.step(/*learning_rate=*/0.01);
      EXPECT_EQ(optimizer.steps(), t);
      wanted.make_gradients(t);
      wanted.step(t);
    }
    EXPECT_TRUE(run.bytes() == wanted.bytes());
    optimizer.prepare(7, 0.01);
    EXPECT_EQ(optimizer.steps(), 3);
    run.make_gradients(7);
    optimizer.update();
    EXPECT_EQ(optimizer.steps(), 7);
    expect_error(ErrorKind::invalid, {"no parameter has a gradient"},
                 [&] { optimizer.step(0.01); });
    EXPECT_EQ(optimizer.steps(), 7);
    optimizer.initialise();
    EXPECT_EQ(optimizer.steps(), 0);
    expect_error(ErrorKind::invalid, {"-1 steps"}, [&] { optimizer.set_steps(-1); });
  }
}

TEST(OptimizerSteps, ResumeFromTheStateAndTheCount) {
  const OptimizerSettings all[] = {AdamWSettings{}, SgdSettings{.momentum = 0.9, .clip = 1},
                                   SgdSettings{.decay = 0.1}};
  for (const OptimizerSettings& settings : all) {
    for (const OptimizerForm& form : forms) {
      OptimizerRun whole(numels, form, OptimizerState::device, ample_link),
          resumed(numels, form, OptimizerState::device, ample_link);
      const auto make = [&](OptimizerRun& run) {
        return make_optimizer(run.pointers, settings, run.stream);
      };
      const auto first = make(whole), second = make(resumed);
      const auto step = [](OptimizerRun& run, Optimizer& optimizer, int64_t t) {
        run.make_gradients(t);
        optimizer.step(0.01);
      };
      for (int64_t t = 1; t <= 3; ++t) step(whole, *first, t);
      load_bytes(*second, state_bytes(whole.pointers, *first));
      second->set_steps(first->steps());
      for (int64_t t = 4; t <= 6; ++t) {
        step(whole, *first, t);
        step(resumed, *second, t);
      }
      EXPECT_EQ(second->steps(), 6);
      for (size_t i = 0; i < numels.size(); ++i) {
        EXPECT_EQ(values(resumed.parameters[i].data), values(whole.parameters[i].data));
      }
    }
  }
}

// The peaks of device and host over two steps, the first of which initialises the state.
std::pair<size_t, size_t> peaks_of_two_steps(Stream& stream, const OptimizerForm& form,
                                             const OptimizerSettings& settings,
                                             const StatePlace& place) {
  std::vector<Parameter> parameters(numels.size());
  std::vector<Parameter*> pointers;
  for (size_t i = 0; i < numels.size(); ++i) {
    parameters[i].data = Tensor({Shape{numels[i]}, form.type}, stream);
    launch(Fill{.out = parameters[i].data, .value = 1}, stream);
    pointers.push_back(&parameters[i]);
  }
  HostLink link(stream, OptimizerRun::host_bytes);
  const auto optimizer = make_optimizer(
      pointers, settings, stream,
      {.state = place.state, .link = &link, .bytes_on_device = place.bytes_on_device});
  for (int t = 1; t <= 2; ++t) {
    for (Parameter& p : parameters) {
      p.grad = Tensor(p.data.spec(), stream);
      launch(Fill{.out = p.grad, .value = 1}, stream);
    }
    optimizer->step(0.1);
  }
  optimizer->synchronize();
  return {stream.memory().peak, link.memory().peak};
}

TEST(OptimizerSteps, ReachTheForetoldPeak) {
  const auto expect = [](const OptimizerForm& form, const OptimizerSettings& settings,
                         const StatePlace& place) {
    CpuStream stream(OptimizerRun::plenty, 2);
    MetaStream rehearsal({.architecture = this_processor(2)});
    EXPECT_EQ(peaks_of_two_steps(rehearsal, form, settings, place),
              peaks_of_two_steps(stream, form, settings, place));
  };
  for (const OptimizerForm& form : forms) {
    for (const OptimizerState state : optimizer_states) {
      expect(form, AdamWSettings{}, state);
      expect(form, SgdSettings{}, state);
      expect(form, SgdSettings{.momentum = 0.9}, state);
    }
  }
}

}  // namespace
}  // namespace spool::testing
