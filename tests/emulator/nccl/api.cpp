// NCCL's functions, over communicators.

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

#include "../errors.h"
#include "../text.h"
#include "communicator.h"

struct ncclComm {
  std::shared_ptr<emulator::nccl::Communicator> communicator;  // null once it was destroyed
};

namespace emulator::nccl {
namespace {

// All handles that there were, so that one that was destroyed is known as that.
struct Handles {
  std::mutex mutex;
  std::map<ncclComm_t, std::unique_ptr<ncclComm>> all;
};
Handles& handles() {
  static auto& one = *new Handles;
  return one;
}

thread_local std::string last_refusal;

ncclResult_t refused(const Refusal& refusal) {
  print(refusal);
  last_refusal = refusal.what();
  return refusal.result;
}

// What may throw.
template <class Body>
ncclResult_t guarded(const Body& body) {
  try {
    return body();
  } catch (const Refusal& refusal) {
    return refused(refusal);
  } catch (const Error& e) {
    return refused(Refusal(ncclSystemError, e.what()));
  }
}

// A thread in a call on a communicator.
class Inside {
 public:
  explicit Inside(ncclComm_t comm) : communicator_(find(comm)) { ++communicator_->inside; }
  Inside(Inside&& other) noexcept = default;
  Inside& operator=(Inside&&) = delete;
  ~Inside() {
    if (communicator_) --communicator_->inside;
  }
  Communicator& operator*() const { return *communicator_; }
  Communicator* operator->() const { return communicator_.get(); }

 private:
  std::shared_ptr<Communicator> communicator_;
};

// The exchanges that a thread has called since ncclGroupStart, by communicator.
struct Group {
  struct Part {
    Inside inside;
    std::vector<Arguments> exchanges;
  };
  int depth = 0;
  std::vector<Part> parts;
};
thread_local Group group;

void need_no_group(const char* function) {
  if (group.depth == 0) return;
  throw Refusal(ncclInvalidUsage,
                sentence(function, " in a group: this stand-in groups exchanges"));
}

void check_config(const ncclConfig_t& config) {
  if (config.magic != NCCL_CONFIG_MAGIC || config.size != sizeof(ncclConfig_t)) {
    throw Refusal(ncclInvalidArgument,
                  "the configuration is not initialised: begin with NCCL_CONFIG_INITIALIZER");
  }
  const bool is_known =
      config.blocking == NCCL_CONFIG_UNDEF_INT || config.blocking == 0 || config.blocking == 1;
  if (!is_known) throw Refusal(ncclInvalidArgument, "blocking of a configuration is 0 or 1");
}

ncclResult_t exchange(const Arguments& arguments, ncclComm_t comm) {
  return guarded([&] {
    Inside inside(comm);
    inside->need_ready();
    if (group.depth == 0) {
      if (!arguments.is_message()) return inside->exchange({arguments});
      throw Refusal(ncclInvalidUsage, sentence(name_of(arguments.function),
                                               " outside of a group, where two ranks that both "
                                               "send first wait for each other"));
    }
    auto part = std::find_if(group.parts.begin(), group.parts.end(),
                             [&](const Group::Part& p) { return &*p.inside == &*inside; });
    if (part == group.parts.end()) {
      group.parts.push_back({.inside = std::move(inside), .exchanges = {}});
      part = std::prev(group.parts.end());
    }
    part->exchanges.push_back(arguments);
    return ncclSuccess;
  });
}

struct Id {  // what a unique id has
  char name[16] = "emulated NCCL";
  Place place;
};
static_assert(sizeof(Id) <= NCCL_UNIQUE_ID_BYTES);

}  // namespace

ncclComm_t add(std::shared_ptr<Communicator> communicator) {
  auto made = std::make_unique<ncclComm>();
  made->communicator = std::move(communicator);
  ncclComm* const handle = made.get();
  const std::lock_guard lock(handles().mutex);
  handles().all[handle] = std::move(made);
  return handle;
}

std::shared_ptr<Communicator> find(ncclComm_t handle) {
  const std::lock_guard lock(handles().mutex);
  const auto found = handles().all.find(handle);
  if (found != handles().all.end() && found->second->communicator) {
    return found->second->communicator;
  }
  throw Refusal(ncclInvalidArgument, "this is no communicator, or one that was destroyed");
}

void remove(ncclComm_t handle) {
  const std::lock_guard lock(handles().mutex);
  handles().all.at(handle)->communicator.reset();
}

std::vector<std::shared_ptr<Communicator>> list_communicators() {
  const std::lock_guard lock(handles().mutex);
  std::vector<std::shared_ptr<Communicator>> all;
  for (const auto& [handle, comm] : handles().all) {
    if (comm->communicator) all.push_back(comm->communicator);
  }
  return all;
}

}  // namespace emulator::nccl

using namespace emulator::nccl;
using emulator::sentence;

ncclResult_t ncclGetVersion(int* version) {
  const char* const said = std::getenv("EMULATOR_NCCL_VERSION");
  *version = said ? std::atoi(said) : NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return guarded([&] {
    static auto& made = *new std::vector<std::shared_ptr<Meeting>>;  // as long as the process
    made.push_back(Meeting::make());
    Id said;
    said.place = made.back()->place();
    *id = {};
    std::memcpy(id->internal, &said, sizeof said);
    return ncclSuccess;
  });
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "a call of CUDA failed";
    case ncclSystemError:
      return "a call of the system failed";
    case ncclInternalError:
      return "an internal error";
    case ncclInvalidArgument:
      return "an invalid argument";
    case ncclInvalidUsage:
      return "an invalid use";
    case ncclRemoteError:
      return "another rank failed";
    case ncclInProgress:
      return "in progress";
    case ncclNumResults:
      break;
  }
  return "an unknown result";
}

const char* ncclGetLastError(ncclComm_t comm) {
  guarded([&] {
    if (!comm) return ncclSuccess;
    const std::string why = find(comm)->failure();
    if (!why.empty()) last_refusal = why;
    return ncclSuccess;
  });
  return last_refusal.c_str();
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  return guarded([&] {
    need_no_group("ncclCommInitRankConfig");
    const ncclConfig_t chosen = config ? *config : ncclConfig_t NCCL_CONFIG_INITIALIZER;
    check_config(chosen);
    if (ranks < 1 || ranks > max_ranks || rank < 0 || rank >= ranks) {
      throw Refusal(ncclInvalidArgument, sentence("there is no rank ", rank, " of ", ranks));
    }
    Id said;
    std::memcpy(static_cast<void*>(&said), id.internal, sizeof said);
    if (std::memcmp(said.name, Id().name, sizeof said.name) != 0) {
      throw Refusal(ncclInvalidArgument, "the unique id is none that ncclGetUniqueId gave");
    }
    const auto made = std::make_shared<Communicator>(Meeting::open(said.place), rank, ranks, chosen,
                                                     size_t{4} << 20);
    *comm = add(made);
    return made->call([made = made.get()] { return made->is_complete(); });
  });
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made,
                           ncclConfig_t* config) {
  return guarded([&] {
    need_no_group("ncclCommSplit");
    if (config) check_config(*config);
    const Inside inside(comm);
    inside->need_ready();
    return inside->split(color, key, config, made);
  });
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  return guarded([&] {
    const Inside inside(comm);
    *state = inside->state();
    return ncclSuccess;
  });
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return guarded([&] {
    const Inside inside(comm);
    return inside->finalize();
  });
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return guarded([&] {
    Inside(comm)->destroy();
    remove(comm);
    return ncclSuccess;
  });
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return guarded([&] {
    find(comm)->abort();
    remove(comm);
    return ncclSuccess;
  });
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* memory, size_t bytes,
                                    ncclWindow_t* window, int flags) {
  return guarded([&] {
    need_no_group("ncclCommWindowRegister");
    const Inside inside(comm);
    inside->need_ready();
    return inside->add_window(memory, bytes, window, flags);
  });
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  return guarded([&] {
    const Inside inside(comm);
    inside->need_ready();
    inside->remove_window(window);
    return ncclSuccess;
  });
}

ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  return guarded([] {
    if (group.depth == 0) throw Refusal(ncclInvalidUsage, "no group was begun");
    if (--group.depth > 0) return ncclSuccess;
    const std::vector<Group::Part> parts = std::exchange(group.parts, {});
    ncclResult_t result = ncclSuccess;
    for (const Group::Part& part : parts) {
      part.inside->need_ready();
      result = std::max(result, part.inside->exchange(part.exchanges));
    }
    return result;
  });
}

ncclResult_t ncclAlltoAll(const void* send, void* receive, size_t count, ncclDataType_t type,
                          ncclComm_t comm, cudaStream_t stream) {
  return exchange({Function::all_to_all, send, receive, count, type, stream}, comm);
}

ncclResult_t ncclAllGather(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return exchange({Function::all_gather, send, receive, count, type, stream}, comm);
}

ncclResult_t ncclSend(const void* send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return exchange({Function::send, send, nullptr, count, type, stream, peer}, comm);
}

ncclResult_t ncclRecv(void* receive, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return exchange({Function::receive, nullptr, receive, count, type, stream, peer}, comm);
}
