#pragma once

// The timeline of a part of a run: which stream did what, when, for which op, and how many bytes
// were live when it was enqueued.  A stream with a Trace (Stream::trace) adds a span for each piece
// of its work, timed by its own clock on meta, the host's clock on the cpu, and events on cuda.  A
// stream without a trace pays a branch that is never taken.
//
// With TraceClock::processor a span of a cpu stream lasts the processor time of its threads,
// divided by their number, which other programs hardly change.  The lengths of spans are then
// comparable, but not where they begin.
//
// Spans are in program order, and those of one lane do not overlap.  Work that fails has no span.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "spool/runtime/device.h"
#include "spool/runtime/names.h"

namespace spool {

// A row of the timeline.  `update` is a stream of the host, which updates parameters; `exchange`
// one of exchanges between ranks; `host` is the enqueuing thread; the others are streams of the
// device.
enum class TraceLane : uint8_t { compute, copy_out, copy_in, update, exchange, host };
template <>
inline constexpr std::array enumerator_names<TraceLane>{"compute", "copy out", "copy in",
                                                        "update",  "exchange", "host"};

// `host` is work of a stream on a thread of the host, or work of the enqueuing thread; `wait` is a
// stream that waits for another stream's event.
enum class Activity : uint8_t { kernel, copy, host, wait };
template <>
inline constexpr std::array enumerator_names<Activity>{"kernel", "copy", "host", "wait"};

// What the enqueuing thread is doing: "forward", "linear", 12.  The names are never freed.
struct TraceContext {
  const char* task = nullptr;  // null: nothing with a name
  const char* op = nullptr;
  int64_t node = -1;  // of the tape
  int chunk = -1;     // of the chunked region around the node, from 0

  explicit operator bool() const { return task != nullptr; }
  // Whether it is a copy of the tensor with the number `node`.
  bool is_copy() const { return task && !op && node >= 0; }
  bool operator==(const TraceContext&) const = default;
};

struct TraceSpan {
  TraceLane lane = TraceLane::compute;
  Activity activity = Activity::kernel;
  const char* name = "";
  size_t bytes = 0;      // copied
  size_t live = 0;       // live bytes of the device when it was enqueued
  size_t host_live = 0;  // live bytes of slabs of host memory when it was enqueued
  Cost cost = {};        // of a kernel; on meta only
  TraceContext context = {};
  double begin = 0, end = 0;  // seconds since the first span began

  double seconds() const { return end - begin; }
};

class PendingSpan;

enum class TraceClock : uint8_t { wall, processor };

class Trace : public std::enable_shared_from_this<Trace> {
 public:
  using Interval = std::pair<double, double>;  // begin and end, seconds of the stream's clock

  explicit Trace(TraceClock clock = TraceClock::wall);
  ~Trace();
  TraceClock clock() const { return clock_; }

  // Called by streams.  They add a span whose times are known now, are given to
  // PendingSpan::done(), or are measured in spans().
  void add(const TraceSpan&, Interval);
  std::shared_ptr<PendingSpan> open(const TraceSpan&);
  void add(const TraceSpan&, std::function<Interval()> measure);
  // The streams' reference for times, for devices without a common clock.
  std::shared_ptr<void>& origin() { return origin_; }
  // Adds spans of the enqueuing thread, for streams that run in the host's time.
  void add_host_lane();
  // Sets the live bytes of a slab from now on; the first call also counts for all earlier spans.
  void set_host_live(const void* slab, size_t bytes);

  // Sets what the enqueuing thread is doing; returns what it was doing before.
  TraceContext enter(const TraceContext&);
  const TraceContext& context() const { return context_; }

  // Waits for all work, and returns the spans of the work that succeeded.
  std::vector<TraceSpan> spans();

 private:
  friend class PendingSpan;
  enum class State : uint8_t { open, done, failed };
  struct Entry {
    TraceSpan span;
    State state;
    std::function<Interval()> measure = nullptr;
  };

  void push(const TraceSpan&, State, std::function<Interval()> measure);
  void close(size_t entry, State, Interval);

  TraceClock clock_;
  struct Lock;
  std::unique_ptr<Lock> lock_;
  std::vector<Entry> entries_;
  size_t open_ = 0;
  TraceContext context_ = {};
  bool has_host_lane_ = false;
  double context_since_ = 0;                           // on the host's clock
  std::vector<std::pair<const void*, size_t>> slabs_;  // and their live bytes
  std::shared_ptr<void> origin_;
};

// A span of work that has not finished; dropped if done() is not called.
class PendingSpan {
 public:
  PendingSpan(std::shared_ptr<Trace> trace, size_t entry)
      : trace_(std::move(trace)), entry_(entry) {}
  ~PendingSpan();
  PendingSpan(const PendingSpan&) = delete;
  PendingSpan& operator=(const PendingSpan&) = delete;
  void done(Trace::Interval);

 private:
  std::shared_ptr<Trace> trace_;
  size_t entry_;
};

// Sets the context of everything enqueued during its lifetime.  Does nothing without a trace.
class TraceScope {
 public:
  TraceScope(Trace* trace, const char* task) : trace_(trace) {
    if (trace_) [[unlikely]]
      before_ = trace_->enter({.task = task});
  }
  // For a context that takes time to find: find() is called only if there is a trace.
  template <std::invocable Find>
  TraceScope(Trace* trace, const Find& find) : trace_(trace) {
    if (trace_) [[unlikely]]
      before_ = trace_->enter(find());
  }
  // For a tensor that is copied, by its name and number.
  TraceScope(Trace* trace, const char* name, uint64_t number) : trace_(trace) {
    if (trace_) [[unlikely]] {
      before_ = trace_->enter({.task = name, .node = static_cast<int64_t>(number)});
    }
  }
  ~TraceScope() {
    if (trace_) [[unlikely]]
      trace_->enter(before_);
  }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  Trace* trace_;
  TraceContext before_ = {};
};

// Seconds that a lane waited for others; for compute, the time of copies that were not hidden.
double waited(const std::vector<TraceSpan>&, TraceLane);
// Seconds from the first span's begin to the last span's end.
double seconds(const std::vector<TraceSpan>&);

// The host's clock, in seconds.
double host_clock();

}  // namespace spool
