// An op that can be cut in several ways, as its index notation alone says: check_op() runs it in
// parts along each letter, and finds a notation that is false.

#include <cstdio>
#include <string>
#include <vector>

#include "spool/kernels/cpu/scalar.h"
#include "spool/spool.h"
#include "spool/testing.h"

namespace research {

using namespace spool;

// y[n] = sum_i x[n,i] x[n,I+i] + bias[n]: the product of the halves of a row, as of a query and a
// key.  dx[n,i] (+)= dy[n] x[n,I+i], and so the other half.
struct HalvesForward {
  static constexpr const char* name = "halves_forward";
  View y, x, bias;  // (N..), (N.., 2 I), (N..)
  Cost cost() const { return {1.0 * static_cast<double>(x.numel()), bytes(y, x, bias)}; }
};

struct HalvesBackward {
  static constexpr const char* name = "halves_backward";
  Grad dx;
  View dy, x;
  Cost cost() const { return {1.0 * static_cast<double>(x.numel()), bytes(dx, dy, x)}; }
};

constexpr int64_t rows_of_piece = 64;  // that a thread computes

// T is a type of values, A that of sums.
void run(const HalvesForward& k, CpuStream& stream) {
  const int64_t N = k.x.shape().rows(), I = k.x.shape().row() / 2;
  cpu::dispatch(k.x.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    using A = cpu::accumulator_t<T>;
    stream.parallel_for(N, rows_of_piece, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        const T* const x = k.x.as<T>() + n * 2 * I;
        A sum = 0;
        for (int64_t i = 0; i < I; ++i) sum += A(x[i]) * A(x[I + i]);
        k.y.as<T>()[n] = static_cast<T>(sum + A(k.bias.as<T>()[n]));
      }
    });
  });
}

// G is the type of the gradient, which of a parameter may be wider.
template <class T, class G>
void write_rows(const HalvesBackward& k, int64_t begin, int64_t end) {
  using A = cpu::accumulator_t<T>;
  const int64_t I = k.x.shape().row() / 2;
  for (int64_t n = begin; n < end; ++n) {
    const T* const x = k.x.as<T>() + n * 2 * I;
    G* const dx = k.dx.view.as<G>() + n * 2 * I;
    const A dy = A(k.dy.as<T>()[n]);
    for (int64_t i = 0; i < 2 * I; ++i) {
      const A gradient = dy * A(x[i < I ? I + i : i - I]);
      dx[i] = static_cast<G>(k.dx.accumulate ? A(dx[i]) + gradient : gradient);
    }
  }
}

void run(const HalvesBackward& k, CpuStream& stream) {
  cpu::dispatch(k.x.dtype(), [&](auto scalar) {
    cpu::dispatch(k.dx.view.dtype(), [&](auto gradient) {
      using T = decltype(scalar);
      using G = decltype(gradient);
      stream.parallel_for(k.x.shape().rows(), rows_of_piece,
                          [&](int64_t begin, int64_t end) { write_rows<T, G>(k, begin, end); });
    });
  });
}

// n: rows, of which each is by itself.  i: numbers of a half, of which the row has two parts, and
// which are summed over; the bias is added to that sum once, so it has a +.
constexpr const char* true_notation = "n(i+i),+n->n";

struct Halves final : Op {
  const char* notation;
  explicit Halves(const char* n) : notation(n) {}

  const char* name() const override { return "halves"; }
  const char* indices() const override { return notation; }
  // A part along i has shorter rows: how long they are is seen in x, and is no attribute.
  Specs infer(const Specs& in) const override {
    check(in[0].shape.rows() == in[1].shape.numel() && in[0].shape.row() % 2 == 0,
          "halves: ", in[0], " and a bias of ", in[1],
          "; rows must be of an even length, with a number of the bias for each");
    return {in[1]};
  }
  void forward(Forward& f) const override {
    const auto [x, bias] = f.inputs<2>();
    const auto [y] = f.outputs<1>();
    f.launch(HalvesForward{.y = y, .x = x, .bias = bias});
  }
  Slots saves(const Needs& needs) const override { return needs[0] ? Slots{in(0)} : Slots{}; }
  void backward(Backward& b) const override {
    if (b.needs_grad(1)) b.pass(1);
    if (!b.needs_grad(0)) return;
    const auto [x] = b.saved<1>();
    const auto [dy] = b.grad_outputs<1>();
    b.launch(HalvesBackward{.dx = b.grad_input(0), .dy = dy, .x = x});
  }
};

std::vector<std::string> check_halves(const char* notation) {
  return check_op(
      {.name = "halves",
       .inputs = {{.shape = {3, 4, 10}, .large = {400, 100}}, {.shape = {3, 4}, .large = {400}}},
       .apply = [=](const std::vector<Operand>& x) {
         return std::vector{apply<Halves>({x[0], x[1]}, notation)};
       }});
}

}  // namespace research

int main() {
  for (const std::string& failure : research::check_halves(research::true_notation)) {
    std::printf("%s\n", failure.c_str());
    return 1;
  }
  std::printf("halves, %s, is what its parts along n and along i make up\n",
              research::true_notation);
  // Without the + each part along i would add the bias.
  const std::vector<std::string> found = research::check_halves("n(i+i),n->n");
  for (const std::string& failure : found) std::printf("%s\n", failure.c_str());
  return found.empty() ? 1 : 0;
}
