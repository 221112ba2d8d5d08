#pragma once

// The files of models/report/page as one page, in two parts around the report.  The build generates
// the source that defines them (cmake/page.cmake).

namespace spool {

extern const char* const page_before_report;
extern const char* const page_after_report;

}  // namespace spool
