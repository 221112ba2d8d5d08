# Ranks by MPI: a module that alone is linked with it, and that the program and the library, which start
# without it, open beside themselves (runtime/ranks/mpi.h).
set(SPOOL_MPI auto CACHE STRING "Ranks by MPI: on, off, or auto: on if it is found; sanitizers do without")
set_property(CACHE SPOOL_MPI PROPERTY STRINGS auto on off)

set(SPOOL_MPI_KIND off)
if(SPOOL_MPI STREQUAL on OR (SPOOL_MPI STREQUAL auto AND NOT SPOOL_SANITIZE))
  include(CheckLanguage)
  check_language(C)
  if(CMAKE_C_COMPILER)
    enable_language(C)  # whose interface of MPI is looked for
    find_package(MPI COMPONENTS C)
  endif()
  if(MPI_C_FOUND)
    set(SPOOL_MPI_KIND on)
  elseif(SPOOL_MPI STREQUAL on)
    message(FATAL_ERROR "SPOOL_MPI is on, but MPI is missing (Debian's libopenmpi-dev)")
  endif()
elseif(NOT SPOOL_MPI MATCHES "^(auto|off)$")
  message(FATAL_ERROR "SPOOL_MPI is ${SPOOL_MPI}, and may be on, off or auto")
endif()
message(STATUS "ranks by MPI: ${SPOOL_MPI_KIND} ${MPI_C_VERSION}")

if(SPOOL_MPI_KIND STREQUAL on)
  set(CMAKE_BUILD_RPATH ${PROJECT_BINARY_DIR})  # where all programs of a build find it
  add_library(spool_mpi MODULE runtime/ranks/mpi/module.cpp runtime/ranks/mpi/world.cpp)
  set_target_properties(spool_mpi PROPERTIES PREFIX "")
  target_compile_definitions(spool_mpi PRIVATE OMPI_SKIP_MPICXX=1 MPICH_SKIP_MPICXX=1)
  target_link_libraries(spool_mpi PRIVATE spool_runtime_headers MPI::MPI_C spool_options)
endif()
