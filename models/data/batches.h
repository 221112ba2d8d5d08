#pragma once

// Training data is one long sequence of tokens (token_files.h opens one); Batches and
// ValidationRows choose the windows of it that are read.
//
//   auto data = split_validation(open_texts(find_files(patterns)), nullptr);
//   Batches batches(data.training, T, seed);
//   TokenBatch batch;
//   batches.fill({step * rows, (step + 1) * rows}, batch);
//
// Nothing here has mutable state: what a step reads depends only on the seed and the step's number,
// so a resumed run reads what an uninterrupted one would have read.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "spool/models/data/batch.h"
#include "spool/runtime/random.h"

namespace spool {

class TokenSource {
 public:
  virtual ~TokenSource() = default;
  // For messages: a path, or "PATH and N more".
  virtual std::string name() const = 0;
  virtual int64_t size() const = 0;
  // Reads tokens [begin, begin + out.size()); throws unless all exist.
  virtual void read(int64_t begin, std::span<int32_t> out) const = 0;
  // Names of the files that were written to since they were opened.
  virtual std::vector<std::string> changed_files() const { return {}; }
};

using Tokens = std::shared_ptr<const TokenSource>;

struct Split {
  Tokens training, validation;
};

// Without a validation source, the last tenth of `all` is for validation.
Split split_validation(const Tokens& all, const Tokens& validation);

// A pseudo-random order of [0, extent) whose elements can be computed independently: a Feistel
// network over the smallest even number of bits that suffices, applied until the result is below
// the extent.
class Permutation {
 public:
  Permutation(int64_t extent, uint64_t seed, uint64_t number);
  int64_t operator[](int64_t i) const;

 private:
  uint64_t scramble(uint64_t x) const;

  int64_t extent_;
  PhiloxKey key_;
  int half_bits_;
};

// The endless rows of training batches.  Each epoch visits windows of T + 1 tokens, T apart, once
// each, in its own order.  The start of the first window also changes with the epoch, so that over
// many epochs every token occurs with every length of context.
class Batches {
 public:
  // Throws, naming the length that would fit, if there are fewer than T + 2 tokens.
  Batches(Tokens tokens, int64_t T, uint64_t seed);

  int64_t rows_per_epoch() const { return rows_; }
  // The first token of row `index`, counted over all epochs.
  int64_t begin(int64_t index) const;
  // The batch becomes these rows: T tokens each, and as targets the tokens that follow them.
  void fill(Range rows, TokenBatch&) const;

 private:
  Tokens tokens_;
  int64_t T_;
  uint64_t seed_;
  int64_t rows_;    // of an epoch
  int64_t phases_;  // possible starts of an epoch's first window
};

// The rows of validation, in order.  Over all windows every token but the first is a target
// exactly once; the last window is padded with ignored targets.  A limit selects that many windows,
// evenly spread and always the same.
class ValidationRows {
 public:
  static constexpr int64_t all = 0;

  // Throws if there are fewer than two tokens.
  ValidationRows(Tokens tokens, int64_t T, int64_t limit = all);

  int64_t rows() const { return rows_; }
  // Number of targets in all rows that are not ignored.
  int64_t targets() const;
  // The batch becomes these rows.  Those from rows() on have only ignored targets: they pad the
  // last batch.
  void fill(Range rows, TokenBatch&) const;

 private:
  int64_t begin(int64_t row) const;
  int64_t length(int64_t row) const;

  Tokens tokens_;
  int64_t T_;
  int64_t windows_;  // of the data
  int64_t rows_;     // windows that are read
};

}  // namespace spool
