// GPT-2 against PyTorch (tests/reference/README.md says how those numbers were made).

#include "spool/models/families/gpt2.h"

#include <nlohmann/json.hpp>

#include "spool/models/optimizers/adamw.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/files/json.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

const std::filesystem::path folder = std::filesystem::path(SPOOL_SOURCE_DIR) / "tests/reference";
constexpr Gpt2Config reference_config{
    .layers = 2, .heads = 3, .channels = 24, .context = 16, .vocabulary = 61};
constexpr int64_t B = 2, T = 13;

struct Place {
  DeviceType device;
  DType dtype;
};

std::vector<Place> with_cuda(std::vector<Place> places) {
  if (there_is_cuda()) places.push_back({DeviceType::cuda, DType::f32});
  return places;
}

std::string name_of(const ::testing::TestParamInfo<Place>& info) {
  return sentence(name(info.param.device), "_", name(info.param.dtype));
}

class Reference : public ::testing::TestWithParam<Place> {
 protected:
  std::unique_ptr<Stream> owner = open_stream({GetParam().device}, size_t{64} << 20, 2);
  Stream& stream = *owner;
  SafetensorsReader expected{folder / "gpt2_expected.safetensors"};
  Gpt2 model{reference_config, GetParam().dtype, stream};
  Tensor tokens = load("tokens", {B, T}, DType::i32);
  Tensor targets = load("targets", {B, T}, DType::i32);

  Reference() {
    model.initialise(1);
    const SafetensorsReader file(folder / "gpt2.safetensors");
    load_tensors(file, stored(model, tensors([](Parameter& p) { return p.data; })));
  }

  template <class Which>
  std::vector<Tensor> tensors(Which which) {
    std::vector<Tensor> all;
    for (Parameter* p : model.parameters()) all.push_back(which(*p));
    return all;
  }
  Tensor load(const std::string& name, const Shape& shape, DType type) {
    const NamedTensor one{.name = name, .tensor = Tensor({shape, type}, stream)};
    load_tensors(expected, {&one, 1}, [](std::string_view) { return true; });
    return one.tensor;
  }
  double tolerance() const { return GetParam().dtype == DType::f64 ? 1e-12 : 1e-5; }

  // The gradients as the parameters are stored, transposed where they are.
  void expect_gradients() {
    for (const NamedTensor& ours : stored(model, tensors([](Parameter& p) { return p.grad; }))) {
      NamedTensor theirs = ours;
      theirs.name = "grad." + ours.name;
      theirs.tensor = Tensor({ours.tensor.shape(), DType::f64}, stream);
      load_tensors(expected, {&theirs, 1}, [](std::string_view) { return true; });
      EXPECT_LE(difference(values(ours.tensor), values(theirs.tensor)), tolerance()) << ours.name;
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Gpt2, Reference,
                         ::testing::ValuesIn(with_cuda({{DeviceType::cpu, DType::f32},
                                                        {DeviceType::cpu, DType::f64}})),
                         name_of);

TEST_P(Reference, LogitsAreThoseOfPyTorch) {
  Tape tape(stream, {.recording = false, .training = false});
  const Tensor logits = model.logits(model.hidden(tape.input(tokens))).tensor();
  const auto padded = values(logits), theirs = values(load("logits", {B, T, 61}, DType::f64));
  std::vector<double> ours;
  for (size_t i = 0; i < padded.size(); ++i) {
    if (i % 64 < 61) ours.push_back(padded[i]);
  }
  EXPECT_LE(difference(ours, theirs), tolerance());
}

TEST_P(Reference, LossAndGradientsAreThoseOfPyTorch) {
  const double loss = values(load("loss", {}, DType::f64)).front();
  for (const bool in_forward : {false, true}) {
    for (const int chunks : {1, 5}) {
      Plan plan;
      plan.chunks.assign(64, 1);
      TapeOptions options{.backward_follows = in_forward};
      {
        Tape probe(stream, {.recording = false});
        model.loss(probe.input(tokens), probe.input(targets));
        plan.chunks[probe.nodes().size() - 1] = chunks;
      }
      options.plan = plan;
      Tape tape(stream, options);
      const Var ours = model.loss(tape.input(tokens), tape.input(targets));
      tape.backward(ours);
      EXPECT_NEAR(values(ours.tensor()).front(), loss, tolerance() * loss);
      expect_gradients();
      for (Parameter* p : model.parameters()) p->grad = {};
    }
  }
}

class Steps : public Reference {};
INSTANTIATE_TEST_SUITE_P(Gpt2, Steps,
                         ::testing::ValuesIn(with_cuda({{DeviceType::cpu, DType::f32}})), name_of);

TEST_P(Steps, TenAdamWStepsHaveTheLossesOfPyTorch) {
  const auto losses = values(load("losses", {11}, DType::f64));
  const auto norms = values(load("gradient_norms", {10}, DType::f64));
  AdamWOptimizer optimizer(model.parameters(), {}, stream);
  optimizer.initialise();
  for (size_t step = 0; step <= 10; ++step) {
    Tape tape(stream, {.backward_follows = true});
    const Var loss = model.loss(tape.input(tokens), tape.input(targets));
    EXPECT_NEAR(values(loss.tensor()).front(), losses[step], 1e-4 * losses[step]) << step;
    if (step == 10) break;
    tape.backward(loss);
    optimizer.step(static_cast<int64_t>(step) + 1, 0.01);
    EXPECT_NEAR(read<float>(optimizer.clip())[1], norms[step], 1e-4 * norms[step]) << step;
  }
  for (const char* name : {"wte.weight", "h.1.ln_2.bias", "h.0.mlp.c_fc.weight"}) {
    if (!expected.find(std::string("final.") + name)) continue;
    for (const NamedTensor& ours : stored(model, tensors([](Parameter& p) { return p.data; }))) {
      if (ours.name != name) continue;
      NamedTensor theirs = ours;
      theirs.name = std::string("final.") + name;
      theirs.tensor = Tensor({ours.tensor.shape(), DType::f64}, stream);
      load_tensors(expected, {&theirs, 1}, [](std::string_view) { return true; });
      EXPECT_LE(difference(values(ours.tensor), values(theirs.tensor)), 1e-3) << name;
    }
  }
}

TEST(Gpt2Config, RefusesWhatMakesNoModelAndCountsParameters) {
  EXPECT_EQ(Gpt2Config{}.parameter_count(), 124439808);
  EXPECT_EQ(Gpt2Config{}.padded_vocabulary(), 50304);
  const auto sentence_of = [](const Gpt2Config& c) { return error_of([&] { c.validate(); }); };
  EXPECT_NE(sentence_of({.heads = 5}).find("5 heads do not divide 768 channels"),
            std::string::npos);
  for (const Gpt2Config& bad :
       {Gpt2Config{.layers = 0}, Gpt2Config{.channels = -12}, Gpt2Config{.vocabulary = 1 << 30},
        Gpt2Config{.context = int64_t{1} << 40}}) {
    EXPECT_NE(sentence_of(bad), "");
  }
  const auto json = to_json(reference_config);
  EXPECT_EQ(gpt2_config({json, "config.json"}), reference_config);
  auto broken = json;
  broken["n_head"] = "three";
  EXPECT_NE(error_of([&] {
              gpt2_config({broken, "config.json"});
            }).find("n_head"),
            std::string::npos);
}

TEST(Gpt2, PaddedRowsAreZeroAndStaySo) {
  CpuStream stream(size_t{64} << 20, 2);
  Gpt2 model(reference_config, DType::f32, stream);
  model.initialise(3);
  AdamWOptimizer optimizer(model.parameters(), {}, stream);
  optimizer.initialise();
  const std::vector<int32_t> ids(26, 5);
  const Tensor tokens = make_tensor<int32_t>({2, 13}, ids, stream);
  for (int64_t t = 1; t <= 3; ++t) {
    Tape tape(stream, {.backward_follows = true});
    tape.backward(model.loss(tape.input(tokens), tape.input(tokens)));
    optimizer.step(t, 0.1);
  }
  const Tensor padding = model.parameters().front()->data.slice({61, 64});
  EXPECT_EQ(values(padding), std::vector<double>(3 * 24, 0.0));
}

}  // namespace
}  // namespace spool::testing
