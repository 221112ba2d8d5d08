# Installs the command, the library, its headers and a CMake package, for research code that says
#   find_package(spool)  target_link_libraries(mine spool::spool)  #include "spool/runtime/tensor.h"
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/spool)

install(TARGETS spool_library EXPORT spool-targets)
install(EXPORT spool-targets NAMESPACE spool:: DESTINATION ${package})
if(TARGET spool)
  install(TARGETS spool)
endif()

# The command line's headers are private to it.
foreach(room ${SPOOL_ROOMS})
  if(NOT room STREQUAL models/cli)
    cmake_path(GET room PARENT_PATH above)
    install(DIRECTORY ${room} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/spool/${above}
            FILES_MATCHING PATTERN "*.h" PATTERN "*.cuh")
  endif()
endforeach()

configure_package_config_file(cmake/spool-config.cmake.in spool-config.cmake
                              INSTALL_DESTINATION ${package})
write_basic_package_version_file(spool-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/spool-config.cmake
              ${PROJECT_SOURCE_DIR}/cmake/FindPCRE2.cmake
              ${PROJECT_SOURCE_DIR}/cmake/Findliburing.cmake
              ${PROJECT_BINARY_DIR}/spool-config-version.cmake DESTINATION ${package})
