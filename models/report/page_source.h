#pragma once

// The files in models/report/page as one page, in two parts around the report.  A source with them
// is made when Spool is built (cmake/page.cmake).

namespace spool {

extern const char* const page_before_report;
extern const char* const page_after_report;

}  // namespace spool
