// runs: threads
// Parameters that live on the host: made, read and changed without a plan's tape, and read by tapes
// that have no plan.

#include "spool/kernels/elementwise.h"
#include "tests/autograd/homes/homes_testing.h"

namespace spool::testing {
namespace {

class HomesTest : public ::testing::Test {
 protected:
  CpuStream stream_{size_t{16} << 20, 2};
  HomesRun run_{{}, plan_of_units({}), stream_};
  Parameters& parameters_ = run_.net.parameters;
  const size_t live_ = stream_.memory().live_by[Purpose::parameter];

  std::vector<double> values_of(size_t number) {
    std::vector<double> all;
    parameters_.with(number, [&] { all = values(parameters_[number]->data); });
    return all;
  }
};

TEST_F(HomesTest, AnAbsentTensorNamesItsParameterAndTheAdvice) {
  const Tensor& absent = parameters_.named("1.up").data;
  EXPECT_FALSE(absent);
  EXPECT_EQ(parameters_.named("1.up").spec(), (Spec{Shape{32, 16}, DType::f32}));
  for (const std::function<void()>& use : std::vector<std::function<void()>>{
           [&] { (void)absent.stream(); }, [&] { (void)values(absent); },
           [&] {
             (void)absent.slice({0, 1});
           },
           [&] { (void)absent.reshape({512}); },
           [&] { write_bytes(absent, 0, std::vector<std::byte>(4)); },
           [&] { (void)item(absent); }}) {
    expect_error(ErrorKind::invalid,
                 {"the data of parameter 1.up is on the host; Parameters::with() has it"}, use);
  }
  EXPECT_EQ(error_of([] { (void)values(Tensor()); }),
            "an absent tensor was used, which has no memory");
}

TEST_F(HomesTest, ValuesAreDrawnByTheSameNumbers) {
  CpuStream other(size_t{16} << 20, 1);
  HomesRun resident({}, {}, other);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    EXPECT_EQ(values_of(i), values(resident.net.parameters[i]->data));
  }
}

TEST_F(HomesTest, MakingAndDrawingTakesTheLargestParameter) {
  size_t largest = 0;
  for (const Parameter* p : parameters_) largest = std::max(largest, p->spec().nbytes());
  EXPECT_EQ(live_, 0u);
  CpuStream fresh(size_t{16} << 20, 2);
  const Plan plan = plan_of_units({});
  HomesNet net({}, fresh, parameters_away(plan));
  HostLink link(fresh, size_t{16} << 20);
  Homes homes(net.parameters, link, plan, 1);
  net.parameters.initialise(/*seed=*/1);
  EXPECT_EQ(fresh.memory().peak, largest);
}

TEST_F(HomesTest, WithHasTheDataAndStoresItBack) {
  const std::vector<double> before = values_of(3);
  parameters_.with(3, [&] {
    const Tensor& data = parameters_[3]->data;
    EXPECT_EQ(stream_.memory().live_by[Purpose::parameter], data.nbytes());
    launch(Add{.out = add_to(data), .a = data}, stream_);
    parameters_.with(3, [&] { EXPECT_TRUE(parameters_[3]->data); });  // has it already
    EXPECT_TRUE(parameters_[3]->data);
  });
  EXPECT_FALSE(parameters_[3]->data);
  EXPECT_EQ(stream_.memory().live_by[Purpose::parameter], 0u);
  std::vector<double> doubled;
  for (const double x : before) doubled.push_back(2 * x);
  EXPECT_EQ(values_of(3), doubled);
  expect_error(ErrorKind::invalid, {"no parameter 8 among the 8"},
               [&] { parameters_.with(8, [] {}); });
}

TEST_F(HomesTest, WithKeepsTheHostsValuesIfItsWorkThrows) {
  const std::vector<double> before = values_of(2);
  EXPECT_THROW(parameters_.with(2,
                                [&] {
                                  launch(Fill{.out = parameters_[2]->data, .value = 7}, stream_);
                                  throw std::runtime_error("stop");
                                }),
               std::runtime_error);
  EXPECT_EQ(stream_.memory().live_by[Purpose::parameter], 0u);
  expect_error(ErrorKind::invalid, {"parameter 0.down is on the host"},
               [&] { (void)values(parameters_[2]->data); });
  EXPECT_EQ(values_of(2), before);
}

TEST_F(HomesTest, TheParametersHaveNoDataWithoutTheirHomes) {
  run_.homes.reset();
  EXPECT_FALSE(parameters_[0]->data);
  EXPECT_EQ(error_of([&] { (void)values(parameters_[0]->data); }),
            "an absent tensor was used, which has no memory");
  EXPECT_EQ(run_.link.memory().live_by[Purpose::parameter], 0u);
}

// Units of which something is on the device now.
size_t units_on_device(const HomesRun& run) {
  const Names there = run.on_device(Purpose::parameter);
  size_t units = 0;
  for (int u = 0; u < run.net.form.blocks + 2; ++u) {
    const Names names = HomesNet::names_of(run.net.form, u);
    units += std::ranges::any_of(names, [&](const auto& n) { return there.contains(n); }) ? 1 : 0;
  }
  return units;
}

TEST_F(HomesTest, ATapeThatOnlyGoesForwardReadsThemAsIfTheyWereThere) {
  CpuStream other(size_t{16} << 20, 1);
  HomesRun resident({}, {}, other);
  size_t most = 0;
  run_.net.probe = [&](int, bool) { most = std::max(most, units_on_device(run_)); };
  for (const bool recording : {false, true}) {
    for (int64_t micro = 0; micro < 2; ++micro) {
      Tape tape(stream_, {.recording = recording}), plain(other, {.recording = recording});
      EXPECT_EQ(values(run_.net.run(tape, micro).tensor()),
                values(resident.net.run(plain, micro).tensor()));
    }
    EXPECT_EQ(stream_.memory().live_by[Purpose::parameter], 0u);
  }
  EXPECT_EQ(most, 2u);  // the one that is read and the next
}

TEST_F(HomesTest, ATapeWithoutUnitsGoesBackwardWithTheSameBits) {
  CpuStream other(size_t{16} << 20, 1);
  HomesRun resident({}, {}, other);
  size_t most = 0;
  const auto gradients_of = [](HomesRun& run) {
    std::vector<std::vector<double>> all;
    {
      Tape tape(run.stream);
      const Var y = run.net.run(tape, 0);
      tape.backward({Root{y, normal({8, 16}, DType::f32, run.stream, 9)}});
    }
    for (Parameter* p : run.net.parameters) all.push_back(values(p->grad)), p->grad = {};
    return all;
  };
  run_.net.probe = [&](int, bool) { most = std::max(most, units_on_device(run_)); };
  const auto found = gradients_of(run_);
  EXPECT_EQ(found, gradients_of(resident));
  EXPECT_EQ(gradients_of(run_), found);
  EXPECT_GE(most, 2u);
  EXPECT_LE(most, 3u);
  EXPECT_EQ(stream_.memory().live_by[Purpose::parameter], 0u);
}

TEST_F(HomesTest, AnInputThatIsKeptHoldsItsMemory) {
  Tape tape(stream_, {.recording = false});
  const Var kept = tape.input(*parameters_[0]);
  EXPECT_EQ(values(kept.tensor()).size(), 256u);
  (void)run_.net.run(tape, 0);
  EXPECT_TRUE(run_.on_device(Purpose::parameter).contains("in"));
}

TEST_F(HomesTest, ATapeThatDoesNotRunCopiesNothing) {
  Tape tape(stream_, {.runs = false});
  (void)run_.net.run(tape, 0);
  EXPECT_EQ(stream_.memory().live_by[Purpose::parameter], 0u);
  EXPECT_EQ(run_.allocated(Purpose::parameter, "in"), 1);  // as it was drawn
}

}  // namespace
}  // namespace spool::testing
