# liburing, as the target liburing::liburing.  Its packages have no CMake package of their own, and
# a machine may have no pkg-config.
find_path(LIBURING_INCLUDE liburing.h)
find_library(LIBURING_LIBRARY uring)
mark_as_advanced(LIBURING_INCLUDE LIBURING_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(liburing REQUIRED_VARS LIBURING_LIBRARY LIBURING_INCLUDE)

if(liburing_FOUND AND NOT TARGET liburing::liburing)
  add_library(liburing::liburing UNKNOWN IMPORTED)
  set_target_properties(
    liburing::liburing PROPERTIES IMPORTED_LOCATION ${LIBURING_LIBRARY}
                                  INTERFACE_INCLUDE_DIRECTORIES ${LIBURING_INCLUDE})
endif()
