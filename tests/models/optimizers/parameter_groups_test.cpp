// runs: threads
// Groups of parameters with a rate and a decay of their own.

#include "spool/models/optimizers/parameter_groups.h"

#include <limits>

#include "spool/kernels/elementwise.h"
#include "spool/models/optimizers/optimizer_choice.h"
#include "tests/models/optimizers/optimizer_testing.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr size_t plenty = size_t{64} << 20;

auto named(const std::string& wanted) {
  return [wanted](const Parameter& p) { return p.name == wanted; };
}

// A matrix and a bias of each of two layers.
struct Net {
  CpuStream stream{plenty, 1};
  std::vector<Parameter> parameters{
      {.name = "a"}, {.name = "a.bias"}, {.name = "b"}, {.name = "b.bias"}};
  std::vector<Parameter*> pointers;

  Net() {
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Shape shape = i % 2 ? Shape{7} : Shape{7, 5};
      parameters[i].data = normal(shape, DType::f32, stream, i);
      pointers.push_back(&parameters[i]);
    }
  }
  std::vector<ParameterRate> rates(const std::vector<ParameterGroup>& groups) const {
    return rates_of(pointers, groups, /*decay=*/0.5, "adamw");
  }
};

TEST(ParameterGroups, TheFirstThatHasAParameterCounts) {
  const Net net;
  const auto rates =
      net.rates({{.has = named("b"), .rate = 2},
                 {.has = [](const Parameter& p) { return std::string_view(p.name)[0] == 'b'; },
                  .rate = 0.5,
                  .decay = 0.125},
                 {.has = named("a"), .decay = 0}});
  const auto expect = [&](size_t i, float rate, float decay) {
    EXPECT_EQ(rates[i].rate, rate) << i;
    EXPECT_EQ(rates[i].decay, decay) << i;
  };
  expect(0, 1, 0);
  expect(1, 1, 0);  // in no group, and with one dimension
  expect(2, 2, 0.5f);
  expect(3, 0.5f, 0.125f);
}

TEST(ParameterGroups, ThatMakeNoSenseAreRefused) {
  Net net;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto refused = [&](std::initializer_list<std::string_view> words,
                           const ParameterGroup& group) {
    const std::vector<ParameterGroup> groups{{.has = named("a")}, group};
    expect_error(ErrorKind::invalid, words, [&] { net.rates(groups); });
    expect_error(ErrorKind::invalid, words,
                 [&] { make_optimizer(net.pointers, SgdSettings{.groups = groups}, net.stream); });
  };
  refused({"group 2", "rate of -1", "from 0 on"}, {.has = named("b"), .rate = -1});
  refused({"group 2", "rate of nan"}, {.has = named("b"), .rate = nan});
  refused({"group 2", "decay of -0.5"}, {.has = named("b"), .decay = -0.5});
  refused({"group 2", "decay of nan"}, {.has = named("b"), .decay = nan});
  refused({"group 2", "`has`"}, {});
  refused({"no parameter is in group 2"}, {.has = named("c")});
  refused({"no parameter is in group 2"}, {.has = named("a")});  // group 1 has it already
}

const OptimizerForm forms[] = {
    {},
    {.type = DType::bf16, .gradient = DType::bf16},
    {.type = DType::bf16, .gradient = DType::f32, .rounding = Rounding::stochastic}};

// Parameter i of a run is in a group if it has `numel` elements.
ParameterGroup of_size(int64_t numel, double rate, double decay) {
  return {.has = [numel](const Parameter& p) { return p.data.numel() == numel; },
          .rate = rate,
          .decay = decay};
}

TEST(ParameterGroups, HaveTheSameBitsWhereverTheStateIs) {
  const std::vector<int64_t> numels{5000, 70001, 2048, 3};
  for (const OptimizerForm& form : forms) {
    Bytes wanted;
    for (const StatePlace& place :
         {StatePlace(OptimizerState::device), StatePlace(OptimizerState::streamed),
          StatePlace(OptimizerState::streamed, form.rows() * 70'000),
          StatePlace(OptimizerState::cpu)}) {
      SCOPED_TRACE(sentence(name(form.type), ", ", name(place.state), " ", place.bytes_on_device));
      OptimizerRun run(numels, form, place,
                       [](Stream& s) { return std::make_unique<HostLink>(s, plenty); });
      run.optimizer.emplace(run.pointers,
                            AdamWSettings{.rounding = form.rounding,
                                          .groups = {of_size(5000, 0, 0.1), of_size(70001, 3, 0),
                                                     of_size(3, 0.5, 1)}},
                            run.stream,
                            OptimizerMemory{.state = place.state,
                                            .link = run.link.get(),
                                            .bytes_on_device = place.bytes_on_device});
      const std::vector<double> at_rate_zero = values(run.parameters[0].data);
      const std::vector<double> others = values(run.parameters[1].data);
      for (int64_t t = 1; t <= 4; ++t) {
        run.make_gradients(t);
        run.step(t);
      }
      EXPECT_EQ(values(run.parameters[0].data), at_rate_zero);
      EXPECT_NE(values(run.parameters[1].data), others);
      if (wanted.empty()) wanted = run.bytes();
      EXPECT_TRUE(run.bytes() == wanted);
    }
  }
}

// One step of AdamW at gradient 1 from weight 1: m / sqrt(v) is 1.
TEST(ParameterGroups, ChangeTheStepOfTheirParametersAlone) {
  Net net;
  const AdamWSettings settings{
      .decay = 0.5,
      .clip = 0,
      .groups = {{.has = named("a"), .rate = 0.5}, {.has = named("b.bias"), .decay = 0.25}}};
  AdamWOptimizer optimizer(net.pointers, settings, net.stream);
  for (Parameter& p : net.parameters) {
    p.grad = Tensor(p.data.spec(), net.stream);
    launch(Fill{.out = p.data, .value = 1}, net.stream);
    launch(Fill{.out = p.grad, .value = 1}, net.stream);
  }
  optimizer.step(0.1);
  const double wanted[] = {1 - 0.05 * 1.5, 1 - 0.1, 1 - 0.1 * 1.5, 1 - 0.1 * 1.25};
  for (size_t i = 0; i < net.parameters.size(); ++i) {
    for (const double x : values(net.parameters[i].data)) EXPECT_NEAR(x, wanted[i], 1e-6) << i;
  }
}

TEST(ParameterGroups, LeaveAParameterThatIsNotTrainedAsItIs) {
  Net net;
  AdamWOptimizer optimizer(net.pointers, {}, net.stream);
  const std::vector<double> before = values(net.parameters[1].data);
  net.parameters[1].trainable = false;  // so it gets no gradient
  net.parameters[0].grad = normal({7, 5}, DType::f32, net.stream, 9);
  optimizer.step(0.1);
  EXPECT_EQ(values(net.parameters[1].data), before);
  EXPECT_EQ(read_row(optimizer, /*row=*/0, /*parameter=*/1), std::vector<float>(7));
}

}  // namespace
}  // namespace spool::testing
