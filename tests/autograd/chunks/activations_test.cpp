// runs: numbers
// Memory and rows of regions in chunks: what is live at each kernel, and how rows are divided.

#include <algorithm>
#include <array>

#include "spool/kernels/elementwise.h"
#include "spool/runtime/memory/allocation_log.h"
#include "spool/runtime/meta/stream.h"
#include "tests/autograd/chunks/chunks_testing.h"

namespace spool::testing {
namespace {

constexpr size_t KiB = 1024, MiB = 1024 * KiB;

size_t live_activations(const Lifetimes& lifetimes, size_t time) {
  size_t live = 0;
  for (const Lifetime& l : lifetimes.all) {
    const bool is_live = l.birth <= time && time < l.death;
    if (is_live && l.label.purpose == Purpose::activation) live += l.bytes;
  }
  return live;
}

// x (1024, 256), a linear to 1024, gelu, a linear to 256: the first example of a region in chunks.
class ActivationsInChunks : public ::testing::Test {
 protected:
  // The most bytes of activations at the kernel of each node, x aside.
  static std::array<size_t, 3> live_at_nodes(int chunks) {
    MetaStream stream{Machine{}};
    Parameter fc{.data = Tensor({Shape{1024, 256}}, stream)};
    Parameter proj{.data = Tensor({Shape{256, 1024}}, stream)};
    const Tensor x({Shape{1024, 256}}, stream);
    const AllocationLog log(stream.arena());
    {
      Plan plan;
      if (chunks > 1) plan.regions = {{0, 2, chunks, {5}}};
      Tape tape(stream, {.plan = plan, .recording = false});
      Var y = linear(tape.input(x), fc);
      y = gelu(y);
      y = linear(y, proj);
      EXPECT_EQ(y.id(), 5);
    }
    return at_kernels(log.lifetimes());
  }

 private:
  // A linear's kernel begins at the birth of its workspace, a gelu's at that of its output.
  static std::array<size_t, 3> at_kernels(const Lifetimes& lifetimes) {
    std::array<size_t, 3> max{};
    size_t products = 0;
    for (const Lifetime& l : lifetimes.all) {
      const bool is_product = l.label.purpose == Purpose::workspace;
      if (!is_product && std::string_view(l.label.name) != "gelu") continue;
      size_t& at = max.at(is_product ? 2 * (products++ % 2) : 1);
      at = std::max(at, live_activations(lifetimes, l.birth));
    }
    return max;
  }
};

TEST_F(ActivationsInChunks, AreWholeInOneChunk) {
  EXPECT_EQ(live_at_nodes(1), (std::array{4 * MiB, 8 * MiB, 5 * MiB}));
}

TEST_F(ActivationsInChunks, AreThoseOfAChunkAndTheLeaf) {
  for (const int chunks : {2, 4, 8, 16}) {
    const size_t rows = 1024 / static_cast<size_t>(chunks);
    EXPECT_EQ(live_at_nodes(chunks),
              (std::array{MiB + rows * 4 * KiB, MiB + rows * 8 * KiB, MiB + rows * 4 * KiB}))
        << rows;
  }
}

// An op that notes how many rows it is given, in forward and in backward.
struct RowsOp final : Op {
  std::vector<int64_t>& rows;
  explicit RowsOp(std::vector<int64_t>& r) : rows(r) {}

  const char* name() const override { return "rows"; }
  const char* indices() const override { return "nc->nc"; }
  Specs infer(const Specs& in) const override { return {in[0]}; }
  void forward(Forward& f) const override {
    auto [x] = f.inputs<1>();
    auto [y] = f.outputs<1>();
    rows.push_back(x.shape().rows());
    f.launch(Add{.out = y, .a = x});
  }
  Slots saves(const Needs&) const override { return {}; }
  void backward(Backward& b) const override {
    auto [dy] = b.grad_outputs<1>();
    rows.push_back(dy.shape().rows());
    b.launch(Add{.out = b.grad_input(0), .a = dy});
  }
};

class RowsOfChunks : public ::testing::Test {
 protected:
  CpuStream stream{chunk_memory, 2};

  std::vector<int64_t> rows_of(const Shape& shape, int chunks) {
    std::vector<int64_t> rows;
    Tape tape(stream, {.plan = {.regions = {{0, 0, chunks, {1}}}}});
    const Var y =
        apply<RowsOp>(tape, {tape.input(normal(shape, DType::f32, stream, 1), true)}, rows);
    tape.backward({{y, normal(shape, DType::f32, stream, 2)}});
    return rows;
  }
};

TEST_F(RowsOfChunks, TenInThreeChunksAreFourFourAndTwo) {
  EXPECT_EQ(rows_of({10, 4}, 3), (std::vector<int64_t>{4, 4, 2, 4, 4, 2}));
  EXPECT_EQ(rows_of({2, 5, 4}, 3), (std::vector<int64_t>{4, 4, 2, 4, 4, 2}));
}

TEST_F(RowsOfChunks, TenInSixChunksAreFive) {
  EXPECT_EQ(rows_of({10, 4}, 6), std::vector<int64_t>(10, 2));
}

TEST_F(RowsOfChunks, AsManyChunksAsRowsHaveOneEach) {
  EXPECT_EQ(rows_of({2, 3, 4}, 6), std::vector<int64_t>(12, 1));
}

TEST_F(RowsOfChunks, FewerThanChunksAreRefused) {
  expect_error(ErrorKind::invalid,
               {"nodes 0 to 0 cannot run in chunks", "extent of 10", "less than its 11 chunks"},
               [&] {
                 rows_of({2, 5, 4}, 11);
               });
}

// Products in f32 sum each row alike from 64 rows on, with AVX-512; with AVX2 the order depends on
// the number of rows.
bool sums_rows_alike() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f");
#else
  return false;
#endif
}

TEST(BitsOfChunks, AreThoseOfOneChunkAt64RowsAndMore) {
  CpuStream stream(chunk_memory, 2);
  for (const char* const name : {"mlp", "mlp_between_others", "tied_weights", "losses_of_rows"}) {
    const ChunkCase& c = chunk_case(name);
    const NetOptions net{.B = 2, .T = 128, .C = 24};
    const auto outputs = [&](const Plan& plan) {
      return run_case(c, stream, {.plan = plan, .recording = false}, net).outputs;
    };
    const std::vector<std::vector<double>> whole = outputs({});
    for (const int chunks : {2, 3, 4}) {
      const std::vector<std::vector<double>> found = outputs(plan_of(c, chunks, net));
      if (sums_rows_alike()) {
        EXPECT_EQ(found, whole) << name << ", " << chunks;
      } else {
        EXPECT_LT(largest_difference(found, whole), 1e-6) << name << ", " << chunks;
      }
    }
  }
}

}  // namespace
}  // namespace spool::testing
