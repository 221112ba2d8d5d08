#include <cstdlib>
#include <nlohmann/json.hpp>

#include "fuzz.h"
#include "spool/models/report/report_page.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace spool;
  const auto path = fuzz::file_with({data, size});
  fuzz::read([&] {
    const nlohmann::json report = read_report_page(path);
    if (report_of_page(path) != report) std::abort();
    if (report.is_null()) return;
    const std::string page = report_page(report);
    const auto again =
        fuzz::file_with({reinterpret_cast<const uint8_t*>(page.data()), page.size()});
    if (read_report_page(again) != report) std::abort();
  });
  return 0;
}
