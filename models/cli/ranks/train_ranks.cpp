#include "spool/models/cli/ranks/train_ranks.h"

#include "spool/models/cli/interrupt.h"
#include "spool/models/cli/progress.h"
#include "spool/models/cli/ranks/processes.h"
#include "spool/models/formats/run_directory.h"
#include "spool/models/training/train.h"
#include "spool/runtime/ranks/run_ranks.h"
#include "spool/runtime/ranks/timeout.h"

namespace spool {
namespace {

std::string what_is_left(const std::string& out) {
  const auto latest = latest_checkpoint(out);
  return latest ? sentence("the last checkpoint is ", latest->string(),
                           ", and --resume goes on "
                           "with it on any number of ranks")
                : std::string("no checkpoint had been written yet");
}

// Whether the run was stopped.
bool train_with(const RunOptions& o, const std::shared_ptr<Communicator>& own) {
  RunListener silent;
  RunPrinter printer;
  RunListener& listener = own->rank() == 0 ? static_cast<RunListener&>(printer) : silent;
  const RunSetup run = set_up_run(o, listener, own);
  catch_interrupts();
  return train(run, interrupted);
}

}  // namespace

int train_on_threads(const RunOptions& o) {
  set_rank_timeout(o.rank_timeout);
  run_ranks(o.training.ranks,
            [&](const std::shared_ptr<Communicator>& own) { train_with(o, own); });
  return interrupted() ? stopped_by_a_signal : 0;
}

int train_on_processes(const RunOptions& o) {
  return run_as_processes(o.training.ranks, [&] { return what_is_left(o.out); });
}

RankWork training_as_rank(const RunOptions& o) {
  set_rank_timeout(o.rank_timeout);
  const bool has_gpus = o.device.type == DeviceType::cuda;
  return {.run =
              [o](const std::shared_ptr<Communicator>& own) {
                const bool is_stopped = train_with(o, own);
                return is_stopped || interrupted() ? stopped_by_a_signal : 0;
              },
          .is_left = [out = o.out] { return what_is_left(out); },
          .say = [has_gpus](const JoinedRanks& all) { RunPrinter().say(in_words(all, has_gpus)); }};
}

}  // namespace spool
