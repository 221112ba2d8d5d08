# The report's page is part of the library: a script makes a source of the files in models/report/page
# whenever one of them changes.
set(page_source ${PROJECT_BINARY_DIR}/page_source.cpp)
file(GLOB page_files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/models/report/page/*)
add_custom_command(
  OUTPUT ${page_source}
  COMMAND ${CMAKE_COMMAND} -D FOLDER=${PROJECT_SOURCE_DIR}/models/report/page
          -D SOURCE=${page_source} -P ${PROJECT_SOURCE_DIR}/cmake/embed_page.cmake
  DEPENDS ${page_files} ${PROJECT_SOURCE_DIR}/cmake/embed_page.cmake
  COMMENT "" VERBATIM)
target_sources(spool_models_report PRIVATE ${page_source})
set_source_files_properties(${page_source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
