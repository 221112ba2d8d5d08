# The library that research code links: every room but the command line.  Static or shared, it can be
# part of executables, shared libraries and plugins, and its users compile as C++20.
add_library(spool_library)
set_target_properties(
  spool_library PROPERTIES OUTPUT_NAME spool EXPORT_NAME spool POSITION_INDEPENDENT_CODE ON
                           INSTALL_RPATH $ORIGIN  # of the module of MPI
                           VERSION ${PROJECT_VERSION}
                           SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
target_compile_features(spool_library PUBLIC cxx_std_20)
# CMake 3.25 has no such feature of nvcc.
target_compile_options(spool_library INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>)
target_include_directories(spool_library INTERFACE $<INSTALL_INTERFACE:include>)
foreach(room ${SPOOL_ROOMS})
  room_name(name ${room})
  if(NOT room STREQUAL models/cli)
    target_sources(spool_library PRIVATE $<TARGET_OBJECTS:spool_${name}>)
    target_include_directories(spool_library INTERFACE $<BUILD_INTERFACE:${SPOOL_INCLUDE}/${name}>)
  endif()
endforeach()
room_name(front ${SPOOL_FRONT_ROOM})
target_include_directories(spool_library INTERFACE $<BUILD_INTERFACE:${SPOOL_INCLUDE}/${front}>)

# What only this library calls.  Users of a shared one need not have it.
function(link_private)
  if(BUILD_SHARED_LIBS)
    list(TRANSFORM ARGN REPLACE "(.+)" "$<BUILD_INTERFACE:\\1>")
  endif()
  target_link_libraries(spool_library PRIVATE ${ARGN})
endfunction()

target_link_libraries(spool_library PUBLIC Threads::Threads spdlog::spdlog
                                           nlohmann_json::nlohmann_json)
link_private(PCRE2::8bit utf8proc::utf8proc ${CMAKE_DL_LIBS})
if(liburing_FOUND)
  link_private(liburing::liburing)
endif()
if(dnnl_FOUND)
  link_private(DNNL::dnnl Gomp::gomp)
endif()
if(SPOOL_CUDA_KIND STREQUAL toolkit)
  target_compile_definitions(spool_library PUBLIC SPOOL_CUDA=1)
  target_link_libraries(spool_library PRIVATE $<BUILD_INTERFACE:CUDA::cudart_static>)
  if(NOT BUILD_SHARED_LIBS)  # the toolkit's runtime is installed, so that users need no toolkit
    target_link_libraries(
      spool_library PRIVATE
      $<INSTALL_INTERFACE:$<INSTALL_PREFIX>/${CMAKE_INSTALL_LIBDIR}/spool/libcudart_static.a>
      $<INSTALL_INTERFACE:rt>)
  endif()
elseif(SPOOL_CUDA_KIND STREQUAL emulator)
  target_compile_definitions(spool_library PUBLIC SPOOL_CUDA=1)
  target_sources(spool_library PRIVATE $<TARGET_OBJECTS:spool_emulator>)
  # Emulated NCCL is looked for by name in the program itself.
  set(is_program $<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>)
  target_link_options(
    spool_library INTERFACE
    $<BUILD_INTERFACE:$<${is_program}:LINKER:-u,ncclGetVersion,--export-dynamic-symbol=nccl*>>)
endif()
add_library(spool::spool ALIAS spool_library)
