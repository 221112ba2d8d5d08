# Installs the command, the library, its headers, documents and examples, and a CMake package, for
# research code that says
#   find_package(spool)  target_link_libraries(mine spool::spool)  #include "spool/spool.h"
# The package names no place but its own, so that an installed tree can be moved.
include(CMakePackageConfigHelpers)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/spool)

install(TARGETS spool_library EXPORT spool-targets)
install(EXPORT spool-targets NAMESPACE spool:: DESTINATION ${package})
if(TARGET spool)
  install(TARGETS spool)
endif()
if(TARGET spool_mpi)
  install(TARGETS spool_mpi DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
if(SPOOL_CUDA_KIND STREQUAL toolkit AND NOT BUILD_SHARED_LIBS)
  install(FILES ${cudart} DESTINATION ${CMAKE_INSTALL_LIBDIR}/spool RENAME libcudart_static.a)
endif()

# The command line's headers are private to it.
foreach(room ${SPOOL_ROOMS})
  if(NOT room STREQUAL models/cli)
    cmake_path(GET room PARENT_PATH above)
    install(DIRECTORY ${room} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/spool/${above}
            FILES_MATCHING PATTERN "*.h" PATTERN "*.cuh")
  endif()
endforeach()
install(DIRECTORY ${SPOOL_FRONT_ROOM}/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/spool)

configure_package_config_file(cmake/spool-config.cmake.in spool-config.cmake
                              INSTALL_DESTINATION ${package})
write_basic_package_version_file(spool-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/spool-config.cmake
              ${PROJECT_BINARY_DIR}/spool-config-version.cmake DESTINATION ${package})
if(NOT BUILD_SHARED_LIBS)
  install(FILES cmake/FindGomp.cmake cmake/FindPCRE2.cmake cmake/Findliburing.cmake
                cmake/Findutf8proc.cmake
          DESTINATION ${package})
endif()

install(FILES README.md CHANGELOG.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs examples DESTINATION ${CMAKE_INSTALL_DOCDIR})
