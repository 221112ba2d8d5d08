#pragma once

// The data of a run: opened, split, and watched while the run reads it.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "spool/models/data/batches.h"
#include "spool/models/tokenizers/tokenizer.h"
#include "spool/models/training/run/listener.h"
#include "spool/models/training/run_options.h"

namespace spool {

// A text that a model answers, and the tokens that may end the answer.
struct Prompt {
  std::vector<int32_t> tokens = {};
  std::string words = {};  // the last that the user says
  std::vector<int32_t> stop_tokens = {};
};

class RunData {
 public:
  virtual ~RunData() = default;

  // The rows of all steps.
  virtual const RowSource& training() const = 0;
  // The rows of an evaluation: that many, evenly spread, or all.
  virtual std::unique_ptr<const RowSource> validation(
      int64_t limit = ValidationRows::all) const = 0;
  // Whether several texts share a row.
  virtual bool is_packed() const { return false; }
  // Whether the data is examples, of which a run reads so many epochs.
  virtual bool has_examples() const { return false; }
  // The first prompt to validate with, if there is one.
  virtual std::optional<Prompt> prompt() const { return {}; }

  // For messages: a path, or "PATH and N more".
  virtual std::string name() const = 0;
  // How much it is, in lines.
  virtual std::string in_words() const = 0;
  // The files that were written to since the run began, and are read in it.
  virtual std::vector<std::string> changed_files() const { return {}; }
  // Targets of all validation rows.
  int64_t validation_targets() const { return validation_targets_; }
  // By which a run that resumes notices other data.
  uint64_t fingerprint() const { return fingerprint_; }

 protected:
  int64_t validation_targets_ = 0;
  uint64_t fingerprint_ = 0;
};

// Reads the data once, for its fingerprint, of text and tokens or of examples.  The directory has
// the files of the model, such as its template of chats; empty: there is none.  Throws if a token
// is not in the vocabulary, or if the data is too short.
std::unique_ptr<const RunData> open_run_data(const RunOptions&, const Tokenizer&,
                                             const std::filesystem::path& directory, RunListener&);
std::unique_ptr<const RunData> open_examples(const RunOptions&, const Tokenizer&,
                                             const std::filesystem::path& directory, RunListener&);

// A hash of the number of tokens and of the tokens themselves or, of very many, of evenly spread
// blocks.  Checkpoints store it.
uint64_t fingerprint(const TokenSource&, const std::function<void(int64_t hashed)>& progress = {});

}  // namespace spool
