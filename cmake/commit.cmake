# Writes the commit of the source tree to a header, which one source includes, so that a commit
# rebuilds that source alone:
#   cmake -D SOURCE=<tree> -D HEADER=<file> -P commit.cmake
execute_process(COMMAND git -C ${SOURCE} rev-parse --short=12 HEAD
                OUTPUT_VARIABLE commit ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
execute_process(COMMAND git -C ${SOURCE} status --porcelain --untracked-files=no
                OUTPUT_VARIABLE changes ERROR_QUIET)
if(NOT commit)
  set(commit unknown)
elseif(changes)
  string(APPEND commit +)
endif()
set(text "#define SPOOL_COMMIT \"${commit}\"\n")
if(EXISTS ${HEADER})
  file(READ ${HEADER} before)
endif()
if(NOT text STREQUAL "${before}")
  file(WRITE ${HEADER} ${text})
endif()
