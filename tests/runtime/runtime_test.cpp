// Streams, the arena, tensors, random numbers, units.

#include <cstdlib>
#include <optional>

#include "spool/kernels/bias.h"
#include "spool/kernels/elementwise.h"
#include "spool/kernels/gelu.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/meta/stream.h"
#include "tests/runtime/testing.h"

namespace spool {
namespace {

using testing::error_of;

Spec bytes_spec(int64_t bytes) { return {Shape{bytes / 4}, DType::f32}; }

TEST(Arena, RoundsToGranulesAndReusesTheBestFit) {
  Arena arena(nullptr, 1 << 20, "test");
  Arena::Block* a = arena.allocate(bytes_spec(4096), {});
  Arena::Block* b = arena.allocate(bytes_spec(4), {});
  Arena::Block* c = arena.allocate(bytes_spec(1024), {});
  Arena::Block* d = arena.allocate(bytes_spec(512), {});
  EXPECT_EQ(arena.stats().live, 4096u + 512 + 1024 + 512);
  const std::byte* small = arena.address(c);
  arena.free(a);
  arena.free(c);
  EXPECT_EQ(arena.address(arena.allocate(bytes_spec(1024), {})), small);
  EXPECT_EQ(arena.stats().peak, 4096u + 512 + 1024 + 512);
  arena.free(b);
  arena.free(d);
}

TEST(Arena, CoalescesWithItsNeighboursAndTheTail) {
  Arena arena(nullptr, 4096, "test");
  std::vector<Arena::Block*> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(arena.allocate(bytes_spec(512), {}));
  for (int i : {1, 3, 2, 0}) arena.free(blocks[static_cast<size_t>(i)]);
  EXPECT_EQ(arena.stats().live, 0u);
  Arena::Block* all = arena.allocate(bytes_spec(4096), {});
  EXPECT_EQ(arena.address(all), nullptr);
  EXPECT_EQ(arena.stats().peak, 4096u);
  arena.free(all);
}

// The same random calls in an arena without bounds, and in one of exactly the peak of the first.
TEST(Arena, ItsPeakIsACapacityThatSuffices) {
  const auto play = [](Arena& arena) {
    Random random(5);
    std::vector<Arena::Block*> live;
    std::vector<const std::byte*> places;
    for (int i = 0; i < 3000; ++i) {
      if (live.size() > 40 || (!live.empty() && random.uniform() < 0.4)) {
        const size_t at = random.next() % live.size();
        arena.free(live[at]);
        live.erase(live.begin() + static_cast<int64_t>(at));
      } else {
        live.push_back(arena.allocate(bytes_spec(4 * (1 + random.next() % 5000)), {}));
        places.push_back(arena.address(live.back()));
      }
    }
    for (Arena::Block* b : live) arena.free(b);
    return places;
  };
  Arena endless(nullptr, size_t{1} << 40, "test");
  const auto places = play(endless);
  Arena exact(nullptr, endless.stats().peak, "test");
  EXPECT_EQ(play(exact), places);
  Arena tight(nullptr, endless.stats().peak - Arena::granule, "test");
  EXPECT_NE(error_of([&] { play(tight); }), "");
}

// Where blocks go depends on what is held, not on what was.
TEST(Arena, EveryStepGoesAsTheFirst) {
  Arena arena(nullptr, size_t{1} << 40, "test");
  const auto keep = arena.allocate(bytes_spec(5000), {});
  const auto step = [&] {
    Random random(9);
    std::vector<Arena::Block*> live;
    std::vector<const std::byte*> places;
    for (int i = 0; i < 500; ++i) {
      live.push_back(arena.allocate(bytes_spec(4 * (1 + random.next() % 9000)), {}));
      places.push_back(arena.address(live.back()));
      if (i % 3 == 2) {
        const size_t at = random.next() % live.size();
        arena.free(live[at]);
        live.erase(live.begin() + static_cast<int64_t>(at));
      }
    }
    for (Arena::Block* b : live) arena.free(b);
    return places;
  };
  const auto first = step();
  const size_t peak = arena.stats().peak;
  for (int i = 0; i < 5; ++i) EXPECT_EQ(step(), first);
  EXPECT_EQ(arena.stats().peak, peak);
  arena.free(keep);
}

TEST(Arena, ItsErrorNamesTheTensorTheHoldersAndWhatFits) {
  Arena arena(nullptr, 10240, "cpu");
  arena.allocate(bytes_spec(8192), {.name = "wte.weight", .purpose = Purpose::parameter});
  try {
    arena.allocate(bytes_spec(4096), {.name = "logits"});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::memory);
    EXPECT_EQ(e.fields().needed, 12288u);
    EXPECT_EQ(e.fields().capacity, 10240u);
    EXPECT_EQ(e.fields().op, "logits");
    const std::string text = e.what();
    for (const char* part : {"logits", "wte.weight", "parameters 8.00 KiB", "12288"}) {
      EXPECT_NE(text.find(part), std::string::npos) << text;
    }
  }
}

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

TEST(CpuStream, ErrorsOfItsWorkAreThrownByLaterCalls) {
  CpuStream stream(1 << 20, 1);
  try {
    stream.enqueue([] { fail(ErrorKind::numeric, "the work failed"); });
    stream.synchronize();
  } catch (const Error&) {
  }
  EXPECT_EQ(error_of([&] { stream.synchronize(); }), "the work failed");
  EXPECT_EQ(error_of([&] { stream.enqueue([] {}); }), "the work failed");
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

TEST(CpuStream, AFailedStreamLeavesNobodyWaiting) {
  CpuStream first(1 << 20, 1), second(1 << 20, 1);
  std::atomic<bool> go = false;
  first.enqueue([&go] {
    while (!go) std::this_thread::yield();
    fail(ErrorKind::numeric, "broken");
  });
  second.wait(first.record());
  go = true;
  second.synchronize();
  EXPECT_EQ(error_of([&] { first.synchronize(); }), "broken");
}

// Restores what the environment was.
class Inline {
 public:
  explicit Inline(const char* value) { ::setenv(name, value, 1); }
  ~Inline() { before_ ? ::setenv(name, before_->c_str(), 1) : ::unsetenv(name); }
  Inline(const Inline&) = delete;
  Inline& operator=(const Inline&) = delete;

 private:
  static constexpr const char* name = "SPOOL_CPU_INLINE";
  static std::optional<std::string> current() {
    const char* value = std::getenv(name);
    return value ? std::optional<std::string>(value) : std::nullopt;
  }
  std::optional<std::string> before_ = current();
};

TEST(CpuStream, InlineDoesTheSameOnTheCallersThread) {
  const auto numbers = [](const char* in_line) {
    const Inline environment(in_line);
    CpuStream stream(1 << 20, 3);
    const Tensor a = testing::normal({130, 70}, DType::f32, stream, 1);
    const Tensor sum({Shape{130, 70}}, stream), active({Shape{130, 70}}, stream);
    const Tensor total({Shape{70}}, stream);
    launch(Add{.out = sum, .a = a, .b = a}, stream);
    launch(GeluForward{.y = active, .x = sum}, stream);
    launch(BiasBackward{.dbias = total, .dy = active}, stream);
    stream.wait(stream.record());
    std::thread::id worker;
    stream.enqueue([&worker] { worker = std::this_thread::get_id(); });
    if (*in_line == '0') stream.synchronize();
    EXPECT_EQ(worker == std::this_thread::get_id(), *in_line == '1');
    return testing::values(total);
  };
  EXPECT_EQ(numbers("1"), numbers("0"));
}

TEST(CpuStream, InlineThrowsAtTheCallItself) {
  const Inline environment("1");
  CpuStream stream(1 << 20, 2);
  bool after = false;
  const auto broken = [&] { stream.enqueue([] { fail(ErrorKind::numeric, "broken"); }); };
  EXPECT_EQ(error_of(broken), "broken");
  EXPECT_EQ(error_of([&] { stream.enqueue([&] { after = true; }); }), "broken");
  EXPECT_EQ(error_of([&] { stream.synchronize(); }), "broken");
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

TEST(ThreadPool, ThrowsWhatAPieceThrows) {
  CpuStream stream(1 << 20, 3);
  const auto loop = [&] {
    stream.parallel_for(
        100, 1, [](int64_t begin, int64_t) { check(begin != 57, "piece ", begin, " failed"); });
  };
  EXPECT_EQ(error_of(loop), "piece 57 failed");
  stream.parallel_for(100, 1, [](int64_t, int64_t) {});
}

TEST(Tensor, SlicesShareMemoryAndOthersAreAbsent) {
  CpuStream stream(1 << 20, 1);
  const std::vector<float> numbers{0, 1, 2, 3, 4, 5};
  const Tensor t = make_tensor<float>(Shape{3, 2}, numbers, stream);
  EXPECT_EQ(read<float>(t.slice({1, 3})), (std::vector<float>{2, 3, 4, 5}));
  EXPECT_EQ(read<float>(t.slice({1, 1})).size(), 0u);
  EXPECT_NE(error_of([&] { (void)t.slice({2, 4}); }), "");
  EXPECT_NE(error_of([&] { (void)read<int32_t>(t); }), "");
  EXPECT_FALSE(Tensor());
  EXPECT_FALSE(t.sole_owner() && Tensor(t).sole_owner());
}

TEST(Meta, HasShapesAndNoValues) {
  MetaStream stream(Machine{});
  const Tensor t({Shape{1 << 20}}, stream);
  EXPECT_EQ(stream.memory().peak, size_t{4} << 20);
  EXPECT_NE(error_of([&] { (void)read<float>(t); }), "");
}

TEST(BFloat16, RoundsToNearestEven) {
  EXPECT_EQ(float(bf16(1.0f + 0x1p-9f)), 1.0f);
  EXPECT_EQ(float(bf16(1.0f + 0x1p-8f)), 1.0f);
  EXPECT_EQ(float(bf16(1.0f + 3 * 0x1p-8f)), 1.0f + 0x1p-6f);
  EXPECT_TRUE(std::isnan(float(bf16(std::nanf("")))));
  EXPECT_TRUE(std::isinf(float(bf16(3.4e38f))));
}

// Known answers of Random123, kat_vectors.
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(philox({0, 0}, {0, 0, 0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t f = 0xffffffff;
  EXPECT_EQ(philox({f, f}, {f, f, f, f}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0xa4093822, 0x299f31d0}, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Units, ReadWhatPeopleWrite) {
  EXPECT_EQ(parse_bytes("2GiB"), size_t{2} << 30);
  EXPECT_EQ(parse_bytes("1.5 GB"), 1500000000u);
  EXPECT_EQ(parse_bytes("512"), 512u);
  EXPECT_EQ(parse_bytes("512MiB"), size_t{512} << 20);
  for (const char* bad :
       {"", "GiB", "2 apples", "-1GiB", "0", "nan", "1e999", "2GiBB", "1e30TiB"}) {
    EXPECT_NE(error_of([&] { parse_bytes(bad); }), "") << bad;
  }
  EXPECT_EQ(format_bytes(size_t{3} << 29), "1.50 GiB");
  EXPECT_EQ(format_bytes(1023), "1023 B");
}

TEST(Device, IsParsedOrRefused) {
  EXPECT_EQ(parse_device("cuda:1"), (Device{DeviceType::cuda, 1}));
  for (const char* bad : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cpu:1x"}) {
    EXPECT_NE(error_of([&] { parse_device(bad); }), "") << bad;
  }
  EXPECT_NE(error_of([] { open_stream({DeviceType::cpu, 1}, 1024); }), "");
}

TEST(Shape, RefusesWhatCannotBe) {
  EXPECT_NE(error_of([] { Shape{-1}; }), "");
  EXPECT_NE(error_of([] { Shape({1, 1, 1, 1, 1}); }), "");
  EXPECT_NE(error_of([] { Shape({int64_t{1} << 40, int64_t{1} << 40}); }), "");
  EXPECT_EQ(split(10, 3).size(), 3u);
  EXPECT_EQ(split(10, 3).back().size(), 2);
}

}  // namespace
}  // namespace spool
