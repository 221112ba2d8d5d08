// runs: numbers
// Ops in chunks that know their place in the whole: losses, whose sums are over all rows, and
// dropout, whose random numbers are those of its rows and node.

#include "tests/autograd/chunks/chunks_testing.h"

namespace spool::testing {
namespace {

class LossesInChunks : public ::testing::Test {
 protected:
  CpuStream stream{chunk_memory, 2};

  void expect_as_whole(const ChunkCase& c, const Plan& plan) {
    const SampleValues whole = run_case(c, stream), found = run_case(c, stream, {.plan = plan});
    EXPECT_LT(largest_difference(found.outputs, whole.outputs), 1e-6) << c.name;
    EXPECT_LT(largest_difference(found.gradients, whole.gradients), 1e-5) << c.name;
  }
};

TEST_F(LossesInChunks, AreSumsMeansAndThoseOfRows) {
  for (const char* const name : {"sum_of_losses", "mean_of_losses", "losses_of_rows"}) {
    const ChunkCase& c = chunk_case(name);
    for (const int chunks : {2, 3, 5, 10}) expect_as_whole(c, plan_of(c, chunks));
  }
}

TEST_F(LossesInChunks, MayHaveTargetsIgnoredInAWholeChunk) {
  for (const Reduction reduction : {Reduction::sum, Reduction::mean, Reduction::none}) {
    const ChunkCase c{"ignored", {{0, 6}}, [&](Net& n, const Var& x, const Var&) {
                        const std::vector<int32_t> some{-100, -100, -100, -100, 3,
                                                        -100, 7,    1,    -100, 2};
                        write<int32_t>(n.targets, some);
                        return std::vector<Var>{n.loss(n.mlp(x), reduction)};
                      }};
    for (const int chunks : {2, 3, 5, 10}) expect_as_whole(c, plan_of(c, chunks));
  }
}

TEST_F(LossesInChunks, MayBeCutIntoChunksOfTheirOwn) {
  for (const char* const name : {"sum_of_losses", "mean_of_losses"}) {
    const ChunkCase& c = chunk_case(name);
    for (const int own : {2, 5, 10}) {
      Plan plan = plan_of(c, 3);
      plan.chunks = {1, 1, 1, 1, 1, 1, own};
      expect_as_whole(c, plan);
    }
  }
}

class DropoutInChunks : public ::testing::Test {
 protected:
  CpuStream stream{chunk_memory, 2};

  struct Result {
    std::vector<double> y, dx;
    bool operator==(const Result&) const = default;
  };
  // gelu, dropout, gelu, dropout of rows of the batch.
  Result drop(Range rows, const Plan& plan) {
    const Net net(stream, {.B = 6});
    TapeOptions how = net.options(plan);
    how.first_row = rows.begin;
    Tape tape(stream, how);
    const Var x = tape.input(net.x.slice(rows), true);
    const Var y = dropout(gelu(dropout(gelu(x), 0.5f)), 0.3f);
    Result found{.y = values(y.tensor()), .dx = {}};
    tape.backward({{y, normal(net.x.shape(), DType::f32, stream, 9).slice(rows)}});
    found.dx = values(tape.grad(x));
    return found;
  }
  static Plan in_chunks(NodeId first, NodeId last, int chunks) {
    return {.regions = {{first, last, chunks, {last + 1}}}};
  }
};

TEST_F(DropoutInChunks, DrawsTheNumbersThatItDrawsOutside) {
  const Result whole = drop({0, 6}, {});
  for (const int chunks : {2, 3, 7, 30}) {
    EXPECT_EQ(drop({0, 6}, in_chunks(0, 3, chunks)), whole) << chunks;
    EXPECT_EQ(drop({0, 6}, in_chunks(1, 2, chunks)), whole) << chunks;
  }
}

TEST_F(DropoutInChunks, DrawsThoseOfItsRowsInAMicroBatch) {
  const Result whole = drop({0, 6}, {});
  const auto rows_of = [](const std::vector<double>& all, Range rows) {
    return std::vector(all.begin() + rows.begin * 40, all.begin() + rows.end * 40);
  };
  for (const Range rows : {Range{0, 2}, Range{2, 6}, Range{1, 4}, Range{5, 6}}) {
    const Result expected{.y = rows_of(whole.y, rows), .dx = rows_of(whole.dx, rows)};
    EXPECT_EQ(drop(rows, {}), expected) << rows.begin;
    for (const int chunks : {2, 5}) {
      EXPECT_EQ(drop(rows, in_chunks(0, 3, chunks)), expected) << rows.begin << ", " << chunks;
    }
  }
}

TEST_F(DropoutInChunks, DrawsThoseOfItsRowsAlongTheBatchToo) {
  const ChunkCase& c = chunk_case("block");
  const NetOptions net{.B = 4, .dropout = 0.5f};
  const auto outputs = [&](const Plan& plan, int64_t first_row) {
    return run_case(c, stream, {.plan = plan, .first_row = first_row}, net).outputs;
  };
  for (const int64_t first_row : {0, 3}) {
    const auto whole = outputs({}, first_row);
    for (const int chunks : {2, 4}) {
      const auto found = outputs(plan_of(c, chunks, net), first_row);
      EXPECT_LT(largest_difference(found, whole), 1e-6) << first_row << ", " << chunks;
    }
  }
  EXPECT_GT(largest_difference(outputs({}, 0), outputs({}, 3)), 0.1);
}

}  // namespace
}  // namespace spool::testing
