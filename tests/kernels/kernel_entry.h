#pragma once

// How the samples of kernels are written down.

#include <utility>

#include "spool/kernels/launch.h"
#include "tests/kernels/kernel_samples.h"

namespace spool::testing::entries {

template <class Make>
Launch entry(std::vector<Argument> arguments, Make make) {
  using Kernel = decltype(make(std::declval<const Given&>()));
  return {Kernel::name, std::move(arguments),
          [=](const Given& g, Stream& stream) { launch(make(g), stream); }};
}

inline constexpr auto absent = Freedom::may_be_absent, sets_size = Freedom::sets_size,
                      any_rows = Freedom::any_rows, any_float = Freedom::any_float;
inline constexpr DType f64 = DType::f64, f32 = DType::f32, bf16 = DType::bf16, i32 = DType::i32;

}  // namespace spool::testing::entries
