// runs: numbers
// Parameters that are not trained have no state and keep their values.  A run with them resumes,
// also from a checkpoint that has state for them.

#include "spool/models/formats/safetensors.h"
#include "spool/models/formats/tensor_file.h"
#include "spool/models/steps/step_runner.h"
#include "tests/models/optimizers/optimizer_testing.h"
#include "tests/models/steps/transformer_testing.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr size_t frozen = 4;  // the number of first parameters that are frozen
const StepPlace cpu_place{.device = {DeviceType::cpu}, .threads = 2, .machine = cpu_machine()};

StepDescription partly_frozen(const StepConfig& config, DType type = DType::f32) {
  return {.make_model =
              [type](Stream& stream) {
                auto model = std::make_unique<Transformer>(TransformerSizes{.dtype = type}, stream);
                for (size_t i = 0; i < frozen; ++i) model->parameters()[i]->trainable = false;
                return model;
              },
          .config = config};
}

void train_until(StepRunner& runner, int64_t last) {
  while (runner.steps() < last) {
    runner.step(/*learning_rate=*/0.01, /*targets=*/32,
                [&](int64_t micro) { runner.model<Transformer>().upload(micro); });
  }
}

Bytes everything(StepRunner& runner) {
  Bytes all;
  for (const Parameter* p : runner.model().parameters()) {
    const size_t begin = all.size();
    all.resize(begin + p->data.nbytes());
    read_bytes(p->data, 0, std::span(all).subspan(begin));
  }
  const Bytes state = state_bytes(runner.optimizer().parameters(), runner.optimizer());
  all.insert(all.end(), state.begin(), state.end());
  return all;
}

std::vector<std::string> names_in(const std::filesystem::path& file) {
  std::vector<std::string> names;
  const SafetensorsReader reader(file);
  for (const StoredTensor& t : reader.tensors()) names.push_back(t.name);
  return names;
}

TEST(FrozenParameters, HaveNoStateWhereverItIs) {
  for (const OptimizerSettings& settings :
       {OptimizerSettings(AdamWSettings{}), OptimizerSettings(SgdSettings{.momentum = 0.9})}) {
    Bytes wanted;
    for (const OptimizerState state : optimizer_states) {
      StepRunner runner(partly_frozen({.optimizer = settings}),
                        {.policy = Policy{.optimizer_state = state}}, cpu_place);
      const Parameters& all = runner.model().parameters();
      EXPECT_EQ(runner.optimizer().parameters().size(), all.size() - frozen);
      const std::vector<double> before = values(all[0]->data), moved = values(all[frozen]->data);
      train_until(runner, 2);
      EXPECT_EQ(values(all[0]->data), before);
      EXPECT_NE(values(all[frozen]->data), moved);
      EXPECT_EQ(runner.stream().memory().peak, runner.planned().foretold.memory.peak);
      EXPECT_EQ(runner.host_memory().peak, runner.planned().foretold.host.peak);
      if (wanted.empty()) wanted = everything(runner);
      EXPECT_TRUE(everything(runner) == wanted) << name(state);
    }
  }
}

TEST(FrozenParameters, AreInCheckpointsWithoutState) {
  const TemporaryDirectory d;
  const std::string run = (d.path() / "run").string();
  StepRunner whole(partly_frozen({}), {.policy = Policy{}}, cpu_place);
  train_until(whole, 2);
  whole.save(run);
  train_until(whole, 4);
  const std::filesystem::path latest = d.path() / "run" / "latest";
  const size_t all = whole.model().parameters().size();
  EXPECT_EQ(names_in(latest / "parameters.safetensors").size(), all);
  EXPECT_EQ(names_in(latest / "optimizer.safetensors").size(), 2 * (all - frozen));
  const auto expect_resumed = [&] {
    StepRunner resumed(partly_frozen({}), {.policy = Policy{}}, cpu_place, run);
    train_until(resumed, 4);
    EXPECT_TRUE(everything(resumed) == everything(whole));
  };
  expect_resumed();

  // As earlier versions wrote it.
  const std::filesystem::path file = latest / "optimizer.safetensors";
  CpuStream stream(size_t{16} << 20, 1);
  std::vector<NamedTensor> tensors;
  Metadata metadata;
  {
    const SafetensorsReader reader(file);
    metadata = reader.metadata();
    for (const StoredTensor& t : reader.tensors()) {
      tensors.push_back({.name = t.name, .tensor = Tensor({t.spec.shape}, stream)});
    }
    load_tensors(reader, tensors);
  }
  for (const char* row : {"m.", "v."}) {
    for (size_t i = 0; i < frozen; ++i) {
      const Parameter& p = *whole.model().parameters()[i];
      tensors.push_back({.name = row + std::string(std::string_view(p.name)),
                         .tensor = normal(p.data.shape(), DType::f32, stream, i)});
    }
  }
  save_tensors(file, tensors, metadata);
  expect_resumed();

  tensors.push_back({.name = "m.other", .tensor = normal({3}, DType::f32, stream, 1)});
  save_tensors(file, tensors, metadata);
  expect_error(ErrorKind::file, {"m.other"}, expect_resumed);
}

// Random bits depend on a parameter's number among all parameters.
TEST(FrozenParameters, ChangeNoRandomBitOfOthers) {
  CpuStream stream(size_t{16} << 20, 1);
  const auto step = [&](bool freeze) {
    Parameters all(stream, DType::bf16);
    for (const char* name : {"a", "b", "c"}) all.add(name, {3000}, spool::normal(1));
    all.initialise(/*seed=*/5);
    all[0]->trainable = !freeze;
    EXPECT_EQ(all.trainable().size(), freeze ? 2u : 3u);
    AdamWOptimizer optimizer(all.trainable(), {.rounding = Rounding::stochastic}, stream);
    for (size_t i = 1; i < 3; ++i) all[i]->grad = normal({3000}, DType::bf16, stream, i);
    optimizer.step(1e-3, make_tensor<int32_t>({4}, std::vector<int32_t>{1, 2, 0, 0}, stream));
    return std::pair(values(all[1]->data), values(all[2]->data));
  };
  EXPECT_EQ(step(/*freeze=*/true), step(/*freeze=*/false));
}

}  // namespace
}  // namespace spool::testing
