// An update, or an initialisation, that fails at any of its calls: no copy reads or writes freed
// memory, and the optimizer is as its header says.

#include <cstring>

#include "spool/kernels/elementwise.h"
#include "spool/runtime/integer.h"
#include "tests/models/optimizers/failing_link.h"
#include "tests/models/optimizers/optimizer_testing.h"
#include "tests/runtime/environment.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr size_t budget = size_t{2} << 20;  // bytes of the device, and of the host
constexpr float pattern = 1e10f;
const std::vector<int64_t> numels{5000, 70001, 3};
const OptimizerForm forms[] = {{}, {.type = DType::bf16, .gradient = DType::bf16}};

size_t bytes_of_parameters(DType type) {
  size_t bytes = 0;
  for (const int64_t n : numels) bytes += static_cast<size_t>(n) * size_of(type);
  return bytes;
}

std::unique_ptr<HostLink> small_link(Stream& stream) {
  return std::make_unique<HostLink>(stream, budget);
}

// All free memory of the device and of the link, filled with a pattern.
class FreeMemory {
 public:
  explicit FreeMemory(OptimizerRun& run) {
    as_much_as_fits(Arena::granule, [&](size_t bytes) {
      device_.emplace_back(Spec{Shape{static_cast<int64_t>(bytes / sizeof(float))}}, run.stream);
    });
    as_much_as_fits(HostLink::alignment,
                    [&](size_t bytes) { host_.emplace_back(*run.link, bytes, Name("free")); });
    for (const Tensor& t : device_) launch(Fill{.out = t, .value = pattern}, run.stream);
    Stream& out = run.link->begin_out();
    const Tensor& from = device_.front();
    for (const HostSlot& slot : host_) {
      for (size_t at = 0; at < slot.bytes(); at += from.nbytes()) {
        out.copy_out(slot.data() + at, from.view().data(),
                     std::min(from.nbytes(), slot.bytes() - at));
      }
    }
    run.stream.wait(out.record());
  }

  // Whether the pattern is intact everywhere, after all work has ended.
  bool is_intact() const {
    const auto is_pattern = [](float x) { return x == pattern; };
    for (const Tensor& t : device_) {
      if (!std::ranges::all_of(read<float>(t), is_pattern)) return false;
    }
    for (const HostSlot& slot : host_) {
      std::vector<float> all(slot.bytes() / sizeof(float));
      std::memcpy(all.data(), slot.data(), slot.bytes());
      if (!std::ranges::all_of(all, is_pattern)) return false;
    }
    return true;
  }

 private:
  template <class Allocate>
  static void as_much_as_fits(size_t granule, const Allocate& allocate) {
    for (size_t bytes = budget; bytes >= granule;) {
      try {
        allocate(bytes);
      } catch (const Error&) {
        bytes /= 2;
      }
    }
  }

  std::vector<Tensor> device_;
  std::vector<HostSlot> host_;
};

// An optimizer whose link fails at a chosen call.
struct FailingRun {
  CallCounter calls;
  OptimizerRun run;

  FailingRun(const OptimizerForm& form, const StatePlace& place)
      : run(
            numels, form, place, [this](Stream& on) { return failing_link(on, budget, calls); },
            budget) {
    (void)run.bytes();  // initialises the state
  }

  // Whether work() fails if its n-th call does.
  bool fails_at(int64_t n, const std::function<void()>& work) {
    calls.fail_at(n);
    bool failed = false;
    try {
      work();
    } catch (const Error& e) {
      failed = true;
      EXPECT_TRUE(contains(e.what(), "a call that is to fail")) << e.what();
    }
    calls.fail_at(-1);
    return failed;
  }

  // Freed memory is reused at once, and each element is as before or as after the work.
  void expect_no_copy_of_freed_memory(const Bytes& before, const Bytes& after) {
    for (Parameter* p : run.pointers) p->grad = {};
    const FreeMemory memory(run);
    run.optimizer->synchronize();
    run.stream.synchronize();
    EXPECT_TRUE(memory.is_intact());
    const Bytes found = state_bytes_at_rest(*run.optimizer);
    const size_t parameter_bytes = bytes_of_parameters(run.form.type);
    for (size_t i = 0; i < found.size();) {
      const size_t size = i < parameter_bytes ? size_of(run.form.type) : sizeof(float);
      const auto is = [&](const Bytes& all) { return std::memcmp(&found[i], &all[i], size) == 0; };
      ASSERT_TRUE(is(before) || is(after)) << "the element at byte " << i;
      i += size;
    }
  }

  void step(int64_t t) {
    run.make_gradients(t);
    run.step(t);
  }
};

// The state's bits without failures: allocated, initialised, and after each step.
std::vector<Bytes> bits_of(const OptimizerForm& form, OptimizerState state) {
  OptimizerRun run(numels, form, state);
  std::vector<Bytes> all{run.bytes()};
  for (int64_t t = 1; t <= 3; ++t) {
    run.make_gradients(t);
    run.step(t);
    all.push_back(run.bytes());
  }
  return all;
}

// Calls test(form, place, bits) for each form with state on the host, all of it or all but the
// largest parameter's, on streams that are delayed at random.
void for_each_offloaded(const std::function<void(const OptimizerForm&, const StatePlace&,
                                                 const std::vector<Bytes>&)>& test) {
  for (const OptimizerForm& form : forms) {
    const size_t largest = round_up(size_t{70001} * sizeof(float), Arena::granule);
    for (const StatePlace& place : {StatePlace(OptimizerState::streamed),
                                    StatePlace(OptimizerState::streamed, form.rows() * largest),
                                    StatePlace(OptimizerState::cpu)}) {
      SCOPED_TRACE(sentence(name(form.type), ", ", name(place.state), ", ", place.bytes_on_device,
                            " bytes on the device"));
      const std::vector<Bytes> bits = bits_of(form, place.state);
      const EnvironmentVariable delay("SPOOL_CPU_DELAY", "300");
      test(form, place, bits);
    }
  }
}

TEST(FailedUpdate, LeavesNoCopyThatReadsOrWritesFreedMemory) {
  for_each_offloaded([](const auto& form, const StatePlace& place, const auto& bits) {
    int64_t n = 0;
    for (bool failed = true; failed; n += nightly() ? 1 : 7) {
      SCOPED_TRACE(sentence("call ", n));
      FailingRun f(form, place);
      f.run.optimizer->initialise();
      for (const int64_t t : {1, 2}) f.step(t);
      f.run.make_gradients(3);
      f.run.optimizer->prepare(3, 0.01);
      failed = f.fails_at(n, [&] { f.run.optimizer->update(f.run.random); });
      f.expect_no_copy_of_freed_memory(failed ? bits[2] : bits[3], bits[3]);
      if (::testing::Test::HasFatalFailure()) return;
    }
    EXPECT_GT(n, 20);
  });
}

TEST(FailedUpdate, IsFollowedByNoStepUntilTheStateIsLoadedAgain) {
  for_each_offloaded([](const auto& form, const StatePlace& place, const auto& bits) {
    for (const int64_t n : {5, place.bytes_on_device ? 3 : 17}) {
      FailingRun f(form, place);
      f.run.optimizer->initialise();
      for (const int64_t t : {1, 2}) f.step(t);
      f.run.make_gradients(3);
      f.run.optimizer->prepare(3, 0.01);
      EXPECT_TRUE(f.fails_at(n, [&] { f.run.optimizer->update(f.run.random); }));
      for (const Parameter& p : f.run.parameters) EXPECT_FALSE(p.grad);
      const auto refused = [&](const std::function<void()>& work) {
        expect_error(ErrorKind::invalid, {"an update failed", "initialise()", "checkpoint"}, work);
      };
      refused([&] { f.step(3); });
      refused([&] { f.run.optimizer->update(f.run.random); });
      refused([&] { (void)read_row(*f.run.optimizer, 0, 0); });
      load_bytes(*f.run.optimizer, bits[2]);
      f.step(3);
      EXPECT_TRUE(f.run.bytes() == bits[3]);
    }
  });
}

TEST(FailedUpdate, ThatLacksMemoryCanBeRepeated) {
  for (const OptimizerForm& form : forms) {
    for (const OptimizerState state : optimizer_states) {
      SCOPED_TRACE(sentence(name(form.type), ", ", name(state)));
      OptimizerRun run(numels, form, state, small_link, budget);
      run.optimizer->initialise();
      for (const int64_t t : {1, 2}) {
        run.make_gradients(t);
        run.step(t);
      }
      run.make_gradients(3);
      const size_t live = run.stream.memory().live, host_live = run.link->memory().live;
      {
        const FreeMemory taken(run);
        expect_error(ErrorKind::memory, {}, [&] { run.step(3); });
      }
      EXPECT_EQ(run.stream.memory().live, live);
      EXPECT_EQ(run.link->memory().live, host_live);
      run.step(3);
      EXPECT_TRUE(run.bytes() == bits_of(form, state)[3]);
    }
  }
}

TEST(FailedInitialise, LeavesNoCopyThatReadsFreedMemoryAndCanBeRepeated) {
  for_each_offloaded([](const auto& form, const StatePlace& place, const auto& bits) {
    Bytes zero = bits[0];  // as the moments stay, and the masters begin
    const size_t parameter_bytes = bytes_of_parameters(form.type);
    std::fill(zero.begin() + static_cast<std::ptrdiff_t>(parameter_bytes), zero.end(), std::byte{});
    bool failed = true;
    for (int64_t n = 0; failed; n += nightly() ? 1 : 3) {
      SCOPED_TRACE(sentence("call ", n));
      FailingRun f(form, place);
      failed = f.fails_at(n, [&] { f.run.optimizer->initialise(); });
      f.expect_no_copy_of_freed_memory(zero, bits[0]);
      if (::testing::Test::HasFatalFailure()) return;
      if (!failed) return;
      for (const int64_t t : {1, 2, 3}) f.step(t);  // the first initialises again
      EXPECT_TRUE(f.run.bytes() == bits[3]);
    }
  });
}

}  // namespace
}  // namespace spool::testing
