# Writes a source with the page of reports in one piece, its style and scripts within it:
#   cmake -D FOLDER=<models/report/page> -D SOURCE=<file> -P embed_page.cmake
# page.html names its parts, as a browser that opens it by itself wants them:
#   <link rel="stylesheet" href="page.css">  and  <script src="head.js"></script>
file(READ ${FOLDER}/page.html page)

function(embed tag file before after)
  file(READ ${FOLDER}/${file} text)
  string(REGEX MATCH "[^\n\t -~]|</script|</style|\\)spool\"" fault "${text}")
  if(NOT fault STREQUAL "")
    message(FATAL_ERROR "${FOLDER}/${file}: has \"${fault}\", which cannot be part of the page; a file "
                        "of the page is ASCII and ends no element")
  endif()
  string(REPLACE "${tag}" "${before}\n${text}${after}" page "${page}")
  set(page "${page}" PARENT_SCOPE)
endfunction()

string(REGEX MATCHALL "<link rel=\"stylesheet\" href=\"[a-z_]+\\.css\">" styles "${page}")
string(REGEX MATCHALL "<script src=\"[a-z_]+\\.js\"></script>" scripts "${page}")
foreach(tag ${styles} ${scripts})
  string(REGEX REPLACE ".*\"([a-z_]+\\.[a-z]+)\".*" "\\1" file "${tag}")
  if(file MATCHES "css$")
    embed("${tag}" ${file} "<style>" "</style>")
  else()
    embed("${tag}" ${file} "<script nonce=\"spool\">" "</script>")
  endif()
endforeach()

# Compilers need not take longer pieces than this.
set(longest 60000)
set(mark "@SPOOL_REPORT@")
string(FIND "${page}" "${mark}" at)
string(LENGTH "${mark}" skipped)
math(EXPR rest "${at} + ${skipped}")
string(SUBSTRING "${page}" 0 ${at} before)
string(SUBSTRING "${page}" ${rest} -1 after)
set(text "#include \"spool/models/report/page_source.h\"\n")
foreach(part before after)
  string(APPEND text "const char* const spool::page_${part}_report =")
  string(LENGTH "${${part}}" length)
  foreach(begin RANGE 0 ${length} ${longest})
    string(SUBSTRING "${${part}}" ${begin} ${longest} piece)
    string(APPEND text "\nR\"spool(${piece})spool\"")
  endforeach()
  string(APPEND text ";\n")
endforeach()
file(WRITE ${SOURCE} "${text}")
