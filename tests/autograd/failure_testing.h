#pragma once

// Failures at any place of a step: in an op, in a hook, or in work that is still queued.

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "spool/autograd/tape.h"
#include "spool/runtime/memory/layout.h"
#include "spool/runtime/random.h"

namespace spool::testing {

struct InjectedFailure final : std::exception {
  const char* what() const noexcept override { return "an injected failure"; }
};

// Counts the places of a step where something may fail, and fails at one of them.
class Faults {
 public:
  static constexpr int64_t never = -1;
  using Action = std::function<void()>;
  static void fail_at_once() { throw InjectedFailure(); }

  // Counts from 0 on; at place number `place` of those to come, `action` happens.
  void arm(int64_t place, Action action = fail_at_once);
  void pass(const char* place);

  int64_t passed() const { return passed_; }
  // How often the action has happened, by the name of the place.
  const std::map<std::string, int>& happened() const { return happened_; }

  Action at_each = [] {};    // happens at every place before the failure: a delay, or nothing
  bool in_backward = false;  // an op that runs forward is recomputed

 private:
  int64_t place_ = never, passed_ = 0;
  Action action_ = fail_at_once;
  std::map<std::string, int> happened_ = {};
};

// An op that does what the given one does, with places before and after.  Both must outlive it.
std::unique_ptr<const Op> watched(const Op&, Faults&);

// What a hook does with what it packs.
enum class HookKind { keep, copy, download, offload, offload_to_disk };

class WatchedHooks final : public SavedTensorHooks {
 public:
  // The offloader is for hooks that offload.
  WatchedHooks(HookKind kind, Faults& faults, Offloader* offloader)
      : kind_(kind), faults_(faults), offloader_(offloader) {}
  std::unique_ptr<SavedTensor> pack(const Tensor&, const SavedInfo&) override;

 private:
  std::unique_ptr<SavedTensor> pack_as_kind(const Tensor&, const SavedInfo&);

  HookKind kind_;
  Faults& faults_;
  Offloader* offloader_;
};

// The size of a test in builds with sanitizers, or else `released`; five times that at night.
int64_t size_here(int64_t released, int64_t sanitized);

// About `max` of [0, n), at random, or all.
std::vector<int64_t> some_of(int64_t n, int64_t max, Random&);

// A layout of a step of which only the first `count` allocations are known: the next one fails.
Layout layout_of_first(const Lifetimes&, int64_t count);

// Delays the compute stream, a stream of the link at that time, or the caller, now and then and at
// random.
Faults::Action random_delays(Stream&, std::function<HostLink*()> link, uint64_t seed);

// Writes to all memory below the peaks that is free, of the device and of the host, waits for the
// side streams, and expects that they have changed none of it.
void expect_free_memory_is_idle(Stream&, HostLink&);
// The same for a link that has failed, or none: repair_link() waits for the side streams.
void expect_free_memory_is_idle(Stream&, HostLink*, const Faults::Action& repair_link);

}  // namespace spool::testing
