// runs: threads
// One thread calls a stream: a second one is refused, until it adopts the stream or the first ends.

#include "spool/runtime/stream_thread.h"

#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/meta/stream.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

// The error of the work on a thread of its own; "" if none.
std::string error_on_thread(const std::function<void()>& work) {
  std::string error;
  std::thread([&] { error = error_of(work); }).join();
  return error;
}

TEST(StreamThread, ASecondThreadIsRefused) {
  CpuStream cpu(1 << 20, 2);
  MetaStream meta{Machine{}};
  for (Stream* stream : {static_cast<Stream*>(&cpu), static_cast<Stream*>(&meta)}) {
    const Tensor a({Shape{8}}, *stream, {.name = "a"});
    const std::byte* from = a.view().data();
    const size_t live = stream->memory().live;
    const std::vector<std::pair<std::string, std::function<void()>>> calls = {
        {"b", [&] { Tensor b({Shape{8}}, *stream, {.name = "b"}); }},
        {"copy", [&] { stream->copy(a.view().data(), from, 8); }},
        {"upload", [&] { stream->upload(a.view().data(), &live, 8); }},
        {"some work", [&] { stream->host_work("some work", 0, [] {}); }}};
    for (const auto& [words, call] : calls) {
      const std::string error = error_on_thread(call);
      EXPECT_TRUE(contains(error, words + " was called for on a second thread")) << error;
      EXPECT_TRUE(contains(error, "adopt()")) << error;
    }
    EXPECT_EQ(stream->memory().live, live);
  }
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { cpu.enqueue("kernel", [] {}); }, [&] { (void)cpu.record(); },
           [&] { cpu.wait({}); }, [&] { cpu.synchronize(); }}) {
    EXPECT_TRUE(contains(error_on_thread(call), "second thread"));
  }
  cpu.synchronize();
}

TEST(StreamThread, AThreadThatAdoptsItGoesOn) {
  CpuStream stream(1 << 20, 2);
  const auto slab = std::make_shared<Arena>(nullptr, 0, "host");
  const std::unique_ptr<Stream> side = stream.side_stream(), host = stream.on_host(slab);
  Tensor a({Shape{8}}, stream);
  side->wait(stream.record());
  host->synchronize();
  std::thread([&] {
    stream.adopt();
    write<float>(a, std::vector<float>(8, 3));
    side->wait(stream.record());
    host->synchronize();
    a = {};
  }).join();
  // That thread has ended, so any may go on.
  EXPECT_EQ(stream.memory().live, 0u);
  a = Tensor({Shape{8}}, stream);
  EXPECT_TRUE(contains(error_on_thread([&] { (void)read<float>(a); }), "second thread"));
}

TEST(StreamThread, AThreadThatEndedNeedNotHandItOver) {
  CpuStream stream(1 << 20, 1);
  Tensor a;
  std::thread([&] { a = make_tensor<float>({2}, std::vector<float>{1, 2}, stream); }).join();
  EXPECT_EQ(read<float>(a), (std::vector<float>{1, 2}));
}

TEST(StreamThread, TheFirstIsRefusedOnceAnotherHasAdopted) {
  CpuStream stream(1 << 20, 1);
  stream.synchronize();
  std::atomic<int> phase = 0;
  std::thread other([&] {
    stream.adopt();
    stream.synchronize();
    phase = 1;
    while (phase != 2) std::this_thread::yield();
  });
  while (phase != 1) std::this_thread::yield();
  EXPECT_TRUE(contains(error_of([&] { stream.synchronize(); }), "second thread"));
  phase = 2;
  other.join();
  stream.synchronize();
}

TEST(StreamThreadDeathTest, ATensorFreedOnASecondThreadEndsTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        CpuStream stream(1 << 20, 1);
        auto a = std::make_unique<Tensor>(Spec{Shape{8}}, stream);
        std::thread([&] { a.reset(); }).join();
      },
      "freed on a second thread.*adopt");
}

}  // namespace
}  // namespace spool::testing
