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
