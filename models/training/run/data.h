#pragma once

// The data of a run: opened, split, and watched while the run reads it.

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "spool/models/data/batches.h"
#include "spool/models/tokenizers/tokenizer.h"
#include "spool/models/training/run/listener.h"
#include "spool/models/training/run_options.h"

namespace spool {

class RunData {
 public:
  // Reads the data once, for its fingerprint; throws if a token is not in the vocabulary.
  RunData(const RunOptions&, const Tokenizer&, RunListener&);

  const Tokens& training() const { return split_.training; }
  const Tokens& validation() const { return split_.validation; }
  // By which a run that resumes notices other data.
  uint64_t fingerprint() const { return fingerprint_; }

  // Says which files were written to since the run began; of each file once.
  std::optional<std::string> describe_changes();

 private:
  Split split_;
  uint64_t fingerprint_ = 0;
  std::set<std::string> described_;  // files
};

// A hash of the number of tokens and of the tokens themselves or, of very many, of evenly spread
// blocks.  Checkpoints store it.
uint64_t fingerprint(const TokenSource&, const std::function<void(int64_t hashed)>& progress = {});

// The tokens of a batch, which are in memory: they can be read when the data cannot.
Tokens tokens_of(const TokenBatch&);

}  // namespace spool
