#include "spool/runtime/ranks/measure_link.h"

#include <algorithm>
#include <cstring>

#include "spool/runtime/check.h"
#include "spool/runtime/trace.h"

namespace spool {
namespace {

// An exchange of each rank with all others, who share the bytes.  The most bytes are each time
// others of 256 MiB, of all ranks together: gradients come from memory, not from a cache.
class AllToAll {
 public:
  AllToAll(Communicator& ranks, size_t bytes)
      : ranks_(ranks),
        of_devices_(ranks.measured_exchange(bytes)),
        bytes_(bytes),
        stretches_(bytes < measured_bytes.back() ? 1 : std::max(1, 8 / ranks.size())),
        given_(of_devices_ ? 0 : bytes * static_cast<size_t>(stretches_)),
        taken_(given_.size()) {
    if (of_devices_) return;
    const size_t each = bytes / static_cast<size_t>(ranks.size() - 1);
    size_t begin = 0;
    for (int peer = 0; peer < ranks.size(); ++peer) {
      if (peer == ranks.rank()) continue;
      out_.push_back({peer, given_.data() + begin, each});
      in_.push_back({peer, taken_.data() + begin, each});
      begin += each;
    }
  }

  struct Times {
    double seconds = 0;  // of one exchange
    double since = 0;    // the first one
  };

  // Exchanges of memory that was exchanged before.
  void warm_up(int count) { (void)repeat(std::max(count, stretches_)); }

  // Of so many exchanges, one after another: the largest of all ranks, which then begin again at
  // once.
  Times repeat(int count) {
    const double begin = host_clock();
    for (int i = 0; i < count; ++i) move();
    const double end = host_clock();
    return largest({.seconds = (end - begin) / count, .since = end - first_});
  }

 private:
  void move() {
    if (of_devices_) return of_devices_();
    ranks_.move_now("link", out_, in_);
    go_on();
  }

  // To the next stretch of the memory.
  void go_on() {
    const bool is_last = ++stretch_ == stretches_;
    if (is_last) stretch_ = 0;
    const auto by = static_cast<std::ptrdiff_t>(bytes_) * (is_last ? 1 - stretches_ : 1);
    for (Messages* all : {&out_, &in_}) {
      for (Message& m : *all) m.data += by;
    }
  }

  Times largest(const Times& own) {
    Times most;
    std::string text(sizeof own, '\0');
    std::memcpy(text.data(), &own, sizeof own);
    for (const std::string& other : ranks_.gather("link", text)) {
      Times times;
      std::memcpy(&times, other.data(), sizeof times);
      most = {std::max(most.seconds, times.seconds), std::max(most.since, times.since)};
    }
    return most;
  }

  Communicator& ranks_;
  std::function<void()> of_devices_;  // empty: exchanges of host memory
  size_t bytes_;
  int stretches_, stretch_ = 0;
  std::vector<std::byte> given_, taken_;
  double first_ = host_clock();
  Messages out_, in_;
};

// The least time, when so many repeats in a row did not lower it, or time is up.  All ranks know
// the same times, and so repeat as often.
double least_seconds(Communicator& ranks, size_t bytes) {
  constexpr size_t small = size_t{64} << 10;
  constexpr int repeats_that_stand = 20;
  constexpr double max_seconds = 0.3;
  const int count = bytes <= small ? 16 : 1;  // a clock, and who begins last, count for little
  AllToAll exchange(ranks, bytes);
  exchange.warm_up(count);
  AllToAll::Times now = exchange.repeat(count);
  double least = now.seconds;
  for (int stood = 0; stood < repeats_that_stand && now.since < max_seconds; ++stood) {
    now = exchange.repeat(count);
    if (now.seconds < least) stood = -1;
    least = std::min(least, now.seconds);
  }
  return least;
}

}  // namespace

Link fit_link(const std::array<double, 3>& seconds) {
  const auto least = static_cast<double>(measured_bytes.front()),
             most = static_cast<double>(measured_bytes.back());
  const double shortest = *std::ranges::min_element(seconds), longest = seconds.back();
  // Caches may take few bytes faster than the rate of many says, so that takes off half at most.
  const double of_bytes = least * (longest - shortest) / (most - least);
  constexpr double at_most = 0.9;  // of what many bytes take, which then have a rate
  const double latency = std::min(std::max(shortest - of_bytes, shortest / 2), at_most * longest);
  return {.seconds = latency, .bytes_per_second = most / (longest - latency)};
}

Link measure_link(Communicator& ranks) {
  check(ranks.size() > 1, "a link is between two ranks or more");
  std::array<double, measured_bytes.size()> seconds{};
  for (size_t i = 0; i < seconds.size(); ++i) seconds[i] = least_seconds(ranks, measured_bytes[i]);
  return fit_link(seconds);
}

}  // namespace spool
