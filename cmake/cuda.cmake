# Chooses the cuda device of a build: the CUDA toolkit's; the emulator's (tests/emulator), which
# runs the same kernels on the CPU, for tests; or none.
set(SPOOL_CUDA auto CACHE STRING "The cuda device: toolkit, emulator, off, or auto: toolkit if found")
set_property(CACHE SPOOL_CUDA PROPERTY STRINGS auto toolkit emulator off)

set(SPOOL_CUDA_KIND ${SPOOL_CUDA})
if(SPOOL_CUDA STREQUAL auto)
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})  # NVIDIA's installer does not change PATH
    find_program(nvcc nvcc HINTS ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)
    if(nvcc)
      set(CMAKE_CUDA_COMPILER ${nvcc})
    endif()
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  set(SPOOL_CUDA_KIND off)
  if(CMAKE_CUDA_COMPILER)
    set(SPOOL_CUDA_KIND toolkit)
  endif()
endif()

if(SPOOL_CUDA_KIND STREQUAL toolkit)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
  endif()
  enable_language(CUDA)
  find_package(CUDAToolkit 12 REQUIRED)
  # CMake 3.25 does not know that nvcc has this one.
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  if(CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${ccache_command})
  endif()
  include(cmake/cudnn.cmake)
  # cuBLASLt is found at run time: the system's, else the one beside the runtime of this toolkit.
  get_target_property(cudart CUDA::cudart_static IMPORTED_LOCATION)
  cmake_path(GET cudart PARENT_PATH cudart_folder)
  set(cublas_lt libcublasLt.so.${CUDAToolkit_VERSION_MAJOR})
  set_source_files_properties(
    runtime/cuda/cublas_lt.cpp PROPERTIES COMPILE_DEFINITIONS
    "SPOOL_CUBLASLT_FILES=\"${cublas_lt}\"$<COMMA>\"${cudart_folder}/${cublas_lt}\"")
elseif(SPOOL_CUDA_KIND STREQUAL emulator)
  add_subdirectory(tests/emulator)
  set_source_files_properties(runtime/cuda/cudnn.cpp PROPERTIES
                              COMPILE_DEFINITIONS SPOOL_CUDNN_EMULATED=1)
elseif(NOT SPOOL_CUDA_KIND STREQUAL off)
  message(FATAL_ERROR "SPOOL_CUDA is ${SPOOL_CUDA}, and may be toolkit, emulator, off or auto")
endif()
message(STATUS "cuda device: ${SPOOL_CUDA_KIND} ${CUDAToolkit_VERSION} ${CMAKE_CUDA_ARCHITECTURES}")

# Replaces CUDA sources by a few that include them; CMake's unity build covers only C++.
function(unite variable folder)
  set(rest)
  set(united)
  foreach(source ${${variable}})
    get_source_file_property(options ${source} COMPILE_OPTIONS)
    if(options)
      list(APPEND united ${source})
    else()
      list(APPEND rest ${source})
    endif()
  endforeach()
  while(rest)
    list(LENGTH united number)
    list(SUBLIST rest 0 6 some)
    list(REMOVE_ITEM rest ${some})
    list(TRANSFORM some REPLACE "(.+)" "#include \"\\1\"\n")
    set(file ${PROJECT_BINARY_DIR}/unity/${folder}_${number}.cu)
    string(CONCAT text ${some})
    file(CONFIGURE OUTPUT ${file} CONTENT "${text}" @ONLY)
    list(APPEND united ${file})
  endwhile()
  set(${variable} ${united} PARENT_SCOPE)
endfunction()

# Compiles CUDA sources for the build's device, which the toolkit's do by themselves.  Without one,
# they are C++ like any other: only a test's may be.
function(compile_for_cuda sources)
  if(SPOOL_CUDA_KIND STREQUAL off AND sources)
    set_source_files_properties(${sources} PROPERTIES LANGUAGE CXX SKIP_PRECOMPILE_HEADERS ON
                                                      COMPILE_OPTIONS -xc++)
  elseif(SPOOL_CUDA_KIND STREQUAL emulator AND sources)
    set_source_files_properties(
      ${sources} PROPERTIES LANGUAGE CXX SKIP_PRECOMPILE_HEADERS ON COMPILE_DEFINITIONS
      SPOOL_CUDA_SOURCE=1 COMPILE_OPTIONS "-xc++;-fno-strict-aliasing;-Wno-unknown-pragmas")
  endif()
endfunction()

# Adds a folder's CUDA sources to its library, if the build has a cuda device.
function(add_cuda_sources target folder)
  if(SPOOL_CUDA_KIND STREQUAL off)
    return()
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/cuda/*.cu)
  if(CMAKE_UNITY_BUILD)
    unite(sources ${folder})
  endif()
  target_sources(${target} PRIVATE ${sources})
  compile_for_cuda("${sources}")
  if(SPOOL_CUDA_KIND STREQUAL emulator)
    target_include_directories(${target} SYSTEM PRIVATE
                               ${PROJECT_SOURCE_DIR}/tests/emulator/include)
  endif()
endfunction()
