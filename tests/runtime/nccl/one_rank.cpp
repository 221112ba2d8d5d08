// Asks a GPU and NCCL what one rank can tell, and says of each answer that is no what that means:
//
//   runtime_nccl_one_rank [JSON]    writes the answers to a file, too
//
// Exits with 0 if all are as ranks need them, 1 if not, 77 if there is no GPU or no NCCL.  An
// answer that does not come is a no, and the last.

#include "tests/runtime/nccl/one_rank.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "spool/runtime/check.h"
#include "spool/runtime/cuda/device.h"
#include "spool/runtime/cuda/nccl.h"
#include "spool/runtime/trace.h"

namespace spool::testing {
namespace {

using Json = nlohmann::ordered_json;

constexpr int skipped = 77;

// Seconds for each answer; the environment may say others, for a test.
double patience() {
  const char* const text = std::getenv("SPOOL_ONE_RANK_SECONDS");
  return text ? std::atof(text) : 10;
}

struct Question {
  const char* name;
  const char* meaning;  // of a no
  std::function<Measured(OneRank&)> ask;
};

const std::vector<Question>& questions() {
  static const std::vector<Question> all = {
      {"init", "no rank can begin on this GPU with communicators that do not block",
       [](OneRank& r) { return r.communicator(); }},
      {"arena", "this GPU, its driver or the container has no virtual memory that ranks can share",
       [](OneRank& r) { return r.arena(); }},
      {"window", "exchanges go through NCCL's own buffers, on multiprocessors, and take longer",
       [](OneRank& r) { return r.window(); }},
      {"exchange", "ncclAlltoAll or ncclAllGather of the arena's memory does not work here",
       [](OneRank& r) { return r.exchanges(); }},
      {"capture",
       "communicators that do not block may not be captured: ranks would need blocking ones, and "
       "to end a process without ncclCommAbort; --no-graph trains meanwhile",
       [](OneRank& r) { return r.captured(); }},
      {"replay",
       "a captured call does not work again and again with this version of NCCL; --no-graph "
       "trains, or a newer one",
       [](OneRank& r) { return r.replayed(100); }},
      {"end", "graph, window and communicator cannot be ended in this order",
       [](OneRank& r) { return r.ended(); }},
      {"abort",
       "what waits on a GPU cannot be ended while a graph runs: a rank whose peer died would end "
       "its process only after 5 s more",
       [](OneRank& r) { return r.aborted(); }},
      {"ranks", "Spool's own rank of one GPU does not begin, take a window and end",
       [](OneRank& r) { return r.ranks(); }}};
  return all;
}

class Answers {
 public:
  explicit Answers(const char* file) : file_(file ? file : "") {
    all_["nccl"] = nccl_in_words();
    const CudaDevice device = cuda_device(0);
    all_["device"] = device.name;
    all_["driver"] = device.driver;
    all_["answers"] = Json::array();
  }

  void add(const Question& q, const char* outcome, const Measured& measured,
           const std::string& why) {
    Json answer = {{"name", q.name}, {"outcome", outcome}};
    std::string line = sentence(outcome, ": ", q.name);
    if (!why.empty()) answer["why"] = why, line += ": " + why;
    if (std::string_view(outcome) == "no") {
      answer["meaning"] = q.meaning, line += sentence("; this means that ", q.meaning);
      is_good_ = false;
    }
    for (const auto& [name, value] : measured) {
      answer[name] = value;
      line += sentence(" ", name, " ", value);
    }
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
    all_["answers"].push_back(std::move(answer));
    write();
  }
  bool are_good() const { return is_good_; }

 private:
  void write() const {
    if (!file_.empty()) std::ofstream(file_) << all_.dump(2) << "\n";
  }

  std::string file_;
  Json all_;
  bool is_good_ = true;
};

// Ends the process at a question whose answer does not come.
class Watch {
 public:
  explicit Watch(Answers& answers) : answers_(answers) {
    std::thread([this] { watch(); }).detach();
  }
  void begin(const Question& q) {
    const std::lock_guard lock(mutex_);
    question_ = &q;
    until_ = host_clock() + patience();
  }
  void end() {
    const std::lock_guard lock(mutex_);
    question_ = nullptr;
  }

 private:
  [[noreturn]] void watch() {
    while (true) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      const std::lock_guard lock(mutex_);
      if (!question_ || host_clock() < until_) continue;
      answers_.add(*question_, "no", {}, sentence("no answer in ", patience(), " s"));
      ::_exit(1);
    }
  }

  Answers& answers_;
  std::mutex mutex_;
  const Question* question_ = nullptr;
  double until_ = 0;
};

int ask_all(const char* file) {
  const Nccl found = find_nccl();
  if (cuda_device_count() == 0 || !found) {
    std::printf("%s\n", found ? "there is no CUDA device here" : found.why_not.c_str());
    return skipped;
  }
  Answers answers(file);
  auto* const watch = new Watch(answers);  // its thread lives as long as the process
  auto* const rank = new OneRank(/*device=*/0);
  for (const Question& q : questions()) {
    watch->begin(q);
    const char* outcome = "yes";
    Measured measured;
    std::string why;
    try {
      measured = q.ask(*rank);
    } catch (const LeftOut& e) {
      outcome = "left out", why = e.what();
    } catch (const std::exception& e) {
      outcome = "no", why = e.what();
    }
    watch->end();
    answers.add(q, outcome, measured, why);
  }
  std::fflush(stdout);
  // What NCCL or the driver still waits for after a no does not keep the process.
  ::_exit(answers.are_good() ? 0 : 1);
}

}  // namespace
}  // namespace spool::testing

int main(int count, char** words) {
  try {
    return spool::testing::ask_all(count > 1 ? words[1] : nullptr);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "one_rank: %s\n", e.what());
    return 1;
  }
}
