# The processors that a build is for.  The library remembers what its compiler was allowed to use, and
# a stream on another processor is refused in a sentence (runtime/cpu/processor.h).
set(arch native)
if(DEFINED SPOOL_NATIVE AND NOT SPOOL_NATIVE)  # the option's former name
  set(arch "")
endif()
set(SPOOL_ARCH "${arch}" CACHE STRING
    "Processor to compile for: native, or a value of -march such as x86-64-v3; empty: any")

# What runs before the check is compiled for any processor: targets with the property
# SPOOL_ANY_PROCESSOR, and the source of the check itself.
if(SPOOL_ARCH)
  set(any $<BOOL:$<TARGET_PROPERTY:SPOOL_ANY_PROCESSOR>>)
  target_compile_options(spool_options INTERFACE
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:${any}>>:-march=${SPOOL_ARCH}>)
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set_source_files_properties(runtime/cpu/processor.cpp PROPERTIES COMPILE_OPTIONS -march=x86-64)
endif()
set_source_files_properties(runtime/cpu/built_for.cpp PROPERTIES
                            COMPILE_DEFINITIONS SPOOL_ARCH="${SPOOL_ARCH}")

# Whether the compiler compiles a source with these flags.
function(compiles_with flags source variable)
  include(CheckCXXSourceCompiles)
  list(JOIN flags " " CMAKE_REQUIRED_FLAGS)
  check_cxx_source_compiles("${source}" ${variable})
endfunction()

# The kernels for a tile unit (AMX) are compiled for processors that have one, whatever SPOOL_ARCH
# names, and these options are for their source alone; runtime/cpu/tile_unit.h tells whether they
# may run.  Targets that use_tiles() are compiled with SPOOL_TILES=1 where the compiler has them.
set(tile_options -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512bf16 -mfma)
if(CMAKE_SYSTEM_NAME STREQUAL Linux AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  compiles_with("${tile_options}" "
    #include <immintrin.h>
    int main(int count, char**) {
      __m512 sums = _mm512_set1_ps(static_cast<float>(count));
      const __m512bh pairs = _mm512_cvtne2ps_pbh(sums, sums);
      sums = _mm512_dpbf16_ps(sums, pairs, pairs);
      __asm__ volatile(\"tilerelease\" ::: \"memory\");
      return static_cast<int>(_mm512_reduce_add_ps(sums));
    }" SPOOL_HAS_TILE_KERNELS)
endif()
if(SPOOL_HAS_TILE_KERNELS)
  set_source_files_properties(kernels/cpu/tile_unit/unit_kernels.cpp PROPERTIES
    COMPILE_OPTIONS "${tile_options};-O3;-mprefer-vector-width=512"
    SKIP_UNITY_BUILD_INCLUSION ON)
endif()

# Tells a target whether the kernels for a tile unit are compiled.
function(use_tiles target)
  if(SPOOL_HAS_TILE_KERNELS)
    target_compile_definitions(${target} PRIVATE SPOOL_TILES=1)
  endif()
endfunction()

# Compilers halve their vectors for some processors with AVX-512, whose clock falls where whole ones
# are used.  It does not on those with products of bf16, or tiles (which have the former, too).
set(SPOOL_WHOLE_VECTORS)
if(SPOOL_ARCH)
  string(MAKE_C_IDENTIFIER "SPOOL_BF16_PRODUCTS_${SPOOL_ARCH}" has_bf16_products)
  compiles_with("-march=${SPOOL_ARCH};-mprefer-vector-width=512" "
#if !defined(__AVX512BF16__)
#error
#endif
int main() {}" ${has_bf16_products})
  if(${has_bf16_products})
    set(SPOOL_WHOLE_VECTORS -mprefer-vector-width=512)
  endif()
endif()
