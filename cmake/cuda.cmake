# The cuda device of a build: of the CUDA toolkit; of the emulator in tests/emulator, which runs the
# same kernels on the CPU, for tests; or none.
set(SPOOL_CUDA auto CACHE STRING "The cuda device: toolkit, emulator, off, or auto: toolkit if found")
set_property(CACHE SPOOL_CUDA PROPERTY STRINGS auto toolkit emulator off)

set(SPOOL_CUDA_KIND ${SPOOL_CUDA})
if(SPOOL_CUDA STREQUAL auto)
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})  # NVIDIA's installer leaves PATH alone
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
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
  endif()
  include(cmake/cudnn.cmake)
elseif(SPOOL_CUDA_KIND STREQUAL emulator)
  add_subdirectory(tests/emulator)
  set_source_files_properties(runtime/cuda/cudnn.cpp PROPERTIES
                              COMPILE_DEFINITIONS SPOOL_CUDNN_EMULATED=1)
elseif(NOT SPOOL_CUDA_KIND STREQUAL off)
  message(FATAL_ERROR "SPOOL_CUDA is ${SPOOL_CUDA}, and may be toolkit, emulator, off or auto")
endif()
message(STATUS "cuda device: ${SPOOL_CUDA_KIND} ${CUDAToolkit_VERSION} ${CMAKE_CUDA_ARCHITECTURES}")

# Adds a folder's CUDA sources to its library, if there is something to compile them with.
function(add_cuda_sources target folder)
  if(SPOOL_CUDA_KIND STREQUAL off)
    return()
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/cuda/*.cu)
  target_sources(${target} PRIVATE ${sources})
  if(SPOOL_CUDA_KIND STREQUAL emulator)
    set_source_files_properties(${sources} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS
                                "-xc++;-fno-strict-aliasing;-Wno-unknown-pragmas")
    target_include_directories(${target} SYSTEM PRIVATE
                               ${PROJECT_SOURCE_DIR}/tests/emulator/include)
  endif()
endfunction()
