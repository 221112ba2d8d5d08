#include "spool/runtime/cpu/bf16_products.h"

#include "spool/runtime/check.h"
#include "spool/runtime/cpu/processor.h"
#include "spool/runtime/cpu/usable_cores.h"

#if SPOOL_ONEDNN
#include <dnnl.h>
#endif

namespace spool {

Bf16Products bf16_products(TileUnit unit) {
  if (unit != TileUnit::absent) return Bf16Products::tiles;
#if SPOOL_ONEDNN
  constexpr dnnl_cpu_isa_t pairs = dnnl_cpu_isa_avx512_core_bf16;  // a part of its isa of AMX, too
  if ((dnnl_get_effective_cpu_isa() & pairs) == pairs) return Bf16Products::pairs;
#endif
  return Bf16Products::as_f32;
}

CpuArchitecture this_processor(int threads) {
  check_processor();
  check_setting(threads >= 0 && threads <= 4096, {"threads"}, "threads: ", threads,
                " is not between 0 and 4096");
  return {.threads = threads ? threads : usable_cores(), .bf16_products = bf16_products()};
}

}  // namespace spool
