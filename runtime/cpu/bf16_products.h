// Public: one of the headers of docs/public-headers.md.
#pragma once

// Tells how products of bf16 are computed on this processor, and so what a rehearsal of a CpuStream
// rehearses on.

#include "spool/runtime/cpu/tile_unit.h"
#include "spool/runtime/device.h"

namespace spool {

// In tiles, by Spool's own kernels, where the processor has a tile unit or it is emulated; else by
// oneDNN, in pairs as far as its environment lets it.  Without oneDNN such products are those of
// f32.
Bf16Products bf16_products(TileUnit);
inline Bf16Products bf16_products() { return bf16_products(tile_unit()); }

// The architecture of a CpuStream with these threads on this processor; 0: one per usable core.
// Throws unless threads is from 0 to 4096.
CpuArchitecture this_processor(int threads);

}  // namespace spool
