// SGD over the parameters of a model, against a plain loop in f64.

#include "spool/models/optimizers/sgd.h"

#include <cmath>

#include "spool/kernels/elementwise.h"
#include "spool/models/optimizers/optimizer_choice.h"
#include "tests/models/optimizers/optimizer_testing.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr size_t plenty = size_t{64} << 20;
constexpr double learning_rate = 0.05;

struct Model {
  CpuStream stream{plenty, 2};
  std::vector<Parameter> parameters{{.name = "matrix"}, {.name = "bias"}};
  std::vector<Parameter*> pointers;

  explicit Model(DType type) {
    parameters[0].data = normal({30, 70}, type, stream, 1);
    parameters[1].data = normal({70}, type, stream, 2);
    for (Parameter& p : parameters) pointers.push_back(&p);
  }
  void make_gradients(uint64_t t) {
    for (Parameter& p : parameters) {
      p.grad = normal(p.data.shape(), p.data.dtype(), stream, 10 * t + (p.data.shape().rank() > 1));
    }
  }
};

// The same loop in f64; the matrix decays.
struct Reference {
  std::vector<std::vector<double>> w, b;

  explicit Reference(const Model& model) {
    for (const Parameter& p : model.parameters) w.push_back(values(p.data));
    for (const auto& x : w) b.emplace_back(x.size());
  }
  void step(const Model& model, const SgdSettings& s) {
    std::vector<std::vector<double>> gradients;
    double squared = 0;
    for (const Parameter& p : model.parameters) {
      gradients.push_back(values(p.grad));
      for (const double g : gradients.back()) squared += g * g;
    }
    const double norm = std::sqrt(squared);
    const double factor = s.clip > 0 && norm > s.clip ? s.clip / norm : 1;
    for (size_t k = 0; k < w.size(); ++k) {
      const double decay = k == 0 ? s.decay : 0;
      for (size_t i = 0; i < w[k].size(); ++i) {
        const double g = factor * gradients[k][i] + decay * w[k][i];
        b[k][i] = s.momentum * b[k][i] + g;
        w[k][i] -= learning_rate * (s.nesterov ? g + s.momentum * b[k][i] : b[k][i]);
      }
    }
  }
};

const SgdSettings all_settings[] = {{},
                                    {.decay = 0.1, .clip = 1},
                                    {.momentum = 0.9, .decay = 0.1},
                                    {.momentum = 0.9, .nesterov = true, .clip = 2}};

TEST(SgdOptimizer, FollowsAPlainLoop) {
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const SgdSettings& s : all_settings) {
      SCOPED_TRACE(sentence(name(type), ", momentum ", s.momentum, s.nesterov ? " nesterov" : ""));
      Model model(type);
      Reference reference(model);
      SgdOptimizer optimizer(model.pointers, s, model.stream);
      for (uint64_t t = 1; t <= 10; ++t) {
        model.make_gradients(t);
        reference.step(model, s);
        optimizer.step(learning_rate);
      }
      EXPECT_EQ(optimizer.steps(), 10);
      const double tolerance = type == DType::f32 ? 1e-5 : 6e-3;
      for (size_t k = 0; k < 2; ++k) {
        EXPECT_FALSE(model.parameters[k].grad);
        EXPECT_LT(difference(values(model.parameters[k].data), reference.w[k]), tolerance);
      }
      const std::vector<StateRow>& rows = optimizer.state_rows();
      ASSERT_EQ(rows.size(), size_t{s.momentum > 0} + size_t{type == DType::bf16});
      for (size_t row = 0; row < rows.size(); ++row) {
        const bool master = std::string_view(rows[row].name) == "master";
        EXPECT_TRUE(master || std::string_view(rows[row].name) == "momentum");
        for (size_t k = 0; k < 2; ++k) {
          const std::vector<float> found = read_row(optimizer, row, k);
          EXPECT_LT(
              difference({found.begin(), found.end()}, (master ? reference.w : reference.b)[k]),
              1e-5);
        }
      }
    }
  }
}

TEST(SgdOptimizer, IsUnchangedByGradientsThatAreNotFinite) {
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const SgdSettings& s : all_settings) {
      Model model(type);
      SgdOptimizer optimizer(model.pointers, s, model.stream);
      const auto everything = [&] { return state_bytes(model.pointers, optimizer); };
      model.make_gradients(1);
      optimizer.step(learning_rate);
      const auto before = everything();
      model.make_gradients(2);
      launch(Fill{.out = model.parameters[1].grad, .value = NAN}, model.stream);
      optimizer.step(learning_rate);
      EXPECT_TRUE(everything() == before);
      EXPECT_EQ(read<float>(optimizer.clip())[2], 0);
      model.make_gradients(3);
      optimizer.step(learning_rate);
      EXPECT_FALSE(everything() == before);
    }
  }
}

// Without momentum, for bf16 weights of 1 and steps of a quarter of bf16's spacing there.
TEST(SgdOptimizer, RoundsStochasticallyWithoutMasters) {
  Model model(DType::bf16);
  SgdOptimizer optimizer(model.pointers, {.rounding = Rounding::stochastic}, model.stream);
  EXPECT_TRUE(optimizer.state_rows().empty());
  Parameter& p = model.parameters[0];
  launch(Fill{.out = p.data, .value = 1}, model.stream);
  for (int32_t t = 0; t < 40; ++t) {
    const Tensor random = make_tensor<int32_t>({4}, std::vector<int32_t>{1, 2, t, 0}, model.stream);
    p.grad = Tensor(p.data.spec(), model.stream);
    launch(Fill{.out = p.grad, .value = 1}, model.stream);
    optimizer.step(0x1p-10, random);
  }
  double mean = 0;
  for (const double x : values(p.data)) mean += x / 2100;
  EXPECT_NEAR(mean, 1 - 40 * 0x1p-10, 1e-3);
  p.grad = normal({30, 70}, DType::bf16, model.stream, 1);
  expect_error(ErrorKind::invalid, {"sgd", "random"}, [&] { optimizer.step(0.1); });
}

TEST(SgdOptimizer, HasTheSameBitsWhereverItsStateIs) {
  const std::vector<int64_t> numels{5000, 70001, 2048, 3};
  for (const OptimizerForm& form : {OptimizerForm{}, {.type = DType::bf16}}) {
    for (const SgdSettings& s : all_settings) {
      Bytes wanted;
      for (const StatePlace& place :
           {StatePlace(OptimizerState::device), StatePlace(OptimizerState::streamed),
            StatePlace(OptimizerState::streamed, 100'000), StatePlace(OptimizerState::cpu)}) {
        SCOPED_TRACE(sentence(name(form.type), ", momentum ", s.momentum, ", ", name(place.state)));
        OptimizerRun run(numels, form, OptimizerState::device);
        HostLink link(run.stream, plenty);
        const OptimizerMemory memory{
            .state = place.state, .link = &link, .bytes_on_device = place.bytes_on_device};
        const auto optimizer = make_optimizer(run.pointers, s, run.stream, memory);
        const bool has_state = !optimizer->state_rows().empty();
        EXPECT_EQ(place_of_state(run.pointers, OptimizerSettings(s), memory),
                  has_state ? place.state : OptimizerState::device);
        EXPECT_EQ(link.memory().live > 0, has_state && place.state != OptimizerState::device);
        for (int64_t t = 1; t <= 4; ++t) {
          run.make_gradients(t);
          optimizer->step(learning_rate);
        }
        if (wanted.empty()) wanted = state_bytes(run.pointers, *optimizer);
        EXPECT_TRUE(state_bytes(run.pointers, *optimizer) == wanted);
      }
    }
  }
}

TEST(SgdOptimizer, RefusesSettingsThatMakeNoSense) {
  Model model(DType::f32);
  const auto refused = [&](std::string_view words, const SgdSettings& s) {
    expect_error(ErrorKind::invalid, {"sgd", words},
                 [&] { SgdOptimizer(model.pointers, s, model.stream); });
  };
  refused("momentum must be in [0, 1)", {.momentum = 1});
  refused("momentum must be in [0, 1)", {.momentum = NAN});
  refused("nesterov", {.nesterov = true});
  refused("decay", {.decay = -1});
  refused("limit", {.clip = NAN});
  expect_error(ErrorKind::invalid, {"sgd", "no parameters"},
               [&] { SgdOptimizer({}, {}, model.stream); });
}

}  // namespace
}  // namespace spool::testing
