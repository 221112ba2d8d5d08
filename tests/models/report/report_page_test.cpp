#include "spool/models/report/report_page.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "spool/runtime/files/file.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool {
namespace {

using nlohmann::json;
using testing::expect_error;

constexpr const char* begin = "<script type=\"application/json\" id=\"spool-report\">";

std::string report_in(const std::string& page) {
  const size_t at = page.find(begin) + std::string_view(begin).size();
  return page.substr(at, page.find("</script>", at) - at);
}

TEST(ReportPage, HoldsTheReport) {
  const json report = {{"format", "spool-plan-report"}, {"peak", 12345678901}, {"step_ms", 0.1}};
  EXPECT_EQ(json::parse(report_in(report_page(report))), report);
}

TEST(ReportPage, NoTextOfAReportLeavesItsElement) {
  const std::string hostile =
      "</script><img src=x onerror=alert(1)>&amp;<!--\xE2\x80\xA8\xE2\x80\xA9";
  const json report = {{"model", hostile}, {hostile, 1}};
  const std::string inside = report_in(report_page(report));
  EXPECT_EQ(inside.find_first_of("<>&"), std::string::npos) << inside;
  EXPECT_EQ(inside.find('\xE2'), std::string::npos) << inside;
  EXPECT_EQ(json::parse(inside), report);
}

TEST(ReportPage, BytesThatAreNoTextAreReplaced) {
  const json read = json::parse(report_in(report_page({{"model", "a\xFF\x62"}})));
  EXPECT_EQ(read["model"], "a\xEF\xBF\xBD\x62");
}

TEST(ReportPage, ReachesForNoNetwork) {
  const std::string page = report_page({{"format", "spool-plot"}});
  EXPECT_EQ(page.find("src=\""), std::string::npos);
  EXPECT_EQ(page.find("rel=\"stylesheet\""), std::string::npos);
  EXPECT_EQ(page.find("@SPOOL"), std::string::npos);
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
}

TEST(ReportPage, IsReadBack) {
  const testing::TemporaryDirectory folder;
  const auto page = folder.path() / "page.html";
  EXPECT_TRUE(report_of_page(page).is_null());
  EXPECT_TRUE(read_report_page(page).is_null());
  const json report = {{"model", "<b>&"}, {"n", {1, 2.5, nullptr}}};
  write_report_page(page, report);
  EXPECT_EQ(report_of_page(page), report);
  EXPECT_EQ(read_report_page(page), report);
}

TEST(ReportPage, ThatIsDamagedIsRefusedWhereItIsAsked) {
  const testing::TemporaryDirectory folder;
  const auto page = folder.path() / "page.html";
  write_report_page(page, {{"n", {1, 2.5, nullptr}}});
  const std::string text = read_text_file(page, 1 << 20);
  const size_t at = text.find(begin), inside = at + std::string_view(begin).size();
  const std::string before = text.substr(0, inside), deep(1000, '[');
  for (const std::string& damaged :
       {text.substr(0, at), before, text.substr(0, inside + 5), before + "null</script>",
        before + "[1]</script>", before + deep, before + R"({"a":1,"a":2}</script>)"}) {
    const auto file = folder.file("torn.html", damaged);
    EXPECT_TRUE(report_of_page(file).is_null());
    expect_error(ErrorKind::file, {"torn.html: the report in this page is damaged: "},
                 [&] { read_report_page(file); });
  }
  const auto pipe = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_TRUE(report_of_page(pipe).is_null());
  expect_error(ErrorKind::file, {"pipe", "not a regular file"}, [&] { read_report_page(pipe); });
}

TEST(ReportPage, ReplacesAPageAndNoOtherFile) {
  const testing::TemporaryDirectory folder;
  const auto page = folder.path() / "page.html";
  write_report_page(page, {{"n", 1}});
  write_report_page(page, {{"n", 2}});
  EXPECT_EQ(json::parse(report_in(read_text_file(page, 1 << 20)))["n"], 2);
  for (const std::string text : {"", "<!doctype html>\n<html>mine</html>"}) {
    const auto mine = folder.file("mine.html", text);
    expect_error(ErrorKind::file, {"mine.html", "is not a page of a report"}, [&] {
      write_report_page(mine, {{"n", 1}});
    });
    EXPECT_EQ(read_text_file(mine, 1 << 20), text);
    EXPECT_TRUE(report_of_page(mine).is_null());
  }
}

}  // namespace
}  // namespace spool
