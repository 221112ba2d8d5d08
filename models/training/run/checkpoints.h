#pragma once

// The checkpoints of a training run: when one is due, and how it is written.

#include <exception>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>

#include "spool/models/training/run/setup.h"

namespace spool {

class Checkpoints {
 public:
  // Both outlive this.
  Checkpoints(const RunSetup&, const RunState&);

  // The last one written, else the one that the run resumed from.
  const std::optional<std::filesystem::path>& latest() const { return latest_; }

  // Whether one is due by the number of steps, or by the time since the last one.
  bool is_due(int64_t done) const;
  // Whether it is time for one, by the clock of this rank.
  bool is_time() const;
  // Writes one of the steps done, unless there is one, and brings the page up to date.  Throws
  // Error (numeric) if the loss of the updated weights is not finite.
  void write();
  // Writes one if it can be written; if not, it may be when the next is due.
  void try_write();
  // Reads data.  If it cannot be read any more, the run ends, and what was trained is saved first:
  // with ranks nothing is trained since the last one, or all come here.
  void read_data(const std::function<void()>& read);
  // The same for an error of reading that is there already, if there is one.  All ranks come here,
  // and if several have one, the lowest says it.
  void end_if_unreadable(const std::exception_ptr& own);

  // Stores the evaluation that a resumed run makes first in the checkpoint that it resumed from.
  void store_evaluations(bool is_best);
  void tell_best() const;

  // Ends a run whose loss or gradients are not finite, after a look for the file at fault.
  [[noreturn]] void fail_not_finite(int64_t step, const char* what, double value) const;

 private:
  bool has_nothing_to_save() const;
  bool is_best() const;
  // Return whether there is one, which is false where another rank could not write it.
  bool write_if_possible();
  bool save();
  void write_files() const;
  std::string next() const;
  std::filesystem::path model_directory() const;
  void tell_changed_data();

  const RunSetup& run_;
  const RunState& state_;
  std::optional<std::filesystem::path> latest_;
  int64_t last_saved_;             // steps; -1: none
  double saved_at_;                // by the host's clock: the last one, or the start
  std::set<std::string> changed_;  // files of data, which are told once
};

}  // namespace spool
