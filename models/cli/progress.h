#pragma once

// Prints a training run as it goes: the table before step 0, then a line that is rewritten in place
// on a terminal, or plain lines every few seconds elsewhere.

#include <chrono>
#include <optional>
#include <string>

#include "spool/models/cli/long_work.h"
#include "spool/models/training/run/listener.h"

namespace spool {

class RunPrinter final : public RunListener {
 public:
  RunPrinter();
  ~RunPrinter() override { end_line(); }

  void progress(const Progress& p) override { work_(p); }
  void planned(const RunOptions&, const Machine&, const PlannedRun&) override;
  void step(const StepNumbers&) override;
  void finished() override { end_line(); }
  void stopped(int64_t step) override;
  void say(const std::string& text) override;
  void warn(const std::string& text) override;

 private:
  using Clock = std::chrono::steady_clock;

  std::string line(const StepNumbers&) const;
  // What a terminal can show, in lines of its width.
  std::string fitted(const std::string& text) const;
  void show(const std::string& lines);
  // Writes to standard output at once.  If its reader or terminal is gone, the run goes on, unseen.
  void print(const std::string&);
  void end_line();

  int64_t steps_ = 0;
  bool terminal_;
  bool open_ = false;  // the last line on the terminal is not ended yet
  std::optional<double> seconds_per_step_;
  Clock::time_point last_{};
  WorkDisplay work_;
};

}  // namespace spool
