#include "spool/models/training/run/listener.h"

namespace spool {

void RunListeners::add(std::unique_ptr<RunListener> listener) {
  all_.push_back(own_.emplace_back(std::move(listener)).get());
}

void RunListeners::progress(const Progress& p) {
  for (RunListener* l : all_) l->progress(p);
}

void RunListeners::planned(const RunOptions& o, const Machine& machine, const PlannedRun& run) {
  for (RunListener* l : all_) l->planned(o, machine, run);
}

void RunListeners::step(const StepNumbers& n) {
  for (RunListener* l : all_) l->step(n);
}

void RunListeners::evaluated(const EvaluationNumbers& n) {
  for (RunListener* l : all_) l->evaluated(n);
}

void RunListeners::corrected(const CorrectedTime& t) {
  for (RunListener* l : all_) l->corrected(t);
}

void RunListeners::flush(size_t peak) {
  for (RunListener* l : all_) l->flush(peak);
}

void RunListeners::finished() {
  for (RunListener* l : all_) l->finished();
}

void RunListeners::stopped(int64_t step) {
  for (RunListener* l : all_) l->stopped(step);
}

void RunListeners::say(const std::string& text) {
  for (RunListener* l : all_) l->say(text);
}

void RunListeners::warn(const std::string& text) {
  for (RunListener* l : all_) l->warn(text);
}

}  // namespace spool
