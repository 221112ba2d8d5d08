#include "spool/models/data/batches.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "spool/runtime/check.h"

namespace spool {

namespace {

// A window on another source.
class Part : public TokenSource {
 public:
  Part(Tokens whole, int64_t begin, int64_t size)
      : whole_(std::move(whole)), begin_(begin), size_(size) {}

  std::string name() const override { return whole_->name(); }
  int64_t size() const override { return size_; }
  void read(int64_t begin, std::span<int32_t> out) const override {
    const auto count = static_cast<int64_t>(out.size());
    check(0 <= begin && count <= size_ && begin <= size_ - count, name(), ": tokens ", begin,
          " to ", begin + count, " of ", size_, " were asked for");
    whole_->read(begin_ + begin, out);
  }

 private:
  Tokens whole_;
  int64_t begin_, size_;
};

// Separates these draws from others under the same seed.
constexpr uint32_t order_purpose = 0x64617461;

// A key for one purpose, number and part of it: an epoch's order, or its phase.
PhiloxKey derived_key(uint64_t seed, uint64_t number, uint32_t part) {
  const PhiloxCounter words = philox(
      philox_key(seed),
      {static_cast<uint32_t>(number), static_cast<uint32_t>(number >> 32), order_purpose, part});
  return {words[0], words[1]};
}

// Evenly in [0, extent), but for a bias below extent / 2^64.
int64_t draw(PhiloxKey key, int64_t extent) {
  const PhiloxCounter words = philox(key, {});
  const uint64_t word = uint64_t{words[0]} << 32 | words[1];
  return static_cast<int64_t>(word % static_cast<uint64_t>(extent));
}

void check_room(std::span<const int32_t> tokens, std::span<const int32_t> targets, int64_t T) {
  const auto fits = static_cast<size_t>(T);
  check(tokens.size() == fits && targets.size() == fits, "a row of ", T,
        " tokens was given room for ", tokens.size(), " and for ", targets.size(), " targets");
}

}  // namespace

Split split_validation(const Tokens& all, const Tokens& validation) {
  if (validation) return {all, validation};
  const int64_t kept = all->size() / 10, rest = all->size() - kept;
  return {std::make_shared<Part>(all, 0, rest), std::make_shared<Part>(all, rest, kept)};
}

Permutation::Permutation(int64_t extent, uint64_t seed, uint64_t number)
    : extent_(extent), key_(derived_key(seed, number, 0)) {
  check(extent > 0, "a permutation of ", extent, " things");
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
  check(0 <= i && i < extent_, "place ", i, " of a permutation of ", extent_);
  const auto extent = static_cast<uint64_t>(extent_);
  uint64_t x = static_cast<uint64_t>(i);
  do {
    x = scramble(x);
  } while (x >= extent);
  return static_cast<int64_t>(x);
}

Batches::Batches(Tokens tokens, int64_t T, uint64_t seed)
    : tokens_(std::move(tokens)), T_(T), seed_(seed) {
  const int64_t n = tokens_->size();
  check(T > 0, "--seq ", T, ": a row has at least one token");
  check_file(n >= 3, tokens_->name(), "has ", n,
             " tokens for training, too few for any --seq: three are needed");
  check_file(n - 2 >= T, tokens_->name(), "has ", n, " tokens for training, too few for --seq ", T,
             "; --seq ", n - 2, " or less would fit");
  rows_ = std::max<int64_t>(1, n / T - 1);
  phases_ = n - rows_ * T;
}

int64_t Batches::begin(int64_t index) const {
  check(index >= 0, "row ", index, " of the training data");
  const auto epoch = static_cast<uint64_t>(index / rows_);
  const int64_t phase = draw(derived_key(seed_, epoch, 1), phases_);
  return phase + T_ * Permutation(rows_, seed_, epoch)[index % rows_];
}

void Batches::fill(int64_t index, std::span<int32_t> tokens, std::span<int32_t> targets) const {
  check_room(tokens, targets, T_);
  const int64_t first = begin(index);
  tokens_->read(first, tokens);
  tokens_->read(first + 1, targets);
}

ValidationRows::ValidationRows(Tokens tokens, int64_t T, int64_t limit)
    : tokens_(std::move(tokens)), T_(T) {
  const int64_t n = tokens_->size();
  check(T > 0, "--seq ", T, ": a row has at least one token");
  check(limit >= 0, "validation on ", limit, " rows");
  check_file(n >= 2, tokens_->name(), "has ", n,
             " tokens for validation, and at least 2 are needed; give more data, or validation "
             "files of their own");
  windows_ = (n - 2) / T + 1;
  rows_ = limit == all ? windows_ : std::min(limit, windows_);
}

int64_t ValidationRows::begin(int64_t row) const {
  // In two parts, so that the product cannot overflow.
  const int64_t whole = windows_ / rows_, rest = windows_ % rows_;
  return T_ * (row * whole + row * rest / rows_);
}

int64_t ValidationRows::length(int64_t row) const {
  return row < rows_ ? std::min(T_, tokens_->size() - 1 - begin(row)) : 0;
}

int64_t ValidationRows::targets() const { return (rows_ - 1) * T_ + length(rows_ - 1); }

void ValidationRows::fill(int64_t row, std::span<int32_t> tokens,
                          std::span<int32_t> targets) const {
  check(row >= 0, "row ", row, " of the validation data");
  check_room(tokens, targets, T_);
  const auto count = static_cast<size_t>(length(row));
  std::ranges::fill(tokens.subspan(count), 0);
  std::ranges::fill(targets.subspan(count), ignored_target);
  if (count == 0) return;
  tokens_->read(begin(row), tokens.first(count));
  tokens_->read(begin(row) + 1, targets.first(count));
}

}  // namespace spool
