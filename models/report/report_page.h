#pragma once

// A page that draws a report: one HTML file that needs no network.  It has the report as JSON, in
//   <script type="application/json" id="spool-report">
// and draws nothing else.  It knows the formats "spool-plan-report" (of plans and runs),
// "spool-sweep-report" and "spool-plot".

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "spool/runtime/check.h"

namespace spool {

// Escapes the report, so that no text in it can end its element.
std::string report_page(const nlohmann::json& report);

// The report in such a file; null if there is no file, or it is not such a page.  Throws if the
// page is damaged.
nlohmann::json read_report_page(const std::filesystem::path&);
// The same, but null for a damaged page, too.
nlohmann::json report_of_page(const std::filesystem::path&);

// Throws if the file exists and is not such a page, or cannot be written; the message names the
// settings that gave its name.
void check_report_page_file(const std::filesystem::path&, SettingKeys = {"report"});
void write_report_page(const std::filesystem::path&, const nlohmann::json& report,
                       SettingKeys = {"report"});

}  // namespace spool
