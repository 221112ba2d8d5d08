// runs: threads
// A share of the state on the device, the rest streamed: it uses the bytes it may, and any share
// has the same bits, in tensors that can be read and written.

#include "spool/models/optimizers/state_rows.h"

#include <algorithm>

#include "spool/kernels/weights.h"
#include "spool/runtime/integer.h"
#include "tests/models/optimizers/optimizer_testing.h"
#include "tests/runtime/environment.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

const std::vector<int64_t> numels{1, 5000, 70001, 2048, 4097, 3, 12345};
const OptimizerForm forms[] = {
    {},
    {.type = DType::bf16, .gradient = DType::bf16},
    {.type = DType::bf16, .gradient = DType::f32, .rounding = Rounding::stochastic}};

size_t bytes_of(const std::vector<int64_t>& elements, size_t rows) {
  size_t bytes = 0;
  for (const int64_t n : elements) {
    bytes += rows * round_up(static_cast<size_t>(n) * sizeof(float), Arena::granule);
  }
  return bytes;
}

std::vector<StateRow> rows_of(size_t rows) { return std::vector<StateRow>(rows); }

TEST(StateShare, IsAsLargeAsAllowed) {
  Random random(/*seed=*/3);
  for (int i = 0; i < 500; ++i) {
    std::vector<int64_t> all(1 + random.next() % 9);
    for (int64_t& n : all) n = 1 + random.next() % (random.next() % 3 ? 9000 : 200'000);
    const size_t rows = 2 + random.next() % 2, whole = bytes_of(all, rows);
    const size_t limit = random.next() % (whole + whole / 8 + 1);
    const auto share = elements_on_device(all, rows_of(rows), limit);
    ASSERT_EQ(share.size(), all.size());
    int divided = 0;
    int64_t smallest_left = 1 << 30;
    for (size_t k = 0; k < all.size(); ++k) {
      ASSERT_TRUE(share[k] >= 0 && share[k] <= all[k]);
      if (share[k] == all[k]) continue;
      EXPECT_EQ(share[k] % weights_granule, 0);
      divided += share[k] > 0;
      smallest_left = std::min(smallest_left, all[k]);
    }
    EXPECT_LE(divided, 1);
    const size_t taken = bytes_of(share, rows);
    EXPECT_LE(taken, limit);
    EXPECT_EQ(share == all, limit >= whole);
    if (share == all) continue;
    const int64_t unused = std::min(smallest_left, weights_granule);
    EXPECT_LT(limit - taken, bytes_of({unused}, rows) + rows) << limit << " of " << whole;
    EXPECT_GE(bytes_of(elements_on_device(all, rows_of(rows), limit + 1000), rows), taken);
  }
}

// Random shares, none and all.
std::vector<size_t> shares_of(const OptimizerForm& form, uint64_t seed) {
  Random random(seed);
  const size_t all = bytes_of(numels, form.rows());
  std::vector<size_t> shares{0, 1, all - 1, all, size_t{1} << 50};
  for (int i = 0; i < (nightly() ? 12 : 4); ++i) shares.push_back(random.next() % all);
  return shares;
}

void expect_same_bits_for_any_share() {
  for (const OptimizerForm& form : forms) {
    const auto bits_of = [&](const StatePlace& place) {
      OptimizerRun run(numels, form, place);
      for (int64_t t = 1; t <= 5; ++t) {
        run.make_gradients(t);
        run.step(t);
        for (const Parameter& p : run.parameters) EXPECT_FALSE(p.grad);
      }
      return run.bytes();
    };
    const Bytes wanted = bits_of(OptimizerState::device);
    for (const size_t share : shares_of(form, /*seed=*/5)) {
      SCOPED_TRACE(sentence(name(form.type), ", ", name(form.rounding), ", ", share, " bytes"));
      EXPECT_TRUE(bits_of({OptimizerState::streamed, share}) == wanted);
    }
  }
}

TEST(StateShare, OfAnySizeHasTheSameBits) { expect_same_bits_for_any_share(); }

TEST(StateShare, OfAnySizeHasTheSameBitsOnStreamsDelayedAtRandom) {
  const EnvironmentVariable delay("SPOOL_CPU_DELAY", "100");
  expect_same_bits_for_any_share();
}

TEST(StateShare, TakesItsBytesAndTheHostTheRest) {
  for (const OptimizerForm& form : forms) {
    const auto live_on_device = [&](const StatePlace& place) {
      return OptimizerRun(numels, form, place).stream.memory().live;
    };
    const size_t all = bytes_of(numels, form.rows());
    const size_t without = live_on_device(OptimizerState::streamed);
    EXPECT_EQ(live_on_device(OptimizerState::device) - without, all);
    for (const size_t share : shares_of(form, /*seed=*/6)) {
      SCOPED_TRACE(share);
      const OptimizerRun run(numels, form, {OptimizerState::streamed, share});
      const size_t on_device = run.stream.memory().live - without;
      const size_t on_host = run.link->memory().live;
      EXPECT_LE(on_device, share);
      // On the host a parameter begins at a granule, and a row at a page.
      const size_t alignment =
          form.rows() * (numels.size() * weights_granule * sizeof(float) + HostLink::alignment);
      EXPECT_GE(on_device + on_host + form.rows() * numels.size() * Arena::granule, all);
      EXPECT_LE(on_device + on_host, all + alignment);
      EXPECT_TRUE(share < all || on_host == 0);
    }
  }
}

TEST(StateShare, OfAllTheStateNeedsNoLink) {
  CpuStream stream(OptimizerRun::plenty, 1);
  Parameter p{.name = "w", .data = normal({8, 8}, DType::f32, stream, 1)};
  const size_t all = 2 * round_up(p.data.nbytes(), Arena::granule);
  const auto make = [&](size_t bytes) {
    AdamWOptimizer({&p}, {}, stream, {.state = OptimizerState::streamed, .bytes_on_device = bytes});
  };
  EXPECT_NO_THROW(make(all));
  expect_error(ErrorKind::invalid, {"optimizer state", "link to the host"}, [&] { make(all - 1); });
}

// The next step reads what was written, in ranges of any length, even in a divided parameter.
TEST(StateShare, IsReadAndWrittenInRanges) {
  for (const OptimizerForm& form : forms) {
    const auto bits_of = [&](const StatePlace& place) {
      OptimizerRun run(numels, form, place);
      for (int64_t t = 1; t <= 4; ++t) {
        run.make_gradients(t);
        run.step(t);
        for (const size_t row : {0, 1}) {
          for (size_t i = 0; i < numels.size(); ++i) {
            for (int64_t begin = 0; begin < numels[i]; begin += 1500 * t) {
              const StateRange range{row, i, {begin, std::min(begin + 1500 * t, numels[i])}};
              std::vector<float> some = read_row(*run.optimizer, range);
              for (float& x : some) x = 2 * x + 1;
              write_row(*run.optimizer, range, some);
            }
          }
        }
      }
      const Bytes written = run.bytes();
      EXPECT_TRUE(run.bytes() == written);
      run.make_gradients(5);
      run.step(5);
      return run.bytes();
    };
    const Bytes wanted = bits_of(OptimizerState::device);
    for (const size_t share : shares_of(form, /*seed=*/7)) {
      SCOPED_TRACE(sentence(name(form.type), ", ", share, " bytes"));
      EXPECT_TRUE(bits_of({OptimizerState::streamed, share}) == wanted);
    }
  }
}

TEST(StateShare, IsInitialisedAgain) {
  const OptimizerForm form{.type = DType::bf16, .gradient = DType::bf16};
  for (const size_t share : shares_of(form, /*seed=*/8)) {
    OptimizerRun run(numels, form, {OptimizerState::streamed, share}),
        fresh(numels, form, {OptimizerState::streamed, share});
    run.make_gradients(1);
    run.step(1);
    (void)read_row(*run.optimizer, /*row=*/2, 0);
    for (size_t i = 0; i < numels.size(); ++i) {
      Bytes bytes(fresh.parameters[i].data.nbytes());
      read_bytes(fresh.parameters[i].data, 0, bytes);
      write_bytes(run.parameters[i].data, 0, bytes);
    }
    run.optimizer->initialise();
    EXPECT_TRUE(run.bytes() == fresh.bytes()) << share;
  }
}

}  // namespace
}  // namespace spool::testing
