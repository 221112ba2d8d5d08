#include "spool/runtime/ranks/mpi/world.h"

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <string_view>
#include <thread>

#include "spool/runtime/check.h"
#include "spool/runtime/hash.h"

namespace spool {

World world;

void must(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int size = 0;
  MPI_Error_string(code, text, &size);
  throw Fault(sentence("MPI failed to ", what, ": ", text), RankLoss::disappeared);
}

void tell_failure(const std::string& why) {
  if (!world.why.empty()) return;
  constexpr size_t most = 2000;  // bytes that MPI sends without an answer
  world.why = why.substr(0, most);
  std::vector<MPI_Request> requests;
  for (int r = 0; r < world.size; ++r) {
    if (r == world.rank || state_of(r) == State::gone) continue;
    MPI_Isend(world.why.data(), static_cast<int>(world.why.size()), MPI_BYTE, r, tag_of_failure,
              MPI_COMM_WORLD, &requests.emplace_back());
  }
  const auto end = Clock::now() + std::chrono::seconds(1);  // one that hangs does not take it
  for (int done = 0; Clock::now() < end; std::this_thread::sleep_for(pause_of_waiting)) {
    MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
    if (done) return;
  }
}

bool hear_failure() {
  if (!world.why.empty()) return true;
  int is_here = 0;
  MPI_Status status;
  const int code = MPI_Iprobe(MPI_ANY_SOURCE, tag_of_failure, MPI_COMM_WORLD, &is_here, &status);
  if (code != MPI_SUCCESS || !is_here) return false;
  int bytes = 0;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  world.why.resize(static_cast<size_t>(bytes));
  world.is_other_s = true;
  MPI_Recv(world.why.data(), bytes, MPI_BYTE, status.MPI_SOURCE, tag_of_failure, MPI_COMM_WORLD,
           MPI_STATUS_IGNORE);
  return true;
}

void meet_processes() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::array<char, 64> space = {};
  const ssize_t n = ::readlink("/proc/self/ns/pid", space.data(), space.size());
  Hash machine;
  machine.add(std::string_view(boot));
  machine.add(std::string_view(space.data(), n > 0 ? static_cast<size_t>(n) : 0));
  World::Process own = {machine.state(), ::getpid()};
  world.processes.resize(static_cast<size_t>(world.size));
  must(MPI_Allgather(&own, sizeof own, MPI_BYTE, world.processes.data(), sizeof own, MPI_BYTE,
                     MPI_COMM_WORLD),
       "tell of processes");
}

State state_of(int rank) {
  const World::Process& other = world.processes[static_cast<size_t>(rank)];
  const World::Process& own = world.processes[static_cast<size_t>(world.rank)];
  if (other.machine != own.machine) return State::runs;
  std::string line;
  std::getline(std::ifstream(sentence("/proc/", other.number, "/stat")), line);
  const size_t name = line.rfind(") ");  // before the letter of the state
  if (name == std::string::npos) return State::gone;
  const char letter = line[name + 2];
  if (letter == 'Z' || letter == 'X') return State::gone;
  return letter == 'T' ? State::stopped : State::runs;
}

int place_of_telling() {
  int place = 0;
  for (int r = 0; r < world.rank; ++r) place += state_of(r) == State::gone ? 0 : 1;
  return place;
}

bool does_another_tell(int place) {
  const auto end = Clock::now() + std::chrono::milliseconds(50 + 400 * std::min(place, 5));
  while (true) {
    {
      const std::lock_guard lock(world.calls);
      if (hear_failure()) return true;
    }
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(pause_of_waiting);
  }
}

}  // namespace spool
