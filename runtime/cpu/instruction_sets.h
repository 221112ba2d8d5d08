#pragma once

// The extensions of x86-64 that compilers use unasked, as an X macro: two sources, compiled for
// different processors, test each extension in their own way:
//
//   X(bit, name, macro)   the macro is 1 where the compiler may use the extension

#include <cstdint>

#if defined(__x86_64__)
#if defined(__clang__)  // clang 14 cannot ask a processor for the others
#define SPOOL_NEWER_INSTRUCTION_SETS(X)
#else
#define SPOOL_NEWER_INSTRUCTION_SETS(X) \
  X(27, "f16c", __F16C__)               \
  X(28, "lzcnt", __LZCNT__)             \
  X(29, "movbe", __MOVBE__)             \
  X(30, "vaes", __VAES__)               \
  X(31, "avxvnni", __AVXVNNI__)         \
  X(32, "avx512fp16", __AVX512FP16__)
#endif
#define SPOOL_INSTRUCTION_SETS(X)               \
  X(0, "sse3", __SSE3__)                        \
  X(1, "ssse3", __SSSE3__)                      \
  X(2, "sse4.1", __SSE4_1__)                    \
  X(3, "sse4.2", __SSE4_2__)                    \
  X(4, "sse4a", __SSE4A__)                      \
  X(5, "popcnt", __POPCNT__)                    \
  X(6, "avx", __AVX__)                          \
  X(7, "avx2", __AVX2__)                        \
  X(8, "fma", __FMA__)                          \
  X(9, "fma4", __FMA4__)                        \
  X(10, "xop", __XOP__)                         \
  X(11, "bmi", __BMI__)                         \
  X(12, "bmi2", __BMI2__)                       \
  X(13, "avx512f", __AVX512F__)                 \
  X(14, "avx512bw", __AVX512BW__)               \
  X(15, "avx512cd", __AVX512CD__)               \
  X(16, "avx512dq", __AVX512DQ__)               \
  X(17, "avx512vl", __AVX512VL__)               \
  X(18, "avx512ifma", __AVX512IFMA__)           \
  X(19, "avx512vbmi", __AVX512VBMI__)           \
  X(20, "avx512vbmi2", __AVX512VBMI2__)         \
  X(21, "avx512vnni", __AVX512VNNI__)           \
  X(22, "avx512bitalg", __AVX512BITALG__)       \
  X(23, "avx512vpopcntdq", __AVX512VPOPCNTDQ__) \
  X(24, "avx512bf16", __AVX512BF16__)           \
  X(25, "gfni", __GFNI__)                       \
  X(26, "vpclmulqdq", __VPCLMULQDQ__)           \
  SPOOL_NEWER_INSTRUCTION_SETS(X)
#else
#define SPOOL_INSTRUCTION_SETS(X)  // other processors are not checked
#endif

namespace spool {

using InstructionSets = uint64_t;  // a bit each

}  // namespace spool
