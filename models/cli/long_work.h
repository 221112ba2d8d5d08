#pragma once

// Shows what goes on for long on standard error, from what a run tells its listener or a command
// says: a bar, or, where the extent is not known, the time that it has taken.

#include <chrono>
#include <optional>
#include <string>

#include "spool/models/cli/progress_bar.h"
#include "spool/models/formats/stored_tensors.h"
#include "spool/models/training/run/listener.h"

namespace spool {

class WorkDisplay {
 public:
  void operator()(const Progress&);
  // For another line to be written.
  void hide();
  // Shows again what was hidden, if it still goes on.
  void show();

 private:
  struct Work {
    std::string what;
    ElapsedTime::Clock::time_point start = ElapsedTime::Clock::now();
  };

  std::optional<Work> whole_;        // whose extent is not known
  std::optional<ElapsedTime> time_;  // of the whole, while no part of it has a bar
  std::optional<ProgressBar> bar_;
  std::string bar_of_;
};

// The work of a command: shown as long as this lives.
class CommandWork {
 public:
  explicit CommandWork(const std::string& what) { display_({.what = what}); }

  // A bar for the bytes that are read of a file.
  FileProgress loading();
  void hide() { display_.hide(); }
  void show() { display_.show(); }

 private:
  WorkDisplay display_;
};

}  // namespace spool
