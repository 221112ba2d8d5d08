# GNU's OpenMP runtime, as the target Gomp::gomp.  CMake's FindOpenMP finds the compiler's, and
# oneDNN's is this one whatever the compiler.
find_library(GOMP_LIBRARY NAMES libgomp.so.1 gomp)
mark_as_advanced(GOMP_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Gomp REQUIRED_VARS GOMP_LIBRARY)

if(Gomp_FOUND AND NOT TARGET Gomp::gomp)
  add_library(Gomp::gomp UNKNOWN IMPORTED)
  set_target_properties(Gomp::gomp PROPERTIES IMPORTED_LOCATION ${GOMP_LIBRARY})
endif()
