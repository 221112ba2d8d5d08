#include "spool/models/cli/progress.h"

#include <spdlog/fmt/fmt.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>

#include "spool/runtime/units.h"

namespace spool {
namespace {

// A longer line would wrap, and the next could not overwrite it.
size_t terminal_width() {
  winsize size{};
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return known ? size.ws_col - 1u : 79u;
}

std::string row(std::string_view what, const std::string& value) {
  return fmt::format("  {:<20} {:>12}\n", what, value);
}

// The settings that say what is kept for backward, and where.
std::string policy_lines(const RunOptions& o) {
  const Policy& p = o.policy;
  std::string lines;
  const auto say = [&](const std::string& what) { lines += "  " + what + "\n"; };
  if (const int64_t rows = o.training.loss_chunk)
    say(fmt::format("the loss in chunks of {} rows", rows));
  if (const int64_t rows = o.training.mlp_chunk)
    say(fmt::format("MLPs in chunks of {} rows", rows));
  if (!o.plan.empty()) say("as the plan " + o.plan + " says");
  if (const std::string list = recompute_list(p); list != "none") say("recompute " + list);
  if (p.offload != Offloading::none) {
    const bool to_disk = p.target == OffloadTarget::disk;
    say(fmt::format("offload {} to {}", name(p.offload),
                    to_disk ? "a file in " + o.spill_directory : "the host"));
  }
  if (p.optimizer_state != OptimizerState::device) {
    say(fmt::format("optimizer state {}", name(p.optimizer_state)));
  }
  return lines;
}

}  // namespace

std::string memory_table(const RunOptions& o, const Machine& machine, const Report& foretold,
                         size_t budget) {
  const TrainingConfig& t = o.training;
  const auto* cpu = std::get_if<CpuArchitecture>(&machine.architecture);
  std::string table = fmt::format(
      "{}: {} layers, {} heads, {} channels, context {}, vocabulary {}; {:.2f} M parameters\n"
      "{} on {}: {} rows of {} tokens{}\n",
      o.model, t.model.layers, t.model.heads, t.model.channels, t.model.context, t.model.vocabulary,
      static_cast<double>(t.model.parameter_count()) / 1e6, name(t.dtype), machine.name, t.batch,
      t.seq, t.accumulate > 1 ? fmt::format(", {} micro-batches a step", t.accumulate) : "");
  table += policy_lines(o);
  size_t counted = 0;
  for (const Purpose p : enumerators<Purpose>()) {
    const size_t bytes = foretold.memory.at_peak_by[p];
    counted += bytes;
    table += row(name(p), format_bytes(bytes));
  }
  table += row("between blocks", format_bytes(foretold.memory.peak - counted));
  table += row("foretold peak", format_bytes(foretold.memory.peak)) +
           row("  in bytes", std::to_string(foretold.memory.peak)) +
           (cpu ? row("  with --threads", std::to_string(cpu->threads)) : "") +
           row("budget", format_bytes(budget)) +
           (foretold.host.peak ? row("host memory", format_bytes(foretold.host.peak)) : "") +
           (foretold.disk.peak ? row("disk", format_bytes(foretold.disk.peak)) : "") +
           row("foretold step time", format_seconds(foretold.seconds));
  table.pop_back();
  return table;
}

RunPrinter::RunPrinter() : terminal_(::isatty(STDOUT_FILENO)) {}

void RunPrinter::encoding(size_t done, size_t total) {
  if (!encoding_) encoding_.emplace("encoding");
  (*encoding_)(done, total);
}

void RunPrinter::planned(const RunOptions& o, const Machine& machine, const Report& foretold,
                         size_t budget) {
  steps_ = o.training.steps;
  say(memory_table(o, machine, foretold, budget));
}

std::string RunPrinter::line(const StepNumbers& n) const {
  const std::string val = n.val_loss ? fmt::format("  val {:.4f}", *n.val_loss) : "";
  const auto left = static_cast<double>(steps_ - n.step) * seconds_per_step_.value_or(0);
  const std::string time = n.step < steps_ ? "  left " + format_seconds(left) : "";
  return fmt::format(
      "step {}/{}  loss {:.4f}{}  lr {:.2e}  norm {:.3f}  {:.0f} tokens/s  peak {}{}", n.step,
      steps_, n.loss, val, n.lr, n.grad_norm, n.tokens_per_s, format_bytes(n.peak_bytes), time);
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
    fmt::print("\r\033[K{}", line(n).substr(0, terminal_width()));
    open_ = true;
  } else {
    fmt::print("{}\n", line(n));
  }
  std::fflush(stdout);
}

void RunPrinter::say(const std::string& text) {
  encoding_.reset();
  fmt::print("{}{}\n", open_ ? "\r\033[K" : "", text);
  open_ = false;
  std::fflush(stdout);
}

void RunPrinter::stopped(int64_t step) {
  end_line();
  say(fmt::format("stopped after step {}; continue with --resume", step));
}

void RunPrinter::end_line() {
  if (open_) fmt::print("\n");
  open_ = false;
  std::fflush(stdout);
}

}  // namespace spool
