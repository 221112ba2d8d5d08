#include "spool/models/cli/ranks/processes.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <random>
#include <vector>

#include "spool/models/cli/interrupt.h"
#include "spool/runtime/check.h"
#include "spool/runtime/ranks/launcher.h"
#include "spool/runtime/trace.h"

namespace spool {
namespace {

constexpr double grace = 3;  // seconds until ranks that do not end after one did are killed
constexpr std::initializer_list<int> passed_on = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};

std::vector<std::string> own_words() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  check(!words.empty(),
        "the system does not say this program's own words (/proc/self/cmdline), "
        "which its ranks need; --ranks-as threads does not");
  return words;
}

// Only a child of one thread may do this much before exec.
[[noreturn]] void become_rank(int rank, int ranks, pid_t parent, bool reads_the_terminal,
                              const std::string& job, std::vector<char*>& words,
                              const sigset_t& mask) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(1);
  if (!reads_the_terminal) ::setpgid(0, 0);  // its signals come through the parent alone
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  ::setenv(rank_variables::rank, std::to_string(rank).c_str(), 1);
  ::setenv(rank_variables::ranks, std::to_string(ranks).c_str(), 1);
  ::setenv(rank_variables::job, job.c_str(), 1);
  ::execv("/proc/self/exe", words.data());
  ::_exit(127);
}

class RankProcesses {
 public:
  RankProcesses(int ranks, FirstRank first)
      : words_(own_words()), reads_the_terminal_(first == FirstRank::reads_the_terminal) {
    ::sigemptyset(&watched_);
    for (const int signal : passed_on) {
      if (!is_ignored(signal)) ::sigaddset(&watched_, signal);
    }
    ::signal(SIGCHLD, SIG_DFL);  // ignored, as some programs leave it, it would hide how ranks end
    for (const int signal : {SIGTSTP, SIGCHLD}) ::sigaddset(&watched_, signal);
    ::sigprocmask(SIG_BLOCK, &watched_, &mask_);
    std::vector<char*> words;
    for (std::string& word : words_) words.push_back(word.data());
    words.push_back(nullptr);
    const pid_t parent = ::getpid();
    // Others of this number, as in other containers, have other jobs.
    const std::string job = sentence("process-", parent, "-", std::random_device()());
    for (int r = 0; r < ranks; ++r) {
      const pid_t child = ::fork();
      const bool reads = reads_the_terminal_ && r == 0;
      if (child == 0) become_rank(r, ranks, parent, reads, job, words, mask_);
      if (child < 0) refuse_to_start(r, errno);
      living_.push_back(child);
      ranks_.push_back(child);
    }
  }

  int wait() {
    while (!living_.empty()) {
      const timespec tenth = {0, 100'000'000};
      siginfo_t from = {};
      const int signal = ::sigtimedwait(&watched_, &from, &tenth);
      if (signal == SIGTSTP) {
        stop_and_go_on();
      } else if (signal > 0 && signal != SIGCHLD) {
        was_signalled_ = true;
        const bool has_first = reads_the_terminal_ && signal == SIGINT && from.si_code == SI_KERNEL;
        to_all(signal, has_first ? ranks_.front() : 0);
      }
      while (reap()) continue;
      const bool are_late = ended_badly_ && host_clock() - *ended_badly_ > grace;
      if (are_late) to_all(SIGKILL);
      has_killed_ = has_killed_ || are_late;
    }
    ::sigprocmask(SIG_SETMASK, &mask_, nullptr);
    return code_;
  }

  // The first, and its signal, that was killed by one that did not come from here.
  std::optional<std::pair<int, int>> killed() const { return killed_; }

 private:
  [[noreturn]] void refuse_to_start(int rank, int error) {
    to_all(SIGKILL);
    fail(ErrorKind::device, "the system starts no process for rank ", rank, ": ",
         std::strerror(error));
  }

  void to_all(int signal, pid_t but = 0) const {
    for (const pid_t child : living_) {
      if (child != but) ::kill(child, signal);
    }
  }

  void stop_and_go_on() {
    to_all(SIGSTOP);
    ::raise(SIGSTOP);
    to_all(SIGCONT);
  }

  bool reap() {
    int status = 0;
    const pid_t child = ::waitpid(-1, &status, WNOHANG);
    if (child < 0 && errno == ECHILD) living_.clear();
    if (child <= 0) return false;
    std::erase(living_, child);
    const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    const int code = signal ? 1 : WEXITSTATUS(status);
    const bool is_passed_on = std::ranges::find(passed_on, signal) != std::end(passed_on);
    if (signal == SIGPIPE && child == ranks_.front() && code_ == 0) {
      code_ = 128 + SIGPIPE;
      has_killed_ = true;
      to_all(SIGKILL);
    } else if (was_signalled_ && (is_passed_on || code == stopped_by_a_signal)) {
      code_ = code_ ? code_ : stopped_by_a_signal;
      if (signal && !ended_badly_) ended_badly_ = host_clock();
    } else if (code != 0) {
      if (!ended_badly_) ended_badly_ = host_clock();
      code_ = code_ ? code_ : code;
      // One that ended as this one was killed may be reaped before it.
      const auto rank = static_cast<int>(std::ranges::find(ranks_, child) - ranks_.begin());
      if (signal && !has_killed_ && !killed_) killed_ = {rank, signal};
    }
    return true;
  }

  std::vector<std::string> words_;
  bool reads_the_terminal_;
  sigset_t watched_ = {}, mask_ = {};
  std::vector<pid_t> ranks_, living_;
  bool was_signalled_ = false, has_killed_ = false;
  std::optional<double> ended_badly_;
  std::optional<std::pair<int, int>> killed_;
  int code_ = 0;
};

}  // namespace

int run_as_processes(int ranks, const std::function<std::string()>& is_left, FirstRank first) {
  RankProcesses processes(ranks, first);
  const int code = processes.wait();
  if (const auto killed = processes.killed()) {
    const auto& [rank, signal] = *killed;
    fail(ErrorKind::device, "rank ", rank, " was killed by signal ", signal, " (",
         ::strsignal(signal), "); ", is_left());
  }
  return code;
}

}  // namespace spool
