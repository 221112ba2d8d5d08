#include "spool/runtime/ranks/mpi.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <mutex>

#include "spool/runtime/check.h"
#include "spool/runtime/ranks/mpi/module.h"
#include "spool/runtime/ranks/timeout.h"

namespace spool {
namespace {

constexpr const char* file_of_module = "spool_mpi.so";

// The module, else why there is none.  It is found beside the program or the library (their
// RUNPATH), or in the folders of LD_LIBRARY_PATH.
struct Opened {
  const MpiModule* module = nullptr;
  std::string why_not;
};

Opened open_module() {
  void* const library = dlopen(file_of_module, RTLD_NOW | RTLD_LOCAL);
  if (!library) return {nullptr, sentence("no MPI in this build (", dlerror(), ")")};
  using Get = const MpiModule*();
  auto* const get = reinterpret_cast<Get*>(dlsym(library, "spool_mpi_module"));
  const MpiModule* const module = get ? get() : nullptr;
  if (module && module->version == MpiModule::current_version) return {module, ""};
  return {nullptr, sentence(file_of_module, " is of another version of Spool")};
}

const Opened& opened() {
  static const Opened result = open_module();
  return result;
}

std::atomic<bool> has_ended = true;

// If the others do not end as well, this process is one of those that end when it exits.
void end_mpi(bool is_well) {
  if (has_ended.exchange(true)) return;
  if (!opened().module->end(is_well)) has_ended = false;
}

class MpiRanks final : public Communicator {
 public:
  MpiRanks(int rank, int size) : Communicator(rank, size) {}
  ~MpiRanks() override {
    if (std::uncaught_exceptions() > 0) fail("it ended");
    if (!has_failed_) end_mpi(/*is_well=*/true);
  }
  const char* kind() const override { return "mpi"; }
  void is_doing(const std::string& what) override {
    const std::lock_guard lock(mutex_);
    doing_ = what;
  }
  bool has_lower_rank_failed() override { return opened().module->has_another_failed(); }

 private:
  void end_others(const std::string& why) override {
    has_failed_ = true;
    opened().module->fail(why.c_str());
  }
  void move(const char* name, const Messages& out, const Messages& in, double timeout) override {
    const std::string doing = what_it_does();
    const MpiModule::Outcome end =
        opened().module->move({name, out.data(), out.size(), in.data(), in.size(), timeout,
                               rank_timeout(), doing.c_str()});
    if (!end.why) return;
    has_failed_ = true;
    if (end.is_error) throw Error(ErrorKind::invalid, end.why);
    throw RankEnded(end.why, end.loss);
  }

  std::string what_it_does() {
    const std::lock_guard lock(mutex_);
    return doing_;
  }

  std::mutex mutex_;
  std::string doing_;  // of another thread than moves

  std::atomic<bool> has_failed_ = false;
};

}  // namespace

std::shared_ptr<Communicator> ranks_of_mpi(int size, std::string* why_not) {
  const MpiModule* const module = opened().module;
  if (!module) {
    *why_not = opened().why_not;
    return nullptr;
  }
  int rank = 0, size_of_mpi = 0;
  if (const char* const error = module->begin(&rank, &size_of_mpi)) {
    *why_not = error;
    return nullptr;
  }
  if (size_of_mpi != size) {
    *why_not =
        sentence(module->library(), " counts ", size_of_mpi, " ranks, and the launcher ", size);
    module->end(/*is_well=*/true);
    return nullptr;
  }
  has_ended = false;
  std::atexit([] { end_mpi(/*is_well=*/false); });
  return std::make_shared<MpiRanks>(rank, size);
}

std::string mpi_in_words() {
  const Opened& found = opened();
  return found.module ? found.module->library() : found.why_not;
}

}  // namespace spool
