# Attention by cuDNN, for a build with the CUDA toolkit.  The library itself is found at run time
# (runtime/cuda/cudnn.h).
set(SPOOL_CUDNN auto CACHE STRING "Attention by cuDNN: on, off, or auto: on if its headers are found")
set_property(CACHE SPOOL_CUDNN PROPERTY STRINGS auto on off)
include(cmake/cudnn_headers.cmake)

set(SPOOL_CUDNN_KIND off)
if(NOT SPOOL_CUDNN STREQUAL off AND SPOOL_CUDNN_FRONTEND_INCLUDE AND SPOOL_CUDNN_INCLUDE)
  set(SPOOL_CUDNN_KIND on)
elseif(SPOOL_CUDNN STREQUAL on)
  message(FATAL_ERROR "SPOOL_CUDNN is on, but headers are missing; cuDNN's: ${SPOOL_CUDNN_INCLUDE},"
                      " its frontend's: ${SPOOL_CUDNN_FRONTEND_INCLUDE}"
                      " (scripts/cudnn-frontend.sh fetches the frontend's)")
endif()
message(STATUS "attention by cuDNN: ${SPOOL_CUDNN_KIND} ${SPOOL_CUDNN_INCLUDE}")

if(SPOOL_CUDNN_KIND STREQUAL on)
  set(definitions SPOOL_CUDNN=1)
  if(SPOOL_CUDNN_LIBRARY)
    list(APPEND definitions SPOOL_CUDNN_LIBRARY="${SPOOL_CUDNN_LIBRARY}")
  endif()
  set_source_files_properties(runtime/cuda/cudnn.cpp PROPERTIES
                              COMPILE_DEFINITIONS "${definitions}")
  foreach(source attention_cudnn attention_plans)
    compile_with_cudnn(kernels/cuda/${source}.cu SPOOL_CUDNN=1 "${CUDAToolkit_INCLUDE_DIRS}")
  endforeach()
endif()
