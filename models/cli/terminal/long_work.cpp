#include "spool/models/cli/terminal/long_work.h"

namespace spool {

void WorkDisplay::operator()(const Progress& p) {
  const bool has_ended = p.done == p.total;
  if (p.unit.empty()) {
    hide();
    whole_ = has_ended ? std::nullopt : std::optional<Work>({.what = p.what});
    return show();
  }
  time_.reset();
  if (bar_of_ != p.what) bar_.reset();
  bar_of_ = p.what;
  if (!bar_) bar_.emplace(p.what, p.unit);
  (*bar_)(p.done, p.total);
  if (!has_ended) return;
  bar_.reset();
  show();
}

void WorkDisplay::hide() {
  time_.reset();
  bar_.reset();
}

void WorkDisplay::show() {
  if (whole_) time_.emplace(whole_->what, whole_->start);
}

FileProgress CommandWork::loading() {
  return [this](size_t done, size_t total) {
    display_({.what = "loading", .done = done, .total = total, .unit = ProgressBar::bytes});
  };
}

}  // namespace spool
