# What tests of NCCL have besides their sources.

# Libraries that say they are NCCL: of these versions, one that has its version alone.
if(TARGET runtime_nccl_test)
  target_compile_definitions(runtime_nccl_test PRIVATE SPOOL_NCCL_BUILT="${SPOOL_NCCL_KIND}")
  foreach(which_and_version "OLDEST 2804" "OLD 22705" "NEW 23004" "OTHER 30001" "EMPTY 22809")
    separate_arguments(which_and_version)
    list(GET which_and_version 0 which)
    list(GET which_and_version 1 version)
    add_library(nccl_${which} MODULE runtime/nccl/nccl.cpp)
    target_link_libraries(nccl_${which} PRIVATE spool_runtime_headers)
    target_compile_definitions(nccl_${which} PRIVATE NCCL_VERSION_SAID=${version})
    add_dependencies(runtime_nccl_test nccl_${which})
    target_compile_definitions(runtime_nccl_test PRIVATE
                               SPOOL_${which}_NCCL="$<TARGET_FILE:nccl_${which}>")
  endforeach()
  target_compile_definitions(nccl_EMPTY PRIVATE NCCL_WITHOUT_FUNCTIONS=1)
endif()

# NCCL itself is asked for an id by the functions as its header declares them.
if(TARGET runtime_nccl_library_test)
  set(library $<$<BOOL:${SPOOL_NCCL_LIBRARY}>:${SPOOL_NCCL_LIBRARY}>)
  target_compile_definitions(runtime_nccl_library_test PRIVATE SPOOL_NCCL_LIBRARY="${library}")
  if(SPOOL_NCCL_KIND STREQUAL on)
    use_nccl(runtime_nccl_library_test)
    target_compile_definitions(runtime_nccl_library_test PRIVATE SPOOL_HAS_NCCL_HEADER=1)
    target_sources(runtime_nccl_library_test PRIVATE runtime/nccl/unique_id.cu)
  endif()
endif()

# What one rank can tell of a GPU and of NCCL, which scripts/gpu.sh runs where there is a GPU.
if(NOT SPOOL_NCCL_KIND STREQUAL off AND NOT SPOOL_SANITIZE STREQUAL "thread")
  compile_for_cuda(runtime/nccl/one_rank.cu)
  add_executable(runtime_nccl_one_rank runtime/nccl/one_rank.cpp runtime/nccl/one_rank.cu)
  target_link_libraries(runtime_nccl_one_rank PRIVATE spool::spool spool_test_options)
  use_nccl(runtime_nccl_one_rank)
  if(SPOOL_NCCL_KIND STREQUAL emulator)
    use_emulator(runtime_nccl_one_rank "")
    add_test(NAME runtime/nccl_one_rank_test
             COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/runtime/nccl/one_rank_test.py
                     $<TARGET_FILE:runtime_nccl_one_rank>)
  endif()
endif()
