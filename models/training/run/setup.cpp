#include "spool/models/training/run/setup.h"

#include <spdlog/fmt/fmt.h>

#include "spool/models/families/model_file.h"
#include "spool/models/report/report_page.h"
#include "spool/models/steps/exchange/gradient_sums.h"
#include "spool/models/steps/sharding/step_shards.h"
#include "spool/models/training/run/checkpoint_files.h"
#include "spool/models/training/run/length.h"
#include "spool/models/training/run/log.h"
#include "spool/models/training/run/ranks.h"
#include "spool/models/training/run/report.h"
#include "spool/models/training/run/samples.h"
#include "spool/models/training/sharding_choice.h"

namespace spool {
namespace {

// Takes the settings and the state of the run that this one resumes, if it does.
std::optional<StoredRun> find_stored_run(RunSetup& run) {
  RunOptions& o = run.options;
  run.checkpoint = latest_checkpoint(o.out);
  if (!o.resume) {
    check_file_setting(!run.checkpoint, o.out, {"resume", "out"},
                       "already has a run; resume it, or choose another directory");
    return {};
  }
  check_file_setting(run.checkpoint.has_value(), o.out, {"resume"},
                     "there is no checkpoint to resume; begin a run instead");
  StoredRun stored = read_run(*run.checkpoint);
  adopt(o, stored.configuration);
  o.training.evaluation = stored.evaluation_rows;
  check_file(stored.step <= run.steps(), *run.checkpoint / "run.json", "field step: ", stored.step,
             " is beyond the ", run.steps(), " steps of the run");
  run.evaluations = stored.evaluations;
  const bool sums_micro_batches = stored.summed_ranks == 0 && o.training.accumulate > 1;
  if (sums_micro_batches && o.training.ranks == 0 && o.device.type == DeviceType::cpu) {
    run.ranks = ranks_of_threads(1).front();  // so the order of sums stays
    o.training.ranks = 1;
  }
  return stored;
}

void check_shards_file(const RunOptions& o) {
  check_setting(!o.shard_axes.empty(), {"save-shard", "shard"},
                "how ops are cut cannot be written, as none are: the run has no mesh with an axis "
                "other than data");
  check_writable(o.save_shard, {"save-shard"});
}

// Checks the files that the run writes: planning, which comes before them, may take long.
void check_files(RunSetup& run) {
  const RunOptions& o = run.options;
  check_run_directory(o.out);
  if (o.keep_best) check_best_link(o.out);
  check_names_differ(o);
  if (!o.trace.empty()) run.trace = std::make_unique<StepTrace>(o.trace);
  if (!o.save_plan.empty()) check_plan_file(o.save_plan);
  if (!o.report.empty()) check_report_page_file(o.report);
  if (!o.save_shard.empty()) check_shards_file(o);
  if (!o.log.empty()) check_log_file(o.log, o.resume);
}

void open_data(RunSetup& run, const std::optional<StoredRun>& stored) {
  RunOptions& o = run.options;
  run.data = open_run_data(o, *run.tokenizer, directory_of_run(o, run.checkpoint), *run.listeners);
  o.training.packed = run.data->is_packed();
  settle_length(o, *run.data);
  o.training.validate();
  take_prompt(run.sample, run.data->prompt());
  if (!stored) return;
  check_file(stored->data_fingerprint == run.data->fingerprint(), *run.checkpoint / "run.json",
             "the run was trained on other data than ", run.data->name(),
             "; resume with the same data, or start a new run");
  run.first_step = stored->step;
  run.initial_weights = stored->initial_weights;
}

// Opens the page, also of a run that is refused.
void open_report(RunSetup& run, RunPlanner& planner) {
  const RunOptions& o = run.options;
  if (o.report.empty()) return;
  const bool is_refused = run.planned.refusal.has_value();
  std::unique_ptr<RunReport> report;
  {
    const LongWork planning(*run.listeners, "planning for other budgets");
    Frontier frontier;
    if (!is_refused) {
      frontier = planner.steps().frontier();
      frontier.policies = planner.steps().policies();
    }
    report = std::make_unique<RunReport>(o, run.planned, run.machine, frontier, *run.listeners);
  }
  if (o.resume) report->resume_after(run.first_step);
  bool is_written = true;
  if (o.dry_run || is_refused) {
    report->write_plan();
  } else {
    is_written = report->write();
  }
  if (is_written) run.listeners->say(fmt::format("the report is in {}", o.report));
  run.listeners->add(std::move(report));
}

void tell_plan(RunSetup& run, const RunRequest& request) {
  const RunOptions& o = run.options;
  RunListeners& listeners = *run.listeners;
  listeners.say(run.data->in_words());
  if (const std::string words = describe_length(o); !words.empty()) listeners.say(words);
  listeners.planned(o, run.machine, run.planned);
  for (const std::string& words :
       {lowered_budget(o.memory, request), warn_of_memory(run.planned, request)}) {
    if (!words.empty() && !run.planned.refusal) listeners.warn(words);
  }
  if (run.trace) {
    listeners.say(run.trace->foretell(o.training, run.planned.plans, run.machine));
  }
}

void save_what_was_chosen(const RunSetup& run) {
  const RunOptions& o = run.options;
  RunListeners& listeners = *run.listeners;
  if (!o.save_plan.empty() && !run.planned.refusal) {
    save_step_plan(o.save_plan, run.planned, run.machine);
    listeners.say(fmt::format("the plan is in {}", o.save_plan));
  }
  if (!o.save_shard.empty()) {
    save_shards(o.save_shard, describe_step(o.training));
    listeners.say(fmt::format("how ops are cut is in {}", o.save_shard));
  }
}

void plan(RunSetup& run, const std::optional<StoredRun>& stored) {
  RunOptions& o = run.options;
  RunListeners& listeners = *run.listeners;
  std::optional<SplitChoice> split;
  if (run.writes()) {
    const LongWork choosing(listeners, "choosing micro-batches");
    split = choose_split(o, run.sample.length);
  }
  if (run.ranks) share_split(o.training, *run.ranks);
  std::string link;
  CalibrationRequest calibration = calibration_of(o, run.given_plan);
  calibration.own_rank = run.ranks;
  calibration.say = [&](const std::string& text) { listeners.say(text); };
  if (stored) calibration.products = stored->products;
  {
    const LongWork measuring(listeners, "measuring kernels");
    Calibration found = calibrate(calibration);
    run.machine = std::move(found.machine);
    link = found.link;
    run.products = stored ? stored->products : found.products;
  }
  find_least_memory(o, run.ranks.get());
  if (!run.writes()) return take_plan(run);
  const RunRequest request = request_of(o, run.machine, run.given_plan);
  std::unique_ptr<RunPlanner> planner;
  {
    const LongWork planning(listeners, "planning");
    ChosenRun chosen = plan_and_choose(o, request, run.sample.length, run.machine);
    planner = std::move(chosen.planner);
    run.planned = std::move(chosen.run);
  }
  tell_rounding(run.planned, o);
  if (run.planned.exchange) run.planned.exchange->measured_link = link;
  run.planned.split = std::move(split);
  o.training = run.planned.config;
  save_what_was_chosen(run);
  tell_plan(run, request);
  open_report(run, *planner);
  if (run.planned.refusal) throw *run.planned.refusal;
  if (run.ranks) give_plan(run);
}

void tell_differences(const RunSetup& run, const StoredRun& stored) {
  const int64_t before = stored.configuration.member("steps").integer<int64_t>();
  if (run.steps() != before) {
    TrainingConfig shorter = run.options.training;
    shorter.steps = before;
    const bool same =
        run.options.training.learning_rate().begins_as(shorter.learning_rate(), run.first_step);
    run.listeners->say(fmt::format("the run now has {} steps instead of {}; {}", run.steps(),
                                   before,
                                   same ? "its learning rate so far is that of a run of this length"
                                        : "from here on the learning rate follows that length"));
  }
  const TrainingConfig& config = run.options.training;
  const int summed_before = stored.summed_ranks.value_or(config.accumulate == 1 ? 0 : 1);
  if (summed_before != summed_ranks(config.step()) && run.first_step < run.steps()) {
    run.listeners->say(
        fmt::format("the gradients of micro-batches are now added in another order: "
                    "from step {} on, losses differ in their last bits from those "
                    "of the run as it was begun",
                    run.first_step + 1));
  }
  if (stored.tape != run.tape && run.first_step < run.steps()) {
    run.listeners->say(
        "another version of Spool wrote this checkpoint, whose steps have other ops: the run goes "
        "on, but its numbers may differ from that version's in their last bits");
  }
}

// A run keeps the table of algorithms that it began with, whatever is timed meanwhile.
void choose_algorithms(RunSetup& run) {
  const MatmulAlgorithms& products = run.products;
  const bool is_used = products.is_of_device_of(matmul_algorithms(*run.stream));
  if (!is_used || products.places.empty()) return;
  use_matmul_algorithms(*run.stream, products);
  run.listeners->say(
      fmt::format("matrix products take the algorithms of a table of {} forms for {}",
                  products.places.size(), products.device));
}

// Throws if adapters that go on to be trained change another model than before.
void check_base(const RunSetup& run) {
  std::optional<uint64_t> now;
  run.trainer->share_state([&] { now = hash_of_weights(*run.trainer); });
  check_file_setting(
      !now || now == run.initial_weights, run.base.string(), {"base"},
      "is not the model that the run's adapters were trained on: its weights differ; "
      "say where that model is");
}

void set_up_trainer(RunSetup& run, const std::optional<StoredRun>& stored) {
  RunListeners& listeners = *run.listeners;
  const LongWork preparing(listeners, "preparing the model");
  const auto tell = [&](size_t done, size_t total) {
    listeners.progress({.what = "loading", .done = done, .total = total, .unit = "bytes"});
  };
  const RunOptions& o = run.options;
  run.trainer = std::make_unique<Trainer>(o.training, run.planned.plans, *run.stream);
  if (stored) {
    run.base = load_checkpoint(*run.checkpoint, o.base, *run.trainer, tell);
    if (o.training.model.lora()) check_base(run);
    listeners.say(
        fmt::format("resuming at step {} from {}", run.first_step, run.checkpoint->string()));
    tell_differences(run, *stored);
  } else if (has_weights(o.model)) {
    const ModelFile file(paths_of(o));
    run.base = std::filesystem::absolute(file.base());
    run.stop_tokens = file.stop_tokens();
    run.trainer->initialise_from(file, tell);
    run.trainer->share_state([&] { run.initial_weights = hash_of_weights(*run.trainer); });
    listeners.say(fmt::format("starting from the weights of {}", file.name()));
  } else {
    run.trainer->initialise();
  }
  choose_algorithms(run);
  leave_out_slow_samples(run);
  run.trainer->prepare();
  run.stream->synchronize();  // so that this is not a part of the first step
}

void open_log(RunSetup& run) {
  if (run.options.log.empty()) return;
  std::optional<ResumedLog> resumed;
  if (run.checkpoint) {
    resumed = {.steps_done = run.first_step, .evaluates_first = run.owes_evaluation()};
  }
  run.listeners->add(std::make_unique<RunLog>(run.options, run.planned.foretold.memory.peak,
                                              resumed, *run.listeners));
}

}  // namespace

bool RunSetup::owes_evaluation() const {
  const bool ends = options.keep_best && first_step == steps();
  const bool evaluates =
      options.eval_batches > 0 && (ends || is_due(options.eval_every, first_step));
  return evaluates && first_step > 0 && !evaluations.ends_at(first_step);
}

RunSetup set_up_run(RunOptions options, RunListener& listener,
                    std::shared_ptr<Communicator> ranks) {
  RunSetup run{.options = std::move(options),
               .listeners = std::make_unique<RunListeners>(listener),
               .ranks = std::move(ranks)};
  RunOptions& o = run.options;
  give_part_of_machine(o, run.ranks);
  if (!run.writes()) {
    // All ranks trace the same step, as it is no graph; rank 0 has a file of it.
    if (!o.trace.empty()) run.trace = std::make_unique<StepTrace>();
    o.log = o.trace = o.report = o.save_plan = o.save_shard = "";
  }
  const std::optional<StoredRun> stored = find_stored_run(run);
  check_can_be_stored(o);
  check_run_settings(o);
  check_setting(
      !o.training.model.lora() || has_weights(o.model) || o.dry_run || stored, {"lora", "model"},
      "adapters change a model that is trained, and ", o.model,
      " begins with random weights; name a folder with weights, or train without adapters");
  if (run.writes()) check_files(run);
  run.given_plan = read_given_plan(o);
  run.tokenizer = open_run_tokenizer(o, run.checkpoint);
  run.sample = sample_of(o, *run.tokenizer, run.checkpoint);
  validate_before_data(o);
  open_data(run, stored);
  compare_settings(run);
  plan(run, stored);
  if (o.dry_run) {
    if (run.trace && run.writes()) {
      run.listeners->say(run.trace->write(run.traced_step() + 1));
    }
    return run;
  }
  run.tape = fingerprint_of_model(o.training);
  run.stream = open_stream(o.device, run.planned.budget, o.threads);
  compare_plans(run);
  if (run.ranks) run.stream->join(run.ranks);
  if (run.writes()) run.directory = std::make_unique<RunDirectory>(o.out, o.keep_checkpoints);
  set_up_trainer(run, stored);
  if (run.writes() && o.keep_best && run.evaluations.best) {
    run.directory->point_best_to(run.evaluations.best->step);
  }
  open_log(run);
  return run;
}

}  // namespace spool
