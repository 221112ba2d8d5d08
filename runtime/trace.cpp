#include "spool/runtime/trace.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <tuple>

namespace spool {

double host_clock() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Trace::Lock {
  std::mutex mutex;
  std::condition_variable closed;  // the last open span
};

Trace::Trace(TraceClock clock) : clock_(clock), lock_(std::make_unique<Lock>()) {}

Trace::~Trace() = default;

// Requires the lock.
void Trace::push(const TraceSpan& span, State state, std::function<Interval()> measure) {
  entries_.push_back({.span = span, .state = state, .measure = std::move(measure)});
  TraceSpan& entry = entries_.back().span;
  if (span.lane != TraceLane::host) entry.context = context_;
  for (const auto& [slab, bytes] : slabs_) entry.host_live += bytes;
}

void Trace::add(const TraceSpan& span, Interval times) {
  const std::lock_guard lock(lock_->mutex);
  push(span, State::done, nullptr);
  std::tie(entries_.back().span.begin, entries_.back().span.end) = times;
}

void Trace::add(const TraceSpan& span, std::function<Interval()> measure) {
  const std::lock_guard lock(lock_->mutex);
  push(span, State::done, std::move(measure));
}

std::shared_ptr<PendingSpan> Trace::open(const TraceSpan& span) {
  const std::lock_guard lock(lock_->mutex);
  push(span, State::open, nullptr);
  ++open_;
  return std::make_shared<PendingSpan>(shared_from_this(), entries_.size() - 1);
}

void Trace::close(size_t entry, State state, Interval times) {
  const std::lock_guard lock(lock_->mutex);
  Entry& e = entries_[entry];
  if (e.state != State::open) return;
  e.state = state;
  std::tie(e.span.begin, e.span.end) = times;
  if (--open_ == 0) lock_->closed.notify_all();
}

PendingSpan::~PendingSpan() { trace_->close(entry_, Trace::State::failed, {}); }

void PendingSpan::done(Trace::Interval times) { trace_->close(entry_, Trace::State::done, times); }

void Trace::add_host_lane() {
  const std::lock_guard lock(lock_->mutex);
  has_host_lane_ = true;
}

void Trace::set_host_live(const void* slab, size_t bytes) {
  const std::lock_guard lock(lock_->mutex);
  const auto at = std::ranges::find(slabs_, slab, [](const auto& s) { return s.first; });
  if (at == slabs_.end()) {
    slabs_.emplace_back(slab, bytes);
    for (Entry& e : entries_) e.span.host_live += bytes;
  } else {
    at->second = bytes;
  }
}

// Scopes nest; the host's lane shows the innermost one at any time, so its spans do not overlap.
TraceContext Trace::enter(const TraceContext& next) {
  const std::lock_guard lock(lock_->mutex);
  const double now = host_clock();
  if (context_ && has_host_lane_) {
    const TraceSpan span{.lane = TraceLane::host,
                         .activity = Activity::host,
                         .name = "enqueue",
                         .context = context_,
                         .begin = context_since_,
                         .end = now};
    entries_.push_back({.span = span, .state = State::done});
  }
  context_since_ = now;
  return std::exchange(context_, next);
}

std::vector<TraceSpan> Trace::spans() {
  std::unique_lock lock(lock_->mutex);
  lock_->closed.wait(lock, [this] { return open_ == 0; });
  std::vector<TraceSpan> all;
  double start = std::numeric_limits<double>::infinity();
  for (Entry& e : entries_) {
    if (e.measure) std::tie(e.span.begin, e.span.end) = e.measure();
    e.measure = nullptr;
    if (e.state != State::done) continue;
    all.push_back(e.span);
    start = std::min(start, e.span.begin);
  }
  for (TraceSpan& span : all) {
    span.begin -= start;
    span.end -= start;
  }
  return all;
}

double waited(const std::vector<TraceSpan>& spans, TraceLane lane) {
  double sum = 0;
  for (const TraceSpan& span : spans) {
    if (span.lane == lane && span.activity == Activity::wait) sum += span.seconds();
  }
  return sum;
}

double seconds(const std::vector<TraceSpan>& spans) {
  double end = 0;
  for (const TraceSpan& span : spans) end = std::max(end, span.end);
  return end;
}

}  // namespace spool
