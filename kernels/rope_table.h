// Public: one of the headers of docs/public-headers.md.
#pragma once

// The cosines and sines that rope() turns queries and keys by (kernels/rope.h), made once on the
// host.  Pair i of a head of D numbers turns by p f[i] at position p.  As in the models' own
// training, the frequencies are f32, and so is each product p f[i]; cosine and sine of that number
// are computed in f64.
//
//   const auto table = rope_table<float>(rows, D, {.theta = 5e5});
//   const Tensor on_device = make_tensor<float>({rows, D}, table, stream);
//   qkv = rope(qkv, tape.input(on_device), heads);

#include <cstdint>
#include <optional>
#include <vector>

namespace spool {

// The scaling of Llama 3 (rope_type "llama3"), by wavelength 2 pi / f: those below
// original_context / high stay; those above original_context / low are divided by factor; in
// between f[i] is a mean of both.
struct Llama3Scaling {
  double factor = 8, low = 1, high = 4, original_context = 8192;
  bool operator==(const Llama3Scaling&) const = default;
};

struct RopeFrequencies {
  double theta = 10000;  // f[i] = theta^(-2 i / D)
  std::optional<Llama3Scaling> scaling = {};
  bool operator==(const RopeFrequencies&) const = default;
};

// f (D/2), in f32.  Throws if D is odd, or a number that must be positive is not.
std::vector<float> inverse_frequencies(int64_t D, const RopeFrequencies&);

// (rows, D): of each position from 0 on, D/2 cosines and then D/2 sines.  T is float, or double for
// values in f64.
template <class T>
std::vector<T> rope_table(int64_t rows, int64_t D, const RopeFrequencies&);

}  // namespace spool
