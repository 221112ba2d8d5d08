# Writes a source with the commit of the tree, if it has changed, so that a commit rebuilds that source
# alone:
#   cmake -D TREE=<folder> -D SOURCE=<file> -P commit.cmake
execute_process(COMMAND git -C ${TREE} rev-parse --short=12 HEAD
                OUTPUT_VARIABLE commit ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
execute_process(COMMAND git -C ${TREE} status --porcelain --untracked-files=no
                OUTPUT_VARIABLE changes ERROR_QUIET)
if(NOT commit)
  set(commit unknown)
elseif(changes)
  string(APPEND commit +)
endif()
string(CONCAT text "#include \"spool/runtime/version.h\"\n"
                   "const char* spool::commit() { return \"${commit}\"; }\n")
if(EXISTS ${SOURCE})
  file(READ ${SOURCE} before)
endif()
if(NOT text STREQUAL "${before}")
  file(WRITE ${SOURCE} "${text}")
endif()
