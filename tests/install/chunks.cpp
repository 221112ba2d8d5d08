// The rows of a net's middle run in chunks: as a region of the plan, and by hand, with a tape for
// each part of the rows.  Both give the whole's gradients to 1e-6 of the largest.

#include <cmath>
#include <iostream>

#include "spool/spool.h"

namespace {

using namespace spool;

constexpr int64_t N = 96, C = 24;

struct Net {
  explicit Net(Stream& stream)
      : all(stream),
        up(all.add("up", {4 * C, C}, normal(0.2f))),
        down(all.add("down", {C, 4 * C}, normal(0.2f))),
        x({Shape{N, C}}, stream),
        dy({Shape{N, C}}, stream) {
    all.initialise(/*seed=*/2);
    Random random(3);
    for (const Tensor* t : {&x, &dy}) {
      std::vector<float> values(N * C);
      for (float& v : values) v = random.normal();
      write<float>(*t, values);
    }
  }
  Var output(Tape& tape, const Tensor& rows) {
    return linear(gelu(linear(tape.input(rows), up)), down);
  }
  // The gradients since the last call.
  std::vector<float> take() {
    std::vector<float> gradients;
    for (Parameter* p : all) {
      for (const float g : read<float>(p->grad)) gradients.push_back(g);
      p->grad = {};
    }
    return gradients;
  }

  Parameters all;
  Parameter &up, &down;
  Tensor x, dy;
};

double difference(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0, error = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::fabs(double{a[i]}));
    error = std::max(error, std::fabs(double{a[i]} - double{b[i]}));
  }
  return error / largest;
}

}  // namespace

int main() {
  CpuStream stream(size_t{4} << 20, 2);
  Net net(stream);
  const auto run = [&](const Plan& plan) {
    Tape tape(stream, {.plan = plan});
    const Var y = net.output(tape, net.x);
    tape.backward({Root{y, net.dy}});
    return tape.take_program();
  };
  const Program program = run({});
  const std::vector<float> whole = net.take();

  Plan plan;
  plan.regions.push_back(*chunk_region(program, 0, 2, /*rows=*/32));
  run(plan);
  const double of_region = difference(whole, net.take());

  for (int64_t first = 0; first < N; first += 32) {
    const Range rows{first, first + 32};
    Tape tape(stream, {.micro_batches = 3, .first_row = first});
    const Var y = net.output(tape, net.x.slice(rows));
    tape.backward({Root{y, net.dy.slice(rows)}});
  }
  const double by_hand = difference(whole, net.take());
  std::cout << "gradients in chunks differ by " << of_region << ", by hand by " << by_hand << '\n';
  return of_region < 1e-6 && by_hand < 1e-6 ? 0 : 1;
}
