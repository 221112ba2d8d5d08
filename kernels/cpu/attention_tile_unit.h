#pragma once

// Attention in bf16 on the tile unit of the processor (cpu/tile_unit).

#include "spool/kernels/attention.h"

namespace spool::cpu {

// Whether it is computed there: in bf16, by heads of a multiple of 32 numbers up to 128, on a
// processor that has the unit.
bool attention_fits_tile_unit(const AttentionExtents&, DType, const CpuArchitecture&);

size_t tile_unit_bytes(const AttentionForward&, const AttentionExtents&, const CpuArchitecture&);
size_t tile_unit_bytes(const AttentionBackward&, const AttentionExtents&, const CpuArchitecture&);
void run_on_tile_unit(const AttentionForward&, const AttentionExtents&, CpuStream&);
void run_on_tile_unit(const AttentionBackward&, const AttentionExtents&, CpuStream&);

}  // namespace spool::cpu
