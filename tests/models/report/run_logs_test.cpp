#include "spool/models/report/run_logs.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "spool/models/report/report_page.h"
#include "spool/runtime/files/file.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool {
namespace {

using nlohmann::json;
using testing::expect_error;

constexpr const char* head = R"({"format":"spool-run","format_version":1,"configuration":{}})";

class RunLogs : public ::testing::Test {
 protected:
  LoggedRun read(const std::string& text, size_t max = 100) {
    return read_run_log(folder_.file("a.jsonl", text), max);
  }
  void refuses(const std::string& text, std::initializer_list<std::string_view> words) {
    expect_error(ErrorKind::file, words, [&] { read(text); });
  }
  testing::TemporaryDirectory folder_;
};

TEST_F(RunLogs, AreRead) {
  const LoggedRun run = read(std::string(head) + R"(
{"step":1,"loss":4.5,"step_ms":20,"tokens_per_s":100,"tokens":2,"lr":1}
{"step":1,"foretold_step_ms":1,"corrected_step_ms":2}
{"step":2,"loss":null,"step_ms":21,"tokens_per_s":90,"tokens":4}
{"step":2,"val_loss":4,"val_targets":3,"whole":false})");
  const StepEntry first{.step = 1, .loss = 4.5, .ms = 20, .tokens_per_s = 100, .tokens = 2};
  const StepEntry second{.step = 2, .val_loss = 4, .ms = 21, .tokens_per_s = 90, .tokens = 4};
  EXPECT_EQ(run.steps, (std::vector{first, second}));
  EXPECT_EQ(run.broken_off, "");
}

TEST_F(RunLogs, EndWhereALineIsBrokenOff) {
  const std::string whole =
      std::string(head) + "\n{\"step\":1,\"loss\":4}\n{\"step\":2,\"loss\":3}\n";
  for (size_t cut = std::string_view(head).size(); cut < whole.size(); ++cut) {
    const LoggedRun run = read(whole.substr(0, cut));
    const size_t lines = static_cast<size_t>(std::ranges::count(whole.substr(0, cut), '\n'));
    const bool is_whole = whole[cut] == '\n' || whole[cut - 1] == '\n';
    const size_t begun = whole[cut] == '\n' ? 1 : 0;
    EXPECT_EQ(run.steps.size(), lines + begun - (lines > 0 || begun ? 1 : 0))
        << whole.substr(0, cut);
    EXPECT_EQ(run.broken_off.empty(), is_whole) << whole.substr(0, cut);
  }
}

TEST_F(RunLogs, RefuseOtherFiles) {
  for (const std::string text : {"", "\n", "a", "{}", "[1]", "{\"format\":\"spool-plan\"}"}) {
    refuses(text, {"a.jsonl", "is not a log"});
  }
  refuses(std::string(2 << 20, 'x'), {"a.jsonl", "line 1", "longer than a megabyte"});
  refuses(std::string(head) + "\n" + std::string(2 << 20, '['), {"line 2", "longer"});
  refuses(std::string(head) + "\n{}", {"line 2", "step"});
  refuses(std::string(head) + "\n[]", {"line 2"});
  refuses(std::string(head) + "\n{\"step\":-1}", {"line 2", "step", "-1"});
  refuses(std::string(head) + "\n{\"step\":9007199254740993}", {"line 2", "step", "900719"});
  refuses(std::string(head) + "\n{\"step\":1,\"loss\":\"low\"}", {"line 2", "loss", "low"});
  refuses(std::string(head) + "\n{\"step\":5,\"loss\":1}\n{\"step\":4,\"loss\":1}",
          {"line 3", "step 4 comes after step 5"});
  expect_error(ErrorKind::file, {"is a directory"}, [&] { read_run_log(folder_.path(), 9); });
  expect_error(ErrorKind::file, {"none.jsonl"},
               [&] { read_run_log(folder_.path() / "none.jsonl", 9); });
}

TEST_F(RunLogs, OfALongRunAreThinned) {
  std::string text = head;
  for (int i = 1; i <= 1000; ++i) text += "\n{\"step\":" + std::to_string(i) + ",\"loss\":1}";
  const LoggedRun run = read(text, 50);
  EXPECT_LE(run.steps.size(), 50U);
  EXPECT_EQ(run.steps.front().step, 1);
  EXPECT_EQ(run.steps.back().step, 1000);
}

TEST_F(RunLogs, MayBePagesOfRuns) {
  const std::vector<StepEntry> steps = {{.step = 1, .loss = 2}, {.step = 2, .loss = 1}};
  const auto page = folder_.path() / "run.html";
  write_report_page(page, {{"run", {{"log", to_json(steps)}}}});
  EXPECT_EQ(read_run_log(page, 9).steps, steps);
  write_report_page(page, {{"format", "spool-plan-report"}});
  expect_error(ErrorKind::file, {"run.html", "page of a plan"}, [&] { read_run_log(page, 9); });
  folder_.file("run.html", read_text_file(page, 1 << 20).substr(0, 3000));
  expect_error(ErrorKind::file, {"run.html", "is damaged"}, [&] { read_run_log(page, 9); });
}

TEST_F(RunLogs, RefusePipesWithoutWaiting) {
  const auto pipe = folder_.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expect_error(ErrorKind::file, {"pipe", "is not a regular file"}, [&] { read_run_log(pipe, 9); });
}

TEST(ShortNames, TellPathsApart) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(short_names({"runs/a/log.jsonl"}), Names{"log.jsonl"});
  EXPECT_EQ(short_names({"runs/a/log.jsonl", "runs/b/log.jsonl"}), (Names{"a", "b"}));
  EXPECT_EQ(short_names({"/x/a.jsonl", "/x/b.jsonl"}), (Names{"a.jsonl", "b.jsonl"}));
  EXPECT_EQ(short_names({"/x/a/1/l", "/x/b/2/l"}), (Names{"a/1", "b/2"}));
  EXPECT_EQ(short_names({"/x/l", "/x/y/l"}), (Names{"l", "y/l"}));
}

TEST(PlotReport, OfManyRunsFitsAPage) {
  const std::vector<StepEntry> steps(plotted_steps(max_plotted_runs),
                                     {.step = 123456,
                                      .loss = 2.718281828459045,
                                      .val_loss = 3.14159265358979,
                                      .ms = 123.45678901234567,
                                      .tokens_per_s = 12345.67890123456,
                                      .tokens = 1234567890});
  const std::vector<LoggedRun> runs(max_plotted_runs, LoggedRun{.steps = steps});
  const std::vector<std::string> names(max_plotted_runs, "a name");
  EXPECT_LT(report_page(plot_report(names, runs)).size(), 1'000'000U);
}

}  // namespace
}  // namespace spool
