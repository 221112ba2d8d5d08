#include "spool/models/data/batches.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "spool/runtime/check.h"

namespace spool {

namespace {

// A range of another source.
class TokenRange : public TokenSource {
 public:
  TokenRange(Tokens whole, int64_t begin, int64_t size)
      : whole_(std::move(whole)), begin_(begin), size_(size) {}

  std::string name() const override { return whole_->name(); }
  int64_t size() const override { return size_; }
  void read(int64_t begin, std::span<int32_t> out) const override {
    const auto count = static_cast<int64_t>(out.size());
    check(0 <= begin && count <= size_ && begin <= size_ - count, name(), ": tokens ", begin,
          " to ", begin + count, " do not exist: there are ", size_);
    whole_->read(begin_ + begin, out);
  }
  std::vector<std::string> changed_files() const override { return whole_->changed_files(); }

 private:
  Tokens whole_;
  int64_t begin_, size_;
};

// Makes these draws independent of others with the same seed.
constexpr uint32_t order_purpose = 0x64617461;

// A key for one use of epoch `number`: 0 for its order, 1 for its phase.
PhiloxKey derived_key(uint64_t seed, uint64_t number, uint32_t use) {
  const PhiloxCounter words = philox(
      philox_key(seed),
      {static_cast<uint32_t>(number), static_cast<uint32_t>(number >> 32), order_purpose, use});
  return {words[0], words[1]};
}

// Uniform in [0, extent), with a bias below extent / 2^64.
int64_t draw(PhiloxKey key, int64_t extent) {
  const PhiloxCounter words = philox(key, {});
  const uint64_t word = uint64_t{words[0]} << 32 | words[1];
  return static_cast<int64_t>(word % static_cast<uint64_t>(extent));
}

void check_sequence_length(int64_t T) {
  check_setting(T > 0, {"seq"}, "the sequence length is ", T, ", and must be at least 1");
}

// A row begins with `count` tokens of the source, from `begin` on; their targets are the tokens
// that follow each.  Each token is read once.
void read_row(const TokenSource& source, int64_t begin, int64_t count, int64_t row,
              TokenBatch& batch) {
  if (count == 0) return;
  const auto length = static_cast<size_t>(count);
  std::vector<int32_t> all(length + 1);
  source.read(begin, all);
  std::ranges::copy(std::span(all).first(length), batch.tokens.begin() + row * batch.T);
  std::ranges::copy(std::span(all).last(length), batch.targets.begin() + row * batch.T);
  batch.valid += count;
}

}  // namespace

Split split_validation(const Tokens& all, const Tokens& validation) {
  if (validation) return {all, validation};
  const int64_t held_out = all->size() / 10, rest = all->size() - held_out;
  return {std::make_shared<TokenRange>(all, 0, rest),
          std::make_shared<TokenRange>(all, rest, held_out)};
}

Permutation::Permutation(int64_t extent, uint64_t seed, uint64_t number)
    : extent_(extent), key_(derived_key(seed, number, 0)) {
  check(extent > 0, "a permutation of ", extent, " elements");
  const int bits = std::bit_width(static_cast<uint64_t>(extent - 1));
  half_bits_ = std::max(1, (bits + 1) / 2);
}

uint64_t Permutation::scramble(uint64_t x) const {
  // Four rounds suffice in theory; halves of a few bits mix slowly.
  constexpr uint32_t rounds = 8;
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = x >> half_bits_, right = x & mask;
  for (uint32_t round = 0; round < rounds; ++round) {
    const uint64_t mixed = philox(key_, {static_cast<uint32_t>(right), round, 0, 0})[0];
    left = std::exchange(right, (left ^ mixed) & mask);
  }
  return left << half_bits_ | right;
}

int64_t Permutation::operator[](int64_t i) const {
  check(0 <= i && i < extent_, "element ", i, " of a permutation of ", extent_);
  const auto extent = static_cast<uint64_t>(extent_);
  uint64_t x = static_cast<uint64_t>(i);
  do {
    x = scramble(x);
  } while (x >= extent);
  return static_cast<int64_t>(x);
}

int64_t targets_of(const RowSource& source) {
  int64_t targets = 0;
  for (int64_t row = 0; row < source.rows(); ++row) targets += source.targets(row);
  return targets;
}

void check_row_range(Range rows, const char* data) {
  check(rows.begin >= 0, "there is no row ", rows.begin, " of the ", data, " data");
  check(rows.end >= rows.begin, "rows ", rows.begin, " to ", rows.end, " of the ", data, " data");
}

// In two parts, because i * all might overflow.
int64_t evenly_spread(int64_t i, int64_t count, int64_t all) {
  const int64_t whole = all / count, rest = all % count;
  return i * whole + i * rest / count;
}

TrainingRows::TrainingRows(Tokens tokens, int64_t T, uint64_t seed)
    : tokens_(std::move(tokens)), T_(T), seed_(seed) {
  const int64_t n = tokens_->size();
  check_sequence_length(T);
  check_file(n >= 3, tokens_->name(), "has ", n, " tokens for training, and at least 3 are needed");
  check_file_setting(n - 2 >= T, tokens_->name(), {"seq"}, "has ", n,
                     " tokens for training, too few for a sequence length of ", T, "; ", n - 2,
                     " or less would fit");
  rows_ = std::max<int64_t>(1, n / T - 1);
  phases_ = n - rows_ * T;
}

int64_t TrainingRows::begin(int64_t row) const {
  check(row >= 0, "there is no row ", row, " of the training data");
  const auto epoch = static_cast<uint64_t>(row / rows_);
  const int64_t phase = draw(derived_key(seed_, epoch, 1), phases_);
  return phase + T_ * Permutation(rows_, seed_, epoch)[row % rows_];
}

void TrainingRows::fill(Range rows, TokenBatch& batch) const {
  check_row_range(rows, "training");
  batch.clear(rows.size(), T_);
  for (int64_t i = 0; i < rows.size(); ++i) {
    read_row(*tokens_, begin(rows.begin + i), /*count=*/T_, i, batch);
  }
}

ValidationRows::ValidationRows(Tokens tokens, int64_t T, int64_t limit)
    : tokens_(std::move(tokens)), T_(T) {
  const int64_t n = tokens_->size();
  check_sequence_length(T);
  check(limit >= 0, "the number of validation rows must not be negative, and is ", limit);
  check_file(n >= 2, tokens_->name(), "has ", n,
             " tokens for validation, and at least 2 are needed; give more data, or separate "
             "validation files");
  windows_ = (n - 2) / T + 1;
  rows_ = limit == all ? windows_ : std::min(limit, windows_);
}

int64_t ValidationRows::begin(int64_t row) const {
  return T_ * evenly_spread(row, rows_, windows_);
}

int64_t ValidationRows::targets(int64_t row) const {
  return row < rows_ ? std::min(T_, tokens_->size() - 1 - begin(row)) : 0;
}

void ValidationRows::fill(Range rows, TokenBatch& batch) const {
  check_row_range(rows, "validation");
  batch.clear(rows.size(), T_);
  for (int64_t i = 0; i < rows.size(); ++i) {
    const int64_t row = rows.begin + i;
    read_row(*tokens_, begin(row), targets(row), i, batch);
  }
}

}  // namespace spool
