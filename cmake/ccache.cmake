# Compiles through ccache, if there is one.  By itself ccache would not cache sources that include a
# precompiled header: it must be told to ignore macros that the header defines, and __TIME__.  The
# target whose header clang precompiles needs -fno-pch-timestamp besides (tests/CMakeLists.txt).
find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
endif()
