// Memory laid out in advance: that nobody overlaps, how near it comes to what must be held, and
// what is said where a step is not what was rehearsed.

#include "spool/planner/offsets.h"

#include <algorithm>

#include "spool/models/training/step_layout.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/models/training/training_testing.h"

namespace spool::testing {
namespace {

constexpr size_t granule = Arena::granule;

// Of granules, births and deaths that differ.
Lifetimes lifetimes(const std::vector<std::array<size_t, 3>>& all) {
  Lifetimes out;
  for (const auto& [granules, birth, death] : all) {
    out.all.push_back({.bytes = granules * granule, .birth = birth, .death = death});
  }
  out.phases = {{.begin = 0, .end = all.size()}};
  return out;
}

Lifetimes random_lifetimes(uint64_t seed, size_t count) {
  Random random(seed, 1);
  std::vector<size_t> times(2 * count);
  for (size_t i = 0; i < times.size(); ++i) times[i] = i;
  for (size_t i = times.size(); i-- > 1;) std::swap(times[i], times[random.next() % (i + 1)]);
  std::vector<std::array<size_t, 3>> all;
  for (size_t i = 0; i < count; ++i) {
    const auto [birth, death] = std::minmax(times[2 * i], times[2 * i + 1]);
    all.push_back({1 + random.next() % 40, birth, death});
  }
  std::ranges::sort(all, {}, [](const auto& l) { return l[1]; });
  return lifetimes(all);
}

void expect_apart(const Layout& layout) {
  const std::vector<Lifetime>& all = layout.lifetimes.all;
  ASSERT_EQ(layout.offsets.size(), all.size());
  size_t end = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const size_t i_end = layout.offsets[i] + all[i].bytes;
    end = std::max(end, i_end);
    EXPECT_EQ(layout.offsets[i] % granule, 0u);
    for (size_t j = 0; j < i; ++j) {
      const bool meet = all[i].birth < all[j].death && all[j].birth < all[i].death;
      const bool apart =
          i_end <= layout.offsets[j] || layout.offsets[j] + all[j].bytes <= layout.offsets[i];
      EXPECT_TRUE(!meet || apart) << i << " and " << j;
    }
  }
  EXPECT_EQ(layout.bytes, end);
  EXPECT_GE(layout.bytes, layout.live);
}

double waste(const Layout& layout) {
  return static_cast<double>(layout.bytes) / static_cast<double>(layout.live) - 1;
}

TEST(Layout, OfRandomLifetimesNobodyOverlapsAndItIsTheSameAgain) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Lifetimes random = random_lifetimes(seed, 1 + seed % 60);
    const Layout layout = assign_offsets(random);
    expect_apart(layout);
    const Layout again = assign_offsets(random);
    EXPECT_EQ(again.offsets, layout.offsets);
    EXPECT_EQ(again.bytes, layout.bytes);
  }
}

TEST(Layout, OfKnownCasesIsTheBest) {
  EXPECT_EQ(assign_offsets({}).bytes, 0u);
  EXPECT_EQ(assign_offsets(lifetimes({{3, 0, 1}})).bytes, 3 * granule);
  // One after the other; a stack; and what best fit, as it comes, gets wrong: a small one that
  // stays goes into the hole that a larger one will need.
  EXPECT_EQ(assign_offsets(lifetimes({{3, 0, 1}, {5, 2, 3}, {4, 4, 5}})).bytes, 5 * granule);
  EXPECT_EQ(assign_offsets(lifetimes({{3, 0, 5}, {5, 1, 4}, {4, 2, 3}})).bytes, 12 * granule);
  EXPECT_EQ(
      assign_offsets(lifetimes({{4, 0, 2}, {4, 1, 9}, {1, 3, 8}, {7, 4, 7}, {0, 5, 6}})).bytes,
      12 * granule);
}

// ------------------------------------------------------------------------- recorded, replayed

constexpr Label first{.name = "first"}, second{.name = "second"}, third{.name = "third"};

Spec granules(int64_t n) { return {Shape{n * static_cast<int64_t>(granule / sizeof(float))}}; }

// Three allocations, of which the first two are held at a time, and then the last two.
class ReplayTest : public ::testing::Test {
 protected:
  ReplayTest() : held_(arena.allocate(granules(3), {.name = "held"})) {
    LifetimeRecorder recording(arena);
    step();
    layout = assign_offsets(recording.finish());
    before = arena.stats();
  }
  ~ReplayTest() override {
    EXPECT_EQ(arena.stats().live, before.live);
    EXPECT_EQ(arena.stats().live_by, before.live_by);
    EXPECT_EQ(arena.stats().live_hash, before.live_hash);
    step();  // as it comes
    PlacedStep placed(arena, layout);
    step();
    replay.finish();
    arena.free(held_);
    EXPECT_EQ(arena.stats().live, 0u);
  }

  void step() {
    Arena::Block* a = arena.allocate(granules(2), first);
    Arena::Block* b = arena.allocate(granules(1), second);
    arena.free(a);
    Arena::Block* c = arena.allocate(granules(2), third);
    arena.free(b);
    arena.free(c);
  }
  // Allocates these one after the other, keeping all of them, and frees them when done.
  std::string error_of_allocating(const std::vector<std::pair<Spec, Label>>& all) {
    std::vector<Arena::Block*> blocks;
    const std::string error = error_of([&] {
      PlacedStep placed(arena, layout);
      for (const auto& [spec, label] : all) blocks.push_back(arena.allocate(spec, label));
      replay.finish();
    });
    for (Arena::Block* b : blocks) arena.free(b);
    return error;
  }

  Arena arena{nullptr, size_t{1} << 20, "test"};
  std::optional<Layout> layout;
  MemoryStats before;

 private:
  Arena::Block* held_;
};

TEST_F(ReplayTest, PutsEveryAllocationWhereTheLayoutSays) {
  EXPECT_EQ(layout->bytes, 3 * granule);
  PlacedStep placed(arena, layout);
  Arena::Block* a = arena.allocate(granules(2), first);
  Arena::Block* b = arena.allocate(granules(1), second);
  const auto offset = [&](Arena::Block* block) {
    return reinterpret_cast<uintptr_t>(arena.address(block)) - 3 * granule;
  };
  EXPECT_EQ(offset(a), layout->offsets[0]);
  EXPECT_EQ(offset(b), layout->offsets[1]);
  EXPECT_EQ(arena.stats().live, 6 * granule);
  EXPECT_EQ(arena.stats().peak, 6 * granule);
  arena.free(a);
  Arena::Block* c = arena.allocate(granules(2), third);
  EXPECT_EQ(offset(c), layout->offsets[2]);
  arena.free(b);
  arena.free(c);
  replay.finish();
}

TEST_F(ReplayTest, OtherBytesOrAnotherNameAreRefused) {
  const std::string bytes = error_of_allocating({{granules(2), first}, {granules(9), second}});
  EXPECT_TRUE(contains(bytes, "allocation 1 of phase 0 is second (activations), 4608 bytes"));
  EXPECT_TRUE(contains(bytes, "was second (activations), 512 bytes"));
  const std::string name = error_of_allocating({{granules(2), third}});
  EXPECT_TRUE(contains(name, "allocation 0 of phase 0 is third")) << name;
  EXPECT_TRUE(contains(name, "was first")) << name;
  const Label other{.name = "first", .purpose = Purpose::gradient};
  EXPECT_TRUE(contains(error_of_allocating({{granules(2), other}}), "first (gradients)"));
}

TEST_F(ReplayTest, TooManyAndTooFewAreRefused) {
  const std::string few = error_of_allocating({{granules(2), first}});
  EXPECT_TRUE(contains(few, "allocation 1 of phase 0 was second (activations), 512 bytes")) << few;
  const std::string many = error_of([&] {
    PlacedStep placed(arena, layout);
    step();
    arena.allocate(granules(1), second);
  });
  EXPECT_TRUE(contains(many, "allocation 3 of phase 0 is second")) << many;
  EXPECT_TRUE(contains(many, "one more than were rehearsed")) << many;
}

TEST_F(ReplayTest, WhatIsHeldTooLongIsNotWrittenOver) {
  const std::string longer =
      error_of_allocating({{granules(2), first}, {granules(1), second}, {granules(2), third}});
  EXPECT_TRUE(contains(longer, "allocation 2 of phase 0, third")) << longer;
  EXPECT_TRUE(contains(longer, "overlaps first (f32 (256))")) << longer;
  Arena::Block* kept = nullptr;
  const std::string beyond = error_of([&] {
    PlacedStep placed(arena, layout);
    arena.free(arena.allocate(granules(2), first));
    arena.free(arena.allocate(granules(1), second));
    kept = arena.allocate(granules(2), third);
    replay.finish();
  });
  EXPECT_TRUE(contains(beyond, "third is still live when the step ends")) << beyond;
  // Its place is its own until it goes.
  Arena::Block* other = arena.allocate(granules(3), first);
  EXPECT_GE(arena.address(other), arena.address(kept) + 2 * granule);
  arena.free(other);
  arena.free(kept);
}

// Where the one that is held begins before, at, or after the other.
TEST(Layout, WhatLiesOnPartOfAnotherIsRefused) {
  for (const auto& [a, b] : {std::pair<size_t, size_t>{0, 1}, {1, 1}, {2, 1}, {1, 0}}) {
    Arena arena(nullptr, size_t{1} << 20, "test");
    std::optional<Layout> layout = Layout{.lifetimes = lifetimes({{2, 0, 1}, {2, 2, 3}}),
                                          .offsets = {a * granule, b * granule},
                                          .bytes = 4 * granule,
                                          .live = 2 * granule};
    for (Lifetime& l : layout->lifetimes.all) l.label = first;
    PlacedStep placed(arena, layout);
    Arena::Block* held = arena.allocate(granules(2), first);
    EXPECT_TRUE(contains(error_of([&] { arena.allocate(granules(2), first); }), "overlaps first"));
    arena.free(held);
    arena.free(arena.allocate(granules(2), first));
    replay.finish();
  }
}

TEST(Layout, OnlyWhatIsLetGoCanBeRecorded) {
  Arena arena(nullptr, size_t{1} << 20, "test");
  LifetimeRecorder recording(arena);
  Arena::Block* block = arena.allocate(granules(1), second);
  EXPECT_TRUE(contains(error_of([&] { recording.finish(); }), "second (activations)"));
  arena.free(block);
}

TEST(Layout, ThatDoesNotFitIsRefused) {
  Arena arena(nullptr, 2 * granule, "test");
  const std::optional<Layout> layout = assign_offsets(lifetimes({{3, 0, 1}}));
  EXPECT_TRUE(contains(error_of([&] { PlacedStep(arena, layout); }), "the layout of a step"));
  EXPECT_EQ(arena.stats().live, 0u);
  Arena::Block* whole = arena.allocate(granules(2), first);
  arena.free(whole);
}

TEST(Layout, PhasesMayBeLeftOutOrRepeated) {
  Arena arena(nullptr, size_t{1} << 20, "test");
  const auto step = [&](int middles) {
    arena.begin_phase(0);
    Arena::Block* across = arena.allocate(granules(2), first);
    for (int i = 0; i < middles; ++i) {
      arena.begin_phase(1);
      arena.free(arena.allocate(granules(1), second));
    }
    arena.begin_phase(2);
    Arena::Block* last = arena.allocate(granules(3), third);
    arena.free(across);
    arena.free(last);
  };
  LifetimeRecorder recording(arena);
  step(1);
  const std::optional<Layout> layout = assign_offsets(recording.finish());
  for (const int middles : {0, 1, 5}) {
    PlacedStep placed(arena, layout);
    step(middles);
    replay.finish();
  }
  EXPECT_EQ(arena.stats().peak, 5 * granule);
  EXPECT_EQ(arena.stats().live, 0u);
}

// -------------------------------------------------------------------------------- of a step

Machine cpu(int threads) { return {.architecture = CpuArchitecture{.threads = threads}}; }

// Recomputes so many in ten of the values that can be, by chance.
Plan recompute(const TrainingConfig& config, uint64_t tenths) {
  MetaStream stream(cpu(2));
  Gpt2 model(config.model, config.dtype, stream);
  const Spec ids{Shape{config.batch, config.seq}, DType::i32};
  Tape tape(stream, {.backward_follows = true});
  const Var tokens = tape.input(Tensor(ids, stream)), targets = tape.input(Tensor(ids, stream));
  model.loss(tokens, targets);
  Random random(tenths, 3);
  Plan plan;
  for (const Value& v : tape.values()) {
    const Node* made_by = v.producer < 0 ? nullptr : &tape.nodes()[v.producer];
    const bool can = made_by && made_by->op->recomputable();
    plan.placement.push_back(can && random.next() % 10 < tenths ? Placement::recompute
                                                                : Placement::keep);
  }
  return plan;
}

// Random mixtures are the hardest; plans treat layers alike.
TEST(StepLayout, WastesAtMostOnePercent) {
  for (const char* model : {"gpt2-124m", "tiny"}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const int64_t accumulate : {1, 2, 3}) {
        for (const uint64_t tenths : {0, 3, 6, 9}) {
          TrainingConfig config = small();
          if (const auto preset = gpt2_preset(model)) config.model = *preset, config.seq = 1024;
          config.dtype = dtype;
          config.accumulate = accumulate;
          TrainingPlans plans = make_plans(config);
          if (tenths > 0) plans.step = recompute(config, tenths);
          const Layout layout = assign_offsets(record_step(config, plans, cpu(2)));
          EXPECT_LE(waste(layout), 0.01)
              << model << ", " << name(dtype) << ", " << accumulate << ", " << tenths;
          if (layout.offsets.size() < 1000) expect_apart(layout);
        }
      }
    }
  }
}

TEST(StepLayout, TakesLessThanPlacingAsItComes) {
  TrainingConfig config{.model = *gpt2_preset("gpt2-124m"), .accumulate = 4};
  const TrainingPlans plans = make_plans(config), better = laid_out_plans(config, cpu(2));
  ASSERT_TRUE(better.layout);
  const auto peak = [&](const TrainingPlans& p) {
    return rehearse_training(config, p, cpu(2)).memory.peak;
  };
  EXPECT_LT(peak(better) + (size_t{30} << 20), peak(plans));
}

TEST(StepLayout, ARunHasTheSameBitsAndTheForetoldPeak) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int64_t accumulate : {1, 2, 3, 5}) {
      TrainingConfig config = small();
      config.dtype = dtype;
      config.accumulate = accumulate;
      config.dropout = 0.1f;
      config.model.vocabulary = 700;  // so that a step takes more than what comes after it
      TrainingPlans plans = make_plans(config);
      CpuStream plain(size_t{64} << 20, 2);
      Losses wanted = train(config, plans, plain);
      plans.layout = assign_offsets(record_step(config, plans, cpu(2)));
      EXPECT_LE(waste(*plans.layout), 0.01);
      const Report foretold = rehearse_training(config, plans, cpu(2), sample);
      CpuStream stream(foretold.memory.peak, 2);
      const Losses found = train(config, plans, stream);
      EXPECT_EQ(found.peak, foretold.memory.peak);
      EXPECT_EQ(stream.memory().at_peak_by, foretold.memory.at_peak_by);
      wanted.peak = found.peak;
      EXPECT_EQ(found, wanted) << name(dtype) << ", " << accumulate;
    }
  }
}

// As where a micro-batch's rows cannot be read.
TEST(StepLayout, AStepThatFailsLeavesTheNextOneItsPlace) {
  TrainingConfig config = small();
  config.accumulate = 3;
  TrainingPlans plans = make_plans(config);
  plans.layout = assign_offsets(record_step(config, plans, cpu(2)));
  CpuStream stream(rehearse_training(config, plans, cpu(2)).memory.peak, 2);
  Trainer trainer(config, plans, stream);
  trainer.initialise();
  int64_t asked = 0;
  const auto failing = [&](int64_t row, std::span<int32_t> tokens, std::span<int32_t> targets) {
    check(++asked < 9 + 5, "no more rows");  // counted, one micro-batch, and some
    rows(row, tokens, targets);
  };
  EXPECT_EQ(error_of([&] { trainer.step(0, failing); }), "no more rows");
  for (const int64_t step : {0, 1}) trainer.step(step, rows);
  EXPECT_TRUE(trainer.result().finite);
}

TEST(StepLayout, OfAnotherStepIsRefusedInASentence) {
  TrainingConfig config = small(), other = small();
  other.model.channels = 32;
  TrainingPlans plans = make_plans(config);
  plans.layout = assign_offsets(record_step(other, make_plans(other), cpu(2)));
  CpuStream stream(size_t{64} << 20, 2);
  {
    Trainer trainer(config, plans, stream);
    trainer.initialise();
    const std::string error = error_of([&] { trainer.step(0, rows); });
    EXPECT_TRUE(contains(error, "layout: allocation 0 of phase 0 is embedding")) << error;
  }
  EXPECT_EQ(stream.memory().live, 0u);
}

}  // namespace
}  // namespace spool::testing
