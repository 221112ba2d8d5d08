#pragma once

// The files of a run's checkpoint:
//   model.safetensors, config.json   the model, as transformers stores it; or
//   adapter_model.safetensors, ...   the adapters, where they alone are trained (adapter_file.h)
//   optimizer.safetensors            m.NAME, v.NAME, and master.NAME if there are masters
//   merges.txt, vocab.json, ...      the tokenizer, if it has a vocabulary
//   run.json                         the step, and the configuration for resuming
//
// The files belong together: run.json and both safetensors files hold the step and the same hash of
// what determines the run's numbers, which is its configuration without paths and evaluations, the
// fingerprint of its data, and the initial weights if they came from a file.  Device, policy and
// threads are not part of it, as they change no number.
//
// run.json also has the order of sums of gradients (steps/exchange/gradient_sums.h), hashes of the
// vocabulary's files, the algorithms of a GPU's matrix products, the last and the best evaluation,
// and a fingerprint of a step's ops, by which a run notices that a program of other ops continues
// it.  Checkpoints of earlier versions have none of this.

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "spool/kernels/matmul_algorithms.h"
#include "spool/models/formats/checkpoint_mark.h"
#include "spool/models/formats/run_directory.h"
#include "spool/models/tokenizers/tokenizer.h"
#include "spool/models/training/run/evaluation_history.h"
#include "spool/models/training/run_options.h"
#include "spool/models/training/trainer.h"
#include "spool/runtime/files/json.h"

namespace spool {

// The contents of run.json.
struct StoredRun {
  int64_t step = 0;
  uint64_t data_fingerprint = 0;
  std::optional<uint64_t> initial_weights = {};  // their hash, if the run began from weights
  JsonField configuration;
  std::optional<CheckpointMark> mark = {};
  std::map<std::string, std::string> vocabulary = {};  // hashes of its files, by name
  MatmulAlgorithms products = {};
  std::optional<uint64_t> tape = {};  // the fingerprint of a step's tape (autograd/fingerprint.h)
  EvaluationHistory evaluations = {};
  std::optional<ChunkRows> evaluation_rows = {};  // none: of an earlier version
  std::optional<int> summed_ranks = {};  // gradient_sums.h; none: of before there were ranks
};

// What a checkpoint is made of.
struct CheckpointContents {
  Trainer& trainer;
  const Tokenizer& tokenizer;
  const RunOptions& options;
  int64_t step = 0;  // steps done
  uint64_t data_fingerprint = 0;
  std::optional<uint64_t> initial_weights = {};
  uint64_t tape = 0;  // the fingerprint of a step's tape
  EvaluationHistory evaluations = {};
  MatmulAlgorithms products = {};
  std::filesystem::path model = {};  // a directory with other files of the model, if there is one
  std::filesystem::path base = {};   // of adapters: the model that they change
  std::vector<int32_t> stop_tokens = {};  // that this model's files name
};

// A hash of the weights that a run begins from, as exact as the trainer keeps them: the same for
// any form of the file that they were loaded from.  With adapters, of what they change.
uint64_t hash_of_weights(Trainer&);

void save_checkpoint(const std::filesystem::path& directory, const CheckpointContents&);
// Writes a checkpoint of a run.  One that cannot be written leaves nothing; the error says what it
// takes, if that is more than is free, and which checkpoint is the latest.
void write_checkpoint(RunDirectory&, const CheckpointContents&);

// Replaces the evaluations in a checkpoint's run.json.
void store_evaluations(const std::filesystem::path& directory, const EvaluationHistory&);

// Loads the model and the state.  `base` is where the model is that adapters change, if not where
// the checkpoint says.  Returns that place, of a run of adapters.
std::filesystem::path load_checkpoint(const std::filesystem::path& directory,
                                      const std::filesystem::path& base, Trainer&,
                                      const FileProgress& = {});

// Throws if a file has a value that is not finite; for when the numbers of a run are not.
void check_finite_checkpoint(const std::filesystem::path& directory);

// Reads run.json; throws if a field is missing or wrong, or if a file of the checkpoint does not
// belong to it.
StoredRun read_run(const std::filesystem::path& directory);
StoredRun parse_run(const JsonField& run);

}  // namespace spool
