#pragma once

// A page that draws a report: one HTML file that needs no network.  The report is in it as JSON, in
//   <script type="application/json" id="spool-report">
// and the page draws nothing that is not in this object.  It knows the formats "spool-plan-report"
// (of plans and runs), "spool-sweep-report" and "spool-plot".

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "spool/runtime/check.h"

namespace spool {

// Text in the report cannot leave its element, whatever it is.
std::string report_page(const nlohmann::json& report);

// The report in such a file; null if there is no file, or it is no such page.  Throws if the page
// is damaged.
nlohmann::json read_report_page(const std::filesystem::path&);
// The same, but null of a damaged page, too.
nlohmann::json report_of_page(const std::filesystem::path&);

// Throws if the file exists and is not such a page, or cannot be written; the settings gave its
// name.
void check_report_page_file(const std::filesystem::path&, SettingKeys = {"report"});
void write_report_page(const std::filesystem::path&, const nlohmann::json& report,
                       SettingKeys = {"report"});

}  // namespace spool
