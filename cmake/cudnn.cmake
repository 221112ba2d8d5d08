# Attention by cuDNN, for a build with the CUDA toolkit.  It needs cuDNN's headers, from the toolkit, a
# system package or a Python one, and its frontend's headers, which scripts/cudnn-frontend.sh fetches.
# The library itself is found at run time (runtime/cuda/cudnn.h).
set(SPOOL_CUDNN auto CACHE STRING "Attention by cuDNN: on, off, or auto: on if its headers are found")
set_property(CACHE SPOOL_CUDNN PROPERTY STRINGS auto on off)
set(third_party ${PROJECT_SOURCE_DIR}/build/third_party)
find_path(SPOOL_CUDNN_FRONTEND_INCLUDE cudnn_frontend.h
          HINTS ${third_party}/cudnn-frontend/include
          DOC "Headers of cuDNN's frontend")
find_package(Python3 COMPONENTS Interpreter QUIET)
if(Python3_FOUND)
  execute_process(COMMAND ${Python3_EXECUTABLE} -c "import nvidia.cudnn as c; print(c.__path__[0])"
                  OUTPUT_VARIABLE python_cudnn ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
find_path(SPOOL_CUDNN_INCLUDE cudnn_graph.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ${python_cudnn}/include
          DOC "Headers of cuDNN 9")

set(SPOOL_CUDNN_KIND off)
if(NOT SPOOL_CUDNN STREQUAL off AND SPOOL_CUDNN_FRONTEND_INCLUDE AND SPOOL_CUDNN_INCLUDE)
  set(SPOOL_CUDNN_KIND on)
elseif(SPOOL_CUDNN STREQUAL on)
  message(FATAL_ERROR "SPOOL_CUDNN is on, but headers are missing; cuDNN's: ${SPOOL_CUDNN_INCLUDE},"
                      " its frontend's: ${SPOOL_CUDNN_FRONTEND_INCLUDE}"
                      " (scripts/cudnn-frontend.sh fetches the frontend's)")
endif()
message(STATUS "attention by cuDNN: ${SPOOL_CUDNN_KIND} ${SPOOL_CUDNN_INCLUDE}")

# The source that includes the frontend has no kernels, so it is compiled as C++; -isystem silences
# warnings in third-party headers.
if(SPOOL_CUDNN_KIND STREQUAL on)
  set(definitions SPOOL_CUDNN=1)
  find_file(SPOOL_CUDNN_LIBRARY libcudnn.so.9
            HINTS ${SPOOL_CUDNN_INCLUDE}/../lib ${SPOOL_CUDNN_INCLUDE}/../lib64
            NO_DEFAULT_PATH DOC "Where to look for cuDNN besides where the system looks")
  if(SPOOL_CUDNN_LIBRARY)
    list(APPEND definitions SPOOL_CUDNN_LIBRARY="${SPOOL_CUDNN_LIBRARY}")
  endif()
  set_source_files_properties(runtime/cuda/cudnn.cpp kernels/cuda/attention_cudnn.cu PROPERTIES
                              COMPILE_DEFINITIONS "${definitions}")
  set(options -xc++ -O1)
  foreach(path ${SPOOL_CUDNN_FRONTEND_INCLUDE} ${SPOOL_CUDNN_INCLUDE} ${CUDAToolkit_INCLUDE_DIRS})
    if(NOT path IN_LIST CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES)
      list(APPEND options -isystem${path})
    endif()
  endforeach()
  set_source_files_properties(kernels/cuda/attention_cudnn.cu PROPERTIES
                              LANGUAGE CXX COMPILE_OPTIONS "${options}")
endif()
