// Times cuBLASLt's algorithms for the products of a model's steps on a GPU, and writes the table
// that `spool train` reads when a run begins (kernels/matmul_algorithms.h):
//
//   tune [--model=gpt2-124m] [--batch=32] [--seq=1024] [--chunk-loss=0] [--copy=FILE]
//
// It adds to the table in the user's cache, and writes a copy if asked.  A step is run in bf16,
// kernel by kernel; each form of product is computed several times by each algorithm.

#include <iostream>

#include "shared/device.h"
#include "shared/token_batch.h"
#include "spool/models/families/families.h"
#include "spool/models/training/trainer.h"
#include "spool/planner/machines/device_identity.h"
#include "spool/planner/machines/matmul_table.h"

namespace spool {
namespace {

MatmulAlgorithms time_step(const TrainingConfig& config) {
  StepPlans plans = make_plans(config);
  plans.graph = false;
  const Machine machine{.architecture =
                            open_stream({DeviceType::cuda}, Arena::granule)->architecture()};
  const Report foretold = rehearse(machine, [&](MetaStream& meta) {
    Trainer trainer(config, plans, meta);
    trainer.initialise();
    trainer.rehearse_step();
  });
  const auto stream = open_stream({DeviceType::cuda}, foretold.memory.peak);
  Trainer trainer(config, plans, *stream);
  trainer.initialise();
  trainer.prepare();  // runs on NaN, with which a device may be faster
  time_matmul_algorithms(*stream);
  trainer.step(0, benchmarks::random_batch(config));
  stream->synchronize();
  return matmul_algorithms(*stream);
}

void tune(const TrainingConfig& config, const std::string& copy) {
  const std::filesystem::path folder = cache_folder();
  check(!folder.empty(), "tune: there is no cache folder; set XDG_CACHE_HOME or HOME");
  MatmulAlgorithms table = time_step(config);
  std::filesystem::create_directories(folder);
  const std::filesystem::path file = matmul_table_file(folder, table);
  int changed = 0;
  for (const auto& [form, place] : table.places) changed += place > 0;
  std::cout << table.places.size() << " forms, of which " << changed
            << " take another algorithm than the first: " << file.string() << "\n";
  table.places.merge(load_matmul_table(folder, table).places);
  save_matmul_table(file, table);
  if (!copy.empty()) save_matmul_table(copy, table);
}

}  // namespace
}  // namespace spool

int main(int argc, char** argv) {
  using namespace spool;
  const auto argument = [&](const char* name, const char* otherwise) {
    return benchmarks::take_argument(argc, argv, name, otherwise);
  };
  return benchmarks::report_errors([&] {
    const std::string model = argument("model", "gpt2-124m"), copy = argument("copy", "");
    const std::optional<ModelPreset> preset = model_preset(model);
    check(preset.has_value(), "tune: there is no preset ", model);
    const TrainingConfig config{.model = preset->config,
                                .dtype = DType::bf16,
                                .batch = std::stoll(argument("batch", "32")),
                                .seq = std::stoll(argument("seq", "1024")),
                                .chunks = {.loss_rows = std::stoll(argument("chunk-loss", "0"))}};
    tune(config, copy);
  });
}
