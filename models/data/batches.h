#pragma once

// The rows that a run reads.  A RowSource numbers them and fills batches with them.  Those of texts
// are windows of one long sequence of tokens, a TokenSource (token_files.h opens one);
// example_rows.h has those of examples.
//
//   auto data = split_validation(open_texts(find_files(patterns)), nullptr);
//   TrainingRows rows(data.training, T, seed);
//   TokenBatch batch;
//   rows.fill({step * rows_per_step, (step + 1) * rows_per_step}, batch);
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

class RowSource {
 public:
  virtual ~RowSource() = default;
  // The number of different rows: of an epoch, or of an evaluation.
  virtual int64_t rows() const = 0;
  // The number of targets of a row that are not ignored.
  virtual int64_t targets(int64_t row) const = 0;
  // The batch becomes these rows, from 0 on; what those from rows() on are, the source says.
  virtual void fill(Range rows, TokenBatch&) const = 0;
};

// The number of targets in all rows that are not ignored.
int64_t targets_of(const RowSource&);

// Throws unless they can be rows of this data, such as "training".
void check_row_range(Range rows, const char* data);

// The i-th of `count` evenly spread ones of `all`.
int64_t evenly_spread(int64_t i, int64_t count, int64_t all);

// The rows of training: windows of T + 1 tokens, of which the first T are a row and the last T its
// targets.  The windows are T apart.  Each epoch visits each of them once, in its own order, and
// then the next epoch follows.  The start of the first window also changes with the epoch, so that
// over many epochs every token occurs with every length of context.
class TrainingRows final : public RowSource {
 public:
  // Throws, naming the length that would fit, if there are fewer than T + 2 tokens.
  TrainingRows(Tokens tokens, int64_t T, uint64_t seed);

  int64_t rows() const override { return rows_; }
  int64_t targets(int64_t) const override { return T_; }
  // Rows from rows() on are those of later epochs.
  void fill(Range rows, TokenBatch&) const override;
  // The first token of a row, counted over all epochs.
  int64_t begin(int64_t row) const;

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
class ValidationRows final : public RowSource {
 public:
  static constexpr int64_t all = 0;

  // Throws if there are fewer than two tokens.
  ValidationRows(Tokens tokens, int64_t T, int64_t limit = all);

  int64_t rows() const override { return rows_; }
  int64_t targets(int64_t row) const override;
  // Rows from rows() on have only ignored targets: they pad the last batch.
  void fill(Range rows, TokenBatch&) const override;

 private:
  int64_t begin(int64_t row) const;

  Tokens tokens_;
  int64_t T_;
  int64_t windows_;  // of the data
  int64_t rows_;     // windows that are read
};

}  // namespace spool
