#pragma once

// A training run prints nothing.  It reports to a listener.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "spool/models/training/planned_run.h"

namespace spool {

struct RunOptions;

// The numbers of a finished step.
struct StepNumbers {
  int64_t step = 0;  // counted from 1
  float loss = 0, grad_norm = 0;
  std::optional<double> val_loss = {};
  double lr = 0, seconds = 0, tokens_per_s = 0;
  size_t peak_bytes = 0;
  int64_t tokens = 0;  // that the run has trained on
};

// Units done, of the total.  Work whose extent is not known is one unit, without a name.
struct Progress {
  std::string what = {};  // such as "encoding"
  size_t done = 0, total = 1;
  std::string unit = {};  // such as "bytes"
};

class RunListener {
 public:
  virtual ~RunListener() = default;

  // How far work is that may take long; it has ended when all is done.  Work whose extent is known
  // may go on within work whose extent is not.
  virtual void progress(const Progress&) = 0;
  // The run is planned.  If it does not fit, it is refused after this call.
  virtual void planned(const RunOptions&, const Machine&, const PlannedRun&) = 0;
  virtual void step(const StepNumbers&) = 0;
  // The last step is done.
  virtual void finished() = 0;
  // The run was asked to stop, and has written a checkpoint of this step.
  virtual void stopped(int64_t step) = 0;
  // Any other message, of one or more lines.
  virtual void say(const std::string& text) = 0;
  // Something is lost, and the run goes on; in one sentence.
  virtual void warn(const std::string& text) { say(text); }
};

// Work whose extent is not known: it goes on as long as this lives.
class LongWork {
 public:
  LongWork(RunListener& listener, std::string what) : listener_(listener), what_(std::move(what)) {
    listener_.progress({.what = what_});
  }
  ~LongWork() { listener_.progress({.what = what_, .done = 1}); }
  LongWork(const LongWork&) = delete;
  LongWork& operator=(const LongWork&) = delete;

 private:
  RunListener& listener_;
  std::string what_;
};

}  // namespace spool
