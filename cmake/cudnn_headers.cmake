# Finds the headers that attention by cuDNN is compiled with: cuDNN's, from the toolkit, a system package
# or a Python one, and its frontend's, which scripts/cudnn-frontend.sh fetches.
set(third_party ${PROJECT_SOURCE_DIR}/build/third_party)
find_path(SPOOL_CUDNN_FRONTEND_INCLUDE cudnn_frontend.h
          HINTS ${third_party}/cudnn-frontend/include
          DOC "Headers of cuDNN's frontend")
find_package(Python3 COMPONENTS Interpreter QUIET)
if(Python3_FOUND)
  execute_process(COMMAND ${Python3_EXECUTABLE} -c "import nvidia.cudnn as c; print(c.__path__[0])"
                  OUTPUT_VARIABLE python_cudnn ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
find_path(SPOOL_CUDNN_INCLUDE cudnn_graph.h
          HINTS ${CUDAToolkit_INCLUDE_DIRS} ${python_cudnn}/include PATHS /usr/local/cuda/include
          DOC "Headers of cuDNN 9")
find_file(SPOOL_CUDNN_LIBRARY libcudnn.so.9
          HINTS ${SPOOL_CUDNN_INCLUDE}/../lib ${SPOOL_CUDNN_INCLUDE}/../lib64
          NO_DEFAULT_PATH DOC "Where to look for cuDNN besides where the system looks")

# Compiles a source that includes them, and has no kernels, as C++; -isystem silences warnings in
# third-party headers.
function(compile_with_cudnn source definitions cuda_include)
  set(options -xc++ -O1)
  foreach(path ${SPOOL_CUDNN_FRONTEND_INCLUDE} ${SPOOL_CUDNN_INCLUDE} ${cuda_include})
    if(NOT path IN_LIST CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES)
      list(APPEND options -isystem${path})
    endif()
  endforeach()
  set_source_files_properties(${source} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "${options}"
                              COMPILE_DEFINITIONS "${definitions}")
endfunction()
