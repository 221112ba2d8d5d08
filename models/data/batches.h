#pragma once

// Training data: a long sequence of tokens (token_files.h makes one), and which windows of it are
// read when.
//
//   auto data = split_validation(open_texts(find_files(patterns)), nullptr);
//   Batches batches(data.training, T, seed);
//   batches.fill(((step * accumulate) + micro) * B + b, tokens, targets);
//
// Nothing here has a state: what a step reads is a function of the seed and the step's number
// alone, so that a resumed run reads what the run that was never stopped would have read.

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "spool/runtime/random.h"

namespace spool {

// The target of a position that does not count.
inline constexpr int32_t ignored_target = -100;

class TokenSource {
 public:
  virtual ~TokenSource() = default;
  // What it is, for sentences: a path, or a path and how many more.
  virtual std::string name() const = 0;
  virtual int64_t size() const = 0;
  // Tokens [begin, begin + out.size()), all of which there must be.
  virtual void read(int64_t begin, std::span<int32_t> out) const = 0;
};

using Tokens = std::shared_ptr<const TokenSource>;

struct Split {
  Tokens training, validation;
};

// Without a validation source of its own, the last tenth of `all` is kept for validation.
Split split_validation(const Tokens& all, const Tokens& validation);

// A pseudo-random order of [0, extent), any place of which can be asked for alone: a Feistel
// network on the smallest even number of bits that holds the extent, walked until it lands inside.
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

// The rows of training batches, endlessly.  In each epoch windows of T + 1 tokens, T apart, come
// once each in an order of the epoch's own; where the first one starts changes with the epoch too,
// so that in time every token is seen with every length of context.
class Batches {
 public:
  // Throws with the --seq that would fit if there are fewer than T + 2 tokens.
  Batches(Tokens tokens, int64_t T, uint64_t seed);

  int64_t rows_per_epoch() const { return rows_; }
  // The first token of the index-th row ever.
  int64_t begin(int64_t index) const;
  // The index-th row ever: T tokens, and the T tokens one further.
  void fill(int64_t index, std::span<int32_t> tokens, std::span<int32_t> targets) const;

 private:
  Tokens tokens_;
  int64_t T_;
  uint64_t seed_;
  int64_t rows_;    // an epoch
  int64_t phases_;  // places where the first window may start
};

// The rows of validation, in order.  All windows together make every token but the first a target
// exactly once; the last is filled up with ignored targets.  With a limit, that many of them,
// evenly spread and always the same.
class ValidationRows {
 public:
  static constexpr int64_t all = 0;

  // Throws if there are fewer than two tokens.
  ValidationRows(Tokens tokens, int64_t T, int64_t limit = all);

  int64_t rows() const { return rows_; }
  // Targets that count, in all rows.
  int64_t targets() const;
  // A row from rows() on has no target that counts: it fills up the last batch.
  void fill(int64_t row, std::span<int32_t> tokens, std::span<int32_t> targets) const;

 private:
  int64_t begin(int64_t row) const;
  int64_t length(int64_t row) const;

  Tokens tokens_;
  int64_t T_;
  int64_t windows_;  // that there are
  int64_t rows_;     // that are taken
};

}  // namespace spool
