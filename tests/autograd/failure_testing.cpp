#include "tests/autograd/failure_testing.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include "tests/runtime/testing.h"

namespace spool::testing {

void Faults::arm(int64_t place, Action action) {
  place_ = place;
  passed_ = 0;
  action_ = std::move(action);
}

void Faults::pass(const char* place) {
  at_each();
  if (passed_++ != place_) return;
  ++happened_[place];
  action_();
}

namespace {

class WatchedOp final : public Op {
 public:
  WatchedOp(const Op& op, Faults& faults) : op_(op), faults_(faults) {}

  const char* name() const override { return op_.name(); }
  OpKind kind() const override { return op_.kind(); }
  std::string attributes() const override { return op_.attributes(); }
  const char* indices() const override { return op_.indices(); }
  bool differentiable(int output) const override { return op_.differentiable(output); }
  bool recomputable() const override { return op_.recomputable(); }
  bool needs_loss_scale() const override { return op_.needs_loss_scale(); }
  int64_t max_chunks(const Specs& in) const override { return op_.max_chunks(in); }
  int64_t max_parts(const Specs& in) const override { return op_.max_parts(in); }

  Specs infer(const Specs& in) const override {
    faults_.pass("infer");
    return op_.infer(in);
  }
  void forward(Forward& f) const override {
    faults_.pass(faults_.in_backward ? "before replay" : "before forward");
    op_.forward(f);
    faults_.pass(faults_.in_backward ? "after replay" : "after forward");
  }
  Slots saves(const Needs& needs) const override {
    faults_.pass("saves");
    return op_.saves(needs);
  }
  void backward(Backward& b) const override {
    faults_.pass("before backward");
    op_.backward(b);
    faults_.pass("after backward");
  }

 private:
  const Op& op_;
  Faults& faults_;
};

class WatchedTensor final : public SavedTensor {
 public:
  WatchedTensor(std::unique_ptr<SavedTensor> saved, Faults& faults)
      : saved_(std::move(saved)), faults_(faults) {}
  void prefetch() override {
    faults_.pass("prefetch");
    saved_->prefetch();
  }
  Tensor unpack() override {
    faults_.pass("before unpack");
    const Tensor t = saved_->unpack();
    faults_.pass("after unpack");
    return t;
  }

 private:
  std::unique_ptr<SavedTensor> saved_;
  Faults& faults_;
};

// Hooks that store the bytes in memory of the process.
auto downloads() {
  struct Downloaded {
    Stream* stream;
    Spec spec;
    std::vector<std::byte> bytes;
  };
  return hooks_from(
      [](const Tensor& t, const SavedInfo&) {
        Downloaded all{&t.stream(), t.spec(), std::vector<std::byte>(t.nbytes())};
        read_bytes(t, 0, all.bytes);
        return all;
      },
      [](const Downloaded& all) {
        const Tensor t(all.spec, *all.stream, {.name = "downloaded"});
        write_bytes(t, 0, all.bytes);
        return t;
      });
}

Tensor copy_of(const Tensor& t) {
  const Tensor copy(t.spec(), t.stream(), {.name = "a hook's copy"});
  t.stream().copy(copy.view().data(), t.view().data(), t.nbytes());
  return copy;
}

void sleep_for(uint32_t microseconds) {
  std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
}

// Memory that is free, filled; freed again by the destructor.
struct FilledDevice {
  static constexpr int64_t elements = Arena::granule / sizeof(int32_t);
  static constexpr int32_t pattern = 0x5ca1ab1e;
  std::vector<Tensor> all = {};

  explicit FilledDevice(Stream& stream) {
    while (stream.memory().live < stream.memory().peak) {
      all.push_back(Tensor({Shape{elements}, DType::i32}, stream, {.name = "free memory"}));
    }
    stream.host_work("fill", 0, [views = views()] {
      for (const View& v : views) std::fill_n(v.as<int32_t>(), elements, pattern);
    });
  }
  std::vector<View> views() const { return {all.begin(), all.end()}; }
  bool is_unchanged() const {
    return std::ranges::all_of(views(), [](const View& v) {
      return std::count(v.as<int32_t>(), v.as<int32_t>() + elements, pattern) == elements;
    });
  }
};

struct FilledHost {
  static constexpr std::byte pattern{0x5c};
  std::vector<HostSlot> all = {};

  // After the compute stream's work so far, as every use of a slot.
  explicit FilledHost(HostLink& link) {
    while (link.memory().live < link.memory().peak) {
      all.emplace_back(link, HostLink::alignment, Name("free memory"));
    }
    link.begin_out().host_work("fill", 0, [places = places()] {
      for (std::byte* at : places) std::fill_n(at, HostLink::alignment, pattern);
    });
  }
  std::vector<std::byte*> places() const {
    std::vector<std::byte*> at;
    for (const HostSlot& slot : all) at.push_back(slot.data());
    return at;
  }
  bool is_unchanged() const {
    return std::ranges::all_of(places(), [](const std::byte* at) {
      return std::count(at, at + HostLink::alignment, pattern) == HostLink::alignment;
    });
  }
};

#ifdef NDEBUG
constexpr bool is_sanitized = false;
#else
constexpr bool is_sanitized = true;
#endif

// The lowest offset at which the allocation overlaps none of those before it.
size_t first_fit(const Lifetimes& lifetimes, size_t index, const std::vector<size_t>& offsets) {
  const Lifetime& l = lifetimes.all[index];
  std::vector<std::pair<size_t, size_t>> taken;
  for (size_t i = 0; i < index; ++i) {
    const Lifetime& other = lifetimes.all[i];
    if (other.death > l.birth) taken.emplace_back(offsets[i], offsets[i] + other.bytes);
  }
  std::ranges::sort(taken);
  size_t at = 0;
  for (const auto& [begin, end] : taken) {
    if (begin >= at + l.bytes) break;
    at = std::max(at, end);
  }
  return at;
}

}  // namespace

int64_t size_here(int64_t released, int64_t sanitized) {
  return nightly() ? 5 * released : is_sanitized ? sanitized : released;
}

std::vector<int64_t> some_of(int64_t n, int64_t max, Random& random) {
  std::vector<int64_t> some;
  for (int64_t i = 0; i < n; ++i) {
    if (random.next() % static_cast<uint64_t>(n) < static_cast<uint64_t>(max)) some.push_back(i);
  }
  return some;
}

Layout layout_of_first(const Lifetimes& lifetimes, int64_t count) {
  const auto known = static_cast<size_t>(count);
  Layout layout{.lifetimes = lifetimes};
  for (Lifetimes::Phase& phase : layout.lifetimes.phases) {
    phase = {std::min(phase.begin, known), std::min(phase.end, known)};
  }
  for (size_t i = 0; i < known; ++i) {
    layout.offsets.push_back(first_fit(lifetimes, i, layout.offsets));
    layout.bytes = std::max(layout.bytes, layout.offsets.back() + lifetimes.all[i].bytes);
  }
  return layout;
}

std::unique_ptr<const Op> watched(const Op& op, Faults& faults) {
  return std::make_unique<WatchedOp>(op, faults);
}

std::unique_ptr<SavedTensor> WatchedHooks::pack_as_kind(const Tensor& t, const SavedInfo& info) {
  switch (kind_) {
    case HookKind::copy:
      return spool::keep(copy_of(t));
    case HookKind::download:
      return downloads().pack(t, info);
    case HookKind::offload:
      return offloader_->pack(t, info, {.value = info.value});
    case HookKind::offload_to_disk:
      return offloader_->pack(t, info, {.value = info.value, .target = OffloadTarget::disk});
    default:
      return spool::keep(t);
  }
}

std::unique_ptr<SavedTensor> WatchedHooks::pack(const Tensor& t, const SavedInfo& info) {
  faults_.pass("before pack");
  auto saved = pack_as_kind(t, info);
  faults_.pass("after pack");
  return std::make_unique<WatchedTensor>(std::move(saved), faults_);
}

Faults::Action random_delays(Stream& stream, std::function<HostLink*()> link, uint64_t seed) {
  return [&stream, link = std::move(link), random = Random(seed)]() mutable {
    const uint32_t which = random.next() % 16, microseconds = random.next() % 200;
    const auto work = [microseconds] { sleep_for(microseconds); };
    if (which == 0) return stream.host_work("delay", 0, work);
    if (which == 1) return work();
    HostLink* const side = link();
    if (which > 5 || !side) return;
    try {
      (which % 2 ? side->out() : side->in()).host_work("delay", 0, work);
    } catch (const InjectedFailure&) {  // of that stream, which the step is to find itself
    }
  };
}

void expect_free_memory_is_idle(Stream& stream, HostLink* link, const Faults::Action& repair_link) {
  const FilledDevice device(stream);
  std::optional<FilledHost> host;
  if (link) host.emplace(*link);
  repair_link();
  stream.synchronize();
  EXPECT_TRUE(device.is_unchanged()) << "a copy ran on in memory that was free";
  EXPECT_TRUE(!host || host->is_unchanged()) << "a copy ran on in host memory that was free";
}

void expect_free_memory_is_idle(Stream& stream, HostLink& link) {
  expect_free_memory_is_idle(stream, &link, [&] { link.synchronize(); });
}

}  // namespace spool::testing
