#pragma once

// Traces of a stream, and copies that compute waits for.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "spool/runtime/stream.h"
#include "spool/runtime/trace.h"

namespace spool::testing {

using Spans = std::vector<TraceSpan>;

constexpr size_t plenty_to_trace = size_t{64} << 20;
constexpr double clock_error = 1e-9;  // seconds

// The spans of a lane, or those of one activity in it.
Spans spans_of(const Spans&, TraceLane, std::optional<Activity> = {});

// A span but for its times, for comparisons and messages.
std::string text(const TraceSpan&);
std::vector<std::string> texts(const Spans&);

// Expects that in every lane a span begins after the one before it has ended.
void expect_in_order(const Spans&);

// The cpu, and a GPU where there is one.
std::vector<std::unique_ptr<Stream>> traced_devices();

// The trace of a copy out, work of the disk and a copy in while compute goes on and then waits, as
// in a step that offloads.
Spans offload_and_fetch(Stream&, double seconds_of_the_disk);
constexpr double slow_disk = 0.05;  // seconds of work

}  // namespace spool::testing
