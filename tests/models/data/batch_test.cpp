// runs: threads
// A batch of tokens on its way from the host to a device.

#include "spool/models/data/batch.h"

#include <numeric>

#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/meta/stream.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

TokenBatch numbered(int64_t rows, int64_t T) {
  TokenBatch batch;
  batch.clear(rows, T);
  std::iota(batch.tokens.begin(), batch.tokens.end(), 0);
  std::iota(batch.targets.begin(), batch.targets.end(), -7);
  return batch;
}

TEST(TokenBatch, HasNoValidTargetAtFirst) {
  TokenBatch batch;
  EXPECT_EQ(batch.rows(), 0);
  batch = numbered(3, 4);
  batch.valid = 12;
  batch.clear(2, 5);
  EXPECT_EQ(batch.rows(), 2);
  EXPECT_EQ(batch.tokens, std::vector<int32_t>(10, 0));
  EXPECT_EQ(batch.targets, std::vector<int32_t>(10, ignored_target));
  EXPECT_EQ(batch.valid, 0);
}

// In one piece, in pieces of several rows the last of which is smaller, and row by row.
TEST(BatchInput, HasTheRowsThatWereUploaded) {
  struct Case {
    int64_t B, T;
  };
  for (const auto& [B, T] : {Case{3, 5}, Case{7, 5000}, Case{2, 20000}}) {
    CpuStream stream(size_t{1} << 20, 2);
    BatchInput input(B, T, stream);
    TokenBatch batch = numbered(3 * B, T);
    const TokenBatch wanted = batch;
    for (const int64_t first : {2 * B, B - 1}) {
      input.upload(batch, first);
      std::ranges::fill(batch.tokens, -1);  // the upload no longer reads them
      const auto at = static_cast<int64_t>(first * T), end = at + B * T;
      const auto part = [&](const std::vector<int32_t>& all) {
        return std::vector(all.begin() + at, all.begin() + end);
      };
      EXPECT_EQ(read<int32_t>(input.tokens), part(wanted.tokens));
      EXPECT_EQ(read<int32_t>(input.targets), part(wanted.targets));
      batch = wanted;
    }
    input.upload_placeholder();
    const std::vector<int32_t> zeros(static_cast<size_t>(B * T));
    EXPECT_EQ(read<int32_t>(input.tokens), zeros);
    EXPECT_EQ(read<int32_t>(input.targets), zeros);
  }
}

TEST(BatchInput, RefusesRowsThatAreNotInTheBatch) {
  CpuStream stream(size_t{1} << 20, 1);
  BatchInput input(2, 4, stream);
  const auto refused = [&](const TokenBatch& batch, int64_t first,
                           std::initializer_list<std::string_view> words) {
    expect_error(ErrorKind::invalid, words, [&] { input.upload(batch, first); });
  };
  refused(numbered(3, 4), 2, {"rows 2 to 4 of 4 tokens", "3 rows of 4"});
  refused(numbered(3, 4), -1, {"rows -1 to 1"});
  refused(numbered(1, 4), 0, {"rows 0 to 2", "1 rows"});
  refused(numbered(4, 2), 0, {"of 4 tokens", "4 rows of 2"});
  refused({}, 0, {"0 rows"});
  TokenBatch short_of_targets = numbered(2, 4);
  short_of_targets.targets.pop_back();
  refused(short_of_targets, 0, {"7 targets"});
}

TEST(TokenBatch, OfPackedRowsHasATextOfEachToken) {
  TokenBatch batch;
  batch.clear(2, 3, /*packed=*/true);
  EXPECT_TRUE(batch.is_packed());
  EXPECT_EQ(batch.positions, (std::vector<int32_t>{0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(batch.first, (std::vector<int32_t>{0, 1, 2, 0, 1, 2}));
  batch.clear(1, 2);
  EXPECT_FALSE(batch.is_packed());
  EXPECT_TRUE(batch.first.empty());
}

TEST(BatchInput, HasThePositionsOfPackedRows) {
  CpuStream stream(size_t{1} << 20, 1);
  BatchInput packed(2, 3, stream, /*packed=*/true), alone(2, 3, stream);
  TokenBatch batch;
  batch.clear(4, 3, /*packed=*/true);
  std::iota(batch.positions.begin(), batch.positions.end(), 0);
  packed.upload(batch, 1);
  EXPECT_EQ(read<int32_t>(packed.positions), (std::vector<int32_t>{3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(read<int32_t>(packed.firsts), (std::vector<int32_t>{0, 1, 2, 0, 1, 2}));
  expect_error(ErrorKind::invalid, {"one text each", "not 12"}, [&] { alone.upload(batch, 0); });
  expect_error(ErrorKind::invalid, {"several texts", "6 of each, not 0"},
               [&] { packed.upload(numbered(2, 3), 0); });
  packed.upload_placeholder();
  EXPECT_EQ(read<int32_t>(packed.positions), std::vector<int32_t>(6));
  EXPECT_FALSE(alone.positions);
}

TEST(BatchInput, RehearsesTheCopiesOfABatch) {
  const auto spans = [](const std::function<void(BatchInput&)>& upload, bool packed = false) {
    MetaStream stream(Machine{});
    BatchInput input(7, 5000, stream, packed);
    const auto trace = std::make_shared<Trace>();
    const Traced traced(stream, trace);
    upload(input);
    std::vector<size_t> bytes;
    for (const TraceSpan& span : trace->spans()) bytes.push_back(span.bytes);
    return bytes;
  };
  const auto of_a_batch = spans([](BatchInput& input) { input.upload(numbered(7, 5000), 0); });
  EXPECT_EQ(of_a_batch.size(), 6u);
  EXPECT_EQ(spans([](BatchInput& input) { input.upload_placeholder(); }), of_a_batch);
  const auto packed = spans(
      [](BatchInput& input) {
        TokenBatch batch;
        batch.clear(7, 5000, /*packed=*/true);
        input.upload(batch, 0);
      },
      /*packed=*/true);
  EXPECT_EQ(packed.size(), 12u);
  EXPECT_EQ(spans([](BatchInput& input) { input.upload_placeholder(); }, /*packed=*/true), packed);
}

}  // namespace
}  // namespace spool::testing
