// Research code compiled with -ffast-math: the exponentials of a kernel of its own are within the
// bounds that scalar.h states, also of values that are not finite, and bf16 keeps NaN.

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>

#include "spool/kernels/cpu/loops.h"

namespace {

constexpr uint32_t infinite = 0x7f800000, not_a_number = 0x7fc00155;

struct Exp {
  static constexpr const char* name = "exp";
  spool::View y, x;
  spool::Cost cost() const { return {}; }
};

void run(const Exp& k, spool::CpuStream& stream) {
  const float* x = k.x.as<float>();
  spool::cpu::map(stream, k.x.numel(), spool::cpu::plain<float>(k.y),
                  [=](int64_t i) { return spool::cpu::exp(x[i]); });
}

float of_bits(uint32_t bits) { return std::bit_cast<float>(bits); }
uint32_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }
bool is_nan(uint32_t bits) { return (bits & 0x7fffffff) > infinite; }

// The largest relative error of the kernel on [-87, 88].
double largest_error() {
  using namespace spool;
  CpuStream stream(1 << 20, 2);
  std::vector<float> x(10001);
  for (size_t i = 0; i < x.size(); ++i) x[i] = -87 + 0.0175f * static_cast<float>(i);
  const Tensor in = make_tensor<float>({std::ssize(x)}, x, stream);
  const Tensor out(in.spec(), stream);
  launch(Exp{.y = out, .x = in}, stream);
  const std::vector<float> y = read<float>(out);
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double wanted = std::exp(static_cast<double>(x[i]));
    worst = std::max(worst, std::fabs(static_cast<double>(y[i]) - wanted) / wanted);
  }
  return worst;
}

}  // namespace

int main() {
  const double error = largest_error();
  const bool limits = bits_of(spool::cpu::exp(of_bits(infinite))) == infinite &&
                      bits_of(spool::cpu::exp(-100.0f)) == 0 &&
                      is_nan(bits_of(spool::cpu::exp(of_bits(not_a_number)))) &&
                      is_nan(bits_of(spool::cpu::tanh(of_bits(not_a_number))));
  volatile uint32_t quiet = 0x7fffffff;
  const bool rounds = is_nan(uint32_t{spool::bf16(of_bits(quiet)).bits} << 16);
  const double tanh_error = std::fabs(double{spool::cpu::tanh(0.7f)} - std::tanh(double{0.7f}));
  std::printf("exp is wrong by %.2g, tanh by %.2g; limits %s, bf16 %s\n", error, tanh_error,
              limits ? "right" : "WRONG", rounds ? "right" : "WRONG");
  return error < 2.4e-7 && tanh_error < 1e-6 && limits && rounds ? 0 : 1;
}
