# Ranks on GPUs by NCCL: the header that they are compiled with, from the toolkit, the system, a Python
# package or scripts/nccl.sh.  The library itself is found at run time (runtime/cuda/nccl.h).
set(SPOOL_NCCL auto CACHE STRING "Ranks on GPUs by NCCL: on, off, or auto: on if its header is found")
set_property(CACHE SPOOL_NCCL PROPERTY STRINGS auto on off)
set(SPOOL_NCCL_KIND off)
set(min_nccl_header 2.28)

# The version that the header in a folder says, as 2.28.
function(nccl_version variable folder)
  set(version 0)
  if(EXISTS ${folder}/nccl.h)
    file(STRINGS ${folder}/nccl.h lines REGEX "^#define NCCL_(MAJOR|MINOR) +[0-9]+")
    list(TRANSFORM lines REPLACE "^[^0-9]+([0-9]+).*" "\\1")
    list(JOIN lines . version)
  endif()
  set(${variable} ${version} PARENT_SCOPE)
endfunction()

function(is_new_enough variable found)
  if(NOT IS_DIRECTORY ${found})
    cmake_path(GET found PARENT_PATH found)
  endif()
  nccl_version(version ${found})
  if(version VERSION_LESS min_nccl_header)
    set(${variable} FALSE PARENT_SCOPE)
  endif()
endfunction()

if(NOT SPOOL_NCCL MATCHES "^(auto|on|off)$")
  message(FATAL_ERROR "SPOOL_NCCL is ${SPOOL_NCCL}, and may be on, off or auto")
elseif(SPOOL_CUDA_KIND STREQUAL emulator)
  if(NOT SPOOL_NCCL STREQUAL off AND EXISTS ${PROJECT_SOURCE_DIR}/tests/emulator/include/nccl.h)
    set(SPOOL_NCCL_KIND emulator)
  endif()
elseif(SPOOL_CUDA_KIND STREQUAL toolkit AND NOT SPOOL_NCCL STREQUAL off)
  find_package(Python3 COMPONENTS Interpreter QUIET)
  if(Python3_FOUND)
    execute_process(COMMAND ${Python3_EXECUTABLE} -c "import nvidia.nccl as n; print(n.__path__[0])"
                    OUTPUT_VARIABLE python_nccl ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  endif()
  find_path(SPOOL_NCCL_INCLUDE nccl.h
            HINTS ${CUDAToolkit_INCLUDE_DIRS} ${python_nccl}/include
            PATHS /usr/local/cuda/include ${PROJECT_SOURCE_DIR}/build/third_party/nccl/include
            VALIDATOR is_new_enough DOC "Header of NCCL, ${min_nccl_header} or newer")
  nccl_version(version "${SPOOL_NCCL_INCLUDE}")
  if(version VERSION_GREATER_EQUAL min_nccl_header)
    set(SPOOL_NCCL_KIND on)
  elseif(SPOOL_NCCL_INCLUDE)  # named by hand
    message(WARNING "${SPOOL_NCCL_INCLUDE} has no nccl.h of ${min_nccl_header} or newer")
  endif()
endif()
if(SPOOL_NCCL STREQUAL on AND SPOOL_NCCL_KIND STREQUAL off)
  message(FATAL_ERROR "SPOOL_NCCL is on, but there is no nccl.h of ${min_nccl_header} or newer for the cuda"
                      " device ${SPOOL_CUDA_KIND}; it is sought in the toolkit, the system, and Python's"
                      " nvidia-nccl-cu13, and scripts/nccl.sh fetches it")
endif()
message(STATUS "NCCL for ranks on GPUs: ${SPOOL_NCCL_KIND} ${SPOOL_NCCL_INCLUDE}")

# Where to look for the library besides where the system looks.
if(SPOOL_NCCL_KIND STREQUAL on)
  file(REAL_PATH ${SPOOL_NCCL_INCLUDE}/nccl.h header)
  cmake_path(GET header PARENT_PATH header_folder)
  set(beside)
  foreach(folder ${SPOOL_NCCL_INCLUDE} ${header_folder} ${python_nccl}/include)
    list(APPEND beside ${folder}/../lib ${folder}/../lib64)
  endforeach()
  find_file(SPOOL_NCCL_LIBRARY libnccl.so.2 HINTS ${beside} NO_DEFAULT_PATH
            DOC "NCCL where the system finds none")
  if(SPOOL_NCCL_LIBRARY)
    set_source_files_properties(runtime/cuda/nccl.cpp PROPERTIES COMPILE_DEFINITIONS
                                SPOOL_NCCL_LIBRARY="${SPOOL_NCCL_LIBRARY}")
  endif()
endif()

# Compiles the sources of a target with NCCL's header, if the build has it.
function(use_nccl target)
  if(SPOOL_NCCL_KIND STREQUAL off)
    return()
  endif()
  target_compile_definitions(${target} PRIVATE SPOOL_NCCL=1)
  if(SPOOL_NCCL_KIND STREQUAL emulator)  # whose header is among its others
    target_compile_definitions(${target} PRIVATE SPOOL_NCCL_EMULATED=1)
  else()
    target_include_directories(${target} SYSTEM PRIVATE ${SPOOL_NCCL_INCLUDE})
  endif()
endfunction()
