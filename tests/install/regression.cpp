// A regression whose optimizer is the program's own: Lion (Chen et al. 2023), on the host, over the
// parameters of a net of two layers.  Gradients are the same bits when values are recomputed, and
// the loss falls.

#include <cmath>
#include <iostream>

#include "spool/spool.h"

namespace {

using namespace spool;

constexpr int64_t N = 64, C = 16, H = 32;

class Net {
 public:
  explicit Net(Stream& stream)
      : all(stream),
        up(all.add("up", {H, C}, normal(0.2f))),
        down(all.add("down", {2, H}, normal(0.2f))),
        x({Shape{N, C}}, stream),
        targets({Shape{N}, DType::i32}, stream) {
    all.initialise(/*seed=*/5);
    Random random(1);
    std::vector<float> rows;
    std::vector<int32_t> signs;
    for (int64_t n = 0; n < N; ++n) {
      float sum = 0;
      for (int64_t c = 0; c < C; ++c) sum += rows.emplace_back(random.normal());
      signs.push_back(sum > 0);
    }
    write<float>(x, rows);
    write<int32_t>(targets, signs);
  }

  Var loss(Tape& tape) {
    const Var input = tape.input(x);
    const Var h = checkpointed ? checkpoint(tape, [&] { return gelu(linear(input, up)); })
                               : gelu(linear(input, up));
    return linear_cross_entropy(h, down, tape.input(targets));
  }

  bool checkpointed = false;
  Parameters all;
  Parameter &up, &down;
  Tensor x, targets;
};

class Lion {
 public:
  explicit Lion(const Parameters& all) : all_(all) {
    for (const Parameter* p : all) momentum_.emplace_back(p->data.numel(), 0.0f);
  }
  void step(float rate) {
    for (size_t i = 0; i < all_.size(); ++i) {
      Parameter& p = *all_[i];
      std::vector<float> values = read<float>(p.data);
      const std::vector<float> gradient = read<float>(p.grad);
      for (size_t k = 0; k < values.size(); ++k) {
        float& m = momentum_[i][k];
        values[k] -= rate * std::copysign(1.0f, 0.9f * m + 0.1f * gradient[k]);
        m = 0.99f * m + 0.01f * gradient[k];
      }
      write<float>(p.data, values);
      p.grad = {};
    }
  }

 private:
  const Parameters& all_;
  std::vector<std::vector<float>> momentum_;
};

std::vector<double> train(Stream& stream, bool checkpointed) {
  Net net(stream);
  net.checkpointed = checkpointed;
  Lion optimizer(net.all);
  std::vector<double> losses;
  for (int step = 0; step < 30; ++step) {
    Tape tape(stream, {.backward_follows = true});
    const Var loss = net.loss(tape);
    tape.backward(loss);
    losses.push_back(item(loss));
    optimizer.step(0.01f);
  }
  return losses;
}

}  // namespace

int main() {
  CpuStream stream(size_t{4} << 20, 2);
  const std::vector<double> kept = train(stream, /*checkpointed=*/false);
  const bool equal = train(stream, /*checkpointed=*/true) == kept;
  std::cout << "loss " << kept.front() << ", then " << kept.back() << (equal ? "" : ", BITS DIFFER")
            << '\n';
  return equal && kept.back() < 0.5 * kept.front() ? 0 : 1;
}
