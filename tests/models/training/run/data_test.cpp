// The data of a run: its fingerprint, which checkpoints store.

#include "spool/models/training/run/data.h"

#include "spool/runtime/hash.h"
#include "tests/models/data/token_list.h"
#include "tests/runtime/testing.h"

namespace spool {
namespace {

// Any number of tokens, none in memory; counts those that are read.
class EndlessTokens : public TokenSource {
 public:
  explicit EndlessTokens(int64_t size) : size_(size) {}
  std::string name() const override { return "endless"; }
  int64_t size() const override { return size_; }
  void read(int64_t begin, std::span<int32_t> out) const override {
    for (size_t i = 0; i < out.size(); ++i) out[i] = token(begin + static_cast<int64_t>(i));
    read_ += std::ssize(out);
  }
  static int32_t token(int64_t i) { return static_cast<int32_t>(i * 2654435761 >> 7 & 255); }
  int64_t tokens_read() const { return read_; }

 private:
  int64_t size_;
  mutable int64_t read_ = 0;
};

// FNV-1a of the number of tokens and, of each `stride` of them, the first 4096.
uint64_t expected(int64_t size, int64_t stride) {
  Fnv1a hash;
  hash.add(static_cast<uint64_t>(size));
  for (int64_t begin = 0; begin < size; begin += stride) {
    for (int64_t i = begin; i < std::min(begin + 4096, size); ++i) {
      hash.add(static_cast<uint64_t>(EndlessTokens::token(i)));
    }
  }
  return hash.state();
}

TEST(Fingerprint, IsOfAllTokensOrOfEvenlySpreadBlocks) {
  EXPECT_EQ(fingerprint(*testing::counting(10)), 16008005851359495338u);
  for (const int64_t size : {int64_t{1}, int64_t{4096}, int64_t{300'001}}) {
    EXPECT_EQ(fingerprint(EndlessTokens(size)), expected(size, 4096)) << size;
  }
  const int64_t max = int64_t{1} << 27, size = 3 * max + 8191;
  const EndlessTokens many(size);
  int64_t hashed = 0;
  EXPECT_EQ(fingerprint(many, [&](int64_t n) { hashed = n; }), expected(size, int64_t{4} * 4096));
  EXPECT_EQ(hashed, many.tokens_read());
  EXPECT_LE(hashed, max + 4096);
}

}  // namespace
}  // namespace spool
