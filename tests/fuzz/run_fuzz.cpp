#include <cstdlib>

#include "fuzz.h"
#include "spool/models/training/run/checkpoint_files.h"
#include "spool/models/training/run_options.h"
#include "spool/runtime/files/json.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace spool;
  const std::string text(reinterpret_cast<const char*>(data), size);
  fuzz::read([&] {
    const StoredRun run = parse_run(parse_json(text, "run.json"));
    EvaluationHistory evaluations = run.evaluations;
    if (evaluations.since_best > 0 && !evaluations.last) std::abort();
    evaluations.add({.step = run.step + 1, .loss = 1});
    RunOptions options = run_options({});
    adopt(options, run.configuration);
    options.training.validate();
  });
  return 0;
}
