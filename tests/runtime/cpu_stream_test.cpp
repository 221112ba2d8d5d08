// runs: threads
// The cpu's stream and its thread pool: order, waiting, errors, and work done inline.

#include "spool/runtime/cpu/stream.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/runtime/environment.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

TEST(CpuStream, KeepsOrderAndIsReadAfterItsWork) {
  CpuStream stream(1 << 20, 2);
  Tensor t({Shape{1000}}, stream);
  write<float>(t, std::vector<float>(1000, 1));
  for (int i = 0; i < 100; ++i) {
    stream.enqueue([data = t.view().as<float>(), &stream] {
      stream.parallel_for(1000, 64, [&](int64_t begin, int64_t end) {
        for (int64_t k = begin; k < end; ++k) data[k] += 1;
      });
    });
  }
  for (float x : read<float>(t)) ASSERT_EQ(x, 101);
}

TEST(CpuStream, LaterCallsThrowTheErrorOfItsWork) {
  CpuStream stream(1 << 20, 1);
  expect_error(ErrorKind::numeric, {"the work failed"}, [&] {
    stream.enqueue([] { fail(ErrorKind::numeric, "the work failed"); });
    stream.synchronize();
  });
  expect_error(ErrorKind::numeric, {"the work failed"}, [&] { stream.synchronize(); });
  expect_error(ErrorKind::numeric, {"the work failed"}, [&] { stream.enqueue([] {}); });
}

TEST(CpuStream, WaitsForAnotherStream) {
  CpuStream first(1 << 20, 1), second(1 << 20, 1);
  int value = 0;
  for (int i = 0; i < 50; ++i) {
    first.enqueue([&value] { value = value * 2 + 1; });
    second.wait(first.record());
    second.enqueue([&value] { value = value / 2; });
    first.wait(second.record());
  }
  first.synchronize();
  EXPECT_EQ(value, 0);
}

// Work that fails, but not before `go`.
auto broken_after(std::atomic<bool>& go) {
  return [&go] {
    while (!go) std::this_thread::yield();
    fail(ErrorKind::numeric, "broken");
  };
}

TEST(CpuStream, AFailedStreamLeavesNoOtherWaiting) {
  CpuStream first(1 << 20, 1), second(1 << 20, 1);
  std::atomic<bool> go = false;
  first.enqueue(broken_after(go));
  second.wait(first.record());
  go = true;
  second.synchronize();
  expect_error(ErrorKind::numeric, {"broken"}, [&] { first.synchronize(); });
}

// The failed one waits for another, and a third waits for it.
TEST(CpuStream, AFailedStreamLetsNoOtherRunAhead) {
  std::atomic<bool> go = false, ran_ahead = false, is_written = false;
  CpuStream failed(1 << 20, 1), before(1 << 20, 1), after(1 << 20, 1);
  failed.enqueue(broken_after(go));
  before.enqueue([&] {
    using namespace std::chrono_literals;
    for (int i = 0; i < 100 && !ran_ahead; ++i) std::this_thread::sleep_for(1ms);
    is_written = true;
  });
  failed.wait(before.record());
  after.wait(failed.record());
  after.enqueue([&] { ran_ahead = !is_written; });
  go = true;
  after.synchronize();
  EXPECT_FALSE(ran_ahead);
  expect_error(ErrorKind::numeric, {"broken"}, [&] { failed.synchronize(); });
}

// AddressSanitizer would find it.
TEST(CpuStream, MemoryOfAFailedStreamIsNotPoisonedForOthers) {
  CpuStream failed(1 << 20, 1);
  const auto other = failed.side_stream();
  const Spec spec{{256}, DType::f32};
  std::vector<float> host(256);
  const void* freed = Tensor(spec, failed).view().data();
  failed.synchronize();
  std::atomic<bool> go = false;
  failed.enqueue(broken_after(go));
  const Tensor t(spec, failed);
  EXPECT_EQ(freed, t.view().data());
  other->wait(failed.record());
  other->copy_out(host.data(), t.view().data(), t.nbytes());
  go = true;
  other->synchronize();
  expect_error(ErrorKind::numeric, {"broken"}, [&] { failed.synchronize(); });
}

TEST(CpuStream, InlineWorkThrowsAtTheCallItself) {
  const EnvironmentVariable inline_work("SPOOL_CPU_INLINE", "1");
  CpuStream stream(1 << 20, 2);
  bool after = false;
  const auto expect_broken = [](const std::function<void()>& work) {
    expect_error(ErrorKind::numeric, {"broken"}, work);
  };
  expect_broken([&] { stream.enqueue([] { fail(ErrorKind::numeric, "broken"); }); });
  expect_broken([&] { stream.enqueue([&] { after = true; }); });
  expect_broken([&] { stream.synchronize(); });
  EXPECT_FALSE(after);
}

TEST(ThreadPool, RunsEveryPieceOnceWithAnyNumberOfThreads) {
  for (int threads : {1, 2, 3, 8}) {
    CpuStream stream(1 << 20, threads);
    std::vector<std::atomic<int>> seen(1001);
    stream.parallel_for(1001, 10, [&](int64_t begin, int64_t end, int lane) {
      EXPECT_LT(lane, threads);
      for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
    });
    for (const auto& count : seen) ASSERT_EQ(count, 1);
  }
}

TEST(ThreadPool, ThrowsTheErrorOfAPiece) {
  CpuStream stream(1 << 20, 3);
  const auto loop = [&] {
    stream.parallel_for(
        100, 1, [](int64_t begin, int64_t) { check(begin != 57, "piece ", begin, " failed"); });
  };
  expect_error(ErrorKind::invalid, {"piece 57 failed"}, loop);
  stream.parallel_for(100, 1, [](int64_t, int64_t) {});
}

}  // namespace
}  // namespace spool::testing
