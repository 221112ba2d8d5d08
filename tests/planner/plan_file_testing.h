#pragma once

// A fixture for files with plans, in a directory of their own.

#include "spool/planner/plan_file.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool::testing {

class PlanFile : public ::testing::Test {
 protected:
  TemporaryDirectory directory;
  // Expects an error that names the file and contains these words.
  void expect_refused(const std::string& text, std::string_view words,
                      int line = __builtin_LINE()) {
    const auto path = directory.file("plan.json", text);
    const std::string file = path.string() + ": ";
    expect_error(
        ErrorKind::file, {file, words}, [&] { load_plan(path); }, __FILE__, line);
  }
  void expect_fields_refused(const std::string& fields, std::string_view words,
                             int line = __builtin_LINE()) {
    SCOPED_TRACE(fields);
    for (const char* version : {"1", "2", "3"}) {
      expect_refused(sentence("{\"spool_plan\": ", version, ", ", fields, "}"), words, line);
    }
  }
};

}  // namespace spool::testing
