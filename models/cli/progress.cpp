#include "spool/models/cli/progress.h"

#include <fcntl.h>
#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "spool/models/cli/tables/plan_table.h"
#include "spool/models/cli/terminal/text.h"
#include "spool/models/cli/terminal/width.h"
#include "spool/runtime/log.h"
#include "spool/runtime/units.h"

namespace spool {
RunPrinter::RunPrinter() : terminal_(::isatty(STDOUT_FILENO)) {}

void RunPrinter::planned(const RunOptions& o, const Machine& machine, const PlannedRun& run) {
  steps_ = o.training.steps;
  show(emphasised(fitted(plan_table(o, machine, run)), STDOUT_FILENO));
}

std::string RunPrinter::line(const StepNumbers& n) const {
  const std::string val = n.val_loss ? fmt::format("  val {:.4f}", *n.val_loss) : "";
  const auto left = static_cast<double>(steps_ - n.step) * seconds_per_step_.value_or(0);
  const std::string time = n.step < steps_ ? "  left " + format_seconds(left) : "";
  return fmt::format("step {}/{}  loss {:.4f}{}{}  {:.0f} tokens/s  lr {:.3g}  norm {:.3f}", n.step,
                     steps_, n.loss, val, time, n.tokens_per_s, n.lr, n.grad_norm);
}

void RunPrinter::step(const StepNumbers& n) {
  constexpr double forgetting = 0.1;  // of the moving average
  const double before = seconds_per_step_.value_or(n.seconds);
  seconds_per_step_ = before + forgetting * (n.seconds - before);
  const auto now = Clock::now();
  const std::chrono::duration<double> since = now - last_;
  if (since.count() < (terminal_ ? 0.1 : 5.0) && n.step < steps_) return;
  last_ = now;
  if (terminal_) {
    open_ = true;
    print(cleared_line(STDOUT_FILENO) + cut(line(n), terminal_width(STDOUT_FILENO) - 1));
  } else {
    print(line(n) + "\n");
  }
}

void RunPrinter::print(const std::string& text) {
  errno = 0;
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
  if (!std::ferror(stdout) || (errno != EPIPE && errno != EIO)) return;
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere < 0) return;
  ::dup2(nowhere, STDOUT_FILENO);
  ::close(nowhere);
  std::clearerr(stdout);
}

std::string RunPrinter::fitted(const std::string& text) const {
  return terminal_ ? wrapped(printable(text), terminal_width(STDOUT_FILENO)) : text;
}

void RunPrinter::say(const std::string& text) { show(fitted(text)); }

void RunPrinter::warn(const std::string& text) {
  work_.hide();
  if (open_) print(cleared_line(STDOUT_FILENO));
  open_ = false;
  logger().warn("{}", text);
  work_.show();
}

void RunPrinter::show(const std::string& lines) {
  work_.hide();
  print((open_ ? cleared_line(STDOUT_FILENO) : "") + lines + "\n");
  open_ = false;
  work_.show();
}

void RunPrinter::stopped(int64_t step) {
  end_line();
  say(fmt::format("stopped after step {}; continue with --resume", step));
}

void RunPrinter::end_line() {
  if (open_) print("\n");
  open_ = false;
}

}  // namespace spool
