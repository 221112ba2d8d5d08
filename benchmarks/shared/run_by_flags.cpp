#include "shared/run_by_flags.h"

#include <sstream>

#include "shared/machine_of.h"
#include "spool/models/training/run/tokenizer.h"

namespace spool::benchmarks {

GivenTexts texts_of(const std::string& flags) {
  GivenTexts texts;
  std::istringstream words(flags);
  for (std::string flag, text; words >> flag;) {
    check(flag.starts_with("--") && words >> text && !text.starts_with("--"), "'", flags,
          "': each flag must have one text, as in --seq 512");
    texts[flag.substr(2)] = {text};
  }
  return texts;
}

std::string flags_of(const GivenTexts& texts) {
  std::string flags;
  for (const auto& [key, given] : texts) {
    flags += sentence(flags.empty() ? "--" : " --", key, " ", given.back());
  }
  return flags;
}

std::unique_ptr<RunPlanner> planner_of(const GivenTexts& texts, const Place& place) {
  GivenTexts all = texts;
  all["host-memory"] = {place.host_memory};
  RunOptions o = run_options(all);
  const SampleLength sample = sample_of(o, *open_run_tokenizer(o)).length;
  o.training.validate();
  const Machine machine = machine_of(place.machine);
  RunRequest request = request_of(o, machine, {});
  request.compares = false;
  request.device.reset();
  request.program_bytes = 0;
  request.capacity = request.steps.free = MetaStream::unlimited;
  request.steps.budget = 0;
  return std::make_unique<RunPlanner>(o.training, request, sample, machine);
}

}  // namespace spool::benchmarks
