#include "spool/runtime/ranks/run_ranks.h"

#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "spool/runtime/check.h"

namespace spool {
namespace {

// What the first rank that failed threw; rather not that another ended.  Of ranks that all threw
// the same, the lowest counts.
class FirstFailure {
 public:
  void keep(std::exception_ptr error, const std::string& why, int rank, bool another_ended) {
    const std::lock_guard lock(mutex_);
    const bool is_same = why == why_ && rank < rank_ && another_ended == another_ended_;
    if (error_ && !is_same && (another_ended || !another_ended_)) return;
    error_ = std::move(error);
    why_ = why;
    rank_ = rank;
    another_ended_ = another_ended;
  }
  void rethrow() const {
    if (!error_) return;
    try {
      std::rethrow_exception(error_);
    } catch (const Error& e) {
      if (rank_ == 0 || another_ended_) throw;
      throw Error(e.kind(), sentence("rank ", rank_, ": ", e.what()), e.fields());
    }
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
  std::string why_;
  int rank_ = 0;
  bool another_ended_ = false;
};

}  // namespace

void run_ranks(int ranks, const std::function<void(const std::shared_ptr<Communicator>&)>& body) {
  check(ranks > 0, "a program has at least one rank, not ", ranks);
  const std::vector<std::shared_ptr<Communicator>> all = ranks_of_threads(ranks);
  FirstFailure failure;
  const auto run = [&](int rank) {
    const auto& own = all[static_cast<size_t>(rank)];
    try {
      body(own);
    } catch (const RankEnded& e) {
      failure.keep(std::current_exception(), e.what(), rank, /*another_ended=*/true);
      own->fail(e.what());
    } catch (const std::exception& e) {
      failure.keep(std::current_exception(), e.what(), rank, /*another_ended=*/false);
      own->fail(e.what());
    } catch (...) {
      failure.keep(std::current_exception(), "", rank, /*another_ended=*/false);
      own->fail("it ended");
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int rank = 1; rank < ranks; ++rank) threads.emplace_back(run, rank);
    run(0);
  }
  failure.rethrow();
}

}  // namespace spool
