#include "spool/models/steps/exchange/same_steps.h"

#include "spool/models/steps/exchange/buckets_choice.h"
#include "spool/runtime/ranks/communicator.h"

namespace spool {
namespace {

struct Alike {
  const char* what;
  std::string own;
  const char* decided_by = "";
};

std::string in_words(const std::vector<Parameter*>& parameters) {
  int64_t elements = 0;
  for (const Parameter* p : parameters) elements += p->gathered().shape.numel();
  return sentence(parameters.size(), " of ", elements, " elements");
}

void compare_one(Communicator& ranks, const Alike& one) {
  const std::vector<std::string> all = ranks.gather(one.what, one.own);
  for (size_t r = 1; r < all.size(); ++r) {
    check(all[r] == all[0], "rank 0 and rank ", r, " differ in ", one.what, ": ", all[0], " and ",
          all[r], "; all ranks of a run need the same", one.decided_by);
  }
}

}  // namespace

void check_same_steps(const std::vector<Parameter*>& trained, const StepConfig& config,
                      const StepPlans& plans, Stream& stream) {
  if (stream.device().type == DeviceType::meta) return;
  const bool captures = plans.graph && stream.captures();
  const Alike settings[] = {
      {"trained parameters", in_words(trained)},
      {"type of parameters", name(config.dtype)},
      {"micro-batches of a step", std::to_string(config.accumulate)},
      {"stage of ZeRO", std::to_string(config.zero)},
      {"place of the optimizer's state", name(plans.step.optimizer_state)},
      {"buckets in flight", std::to_string(buckets_in_flight(plans.step))},
      {"graphs of steps", captures ? "captured" : "not captured",
       ", as StepRequest::graph and SPOOL_CUDA_SYNC in the environment say"},
  };
  for (const Alike& one : settings) compare_one(*stream.ranks(), one);
}

}  // namespace spool
