#include "spool/runtime/cpu/bf16_products.h"

#if SPOOL_ONEDNN
#include <dnnl.h>
#endif

namespace spool {

Bf16Products bf16_products() {
#if SPOOL_ONEDNN
  const dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
  const auto has = [&](dnnl_cpu_isa_t wanted) { return (isa & wanted) == wanted; };
  if (has(dnnl_cpu_isa_avx512_core_amx)) return Bf16Products::tiles;
  if (has(dnnl_cpu_isa_avx512_core_bf16)) return Bf16Products::pairs;
#endif
  return Bf16Products::as_f32;
}

}  // namespace spool
