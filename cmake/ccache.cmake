# Compiles through ccache, if there is one.  It caches precompiled headers and what includes them only
# if told that they define macros and may use __TIME__, and clang's only if they hold no time of their
# own.
find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL Clang)
  add_compile_options("SHELL:$<$<COMPILE_LANGUAGE:CXX>:-Xclang -fno-pch-timestamp>")
endif()
