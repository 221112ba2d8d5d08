#include "spool/kernels/granule_hashes.h"

#include "spool/kernels/arguments.h"

namespace spool {

void GranuleHashes::check_arguments() const {
  const Arguments all(name);
  int64_t granules = 0;
  for (const View& one : x) {
    all.present("x", one, floating);
    all.apart("out", out, {{"x", one}});
    granules += ceil_div(one.numel(), norm_granule);
  }
  all.elements("out", out, DType::i32, 2 * granules);
}

Cost GranuleHashes::cost() const {
  constexpr double word_flops = 10;  // of integers
  Cost sum{0, bytes(out)};
  for (const View& one : x) {
    sum.flops += word_flops / sizeof(uint64_t) * bytes(one);
    sum.bytes += bytes(one);
  }
  return sum;
}

}  // namespace spool
