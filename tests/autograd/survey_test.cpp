// A survey tells where a step's seconds and bytes go.

#include "spool/autograd/survey.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "spool/autograd/ops.h"
#include "spool/runtime/memory/allocation_log.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

using Works = std::vector<SurveyedWork>;

// gelu(linear) four times: linears are the even nodes.
class Surveys : public ::testing::Test {
 protected:
  MetaStream stream{Machine{}};
  std::vector<Tensor> data = std::vector<Tensor>(4, Tensor({Shape{256, 256}}, stream));
  std::vector<Parameter> weights = make_weights();
  Tensor x{{Shape{512, 256}}, stream};
  Survey survey;

  std::vector<Parameter> make_weights() {
    std::vector<Parameter> all;
    for (const Tensor& t : data) all.push_back({.data = t});
    return all;
  }

  Program run(Plan plan, Offloader* offloader = nullptr) {
    Tape tape(stream, {.plan = std::move(plan), .offloader = offloader, .survey = &survey});
    Var h = tape.input(x);
    for (Parameter& w : weights) h = gelu(linear(h, w));
    tape.backward({Root{h, Tensor(h.spec(), stream)}});
    for (Parameter& w : weights) w.grad = {};
    return tape.take_program();
  }

  Works works_of(Phase phase) const {
    Works all;
    std::ranges::copy_if(survey.works, std::back_inserter(all),
                         [&](const SurveyedWork& w) { return w.phase == phase; });
    return all;
  }
  double seconds() const {
    return std::accumulate(survey.works.begin(), survey.works.end(), survey.other_seconds,
                           [](double sum, const SurveyedWork& w) { return sum + w.seconds; });
  }
};

TEST_F(Surveys, HaveWorkOfEachNodeInEachPhase) {
  run({});
  const Works forward = works_of(Phase::forward), backward = works_of(Phase::backward);
  ASSERT_EQ(forward.size(), 8u);
  ASSERT_EQ(backward.size(), 8u);
  EXPECT_TRUE(works_of(Phase::recompute).empty());
  for (NodeId n = 0; n < 8; ++n) {
    const auto i = static_cast<size_t>(n);
    EXPECT_EQ(forward[i].node, n);
    EXPECT_EQ(backward[7 - i].node, n);
    EXPECT_GT(forward[i].seconds, 0);
    EXPECT_EQ(survey.begins(Phase::forward)[n], forward[i].begin);
    EXPECT_EQ(survey.begins(Phase::backward)[n], backward[7 - i].begin);
  }
  EXPECT_GT(forward[0].seconds, forward[1].seconds);  // a product takes longer than a gelu
  EXPECT_NEAR(forward[0].seconds, forward[2].seconds, 1e-12);
  EXPECT_EQ(description(forward[3]), "the forward of gelu (node 3)");
}

TEST_F(Surveys, TellForWhichNodeANodeIsRecomputed) {
  run({.regions = {{2, 5}}});
  const Works recomputed = works_of(Phase::recompute);
  ASSERT_EQ(recomputed.size(), 3u);  // the region's last output is not read again
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(recomputed[i].node, static_cast<NodeId>(2 + i));
    EXPECT_EQ(recomputed[i].reader, 5);
    EXPECT_NEAR(recomputed[i].seconds, works_of(Phase::forward)[2 + i].seconds, 1e-12);
  }
  EXPECT_EQ(description(recomputed[1]), "recomputing gelu (node 3) for the backward of node 5");
}

TEST_F(Surveys, AccountForEverySecondThatIsNotAWait) {
  Machine slow_link{};
  slow_link.to_host_bytes_per_second = slow_link.from_host_bytes_per_second = 1e8;
  MetaStream narrow(slow_link);
  HostLink link(narrow, MetaStream::unlimited);
  Offloader offloader(link);
  const Tensor input({Shape{512, 256}}, narrow);
  std::vector<Parameter> all(4);
  for (Parameter& w : all) w.data = Tensor({Shape{256, 256}}, narrow);
  const auto trace = std::make_shared<Trace>();
  const double began = narrow.now();
  {
    const Traced traced(narrow, trace);
    survey.start(narrow);
    Plan plan{.placement = {Placement::keep, Placement::keep, Placement::recompute,
                            Placement::offload, Placement::keep, Placement::offload}};
    Tape tape(narrow, {.plan = plan, .offloader = &offloader, .survey = &survey});
    Var h = tape.input(input);
    for (Parameter& w : all) h = gelu(linear(h, w));
    const Tensor dy(h.spec(), narrow);
    narrow.upload(nullptr, nullptr, 1000);  // of no node
    tape.backward({Root{h, dy}});
  }
  const double waits = waited(trace->spans(), TraceLane::compute);
  EXPECT_GT(waits, 0);
  EXPECT_GT(survey.other_seconds, 0);
  EXPECT_NEAR(seconds() + waits, narrow.now() - began, 1e-9 * narrow.now());
}

TEST_F(Surveys, TellThePeakAndItsWork) {
  const size_t before = stream.memory().live;
  const AllocationLog log(stream.arena());
  run({});
  const Lifetimes lifetimes = log.lifetimes();
  std::vector<std::pair<size_t, int64_t>> changes;  // times, and bytes
  for (const Lifetime& l : lifetimes.all) {
    changes.emplace_back(l.birth, static_cast<int64_t>(l.bytes));
    changes.emplace_back(l.death, -static_cast<int64_t>(l.bytes));
  }
  std::ranges::sort(changes);
  int64_t live = 0, max = 0;
  for (const auto& [time, bytes] : changes) max = std::max(max, live += bytes);

  ASSERT_TRUE(survey.peak());
  EXPECT_EQ(survey.peak()->live, before + static_cast<size_t>(max));
  EXPECT_EQ(survey.peak()->phase, Phase::backward);
  // A node that is done long before the peak saw less.
  EXPECT_LT(works_of(Phase::forward)[0].live, survey.peak()->live);
}

TEST_F(Surveys, TellWhichNodesSaveAndReadAValue) {
  Plan plan{.placement = std::vector(13, Placement::keep)};
  const Program program = run(plan);
  size_t saved = 0;
  for (NodeId n = 0; n < 8; ++n) {
    for (const ValueId v : program.nodes[n].saves) {
      ++saved;
      const auto is_this = [&](const ValueUse& use) { return use.value == v && use.node == n; };
      EXPECT_EQ(std::ranges::count_if(survey.saves, is_this), 1) << v;
      EXPECT_EQ(std::ranges::count_if(survey.reads, is_this), 1) << v;
      EXPECT_EQ(survey.values[v].bytes, program.values[v].spec.nbytes());
      EXPECT_EQ(survey.values[v].first_saved, n);
      if (!program.values[v].parameter && program.values[v].producer >= 0) {
        EXPECT_EQ(survey.values[v].first_read, n);
      }
    }
  }
  EXPECT_EQ(survey.saves.size(), saved);
  EXPECT_EQ(survey.reads.size(), saved);
}

TEST_F(Surveys, CountMicroBatchesAndDescribeTheValuesOfTheFirst) {
  run({});
  const size_t works = survey.works.size(), saves = survey.saves.size(),
               reads = survey.reads.size();
  run({});
  EXPECT_EQ(survey.micro_batches, 2);
  EXPECT_EQ(survey.works.size(), 2 * works);
  EXPECT_EQ(survey.saves.size(), saves);
  EXPECT_EQ(survey.reads.size(), reads);
  EXPECT_EQ(survey.works[works].micro_batch, 1);
  EXPECT_NEAR(survey.works[works].seconds, survey.works[0].seconds, 1e-12);
}

// Throws in forward, after it has taken some time, or when it is asked what it saves.
struct FailingOp final : Op {
  bool in_forward;
  explicit FailingOp(bool forward) : in_forward(forward) {}

  const char* name() const override { return "failing"; }
  const char* indices() const override { return "n->n"; }
  Specs infer(const Specs& in) const override { return {in[0]}; }
  void forward(Forward& f) const override {
    auto [x] = f.inputs<1>();
    auto [y] = f.outputs<1>();
    f.launch(GeluForward{.y = y, .x = x});
    check(!in_forward, "failing: it failed");
  }
  Slots saves(const Needs&) const override { return {in(0)}; }
  void backward(Backward&) const override {}
};

struct RefusingHooks final : SavedTensorHooks {
  std::unique_ptr<SavedTensor> pack(const Tensor&, const SavedInfo&) override {
    fail(ErrorKind::invalid, "failing: its input cannot be packed");
  }
};

TEST_F(Surveys, ForgetAnOpThatFails) {
  const double began = stream.now();
  Tape tape(stream, {.survey = &survey});
  const Var h = linear(tape.input(x), weights[0]);
  RefusingHooks hooks;
  for (const bool in_forward : {false, true}) {
    const Tape::HooksScope scope(tape, hooks);
    expect_error(ErrorKind::invalid, {"failing"}, [&] {
      apply<FailingOp>(tape, {h, weights[1]}, in_forward);
    });
  }
  const Var y = gelu(h);
  tape.backward({Root{y, Tensor(y.spec(), stream)}});
  const Works forward = works_of(Phase::forward);
  ASSERT_EQ(forward.size(), 2u);
  EXPECT_EQ(forward[1].node, 1);
  EXPECT_EQ(survey.saves.size(), 2u);  // the input of the linear, and of the gelu
  EXPECT_EQ(survey.values[h.id()].first_saved, 1);
  EXPECT_NEAR(seconds(), stream.now() - began, 1e-12);
  weights[0].grad = {};
}

// A first, a middle or a last piece of work: a node, a node that has another recomputed, waits, and
// seconds of no node of the piece.
void run_piece(Survey& survey, MetaStream& stream, size_t i, size_t count) {
  const size_t bytes = i == 0 ? 50000 : i + 1 == count ? 10000 : 30000;
  const Tensor held({Shape{static_cast<int64_t>(bytes)}}, stream);
  const FailingOp op(/*forward=*/false);
  stream.copy(nullptr, nullptr, bytes);
  for (NodeId node = 0; node < 2; ++node) {
    const SurveyScope forward(&survey, stream, Phase::forward, node, op);
    stream.copy(nullptr, nullptr, 2 * bytes);
    stream.wait({.time = stream.now() + 1e-5});
    if (node == 0) continue;
    const SurveyScope within(&survey, stream, Phase::recompute, 5, op);
    stream.copy(nullptr, nullptr, 3 * bytes);
  }
  stream.copy(nullptr, nullptr, 4 * bytes);
}

// A survey of the pieces, within work of a node or of none.
Survey survey_pieces(MetaStream& stream, size_t count, bool within) {
  Survey survey;
  survey.start(stream);
  {
    const FailingOp op(/*forward=*/false);
    const SurveyScope around(within ? &survey : nullptr, stream, Phase::backward, 7, op);
    repeat(&survey, stream, count, [&](size_t i) { run_piece(survey, stream, i, count); });
    stream.copy(nullptr, nullptr, 100);
  }
  const SurveyScope after(&survey, stream, Phase::optimizer, -1, FailingOp(/*forward=*/false));
  stream.copy(nullptr, nullptr, 700);
  return survey;
}

using Sums = std::map<std::pair<Phase, NodeId>, double>;  // seconds

Sums sums_of(const Survey& survey) {
  Sums sums;
  for (const SurveyedWork& w : survey.works) sums[{w.phase, w.node}] += w.seconds;
  return sums;
}

double sum_of(const Survey& survey) {
  double sum = survey.other_seconds;
  for (const SurveyedWork& w : survey.works) sum += w.seconds;
  return sum;
}

// With a trace the stream leaves nothing out.
TEST(RepeatedWork, HasTheSecondsOfAll) {
  for (const bool within : {false, true}) {
    for (const size_t count : {0u, 1u, 2u, 3u, 4u, 5u, 10u}) {
      MetaStream three(Machine{}), all(Machine{});
      const auto trace = std::make_shared<Trace>();
      all.trace(trace);
      const Survey found = survey_pieces(three, count, within);
      const Survey wanted = survey_pieces(all, count, within);
      const double tolerance = 1e-12;
      EXPECT_EQ(found.works.size(), 3 * std::min(count, size_t{3}) + 1 + within) << count;
      EXPECT_EQ(wanted.works.size(), 3 * count + 1 + within) << count;
      EXPECT_NEAR(three.now(), all.now(), tolerance) << count;
      const double waits = waited(trace->spans(), TraceLane::compute);
      EXPECT_NEAR(sum_of(found) + waits, three.now(), tolerance) << count;
      EXPECT_NEAR(found.other_seconds, wanted.other_seconds, tolerance) << count;
      const Sums sums = sums_of(wanted);
      for (const auto& [key, seconds] : sums_of(found)) {
        EXPECT_NEAR(seconds, sums.at(key), tolerance) << count << ", node " << key.second;
      }
      EXPECT_EQ(sums_of(found).size(), sums.size()) << count;
      EXPECT_EQ(found.peak()->live, wanted.peak()->live) << count;
    }
  }
}

TEST(RepeatedWork, OfANodeBeganWhereItsFirstPieceDid) {
  MetaStream stream(Machine{});
  const Survey survey = survey_pieces(stream, 10, /*within=*/false);
  EXPECT_EQ(survey.begins(Phase::forward)[0], survey.works[0].begin);
  EXPECT_EQ(survey.begins(Phase::forward)[1], survey.works[1].begin);
}

TEST(RepeatedWork, WithoutASurveyIsRunByTheStreamAlone) {
  MetaStream stream(Machine{});
  size_t ran = 0;
  repeat(nullptr, stream, 10, [&](size_t) { ++ran; });
  EXPECT_EQ(ran, 3u);
}

TEST_F(Surveys, AProgramThatIsTakenOutlivesItsTape) {
  static const Program program = run({});  // and the thread's lists that it might go back to
  ASSERT_EQ(program.nodes.size(), 8u);
  EXPECT_STREQ(program.producer_name(program.nodes[3].inputs.front()), "linear");
  Tape tape(stream);
  {
    const Tape::Scope scope(tape, {});
    expect_error(ErrorKind::invalid, {"take_program", "scope"}, [&] { tape.take_program(); });
  }
  const Var x_again = tape.input(x);
  tape.take_program();
  expect_error(ErrorKind::invalid, {"new tape"}, [&] { gelu(x_again); });
}

TEST(SurveyMisuse, OnADeviceThatRunsWorkIsRefused) {
  const auto cpu = open_stream({DeviceType::cpu}, size_t{1} << 20, 1);
  Survey survey;
  expect_error(ErrorKind::invalid, {"survey", "meta"}, [&] { Tape(*cpu, {.survey = &survey}); });
}

}  // namespace
}  // namespace spool::testing
