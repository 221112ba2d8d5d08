// The norm of the gradients: one tree over the granules of the row of parameters, the last
// parameter first, wherever the state is.

#include <cmath>

#include "spool/kernels/reduce.h"
#include "spool/runtime/integer.h"
#include "tests/models/optimizers/optimizer_testing.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

// The sum of squares of each granule of the row.
std::vector<double> squares_of(OptimizerRun& run) {
  std::vector<double> all;
  for (size_t i = run.parameters.size(); i-- > 0;) {
    const auto granules = ceil_div(run.parameters[i].data.numel(), norm_granule);
    const Tensor out({Shape{granules}, DType::f64}, run.stream);
    const Tensor& gradient = run.parameters[i].grad;
    if (gradient) launch(SquaredNorm{.out = out, .x = {gradient}}, run.stream);
    const std::vector<double> own =
        gradient ? read<double>(out) : std::vector<double>(static_cast<size_t>(granules));
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

double sum_in_blocks(const std::vector<double>& all) {
  double sum = 0;
  for (size_t begin = 0; begin < all.size(); begin += 1024) {
    double block = 0;
    for (size_t i = begin; i < std::min(begin + 1024, all.size()); ++i) block += all[i];
    sum += block;
  }
  return sum;
}

TEST(GradientNorm, IsATreeOverTheRowWhereverTheStateIs) {
  const std::vector<std::vector<int64_t>> nets{
      {7}, {5000, 70001, 3}, std::vector<int64_t>(700, 5), {2'000'000, 0, 1, 500'001}};
  for (const std::vector<int64_t>& numels : nets) {
    for (const StatePlace& place :
         {StatePlace(OptimizerState::device), StatePlace(OptimizerState::streamed),
          StatePlace(OptimizerState::streamed, 300'000), StatePlace(OptimizerState::cpu)}) {
      OptimizerRun run(numels, {}, place);
      for (int64_t t = 1; t <= 2; ++t) {
        run.make_gradients(t);
        const double norm = std::sqrt(sum_in_blocks(squares_of(run)));
        run.step(t);
        const std::vector<float> clip = read<float>(run.optimizer->clip());
        EXPECT_EQ(clip[1], static_cast<float>(norm));
        EXPECT_EQ(clip[0], norm > 1 ? static_cast<float>(1 / norm) : 1.0f);
      }
    }
  }
}

}  // namespace
}  // namespace spool::testing
