#pragma once

// The files of a run's checkpoint:
//   model.safetensors, config.json   the model, as transformers stores it
//   optimizer.safetensors            m.NAME, v.NAME, and master.NAME if there are masters
//   merges.txt, vocab.json, ...      the tokenizer, if it has a vocabulary
//   run.json                         the step, and the configuration for resuming

#include <filesystem>

#include "spool/models/tokenizers/tokenizer.h"
#include "spool/models/training/run_options.h"
#include "spool/models/training/trainer.h"
#include "spool/runtime/files/json.h"

namespace spool {

// The contents of run.json.
struct StoredRun {
  int64_t step = 0;
  uint64_t data_fingerprint = 0;
  JsonField configuration;
};

// What a checkpoint is made of.
struct RunState {
  Trainer& trainer;
  const Tokenizer& tokenizer;
  const RunOptions& options;
  int64_t step = 0;  // steps done
  uint64_t data_fingerprint = 0;
};

void save_checkpoint(const std::filesystem::path& directory, const RunState&);
void load_checkpoint(const std::filesystem::path& directory, Trainer&, const FileProgress& = {});

// Throws if a file has a value that is not finite; for when the numbers of a run are not.
void check_finite_checkpoint(const std::filesystem::path& directory);

// Reads run.json; throws if a field is missing or wrong.
StoredRun read_run(const std::filesystem::path& directory);
StoredRun parse_run(const JsonField& run);

}  // namespace spool
