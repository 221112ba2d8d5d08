# Compiles through ccache, if it is installed.  By default ccache does not cache sources that
# include a precompiled header: this setting makes it ignore the header's macros, and __TIME__.
# clang also needs -fno-pch-timestamp where it precompiles the header (tests/CMakeLists.txt).
find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
endif()
