// runs: threads
// Whole runs on ranks that are threads: steps, evaluations, texts and checkpoints, with values and
// state that leave the device.

#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "spool/models/training/planned_run.h"
#include "spool/models/training/run/ranks.h"
#include "spool/models/training/train.h"
#include "spool/runtime/cpu/usable_cores.h"
#include "spool/runtime/files/file.h"
#include "spool/runtime/ranks/run_ranks.h"
#include "tests/models/training/training_testing.h"
#include "tests/runtime/temporary_directory.h"

namespace spool {
namespace {

class RankNotes final : public RunListener {
 public:
  std::vector<double> losses, evaluations;
  std::vector<RankNumbers> last;

  void step(const StepNumbers& n) override { losses.push_back(n.loss); }
  void evaluated(const EvaluationNumbers& n) override { evaluations.push_back(n.loss); }
  void ranks(int64_t, const std::vector<RankNumbers>& all) override { last = all; }
};

constexpr int ranks = 4;

class RanksOfARun : public ::testing::Test {
 protected:
  RanksOfARun() { ::setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1); }

  RunOptions options(const std::string& name) const {
    RunOptions o;
    o.training = testing::small();
    o.training.steps = 4;
    o.training.accumulate = ranks;
    o.training.ranks = ranks;
    o.training.dropout = 0.1F;
    o.data = {file_.string()};
    o.out = (folder_.path() / name).string();
    o.threads = 1;
    o.eval_every = o.checkpoint_every = 2;
    o.eval_batches = 3;
    return o;
  }

  // Trains on the ranks; expects that each took what was foretold, some of it of the host.
  RankNotes train_on_ranks(const RunOptions& o) const {
    RankNotes notes;
    run_ranks(ranks, [&](const std::shared_ptr<Communicator>& own) {
      RunListener silent;
      const bool is_first = own->rank() == 0;
      const RunSetup run = set_up_run(o, is_first ? static_cast<RunListener&>(notes) : silent, own);
      EXPECT_FALSE(train(run, [] { return false; }));
    });
    EXPECT_EQ(notes.last.size(), size_t{ranks});
    for (const RankNumbers& n : notes.last) {
      EXPECT_EQ(n.peak, n.foretold_peak) << o.out << n.rank;
      EXPECT_EQ(n.host_peak, n.foretold_host_peak) << o.out << n.rank;
      EXPECT_EQ(n.sent, n.foretold_sent) << o.out << n.rank;
      EXPECT_GT(n.host_peak, 0U) << o.out << n.rank;
    }
    return notes;
  }

  std::string model_of(const RunOptions& o) const {
    constexpr uint64_t max_bytes = uint64_t{1} << 24;
    return read_text_file(o.out + "/latest/model.safetensors", max_bytes);
  }

 private:
  testing::TemporaryDirectory folder_;
  std::filesystem::path file_ = folder_.file("text.txt", std::string(4000, 'a'));
};

TEST_F(RanksOfARun, AreTheSameInEveryStageWithStateAndValuesElsewhere) {
  RankNotes first;
  std::string model;
  for (const int stage : {0, 1, 2}) {
    RunOptions o = options(sentence("stage ", stage));
    o.training.zero = stage;
    o.policy = {.offload = Offloading::all, .min_offload_bytes = 1};
    o.given = {"offload"};
    if (stage > 0) {  // in stage 0 it is values alone that leave
      o.policy.optimizer_state = OptimizerState::streamed;
      o.given.insert("optimizer-state");
    }
    const RankNotes notes = train_on_ranks(o);
    if (stage == 0) {
      first = notes;
      model = model_of(o);
    }
    EXPECT_EQ(notes.losses, first.losses) << stage;
    EXPECT_EQ(notes.evaluations, first.evaluations) << stage;
    EXPECT_TRUE(model_of(o) == model) << stage;
  }
  EXPECT_EQ(first.losses.size(), 4U);
  EXPECT_EQ(first.evaluations.size(), 2U);
}

// While it lives, this thread uses one of the processors that it might.
class Bound {
 public:
  explicit Bound(int which) {
    ::sched_getaffinity(0, sizeof all_, &all_);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &all_) && which-- == 0) CPU_SET(cpu, &one);
    }
    ::sched_setaffinity(0, sizeof one, &one);
  }
  ~Bound() { ::sched_setaffinity(0, sizeof all_, &all_); }
  Bound(const Bound&) = delete;
  Bound& operator=(const Bound&) = delete;

 private:
  cpu_set_t all_ = {};
};

TEST(PartOfTheMachine, HasAShareOfTheHostsMemoryAlsoWithProcessorsOfItsOwn) {
  if (usable_cores() < 2) GTEST_SKIP() << "there is one processor";
  run_ranks(2, [](const std::shared_ptr<Communicator>& own) {
    const Bound bound(own->rank());
    RunOptions o;
    o.training.ranks = 2;
    std::shared_ptr<Communicator> of_run = own;
    give_part_of_machine(o, of_run);
    EXPECT_EQ(o.threads, 1);
    EXPECT_EQ(o.sharers, 1);
    const RunRequest request = request_of(o, Machine{.architecture = CudaArchitecture{}}, {});
    EXPECT_EQ(request.steps.choose->host_bytes, device_memory({DeviceType::cpu}) / 4);
  });
}

}  // namespace
}  // namespace spool
