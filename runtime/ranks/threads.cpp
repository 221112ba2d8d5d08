// Ranks that are threads of one process: each copies what it takes from the others' memory.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <string_view>

#include "spool/runtime/check.h"
#include "spool/runtime/ranks/communicator.h"
#include "spool/runtime/ranks/timeout.h"

namespace spool {
namespace {

std::atomic<double> timeout_of_ranks = usual_rank_timeout;

// Where the ranks meet.  One that fails wakes the others, which throw.
class MeetingOfThreads {
 public:
  explicit MeetingOfThreads(int size) : offers_(static_cast<size_t>(size)) {}

  struct Offer {
    const char* name = nullptr;
    const Messages* out = nullptr;
  };

  void offer(int rank, const Offer& offer) { offers_[static_cast<size_t>(rank)] = offer; }
  const Offer& of(int rank) const { return offers_[static_cast<size_t>(rank)]; }

  // Returns when all ranks have come; then, if they are to take, until each has said that it has
  // taken, no call that fails returns: the memory of what is offered stays.
  void wait(const char* name, int rank, double timeout, bool then_take) {
    std::unique_lock lock(mutex_);
    const uint64_t now = turn_;
    here_.push_back(rank);
    if (why_.empty() && here_.size() == offers_.size()) {
      here_.clear();
      ++turn_;
      if (then_take) taking_ = offers_.size();
      return all_.notify_all();
    }
    const auto is_over = [&] { return turn_ != now || !why_.empty(); };
    bool came = true;
    if (std::isfinite(timeout)) {
      came = all_.wait_for(lock, std::chrono::duration<double>(timeout), is_over);
    } else {
      all_.wait(lock, is_over);
    }
    if (turn_ != now) return;
    if (!came) {
      why_ =
          sentence(absent(), " did not come to the exchange '", name, "' within ", timeout, " s");
    }
    all_.notify_all();
    all_.wait(lock, [&] { return taking_ == 0; });
    throw RankEnded(why_);
  }

  void has_taken() {
    const std::lock_guard lock(mutex_);
    if (--taking_ == 0) all_.notify_all();
  }

  void wait_for_takers() {
    std::unique_lock lock(mutex_);
    all_.wait(lock, [&] { return taking_ == 0; });
  }

  void fail(const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (why_.empty()) why_ = why;
    all_.notify_all();
  }

 private:
  std::string absent() const {
    std::string all;
    for (int r = 0; r < static_cast<int>(offers_.size()); ++r) {
      const bool is_here = std::ranges::find(here_, r) != here_.end();
      if (!is_here) all += sentence(all.empty() ? "rank " : ", rank ", r);
    }
    return all;
  }

  std::mutex mutex_;
  std::condition_variable all_;
  uint64_t turn_ = 0;
  size_t taking_ = 0;  // ranks that may read what others offer
  std::string why_;    // a rank ended
  std::vector<Offer> offers_;
  std::vector<int> here_;
};

class ThreadRanks final : public Communicator {
 public:
  ThreadRanks(int rank, int size, std::shared_ptr<MeetingOfThreads> meeting)
      : Communicator(rank, size), meeting_(std::move(meeting)) {}
  const char* kind() const override { return "threads"; }
  bool are_threads() const override { return true; }

 private:
  void end_others(const std::string& why) override { meeting_->fail(why); }
  void move(const char* name, const Messages& out, const Messages& in, double timeout) override {
    meeting_->offer(rank(), {name, &out});
    meeting_->wait(name, rank(), timeout, /*then_take=*/true);
    try {
      take(name, in);
    } catch (const Error& e) {
      meeting_->fail(e.what());
      meeting_->has_taken();
      meeting_->wait_for_takers();
      throw;
    }
    meeting_->has_taken();
    meeting_->wait(name, rank(), timeout, /*then_take=*/false);
  }

  void take(const char* name, const Messages& in) const {
    std::vector<size_t> next(static_cast<size_t>(size()));
    for (const Message& to : in) {
      const MeetingOfThreads::Offer& theirs = meeting_->of(to.peer);
      check(std::string_view(theirs.name) == name, "rank ", rank(), " is at the exchange '", name,
            "', and rank ", to.peer, " at '", theirs.name, "'");
      const Messages& sent = *theirs.out;
      size_t& i = next[static_cast<size_t>(to.peer)];
      while (i < sent.size() && sent[i].peer != rank()) ++i;
      check(i < sent.size() && sent[i].bytes == to.bytes, "exchange '", name, "': rank ", to.peer,
            " gives rank ", rank(), " other messages than that one takes");
      if (to.bytes > 0) std::memcpy(to.data, sent[i].data, to.bytes);
      ++i;
    }
    for (int peer = 0; peer < size(); ++peer) {
      const Messages& sent = *meeting_->of(peer).out;
      const auto rest = sent.begin() + static_cast<std::ptrdiff_t>(next[static_cast<size_t>(peer)]);
      const bool is_left =
          std::any_of(rest, sent.end(), [this](const Message& m) { return m.peer == rank(); });
      check(!is_left, "exchange '", name, "': rank ", peer, " gives rank ", rank(),
            " more messages than that one takes");
    }
  }

  std::shared_ptr<MeetingOfThreads> meeting_;
};

}  // namespace

double rank_timeout() { return timeout_of_ranks; }

void set_rank_timeout(double seconds) { timeout_of_ranks = seconds; }

std::vector<std::shared_ptr<Communicator>> ranks_of_threads(int size) {
  const auto meeting = std::make_shared<MeetingOfThreads>(size);
  std::vector<std::shared_ptr<Communicator>> all;
  for (int r = 0; r < size; ++r) all.push_back(std::make_shared<ThreadRanks>(r, size, meeting));
  return all;
}

}  // namespace spool
