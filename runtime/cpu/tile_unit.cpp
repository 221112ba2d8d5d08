#include "spool/runtime/cpu/tile_unit.h"

#include <cstdlib>

#include "spool/runtime/check.h"

#if SPOOL_TILES
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "spool/runtime/cpu/processor.h"
#include "spool/runtime/log.h"
#endif

namespace spool {
namespace {

#if SPOOL_TILES
constexpr bool kernels_are_built = true;

bool processor_has_unit() {
  InstructionSets needed = 0;  // what cmake/processor.cmake compiles the kernels with
  for (const char* set : {"fma", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512bf16"})
    needed |= instruction_set(set);
  if (needed & ~processor_instruction_sets()) return false;
  constexpr unsigned amx_bf16 = 1U << 22, amx_tile = 1U << 24;  // of leaf 7, in edx
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (edx & amx_bf16) && (edx & amx_tile);
}

// Asks Linux to save this process's tile registers: without its permission the first instruction on
// them is a SIGILL.
bool ask_for_tiles() {
  constexpr long request = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  if (::syscall(SYS_arch_prctl, request, tile_data) == 0) return true;
  logger().debug("the system refuses the tile unit: {}", std::generic_category().message(errno));
  return false;
}
bool system_permits_tiles() {
  static const bool permitted = ask_for_tiles();
  return permitted;
}

bool unit_is_usable() {
  static const bool usable = processor_has_unit() && system_permits_tiles();
  return usable;
}
#else
constexpr bool kernels_are_built = false;
bool system_permits_tiles() { return false; }
bool unit_is_usable() { return false; }
#endif

}  // namespace

TileUnit tile_unit() {
  const char* value = std::getenv("SPOOL_TILE_UNIT");
  if (!value || !*value) return unit_is_usable() ? TileUnit::present : TileUnit::absent;
  const auto set = parse<TileUnit>(value);
  check(set.has_value(), "SPOOL_TILE_UNIT is '", value,
        "'; set it to absent, emulated or present, or leave it unset");
  check(kernels_are_built || *set != TileUnit::present,
        "SPOOL_TILE_UNIT is present, and this build has no kernels for the tile unit");
  if (set == TileUnit::present) system_permits_tiles();  // an emulator needs no permission
  return *set;
}

}  // namespace spool
