# A room is a folder of the library and a build target.  Its sources see their own headers, those of
# the rooms that it names, and those that these rooms see; any other include does not compile.
#
#   room(planner autograd)      # planner/**/*.cpp; sees autograd, and so kernels and runtime
#
# A room has two targets; those of models/data are
#   spool_models_data           the objects
#   spool_models_data_headers   the include folders and definitions that its users compile with
#
# A room's headers are found as spool/<room>/<name>.h, in the tree as after installation: each room
# has an include folder with nothing in it but a link to the room.
set(SPOOL_INCLUDE ${PROJECT_BINARY_DIR}/include)
set(SPOOL_ROOMS)

# models/data -> models_data
function(room_name variable path)
  string(REPLACE / _ name ${path})
  set(${variable} ${name} PARENT_SCOPE)
endfunction()

# Links `link` to `folder`, whatever was there before.
function(link_folder folder link)
  cmake_path(GET link PARENT_PATH parent)
  file(MAKE_DIRECTORY ${parent})
  file(CREATE_LINK ${folder} ${link} SYMBOLIC)
endfunction()

# Adds the headers in a folder, which are included as <found_as>/<name>.h.
function(room_headers path found_as)
  room_name(name ${path})
  add_library(spool_${name}_headers INTERFACE)
  link_folder(${PROJECT_SOURCE_DIR}/${path} ${SPOOL_INCLUDE}/${name}/${found_as})
  target_include_directories(spool_${name}_headers INTERFACE ${SPOOL_INCLUDE}/${name})
  foreach(seen ${ARGN})
    room_name(seen ${seen})
    target_link_libraries(spool_${name}_headers INTERFACE spool_${seen}_headers)
  endforeach()
endfunction()

# The room of the headers that include other rooms' for research code.  It has no sources, and its
# headers are found as spool/<name>.h.
function(front_room path)
  room_headers(${path} spool ${ARGN})
  set(SPOOL_FRONT_ROOM ${path} PARENT_SCOPE)
endfunction()

function(room path)
  room_name(name ${path})
  room_headers(${path} spool/${path} ${ARGN})

  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${path}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/main\\.cpp$|/ranks/mpi/")
  add_library(spool_${name} OBJECT ${sources})
  target_link_libraries(spool_${name} PRIVATE spool_${name}_headers spool_options)
  set_target_properties(spool_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  add_cuda_sources(spool_${name} ${path})
  set(SPOOL_ROOMS ${SPOOL_ROOMS} ${path} PARENT_SCOPE)
  set_property(GLOBAL PROPERTY SPOOL_SEES_${name} ${ARGN})
endfunction()
