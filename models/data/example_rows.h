#pragma once

// The rows of a run or an evaluation that reads examples (examples.h).  Packed rows have several,
// each as if it were alone: its positions begin at 0, its tokens attend to no other example, and
// its last token has no target in the next.  What is left of a row has tokens 0 without targets.

#include <memory>
#include <vector>

#include "spool/models/data/batches.h"
#include "spool/models/data/examples.h"

namespace spool {

// The rows that some examples fill.
class RowList {
 public:
  RowList(std::shared_ptr<const Examples>, Range among, int64_t seq, bool packs);

  int64_t size() const { return std::ssize(rows_); }
  int64_t seq() const { return seq_; }
  bool is_packed() const { return packs_; }
  int64_t targets(int64_t row) const { return targets_[static_cast<size_t>(row)]; }
  int64_t learnt() const { return learnt_; }  // targets of all rows
  // The share of all places that has a token of an example.
  double fill() const;
  // Makes a row of a cleared batch that of this number.
  void write(int64_t row, int64_t at, TokenBatch&) const;

 private:
  int64_t write_example(int64_t example, int64_t at, int64_t first, TokenBatch&) const;

  std::shared_ptr<const Examples> examples_;
  int64_t seq_;
  bool packs_;
  std::vector<std::vector<int64_t>> rows_;  // their examples
  std::vector<int64_t> targets_;
  int64_t learnt_ = 0;
};

// Each epoch visits each row once, in its own order, and then the next epoch follows.
class TrainingExamples final : public RowSource {
 public:
  TrainingExamples(RowList rows, uint64_t seed) : rows_(std::move(rows)), seed_(seed) {}

  const RowList& list() const { return rows_; }
  int64_t rows() const override { return rows_.size(); }
  // Rows from rows() on are those of later epochs.
  int64_t targets(int64_t row) const override { return rows_.targets(number(row)); }
  void fill(Range rows, TokenBatch&) const override;

 private:
  int64_t number(int64_t row) const;

  RowList rows_;
  uint64_t seed_;
};

// The rows in order.  A limit selects that many, evenly spread and always the same.
class ValidationExamples final : public RowSource {
 public:
  ValidationExamples(std::shared_ptr<const RowList> rows, int64_t limit = ValidationRows::all);

  int64_t rows() const override { return selected_; }
  int64_t targets(int64_t row) const override;
  // Rows from rows() on have only ignored targets: they pad the last batch.
  void fill(Range rows, TokenBatch&) const override;

 private:
  int64_t number(int64_t row) const { return evenly_spread(row, selected_, rows_->size()); }

  std::shared_ptr<const RowList> rows_;
  int64_t selected_;
};

}  // namespace spool
