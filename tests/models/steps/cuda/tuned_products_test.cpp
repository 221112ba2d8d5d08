// runs: emulator
// The table of tuned algorithms of products: used alike where kernels are measured and where steps
// run, part of what is measured, kept by a run in its checkpoints, and said where it is no use.

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <sstream>

#include "spool/models/steps/step_calibration.h"
#include "spool/models/steps/step_runner.h"
#include "spool/planner/machines/device_identity.h"
#include "spool/planner/machines/matmul_table.h"
#include "spool/runtime/files/file.h"
#include "spool/runtime/log.h"
#include "tests/emulator/include/cublasLt.h"
#include "tests/kernels/cuda_testing.h"
#include "tests/models/steps/transformer_testing.h"
#include "tests/runtime/environment.h"
#include "tests/runtime/temporary_directory.h"

namespace spool::testing {
namespace {

const Device cuda{DeviceType::cuda};

class CudaTunedProducts : public ::testing::Test {
 protected:
  CudaTunedProducts() {
    std::filesystem::create_directories(cache_folder());
    const auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(log_);
    set_logger(std::make_shared<spdlog::logger>("test", sink));
  }
  ~CudaTunedProducts() override { set_logger(std::make_shared<spdlog::logger>("none")); }

  // Tables of this device, in which the forms of a step take this place.
  MatmulAlgorithms table(int place) {
    StepRunner runner(step(), StepRequest{.budget = on_both}, this_place());
    train(runner, runner.steps() + 1);
    MatmulAlgorithms all = matmul_algorithms(runner.stream());
    EXPECT_FALSE(all.places.empty());
    for (auto& [form, at] : all.places) at = place;
    return all;
  }
  void tune(const MatmulAlgorithms& table) const {
    save_matmul_table(matmul_table_file(cache_folder(), table), table);
  }
  StepDescription step() const { return describe({}); }
  // With a clock, so that nothing is measured.
  StepPlace this_place() const {
    return {.device = cuda,
            .machine = Machine{.architecture = open_stream(cuda, Arena::granule)->architecture()}};
  }
  // Returns the algorithm of the last product.
  int train(StepRunner& runner, int64_t last) const {
    while (runner.steps() < last) {
      runner.step(/*learning_rate=*/0.01, /*targets=*/32,
                  [&](int64_t micro) { runner.model<Transformer>().upload(micro); });
    }
    return emulator::cublas_lt().last_algorithm;
  }
  std::string said() {
    std::string text = log_.str();
    log_.str("");
    return text;
  }

  std::ostringstream log_;
  TemporaryDirectory folder_, out_;
  EnvironmentVariable cache_{"XDG_CACHE_HOME", folder_.path().string()};
};

TEST_F(CudaTunedProducts, ARunTakesThemAndKeepsThemWhateverIsTunedLater) {
  const StepRequest request{.budget = on_both};
  tune(table(/*place=*/1));
  const std::string run = (out_.path() / "run").string();
  {
    StepRunner runner(step(), request, this_place());
    EXPECT_EQ(train(runner, 1), 1);
    runner.save(run);
  }
  tune(table(/*place=*/0));
  {
    StepRunner fresh(step(), request, this_place());
    EXPECT_EQ(train(fresh, 1), 0);
    StepRunner resumed(step(), request, this_place(), run);
    EXPECT_EQ(train(resumed, 2), 1);
    resumed.save(run);
  }
  StepRunner again(step(), request, this_place(), run);
  EXPECT_EQ(train(again, 3), 1);
  EXPECT_EQ(said(), "");
}

TEST_F(CudaTunedProducts, RenewWhatIsMeasured) {
  CalibrationRequest request{.device = cuda, .folder = cache_folder()};
  request.is_of_use = [](const Machine&) { return false; };  // only names the table
  const auto file_of = [&] { return calibrate(request).file; };
  request.samples = {measurable_step(step(), {})};
  request.work = request.samples.front();
  const auto none = file_of();
  const MatmulAlgorithms first = table(/*place=*/1);
  tune(first);
  const auto tuned = file_of();
  EXPECT_NE(tuned, none);
  tune(table(/*place=*/0));
  EXPECT_NE(file_of(), tuned);
  EXPECT_NE(file_of(), none);
  request.products = first;  // a run that began with it goes on
  EXPECT_EQ(file_of(), tuned);
  request.products = MatmulAlgorithms{};  // or began without
  EXPECT_EQ(file_of(), none);
}

TEST_F(CudaTunedProducts, AreMeasuredAsTheyRun) {
  tune(table(/*place=*/1));
  const auto stream = open_stream(cuda, Arena::granule);
  const DeviceIdentity device = identify(*stream, DType::f32, use_tuned_products(*stream));
  save_table(table_file(cache_folder(), device),
             {.device = device, .rates = Machine{}});  // an emulated device takes long
  CalibrationRequest request{.device = cuda, .folder = cache_folder()};
  request.samples = {measurable_step(step(), {})};
  request.work = request.samples.front();
  emulator::cublas_lt().last_algorithm = 0;
  EXPECT_GT(calibrate(request).measured, 0u);
  EXPECT_EQ(emulator::cublas_lt().last_algorithm, 1);
}

TEST_F(CudaTunedProducts, ThatAreOfNoUseAreSaidAndNotTaken) {
  const auto stream = open_stream(cuda, Arena::granule);
  MatmulAlgorithms all = table(/*place=*/1);
  const auto file = matmul_table_file(cache_folder(), all);
  const auto expect_refused = [&](const char* word, const std::optional<MatmulAlgorithms>& of_run) {
    EXPECT_TRUE(use_tuned_products(*stream, of_run).places.empty());
    EXPECT_NE(said().find(word), std::string::npos) << word;
  };
  write_text_file_atomically(file, "{\"format\": ");
  expect_refused(file.filename().c_str(), {});
  MatmulAlgorithms other = all;
  other.device = "another GPU";
  save_matmul_table(file, other);
  expect_refused("another device", {});
  expect_refused("another GPU", other);
  other = all;
  ++other.library;
  save_matmul_table(file, other);
  expect_refused("another device or library", {});
  expect_refused("cannot take", other);
  save_matmul_table(file, all);
  EXPECT_EQ(use_tuned_products(*stream).places, all.places);
  EXPECT_EQ(said(), "");
}

}  // namespace
}  // namespace spool::testing
