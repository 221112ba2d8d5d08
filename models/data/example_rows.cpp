#include "spool/models/data/example_rows.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "spool/runtime/check.h"

namespace spool {

RowList::RowList(std::shared_ptr<const Examples> examples, Range among, int64_t seq, bool packs)
    : examples_(std::move(examples)),
      seq_(seq),
      packs_(packs),
      rows_(rows_of(*examples_, among, seq, packs)) {
  for (const std::vector<int64_t>& row : rows_) {
    int64_t targets = 0;
    for (const int64_t example : row) targets += examples_->targets(example);
    targets_.push_back(targets);
    learnt_ += targets;
  }
}

double RowList::fill() const {
  int64_t inputs = 0;
  for (const std::vector<int64_t>& row : rows_) {
    for (const int64_t example : row) inputs += examples_->inputs(example);
  }
  return static_cast<double>(inputs) / static_cast<double>(seq_ * size());
}

void RowList::write(int64_t row, int64_t at, TokenBatch& batch) const {
  int64_t first = 0;
  for (const int64_t example : rows_[static_cast<size_t>(row)]) {
    first += write_example(example, at * seq_, first, batch);
  }
}

// Returns the places that it takes, from `first` on in the row that begins at `at`.
int64_t RowList::write_example(int64_t example, int64_t at, int64_t first,
                               TokenBatch& batch) const {
  const auto tokens = examples_->tokens(example);
  const auto learnt = examples_->learnt(example);
  const size_t inputs = tokens.size() - 1;
  for (size_t i = 0; i < inputs; ++i) {
    const size_t place = static_cast<size_t>(at + first) + i;
    batch.tokens[place] = tokens[i];
    if (learnt[i + 1]) {
      batch.targets[place] = tokens[i + 1];
      ++batch.valid;
    }
    if (!packs_) continue;
    batch.positions[place] = static_cast<int32_t>(i);
    batch.first[place] = static_cast<int32_t>(first);
  }
  return static_cast<int64_t>(inputs);
}

int64_t TrainingExamples::number(int64_t row) const {
  check(row >= 0, "there is no row ", row, " of the training data");
  const int64_t count = rows_.size();
  return Permutation(count, seed_, static_cast<uint64_t>(row / count))[row % count];
}

void TrainingExamples::fill(Range rows, TokenBatch& batch) const {
  check_row_range(rows, "training");
  batch.clear(rows.size(), rows_.seq(), rows_.is_packed());
  for (int64_t i = 0; i < rows.size(); ++i) rows_.write(number(rows.begin + i), i, batch);
}

ValidationExamples::ValidationExamples(std::shared_ptr<const RowList> rows, int64_t limit)
    : rows_(std::move(rows)),
      selected_(limit == ValidationRows::all ? rows_->size() : std::min(limit, rows_->size())) {
  check(limit >= 0, "the number of validation rows must not be negative, and is ", limit);
}

int64_t ValidationExamples::targets(int64_t row) const {
  return row < selected_ ? rows_->targets(number(row)) : 0;
}

void ValidationExamples::fill(Range rows, TokenBatch& batch) const {
  check_row_range(rows, "validation");
  batch.clear(rows.size(), rows_->seq(), rows_->is_packed());
  const int64_t end = std::min(rows.end, selected_);
  for (int64_t row = rows.begin; row < end; ++row) {
    rows_->write(number(row), row - rows.begin, batch);
  }
}

}  // namespace spool
