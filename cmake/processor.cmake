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

# Compilers halve their vectors for some processors with AVX-512, whose clock falls where whole ones
# are used.  It does not on those with products of bf16, or tiles (which have the former, too).
set(SPOOL_WHOLE_VECTORS)
if(SPOOL_ARCH)
  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_FLAGS "-march=${SPOOL_ARCH} -mprefer-vector-width=512")
  string(MAKE_C_IDENTIFIER "SPOOL_BF16_PRODUCTS_${SPOOL_ARCH}" has_bf16_products)
  check_cxx_source_compiles("
#if !defined(__AVX512BF16__)
#error
#endif
int main() {}" ${has_bf16_products})
  unset(CMAKE_REQUIRED_FLAGS)
  if(${has_bf16_products})
    set(SPOOL_WHOLE_VECTORS -mprefer-vector-width=512)
  endif()
endif()
