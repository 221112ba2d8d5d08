# Compiles through ccache, if it is installed.  By default ccache does not cache sources that
# include a precompiled header: this setting makes it ignore the header's macros, and __TIME__.
# clang also needs -fno-pch-timestamp where it precompiles the header (tests/CMakeLists.txt).
# Paths below the source folder count as relative, so clones in other folders find what this one
# compiled; debug information has the folder of a build, so only builds without it do, or those with
# CCACHE_NOHASHDIR set.
find_program(CCACHE ccache)
if(CCACHE)
  set(ccache_command env CCACHE_SLOPPINESS=pch_defines,time_macros
      CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} ${CCACHE})
  if(NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${ccache_command})
  endif()
endif()
