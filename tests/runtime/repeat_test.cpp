// Repeated work: a rehearsal runs three of it and foretells all, a layout has one set of offsets
// for all but the first and the last, and work that does not leave memory as it was is refused.

#include <numeric>

#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/memory/allocation_log.h"
#include "spool/runtime/memory/layout.h"
#include "spool/runtime/meta/stream.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr size_t budget = size_t{1} << 20;
using Order = std::vector<size_t>;

Order up_to(size_t count) {
  Order all(count);
  std::iota(all.begin(), all.end(), size_t{0});
  return all;
}

Order order_of(Stream& stream, size_t count) {
  Order order;
  stream.repeat(count, [&](size_t i) { order.push_back(i); });
  return order;
}

// Pieces of work with a sum that the first makes and the last frees, and with an `a` and a `b` of
// their own that are live together; the last piece is smaller.
struct Pieces {
  Stream& stream;
  size_t count;
  Tensor sum = {};
  std::vector<std::pair<const void*, const void*>> addresses = {};  // of each a and b
  std::vector<size_t> live = {};

  void run() {
    stream.repeat(count, [this](size_t i) { piece(i); });
  }
  // Runs all pieces, as a stream that leaves none out.
  void run_all() {
    stream.Stream::repeat(count, [this](size_t i) { piece(i); });
  }
  void piece(size_t i) {
    const bool is_last = i + 1 == count;
    const int64_t rows = is_last ? 300 : 1000;
    Tensor a({Shape{rows}}, stream, {.name = "a"});
    if (i == 0) sum = Tensor({Shape{500}}, stream, {.name = "sum"});
    const Tensor b({Shape{2 * rows}}, stream, {.name = "b"});
    addresses.emplace_back(a.view().data(), b.view().data());
    live.push_back(stream.memory().live);
    a = {};
    const Tensor c({Shape{rows / 2}}, stream, {.name = "c"});
    if (is_last) sum = {};
  }
};

Lifetimes record(Stream& stream, const std::function<void()>& work) {
  const AllocationLog log(stream.arena());
  work();
  return log.lifetimes();
}

// Each allocation has a place of its own.
Layout layout_of(Lifetimes lifetimes) {
  Layout layout;
  for (const Lifetime& l : lifetimes.all) {
    layout.offsets.push_back(layout.bytes);
    layout.bytes += l.bytes;
  }
  layout.live = layout.bytes;
  layout.lifetimes = std::move(lifetimes);
  return layout;
}

std::optional<Layout> layout_of_pieces(size_t count) {
  MetaStream meta(Machine{});
  Pieces pieces{meta, count};
  return layout_of(record(meta, [&] { pieces.run(); }));
}

TEST(Repeat, OnTheCpuRunsAllInOrder) {
  CpuStream stream(budget, 1);
  for (size_t count = 0; count <= 5; ++count) EXPECT_EQ(order_of(stream, count), up_to(count));
}

TEST(Repeat, ARehearsalRunsTheFirstTheSecondAndTheLast) {
  MetaStream stream(Machine{});
  for (size_t count = 0; count <= 3; ++count) EXPECT_EQ(order_of(stream, count), up_to(count));
  EXPECT_EQ(order_of(stream, 4), (Order{0, 1, 3}));
  EXPECT_EQ(order_of(stream, 5), (Order{0, 1, 4}));
  const Traced traced(stream, std::make_shared<Trace>());
  EXPECT_EQ(order_of(stream, 5), up_to(5));
}

TEST(Repeat, TimeAndLaunchesAreThoseOfAll) {
  for (const size_t count : {0u, 1u, 2u, 3u, 4u, 5u, 10u}) {
    MetaStream three(Machine{}), all(Machine{});
    const auto work_on = [count](MetaStream& stream) {
      return [&stream, count](size_t i) {
        const size_t bytes = i == 0 ? 5000 : i + 1 == count ? 1000 : 3000;
        stream.copy(nullptr, nullptr, bytes);
        stream.wait({.time = stream.now() + 1e-3});
        for (size_t k = 0; k < bytes; k += 1000) stream.count_launch();
      };
    };
    three.repeat(count, work_on(three));
    all.Stream::repeat(count, work_on(all));
    EXPECT_NEAR(three.now(), all.now(), 1e-12 * all.now()) << count;
    EXPECT_NEAR(three.busy(), all.busy(), 1e-12 * all.now()) << count;
    EXPECT_EQ(three.launches(), all.launches()) << count;
  }
}

TEST(Repeat, ThePeakIsThatOfAll) {
  for (size_t count = 1; count <= 6; ++count) {
    MetaStream three(Machine{}), all(Machine{});
    CpuStream cpu(budget, 1);
    Pieces{three, count}.run();
    Pieces{all, count}.run_all();
    Pieces{cpu, count}.run();
    EXPECT_EQ(three.memory().peak, all.memory().peak) << count;
    EXPECT_EQ(three.memory().peak, cpu.memory().peak) << count;
    EXPECT_EQ(three.memory().at_peak_by, cpu.memory().at_peak_by) << count;
  }
}

// Whether the stream runs all or three of the pieces.
TEST(Repeat, LifetimesHaveTheMiddleOnce) {
  MetaStream three(Machine{}), all(Machine{});
  CpuStream cpu(budget, 1);
  Pieces on_three{three, 10}, on_all{all, 10}, on_cpu{cpu, 10};
  const Lifetimes wanted = record(three, [&] { on_three.run(); });
  ASSERT_EQ(wanted.all.size(), 10u);  // 4 of the first piece, 3 of the second, 3 of the last
  ASSERT_EQ(wanted.phases.size(), 1u);
  EXPECT_EQ(wanted.phases[0].end, 10u);
  for (const Lifetimes& found :
       {record(all, [&] { on_all.run_all(); }), record(cpu, [&] { on_cpu.run(); })}) {
    ASSERT_EQ(found.all.size(), wanted.all.size());
    for (size_t i = 0; i < wanted.all.size(); ++i) {
      EXPECT_EQ(found.all[i].label.name, wanted.all[i].label.name) << i;
      EXPECT_EQ(found.all[i].bytes, wanted.all[i].bytes) << i;
      EXPECT_EQ(found.all[i].birth, wanted.all[i].birth) << i;
      EXPECT_EQ(found.all[i].death, wanted.all[i].death) << i;
    }
  }
  EXPECT_EQ(on_three.addresses.size(), 3u);
  EXPECT_EQ(on_cpu.addresses.size(), 10u);
}

TEST(Repeat, UnderALayoutTheMiddleHasOneSetOfOffsets) {
  const std::optional<Layout> layout = layout_of_pieces(10);
  CpuStream cpu(budget, 1);
  MetaStream meta(Machine{});
  for (Stream* stream : {static_cast<Stream*>(&cpu), static_cast<Stream*>(&meta)}) {
    for (const size_t count : {3u, 4u, 10u, 17u}) {  // the layout serves any number
      Pieces pieces{*stream, count};
      PlacedStep placed(stream->arena(), layout);
      pieces.run();
      placed.finish();
      const size_t ran = pieces.addresses.size();
      for (size_t i = 1; i + 1 < ran; ++i) {
        EXPECT_EQ(pieces.addresses[i], pieces.addresses[1]) << i;
        EXPECT_EQ(pieces.live[i], pieces.live[1]) << i;
      }
      EXPECT_NE(pieces.addresses[0], pieces.addresses[1]);
      EXPECT_NE(pieces.addresses[ran - 1], pieces.addresses[1]);
    }
    EXPECT_EQ(stream->memory().peak, layout->bytes);
    EXPECT_EQ(stream->memory().live, 0u);
  }
}

TEST(Repeat, ALayoutMayHaveItInAnyPhase) {
  const auto step = [](Stream& stream) {
    Pieces early{stream, 3}, late{stream, 6};
    stream.arena().begin_phase(1);
    early.run();
    stream.arena().begin_phase(0);
    late.run();
  };
  MetaStream meta(Machine{});
  const std::optional<Layout> layout = layout_of(record(meta, [&] { step(meta); }));
  CpuStream cpu(budget, 1);
  PlacedStep placed(cpu.arena(), layout);
  step(cpu);
  placed.finish();
}

TEST(Repeat, APhaseThatBeginsInRepeatedWorkIsRefusedByALayout) {
  const auto run = [](Stream& stream) {
    stream.repeat(5, [&](size_t i) {
      if (i == 1) stream.arena().begin_phase(1);
      const Tensor t({Shape{100}}, stream);
    });
  };
  MetaStream meta(Machine{});
  const std::optional<Layout> layout = layout_of(record(meta, [&] { run(meta); }));
  CpuStream cpu(budget, 1);
  expect_error(ErrorKind::invalid, {"a phase begins in repeated work"}, [&] {
    PlacedStep placed(cpu.arena(), layout);
    run(cpu);
  });
}

TEST(Repeat, APhaseThatLacksAllocationsOfTheLastPieceIsRefused) {
  const std::optional<Layout> layout = layout_of_pieces(5);
  CpuStream cpu(budget, 1);
  Pieces pieces{cpu, 5};
  expect_error(ErrorKind::invalid, {"allocation 7 of phase 0", "a (activations)", "ends without"},
               [&] {
                 PlacedStep placed(cpu.arena(), layout);
                 cpu.repeat(5, [&](size_t i) {
                   if (i < 4) pieces.piece(i);
                 });
                 pieces.sum = {};
                 placed.finish();
               });
  EXPECT_EQ(cpu.memory().live, 0u);
}

TEST(Repeat, APieceThatAllocatesLessOrMoreThanTheSecondIsRefusedByALayout) {
  const auto work_on = [](Stream& stream, size_t odd, int allocations) {
    return [&stream, odd, allocations](size_t i) {
      const int n = i == odd ? allocations : 2;
      for (int k = 0; k < n; ++k) const Tensor t({Shape{100}}, stream);
    };
  };
  MetaStream meta(Machine{});
  const std::optional<Layout> layout =
      layout_of(record(meta, [&] { meta.repeat(6, work_on(meta, 6, 0)); }));
  CpuStream cpu(budget, 1);
  for (const int allocations : {1, 3}) {
    const std::string made = sentence("repeated work made ", allocations, " allocations, and 2");
    expect_error(ErrorKind::invalid, {made, "the first time"}, [&] {
      PlacedStep placed(cpu.arena(), layout);
      cpu.repeat(6, work_on(cpu, 3, allocations));
    });
  }
  PlacedStep placed(cpu.arena(), layout);
  cpu.repeat(6, work_on(cpu, 6, 0));
  placed.finish();
}

// Piece `odd` keeps what it allocates, frees what it found, or puts it elsewhere.
void expect_refused(Stream& stream, size_t odd) {
  const Spec spec{Shape{256}};
  std::vector<Tensor> kept(2);
  const auto expect = [&](std::initializer_list<std::string_view> words,
                          const std::function<void()>& work) {
    kept[0] = Tensor(spec, stream);
    size_t ran = 0;
    expect_error(ErrorKind::invalid, words, [&] {
      stream.repeat(5, [&](size_t i) {
        ran = i;
        if (i == odd) work();
      });
    });
    EXPECT_EQ(ran, odd);
    kept.assign(2, {});
    EXPECT_EQ(stream.memory().live, 0u);
  };
  expect({"must leave memory as it was", "before it 1024 bytes", "after it 2048"},
         [&] { kept[1] = Tensor(spec, stream); });
  expect({"must leave memory as it was", "before it 1024 bytes", "after it 0"},
         [&] { kept[0] = {}; });
  expect({"before it 1024 bytes", "after it 1024, at other places"}, [&] {
    kept[1] = Tensor(spec, stream);
    kept[0] = {};
  });
}

TEST(Repeat, WorkThatDoesNotLeaveMemoryAsItWasIsRefused) {
  MetaStream meta(Machine{});
  expect_refused(meta, 1);
  meta.trace(std::make_shared<Trace>());
  expect_refused(meta, 3);
  CpuStream cpu(budget, 1);
  expect_refused(cpu, 1);
  expect_refused(cpu, 3);
}

TEST(Repeat, TheFirstAndTheLastMayChangeWhatIsLive) {
  MetaStream meta(Machine{});
  CpuStream cpu(budget, 1);
  for (Stream* stream : {static_cast<Stream*>(&cpu), static_cast<Stream*>(&meta)}) {
    for (size_t count = 1; count <= 5; ++count) {
      std::vector<Tensor> kept;
      stream->repeat(count, [&](size_t i) {
        if (i == 0 || i + 1 == count) kept.emplace_back(Spec{Shape{100}}, *stream);
      });
      EXPECT_EQ(kept.size(), count == 1 ? 1u : 2u);
    }
  }
}

TEST(Repeat, WorkThatThrowsLeavesMemoryConsistent) {
  const std::optional<Layout> layout = layout_of_pieces(10);
  CpuStream cpu(budget, 1);
  for (const size_t broken : {0u, 1u, 2u, 8u, 9u}) {
    Pieces pieces{cpu, 10};
    expect_error(ErrorKind::numeric, {"piece failed"}, [&] {
      PlacedStep placed(cpu.arena(), layout);
      cpu.repeat(10, [&](size_t i) {
        pieces.piece(i);
        if (i == broken) fail(ErrorKind::numeric, "piece failed");
      });
    });
    pieces.sum = {};
    EXPECT_EQ(cpu.memory().live, 0u);
    PlacedStep placed(cpu.arena(), layout);
    Pieces{cpu, 10}.run();
    placed.finish();
  }
}

TEST(Repeat, WhatFollowsWorkThatThrowsIsRecorded) {
  CpuStream cpu(budget, 1);
  Pieces pieces{cpu, 10};
  const Lifetimes found = record(cpu, [&] {
    expect_error(ErrorKind::numeric, {"piece failed"}, [&] {
      cpu.repeat(10, [&](size_t i) {
        if (i == 5) fail(ErrorKind::numeric, "piece failed");
        pieces.piece(i);
      });
    });
    pieces.sum = {};
    Pieces{cpu, 10}.run();
  });
  EXPECT_EQ(found.all.size(), 7u + 10u);
}

// Ten times 17 pieces.
TEST(Repeat, RepeatsNest) {
  const auto nest = [](Stream& stream, size_t& ran) {
    stream.repeat(10, [&](size_t) {
      const Tensor around({Shape{100}}, stream);
      Pieces pieces{stream, 17};
      stream.repeat(17, [&](size_t k) {
        pieces.piece(k);
        stream.count_launch();
      });
      ran += pieces.addresses.size();
    });
  };
  MetaStream meta(Machine{});
  CpuStream cpu(budget, 1);
  size_t rehearsed = 0, recorded = 0, placed = 0;
  Lifetimes lifetimes = record(meta, [&] { nest(meta, rehearsed); });
  EXPECT_EQ(rehearsed, 9u);
  EXPECT_EQ(lifetimes.all.size(), 3u * 11u);
  EXPECT_EQ(record(cpu, [&] { nest(cpu, recorded); }).all.size(), lifetimes.all.size());
  EXPECT_EQ(recorded, 170u);
  EXPECT_EQ(cpu.launches(), 170u);
  EXPECT_EQ(meta.launches(), 170u);
  EXPECT_EQ(meta.memory().peak, cpu.memory().peak);
  const std::optional<Layout> layout = layout_of(std::move(lifetimes));
  PlacedStep step(cpu.arena(), layout);
  nest(cpu, placed);
  step.finish();
  EXPECT_EQ(placed, 170u);
}

}  // namespace
}  // namespace spool::testing
