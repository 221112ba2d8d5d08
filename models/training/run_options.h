#pragma once

// What a user asks of a training run.  Its configuration determines the losses: on one device, two
// runs of the same configuration have the same losses, bit for bit, except that AdamW on the host
// of a GPU rounds as the host does (host_adamw.h).

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "spool/models/tokenizers/tokenizer_choice.h"
#include "spool/models/training/trainer.h"

namespace spool {

class JsonField;

struct RunOptions {
  // The configuration.
  std::string model = "gpt2-tiny";  // a preset, or a path to weights to go on from
  TrainingConfig training = {};
  std::vector<std::string> data = {}, val_data = {};  // paths and globs; no data: default_texts
  TokenizerChoice tokenizer = {};                     // of the data; its vocabulary is a file

  // The rest changes nothing but where and how the run goes.
  Device device = {};
  bool graph = true;  // record a step and replay it, where the device can
  int threads = 0;    // 0: one per core
  Policy policy = {};
  std::string spill_directory = {};       // where values are offloaded to a disk
  std::string plan = {}, save_plan = {};  // files: instead of the policy's; to write
  size_t memory = 0;                      // bytes; 0: the foretold peak
  std::string out = {}, log = {}, trace = {};
  std::filesystem::path default_texts = {};  // the tree whose texts are read if there is no data
  bool resume = false;
  int64_t checkpoint_every = 0, eval_every = 0, sample_every = 0;  // steps; 0: only at the end
  int keep_checkpoints = 2;

  // Keys of the settings that were given; the others may come from a preset or a stored run.
  std::set<std::string> given = {};
};

// Whether a model is a path to weights.
bool has_weights(const std::string& model);

// A preset, or a model with weights, with the settings that suit it; throws a sentence with the
// presets there are.
TrainingConfig training_preset(const std::string& model);

// The configuration, each setting under its flag.
nlohmann::json configuration(const RunOptions&);

// Takes the configuration of a stored run.  Throws if a flag that was given says otherwise.
void adopt(RunOptions&, const JsonField& stored);

}  // namespace spool
