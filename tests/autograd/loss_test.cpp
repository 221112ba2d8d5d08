// runs: numbers
// linear_cross_entropy on a tape: gradients formed in forward, upstream gradients that are not 1,
// micro-batches, tied weights.

#include "spool/autograd/ops.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr int64_t N = 12, C = 5, V = 9;

class LinearCrossEntropy : public ::testing::Test {
 protected:
  CpuStream stream{size_t{64} << 20, 2};
  Parameter weight{.name = "head", .data = normal({V, C}, DType::f64, stream, 1)};
  Tensor x = normal({N, C}, DType::f64, stream, 2);
  Tensor targets = ids();

  Tensor ids() {
    std::vector<int32_t> t{3, 0, 8, -100, 1, 1, 7, 2, -100, 5, 4, 6};
    return make_tensor<int32_t>({N}, t, stream);
  }
  struct Outcome {
    double loss;
    std::vector<double> dx, dweight;
  };
  // The loss, and the gradients of factor * loss.
  Outcome run(TapeOptions options, double factor = 1, const LossOptions& loss_options = {}) {
    Tape tape(stream, std::move(options));
    const Var input = tape.input(x, true);
    Var loss = linear_cross_entropy(input, weight, tape.input(targets), loss_options);
    const double value = values(loss.tensor()).front();
    if (factor != 1) loss = scale(loss, factor);
    tape.backward(loss);
    Outcome outcome{value, values(tape.grad(input)), values(weight.grad)};
    weight.grad = {};
    return outcome;
  }
  static TapeOptions early(int chunks) {
    return {.plan = {.chunks = {chunks}}, .backward_follows = true};
  }
};

void expect_close(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_LT(difference(a, b), 1e-14);
}

TEST_F(LinearCrossEntropy, FormsTheSameGradientsInForward) {
  const Outcome late = run({});
  for (const int chunks : {1, 2, 4, 5, 12}) {
    const Outcome formed = run(early(chunks));
    EXPECT_DOUBLE_EQ(formed.loss, late.loss);
    expect_close(formed.dx, late.dx);
    expect_close(formed.dweight, late.dweight);
  }
}

TEST_F(LinearCrossEntropy, SevenTimesTheLossHasSevenTimesTheGradients) {
  const Outcome once = run({});
  const auto seven = [](std::vector<double> all) {
    for (double& g : all) g *= 7;
    return all;
  };
  for (const bool in_forward : {false, true}) {
    for (const int chunks : {1, 3}) {
      TapeOptions options = early(chunks);
      options.backward_follows = in_forward;
      const Outcome formed = run(options, 7);
      expect_close(formed.dx, seven(once.dx));
      expect_close(formed.dweight, seven(once.dweight));
    }
  }
}

// Its gradient is 1 as well, so what forward has computed is all.
TEST_F(LinearCrossEntropy, ALossThatIsAddedToAnotherKeepsItsGradientFromForward) {
  Parameter second{.name = "second", .data = normal({V, C}, DType::f64, stream, 7)};
  uint64_t launches = 0;
  const auto gradients = [&](bool in_forward, bool twice) {
    Tape tape(stream, {.backward_follows = in_forward});
    const Var input = tape.input(x, true), to = tape.input(targets);
    const Var loss = linear_cross_entropy(input, weight, to);
    Var sum = add(loss, linear_cross_entropy(input, second, to));
    if (twice) sum = add(sum, loss);
    const uint64_t before = stream.launches();
    tape.backward(sum);
    launches = stream.launches() - before;
    std::vector all{values(tape.grad(input)), values(weight.grad), values(second.grad)};
    weight.grad = second.grad = {};
    return all;
  };
  for (const bool twice : {true, false}) {  // if twice, the gradient of one of them is 2
    const auto late = gradients(false, twice), formed = gradients(true, twice);
    for (size_t i = 0; i < late.size(); ++i) expect_close(formed[i], late[i]);
  }
  EXPECT_EQ(launches, 2u) << "the root, and the sum of both dx";
}

TEST_F(LinearCrossEntropy, AFactorDoesNotScaleEarlierMicroBatches) {
  const auto total = [&](bool in_forward) {
    for (const double factor : {1.0, 7.0, 1.0}) {
      TapeOptions options = early(2);
      options.backward_follows = in_forward;
      options.micro_batches = 3;
      Tape tape(stream, options);
      Var loss = linear_cross_entropy(tape.input(x), weight, tape.input(targets));
      if (factor != 1) loss = scale(loss, factor);
      tape.backward(loss);
    }
    const std::vector<double> sum = values(weight.grad);
    weight.grad = {};
    return sum;
  };
  expect_close(total(true), total(false));
}

TEST_F(LinearCrossEntropy, MicroBatchesWithACommonScaleEqualOneBatch) {
  const Outcome whole = run({});
  const std::vector<double> one_over{1.0 / 10};
  const Tensor loss_scale = make_tensor<double>({1}, one_over, stream);
  double loss = 0;
  std::vector<double> dx;
  for (const Range rows : split(N, 3)) {
    Tape tape(stream, {.backward_follows = true, .micro_batches = 3, .loss_scale = loss_scale});
    const Var input = tape.input(x.slice(rows), true);
    const Var part = linear_cross_entropy(input, weight, tape.input(targets.slice(rows)));
    tape.backward(part);
    loss += values(part.tensor()).front();
    const auto d = values(tape.grad(input));
    dx.insert(dx.end(), d.begin(), d.end());
  }
  EXPECT_NEAR(loss, whole.loss, 1e-14);
  expect_close(dx, whole.dx);
  expect_close(values(weight.grad), whole.dweight);
}

TEST_F(LinearCrossEntropy, ATiedEmbeddingAndHeadShareOneGradient) {
  const std::vector<int32_t> tokens_of{1, 2, 3, 0, 1, 1, 7, 2, 3, 5, 4, 6};
  const Tensor tokens = make_tensor<int32_t>({3, 4}, tokens_of, stream);
  const auto tied = [&](bool in_forward) {
    Tape tape(stream, {.backward_follows = in_forward});
    const Var h = embedding(tape.input(tokens), weight);
    tape.backward(linear_cross_entropy(h, weight, tape.input(targets)));
    const std::vector<double> sum = values(weight.grad);
    weight.grad = {};
    return sum;
  };
  Parameter embedded{.name = "wte", .data = weight.data};
  Tape tape(stream);
  const Var h = embedding(tape.input(tokens), embedded);
  tape.backward(linear_cross_entropy(h, weight, tape.input(targets)));
  std::vector<double> apart = values(weight.grad);
  const std::vector<double> other = values(embedded.grad);
  for (size_t i = 0; i < apart.size(); ++i) apart[i] += other[i];
  weight.grad = {};
  expect_close(tied(false), apart);
  expect_close(tied(true), apart);
}

TEST_F(LinearCrossEntropy, IgnoredTargetsGiveZeroAndNoNaN) {
  const std::vector<int32_t> none(N, -100);
  targets = make_tensor<int32_t>({N}, none, stream);
  for (const bool in_forward : {false, true}) {
    TapeOptions options = early(3);
    options.backward_follows = in_forward;
    const Outcome nothing = run(options);
    EXPECT_EQ(nothing.loss, 0);
    EXPECT_EQ(nothing.dx, std::vector<double>(N * C, 0.0));
    EXPECT_EQ(nothing.dweight, std::vector<double>(V * C, 0.0));
  }
}

TEST_F(LinearCrossEntropy, ChunksKeepLogitsOutOfMemory) {
  constexpr int64_t rows = 1024, columns = 4096;
  const auto peak = [&](int chunks, bool recording) {
    CpuStream fresh(size_t{256} << 20, 1);
    Parameter head{.name = "head", .data = normal({columns, C}, DType::f32, fresh, 1)};
    const Tensor in = normal({rows, C}, DType::f32, fresh, 1);
    const Tensor to = make_tensor<int32_t>({rows}, std::vector<int32_t>(rows, 1), fresh);
    TapeOptions options = early(chunks);
    options.recording = recording;
    Tape tape(fresh, options);
    const Var loss = linear_cross_entropy(tape.input(in, true), head, tape.input(to));
    if (recording) tape.backward(loss);
    return fresh.memory().peak;
  };
  const size_t logits = rows * columns * sizeof(float);
  EXPECT_GT(peak(1, true), logits);
  EXPECT_LT(peak(16, true), peak(1, true) - logits * 15 / 16 + 4096);
  EXPECT_LT(peak(16, false), peak(16, true));
}

TEST_F(LinearCrossEntropy, RefusesATargetOutsideTheVocabulary) {
  targets = make_tensor<int32_t>({N}, std::vector<int32_t>(N, 9), stream);
  expect_error(ErrorKind::invalid, {"target 9", "[0, 9)"}, [&] { run({}); });
}

}  // namespace
}  // namespace spool::testing
