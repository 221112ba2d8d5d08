// runs: threads, alone
// An optimizer's update that fails midway, because one of its streams fails, leaves parameters half
// updated.  But nothing is live, and no memory was freed while in use: if only the last copies
// failed, each element is as before or as after the update.

#include <chrono>
#include <functional>
#include <optional>
#include <thread>

#include "spool/models/optimizers/adamw.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/integer.h"
#include "tests/autograd/failure_testing.h"
#include "tests/models/optimizers/optimizer_testing.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr OptimizerState states_on_host[] = {OptimizerState::streamed, OptimizerState::cpu};

struct UpdateCase {
  OptimizerState state = OptimizerState::streamed;
  DType type = DType::f32;
  bool share = false;  // of streamed state: the largest parameter's is on the device
};

// An optimizer after its first update, with gradients for the second.
class UpdateRun {
 public:
  explicit UpdateRun(const UpdateCase& c) {
    int i = 0;
    for (const int64_t numel : {3, 20000, 2048, 4097, 30000}) {
      parameters_.push_back({.data = normal({numel, 1}, c.type, stream, ++i)});
    }
    std::vector<Parameter*> pointers;
    for (Parameter& p : parameters_) pointers.push_back(&p);
    const size_t rows = c.type == DType::bf16 ? 3 : 2;
    const size_t largest = round_up(30000 * sizeof(float), Arena::granule);
    optimizer_.emplace(
        pointers, AdamWSettings{}, stream,
        OptimizerMemory{
            .state = c.state, .link = &link, .bytes_on_device = c.share ? rows * largest : 0});
    optimizer_->initialise();
    live_before_ = stream.memory().live;
    host_live_before_ = link.memory().live;
    for (int64_t t = 1; t <= 2; ++t) {
      for (size_t k = 0; k < parameters_.size(); ++k) {
        Parameter& p = parameters_[k];
        p.grad = normal(p.data.shape(), c.type, stream, 10 * static_cast<uint64_t>(t) + k);
      }
      optimizer_->prepare(t, /*lr=*/0.1);
      if (t == 1) optimizer_->update();
    }
    synchronize();
  }

  void update() { optimizer_->update(); }
  // Waits for all work, even if some has failed.
  void synchronize() {
    for (const auto& wait : std::vector<std::function<void()>>{
             [&] { optimizer_->synchronize(); }, [&] { link.out().synchronize(); },
             [&] { link.in().synchronize(); }, [&] { stream.synchronize(); }}) {
      try {
        wait();
      } catch (const InjectedFailure&) {
      }
    }
  }
  void drop_gradients() {
    for (Parameter& p : parameters_) p.grad = {};
  }
  void expect_nothing_live() {
    EXPECT_EQ(stream.memory().live, live_before_);
    EXPECT_EQ(link.memory().live, host_live_before_);
  }
  // Parameters and state.
  Bytes bytes() const { return state_bytes_at_rest(*optimizer_); }

  CpuStream stream{size_t{64} << 20, 2};
  HostLink link{stream, size_t{16} << 20};

 private:
  std::vector<Parameter> parameters_;
  std::optional<AdamWOptimizer> optimizer_;
  size_t live_before_ = 0, host_live_before_ = 0;
};

// Elements have 2 or 4 bytes; the two halves of one may differ in this.
bool is_of_either(const Bytes& found, const Bytes& before, const Bytes& after) {
  for (size_t i = 0; i < found.size(); i += 2) {
    const auto is = [&](const Bytes& b) { return found[i] == b[i] && found[i + 1] == b[i + 1]; };
    if (!is(before) && !is(after)) return false;
  }
  return true;
}

void expect_half_updated_at_most(UpdateRun& run, const UpdateCase& c, Stream* failed) {
  UpdateRun other(c);
  const Bytes before = other.bytes();
  other.update();
  other.synchronize();
  const Bytes after = other.bytes();
  EXPECT_FALSE(before == after);
  run.drop_gradients();
  run.expect_nothing_live();
  if (failed == &run.stream) return;  // no values can be read
  expect_free_memory_is_idle(run.stream, nullptr, [&] { run.synchronize(); });
  // Any other failed copy makes the arithmetic's results garbage.
  const bool is_last = c.state == OptimizerState::cpu && failed == &run.link.in();
  EXPECT_TRUE(!is_last || is_of_either(run.bytes(), before, after));
}

void wait_until_failed(Stream& stream) {
  try {
    while (true) {
      stream.record();
      std::this_thread::yield();
    }
  } catch (const InjectedFailure&) {
  }
}

// The stream fails before the update or at any time during it.
TEST(UpdateFailures, OfAStreamFreeNothingThatIsInUse) {
  int thrown = 0;
  for (int64_t i = 0; i < size_here(90, 30) && !::testing::Test::HasFailure(); ++i) {
    Random random(/*seed=*/6, static_cast<uint64_t>(i));
    const UpdateCase c{.state = states_on_host[random.next() % 2],
                       .type = random.next() % 2 ? DType::f32 : DType::bf16,
                       .share = random.next() % 2 == 0};
    SCOPED_TRACE(sentence("update ", i, ", ", name(c.state), c.share ? ", with a share" : ""));
    UpdateRun run(c);
    Stream* const streams[] = {&run.link.out(), &run.link.in(), &run.stream};
    Stream* const failing = streams[random.next() % 3];
    for (Stream* s : streams) {
      const std::chrono::microseconds time(random.next() % 100);
      s->host_work("delay", 0, [=] {
        std::this_thread::sleep_for(time);
        if (s == failing) throw InjectedFailure();
      });
    }
    if (random.next() % 2) wait_until_failed(*failing);
    try {
      run.update();
    } catch (const InjectedFailure&) {
      ++thrown;
    }
    expect_half_updated_at_most(run, c, failing);
  }
  EXPECT_GT(thrown, 0);
}

}  // namespace
}  // namespace spool::testing
