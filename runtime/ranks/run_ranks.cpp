#include "spool/runtime/ranks/run_ranks.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "spool/runtime/check.h"

namespace spool {
namespace {

// What a rank threw.
struct RankFailure {
  std::exception_ptr error = {};
  std::string why = {};
  int order = 0;  // of all failures
  bool another_ended = false;
};

// The first that a rank failed of itself, or else the first; of ranks that all threw the same, the
// lowest counts.
int rank_of_first(const std::vector<RankFailure>& all) {
  const auto first = std::ranges::min_element(
      all, {}, [](const RankFailure& f) { return std::tuple(!f.error, f.another_ended, f.order); });
  const auto lowest = std::ranges::find_if(all, [&](const RankFailure& f) {
    return f.error && f.why == first->why && f.another_ended == first->another_ended;
  });
  return lowest == all.end() ? 0 : static_cast<int>(lowest - all.begin());
}

void rethrow_first(const std::vector<RankFailure>& all) {
  const int rank = rank_of_first(all);
  const RankFailure& failure = all[static_cast<size_t>(rank)];
  if (!failure.error) return;
  try {
    std::rethrow_exception(failure.error);
  } catch (const Error& e) {
    if (rank == 0 || failure.another_ended) throw;
    throw Error(e.kind(), sentence("rank ", rank, ": ", e.what()), e.fields());
  }
}

}  // namespace

void run_ranks(int ranks, const std::function<void(const std::shared_ptr<Communicator>&)>& body) {
  check(ranks > 0, "a program has at least one rank, not ", ranks);
  const std::vector<std::shared_ptr<Communicator>> all = ranks_of_threads(ranks);
  std::vector<RankFailure> failures(all.size());
  std::atomic<int> count = 0;
  const auto run = [&](size_t rank) {
    const auto fail = [&](const char* why, bool another_ended) {
      failures[rank] = {std::current_exception(), why, count++, another_ended};
      all[rank]->fail(why);
    };
    try {
      body(all[rank]);
    } catch (const RankEnded& e) {
      fail(e.what(), /*another_ended=*/true);
    } catch (const std::exception& e) {
      fail(e.what(), /*another_ended=*/false);
    } catch (...) {
      fail("it ended", /*another_ended=*/false);
    }
  };
  {
    std::vector<std::jthread> threads;
    for (size_t rank = 1; rank < all.size(); ++rank) threads.emplace_back(run, rank);
    run(0);
  }
  rethrow_first(failures);
}

}  // namespace spool
