// The loop of a run, as its listener sees it.  On the command line it is tests/end_to_end's.

#include "spool/models/training/train.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/models/training/training_testing.h"
#include "tests/runtime/temporary_directory.h"

namespace spool {
namespace {

// Notes steps, evaluations, texts and ends, each as a word.
class Notes final : public RunListener {
 public:
  std::vector<std::string> words;
  std::vector<float> losses;

  void planned(const RunOptions&, const Machine&, const PlannedRun&) override { note("planned"); }
  void step(const StepNumbers& n) override {
    note(sentence("step ", n.step));
    losses.push_back(n.loss);
  }
  void evaluated(const EvaluationNumbers& n) override { note(sentence("evaluated ", n.step)); }
  void finished() override { note("finished"); }
  void stopped(int64_t step) override { note(sentence("stopped ", step)); }
  void say(const std::string& text) override {
    if (text.starts_with("--- sample")) note(text.substr(4, text.find('\n') - 4));
  }

 private:
  void note(const std::string& word) { words.push_back(word); }
};

class Train : public ::testing::Test {
 protected:
  Train() { ::setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1); }

  RunOptions options() const {
    RunOptions o;
    o.training = testing::small();
    o.training.steps = 6;
    o.data = {file_.string()};
    o.out = (folder_.path() / "run").string();
    o.threads = 1;
    o.eval_every = 2;
    o.eval_batches = 1;
    o.sample_every = 4;
    o.checkpoint_every = 3;
    o.keep_checkpoints = 9;
    return o;
  }
  bool has_checkpoint(int64_t step) const {
    return std::filesystem::exists(folder_.path() / "run" / sentence("step-00000", step));
  }

  testing::TemporaryDirectory folder_;
  std::filesystem::path file_ = folder_.file("text.txt", std::string(2000, 'a'));
};

const auto never = [] { return false; };

TEST_F(Train, DoesWhatIsDueBetweenSteps) {
  Notes notes;
  const RunSetup run = set_up_run(options(), notes);
  train(run, never);
  const std::vector<std::string> wanted{"planned",
                                        "step 1",
                                        "step 2",
                                        "evaluated 2",
                                        "step 3",
                                        "step 4",
                                        "evaluated 4",
                                        "sample after step 4",
                                        "step 5",
                                        "step 6",
                                        "finished",
                                        "evaluated 6",
                                        "sample after step 6"};
  EXPECT_EQ(notes.words, wanted);
  EXPECT_TRUE(has_checkpoint(3));
  EXPECT_TRUE(has_checkpoint(6));
  EXPECT_FALSE(has_checkpoint(4));
}

TEST_F(Train, StopsAfterAStepAndGoesOnWithTheSameNumbers) {
  Notes whole;
  train(set_up_run(options(), whole), never);
  std::filesystem::remove_all(folder_.path() / "run");

  Notes first, second;
  int64_t asked = 0;
  train(set_up_run(options(), first), [&] { return ++asked > 6; });
  ASSERT_EQ(first.words.back(), sentence("stopped ", first.losses.size()));
  ASSERT_LT(first.losses.size(), whole.losses.size());
  RunOptions resumed = options();
  resumed.resume = true;
  train(set_up_run(resumed, second), never);
  std::vector<float> both = first.losses;
  both.insert(both.end(), second.losses.begin(), second.losses.end());
  EXPECT_EQ(both, whole.losses);
}

TEST_F(Train, EndsWhenPatienceIsLost) {
  RunOptions o = options();
  o.training.lr = o.training.min_lr = 1e-30;  // no evaluation is better than the first
  o.training.steps = 20;
  o.patience = 2;
  Notes notes;
  train(set_up_run(o, notes), never);
  EXPECT_EQ(notes.losses.size(), 6u);  // the third evaluation is after the sixth step
}

TEST_F(Train, ADryRunOnlyPlans) {
  RunOptions o = options();
  o.dry_run = true;
  Notes notes;
  const RunSetup run = set_up_run(o, notes);
  train(run, never);
  EXPECT_EQ(notes.words, std::vector<std::string>{"planned"});
  EXPECT_FALSE(run.trainer);
  EXPECT_FALSE(std::filesystem::exists(o.out));
}

TEST(RunListeners, AreToldEverythingInTheirOrder) {
  Notes first;
  RunListeners all(first);
  auto own = std::make_unique<Notes>();
  const Notes& second = *own;
  all.add(std::move(own));
  all.step({.step = 3});
  all.evaluated({.step = 3});
  all.warn("--- sample of a warning\n");  // one that says nothing else about warnings says it
  all.stopped(3);
  EXPECT_EQ(first.words, (std::vector<std::string>{"step 3", "evaluated 3", "sample of a warning",
                                                   "stopped 3"}));
  EXPECT_EQ(second.words, first.words);
}

}  // namespace
}  // namespace spool
