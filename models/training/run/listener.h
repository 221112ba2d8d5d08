#pragma once

// What a training run tells as it goes: the command line prints it, the log and the page write it.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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

// An evaluation of some or all of the validation data.
struct EvaluationNumbers {
  int64_t step = 0;     // steps done before it
  double loss = 0;      // mean over the targets, nats
  int64_t targets = 0;  // valid ones
  bool whole = false;   // all of the data
};

// The time of a step, foretold and as corrected by the first steps of this start of the run.
struct CorrectedTime {
  int64_t step = 0;                    // steps done before it
  double foretold = 0, corrected = 0;  // seconds
};

// What a rank has taken and given to others since this start of the run, beside what is foretold
// of the steps done.
struct RankNumbers {
  int rank = 0;
  size_t peak = 0, foretold_peak = 0;  // bytes of the device, then of the host
  size_t host_peak = 0, foretold_host_peak = 0;
  size_t sent = 0, foretold_sent = 0;
  double exchange_seconds = 0;  // that exchanges took, with what the rank waited for others in them
  double exposed_seconds = 0;   // foretold: by which they made the steps longer
};

class RunListener {
 public:
  virtual ~RunListener() = default;

  // How far work is that may take long; it has ended when all is done.  Work whose extent is known
  // may go on within work whose extent is not.
  virtual void progress(const Progress&) {}
  // The run is planned.  If it does not fit, it is refused after this call.
  virtual void planned(const RunOptions&, const Machine&, const PlannedRun&) {}
  virtual void step(const StepNumbers&) {}
  virtual void evaluated(const EvaluationNumbers&) {}
  virtual void corrected(const CorrectedTime&) {}
  // With ranks, of all of them, with each checkpoint and at the end.
  virtual void ranks(int64_t /*steps_done*/, const std::vector<RankNumbers>&) {}
  // A checkpoint is written, or the run ends: files that draw it are to be up to date.  The peak is
  // that of the device so far, in bytes.
  virtual void flush(size_t /*peak*/) {}
  // The last step is done.
  virtual void finished() {}
  // The run was asked to stop, and has written a checkpoint of this step.
  virtual void stopped(int64_t /*step*/) {}
  // Any other message, of one or more lines.
  virtual void say(const std::string&) {}
  // Something is lost, and the run goes on; in one sentence.
  virtual void warn(const std::string& text) { say(text); }
};

// All listeners of a run: each is told everything, in the order in which they were added.
class RunListeners final : public RunListener {
 public:
  // The first one outlives this.
  explicit RunListeners(RunListener& first) : all_{&first} {}
  void add(std::unique_ptr<RunListener> own) {
    all_.push_back(own_.emplace_back(std::move(own)).get());
  }

  void progress(const Progress& p) override { tell(&RunListener::progress, p); }
  void planned(const RunOptions& o, const Machine& machine, const PlannedRun& run) override {
    tell(&RunListener::planned, o, machine, run);
  }
  void step(const StepNumbers& n) override { tell(&RunListener::step, n); }
  void evaluated(const EvaluationNumbers& n) override { tell(&RunListener::evaluated, n); }
  void corrected(const CorrectedTime& t) override { tell(&RunListener::corrected, t); }
  void ranks(int64_t done, const std::vector<RankNumbers>& all) override {
    tell(&RunListener::ranks, done, all);
  }
  void flush(size_t peak) override { tell(&RunListener::flush, peak); }
  void finished() override { tell(&RunListener::finished); }
  void stopped(int64_t step) override { tell(&RunListener::stopped, step); }
  void say(const std::string& text) override { tell(&RunListener::say, text); }
  void warn(const std::string& text) override { tell(&RunListener::warn, text); }

 private:
  template <class... Told, class... Values>
  void tell(void (RunListener::*what)(Told...), const Values&... values) {
    for (RunListener* listener : all_) (listener->*what)(values...);
  }

  std::vector<RunListener*> all_;
  std::vector<std::unique_ptr<RunListener>> own_;
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
