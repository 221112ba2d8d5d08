#pragma once

// The files of a checkpoint of a run:
//   model.safetensors, config.json   the model, as transformers stores it
//   optimizer.safetensors            m.NAME, v.NAME, and master.NAME where there are masters
//   merges.txt, vocab.json, ...      the tokenizer, where it has a vocabulary
//   run.json                         what resuming needs besides: the step, and the configuration

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "spool/models/tokenizers/tokenizer.h"
#include "spool/models/training/trainer.h"

namespace spool {

void save_checkpoint(const std::filesystem::path& directory, Trainer&, const Tokenizer&,
                     const nlohmann::json& run);
void load_checkpoint(const std::filesystem::path& directory, Trainer&);

// run.json, checked.
nlohmann::json read_run(const std::filesystem::path& directory);
// Throws unless what resuming needs is there; `file` is for the sentences.
void check_run(const nlohmann::json& run, const std::string& file);

}  // namespace spool
