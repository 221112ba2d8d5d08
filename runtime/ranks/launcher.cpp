#include "spool/runtime/ranks/launcher.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "spool/runtime/check.h"
#include "spool/runtime/hash.h"

namespace spool {
namespace {

struct LauncherVariables {
  const char *launcher, *rank, *size;
  bool rank_alone_counts;  // else the size decides: Slurm sets the rank in batch scripts, too
};

// The innermost first.
constexpr LauncherVariables launchers[] = {
    {"spool", rank_variables::rank, rank_variables::ranks, true},
    {"torchrun", "RANK", "WORLD_SIZE", true},
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", true},
    {"mpirun", "PMI_RANK", "PMI_SIZE", true},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", false},
};

std::optional<int> number_in(std::string_view digits) {
  int number = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size() || number < 0) return {};
  return number;
}

int number_of(const char* name, const char* text) {
  const std::optional<int> number = number_in(text);
  check(number.has_value(), name, " is '", text, "', and a launcher sets it to a number");
  return *number;
}

std::optional<int> number_if_set(const Environment& of, const char* name) {
  const char* const text = of(name);
  return text ? std::optional(number_of(name, text)) : std::nullopt;
}

MeetingPlace place_of(const std::string& what, const std::string& text) {
  const size_t colon = text.rfind(':');
  const std::string host = text.substr(0, colon == std::string::npos ? 0 : colon);
  const std::optional<int> port =
      number_in(std::string_view(text).substr(colon == std::string::npos ? 0 : colon + 1));
  check_setting(!host.empty() && port && *port > 0 && *port < 65'536, {"meet"}, what, " '", text,
                "' is not HOST:PORT, such as node1:29400, where rank 0 listens");
  const bool is_bracketed = host.front() == '[' && host.back() == ']';  // of IPv6
  return {.host = is_bracketed ? host.substr(1, host.size() - 2) : host, .port = *port, .job = ""};
}

// Of torchrun's variables: its own store listens at the port.
std::optional<MeetingPlace> master(const Environment& of) {
  const char *address = of("MASTER_ADDR"), *port = of("MASTER_PORT");
  if (!address && !port) return {};
  check(address && port, address ? "MASTER_ADDR" : "MASTER_PORT", " is set, and ",
        address ? "MASTER_PORT" : "MASTER_ADDR", " is not; a launcher sets both");
  MeetingPlace place = place_of("MASTER_ADDR:MASTER_PORT", sentence(address, ":", port));
  if (of("TORCHELASTIC_RUN_ID")) ++place.port;
  return place;
}

// Of a step of Slurm's over several machines.
std::optional<MeetingPlace> first_node(const Environment& of) {
  const char *nodes = of("SLURM_STEP_NODELIST"), *count = of("SLURM_STEP_NUM_NODES");
  if (!nodes || !count || number_of("SLURM_STEP_NUM_NODES", count) < 2) return {};
  const std::optional<int> job = number_if_set(of, "SLURM_JOB_ID"),
                           step = number_if_set(of, "SLURM_STEP_ID");
  const int port = 20'000 + (31 * (job.value_or(0) % 10'000) + step.value_or(0)) % 40'000;
  return MeetingPlace{.host = first_host(nodes), .port = port, .job = ""};
}

// Processes without another name of their job are those that one program started.
std::string job_of(const LaunchedRank& own, const Environment& of) {
  std::string name = sentence(own.launcher, "-of-process-", ::getppid());
  if (const char* const job = of(rank_variables::job)) {
    name = job;
  } else if (const char* const id = of("TORCHELASTIC_RUN_ID")) {
    name = id;
  } else if (const char* const space = of("PMIX_NAMESPACE")) {
    name = space;
  } else if (own.launcher == "srun") {
    const char *job_id = of("SLURM_JOB_ID"), *step = of("SLURM_STEP_ID");
    if (job_id && step) name = sentence(job_id, ".", step);
  }
  for (char& c : name) {
    if (c <= ' ' || c == '/') c = '_';
  }
  constexpr size_t longest = 60;  // a socket's name has 107 characters
  if (name.size() > longest) {
    Hash hash;
    hash.add(std::string_view(name));
    name = sentence(name.substr(0, longest - 20), hash.state());
  }
  return name;
}

}  // namespace

const char* own_environment(const char* name) { return std::getenv(name); }

std::optional<LaunchedRank> rank_of_launcher(const Environment& of) {
  for (const LauncherVariables& names : launchers) {
    const char *rank = of(names.rank), *size = of(names.size);
    if (!size && !(rank && names.rank_alone_counts)) continue;
    check(rank && size, rank ? names.rank : names.size, " is set, and ",
          rank ? names.size : names.rank, " is not; ", names.launcher, " sets both");
    const LaunchedRank found{.launcher = names.launcher,
                             .rank = number_of(names.rank, rank),
                             .size = number_of(names.size, size)};
    check(found.rank < found.size, names.rank, " is ", found.rank, ", and ", names.size, " ",
          found.size, ": ranks count from 0");
    if (found.size > 1) return found;
  }
  return std::nullopt;
}

MeetingPlace meeting_place(const LaunchedRank& own, const std::string& meet,
                           const Environment& of) {
  std::optional<MeetingPlace> place;
  if (!meet.empty()) place = place_of("the place to meet", meet);
  if (!place && own.launcher != "spool") place = master(of);
  if (!place && own.launcher == "srun") place = first_node(of);
  if (!place) return {.host = "", .port = 0, .job = sentence(job_of(own, of), "-", ::getuid())};
  place->job = of("TORCHELASTIC_RUN_ID") ? job_of(own, of) : "ranks";
  return *place;
}

std::string first_host(const std::string& node_list) {
  const size_t end = node_list.find_first_of("[,");
  if (end == std::string::npos || node_list[end] == ',') return node_list.substr(0, end);
  const size_t number_end = node_list.find_first_of("-,]", end);
  const size_t close = node_list.find(']', end);
  check_setting(number_end != std::string::npos && close != std::string::npos, {"meet"},
                "SLURM_STEP_NODELIST '", node_list,
                "' is no list of machines; name the place to meet, HOST:PORT");
  const size_t rest = node_list.find(',', close);
  return node_list.substr(0, end) + node_list.substr(end + 1, number_end - end - 1) +
         node_list.substr(close + 1, rest == std::string::npos ? rest : rest - close - 1);
}

}  // namespace spool
