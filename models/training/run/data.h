#pragma once

// The data of a run: opened, split, and watched while the run reads it.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "spool/models/data/batches.h"
#include "spool/models/tokenizers/tokenizer.h"
#include "spool/models/training/run/listener.h"
#include "spool/models/training/run_options.h"

namespace spool {

class RunData {
 public:
  // Reads the data once, for its fingerprint; throws if a token is not in the vocabulary, or if the
  // data is too short for a row.
  RunData(const RunOptions&, const Tokenizer&, RunListener&);

  // The rows of all steps.
  const RowSource& training() const { return *training_; }
  // The rows of an evaluation: that many, evenly spread, or all.
  std::unique_ptr<const RowSource> validation(int64_t limit = ValidationRows::all) const;

  // For messages: a path, or "PATH and N more".
  std::string name() const { return split_.training->name(); }
  int64_t training_tokens() const { return split_.training->size(); }
  int64_t validation_tokens() const { return split_.validation->size(); }
  // Those of all validation rows.
  int64_t validation_targets() const { return validation_targets_; }
  // By which a run that resumes notices other data.
  uint64_t fingerprint() const { return fingerprint_; }
  // The files that were written to since the run began.
  std::vector<std::string> changed_files() const;

 private:
  Split split_;
  int64_t seq_;
  uint64_t fingerprint_ = 0;
  int64_t validation_targets_ = 0;
  std::unique_ptr<const RowSource> training_;
};

// A hash of the number of tokens and of the tokens themselves or, of very many, of evenly spread
// blocks.  Checkpoints store it.
uint64_t fingerprint(const TokenSource&, const std::function<void(int64_t hashed)>& progress = {});

}  // namespace spool
