# Instruments all targets added after this file.  Warnings are off (-w): g++ gives false ones for
# instrumented code, and the other builds warn.
set(SPOOL_SANITIZE "" CACHE STRING "Sanitizers to compile with: address,undefined or thread")

if(SPOOL_SANITIZE)
  add_compile_options(-fsanitize=${SPOOL_SANITIZE} -fno-sanitize-recover=all
                      -fno-omit-frame-pointer -g1 -O1 -w)
  add_link_options(-fsanitize=${SPOOL_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL Clang)
    add_compile_options(-fsanitize-ignorelist=${CMAKE_CURRENT_LIST_DIR}/undefined-ignore.txt)
  endif()
endif()
