#include "spool/models/steps/step_executor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "spool/kernels/elementwise.h"
#include "spool/kernels/sum_ranks.h"
#include "spool/models/steps/exchange/buckets_choice.h"
#include "spool/models/steps/exchange/same_steps.h"

namespace spool {
namespace {

// The result of a step, from its loss and the optimizer's clip().
StepResult step_result(float loss, const float* clip) {
  return {.loss = loss, .grad_norm = clip[1], .finite = std::isfinite(loss) && clip[2] > 0};
}

std::unique_ptr<GradientExchange> make_exchange(StepModel& model, const StepConfig& config,
                                                const StepPlans& plans, Stream& stream) {
  const int ranks = stream.ranks() ? stream.ranks()->size() : 0;
  check(ranks == config.ranks, "a step of ", config.ranks, " ranks cannot run on a stream that ",
        "has ", ranks, " of them");
  if (ranks == 0) return nullptr;
  SumRanks::check_ranks(ranks);
  check(config.accumulate % config.replicas() == 0, config.accumulate, " micro-batches of a step ",
        "cannot be divided among ", config.replicas(),
        config.neighbours > 1 ? " groups of ranks" : " ranks");
  check(0 <= config.zero && config.zero <= GradientExchange::max_stage, "there is no stage ",
        config.zero, " of ZeRO here, but 0, 1, 2 and 3");
  const std::vector<Parameter*> trained = model.parameters().trainable();
  check_same_steps(trained, config, plans, stream);
  const MeshRanks* const shards = model.shards();
  const int sharing = shards ? shards->mesh().ranks() : 1;
  check(sharing == config.neighbours, "a step of ", config.neighbours,
        " ranks that share each micro-batch has a model of ", sharing);
  return std::make_unique<GradientExchange>(
      trained, stream, shards ? shards->queue() : std::make_shared<const ExchangeQueue>(stream),
      sharing, shards && config.accumulate == 1 ? 0 : config.zero, buckets_in_flight(plans.step));
}

std::unique_ptr<SharedState> make_shared_state(StepModel& model, GradientExchange* exchange,
                                               Stream& stream) {
  if (!exchange) return nullptr;
  return std::make_unique<SharedState>(model.parameters().all(), *exchange, model.shards(), stream);
}

std::unique_ptr<NeighbourSums> make_neighbour_sums(StepModel& model, GradientExchange* exchange,
                                                   Stream& stream) {
  if (!model.shards()) return nullptr;
  const int64_t bucket = exchange->pieces().piece_elements() * exchange->ranks();
  return std::make_unique<NeighbourSums>(*model.shards(), stream, exchange, bucket);
}

OptimizerMemory optimizer_memory(const Plan& plan, GradientExchange* exchange,
                                 HostLink* link = nullptr, SharedState* shared = nullptr,
                                 Homes* homes = nullptr) {
  return {.state = plan.optimizer_state,
          .link = link,
          .bytes_on_device = plan.state_bytes_on_device,
          .own = exchange && exchange->stage() > 0 ? exchange : nullptr,
          .others = shared,
          .homes = homes,
          .bucket_elements = plan.bucket_elements};
}

std::unique_ptr<HostLink> make_link(StepModel& model, const OptimizerSettings& settings,
                                    const StepPlans& plans, GradientExchange* exchange,
                                    Stream& stream) {
  const OptimizerState state = place_of_state(model.parameters().trainable(), settings,
                                              optimizer_memory(plans.step, exchange));
  const bool all_on_device =
      state == OptimizerState::device && !offloads(plans.step) && !uses_homes(plans.step);
  return all_on_device ? nullptr : std::make_unique<HostLink>(stream, plans.host_bytes);
}

std::unique_ptr<Offloader> make_offloader(const StepPlans& plans, HostLink* link) {
  if (!offloads(plans.step)) return nullptr;
  if (!offloads_to_disk(plans.step)) return std::make_unique<Offloader>(*link);
  return std::make_unique<Offloader>(*link, plans.spill_directory, plans.disk_bytes);
}

std::unique_ptr<Homes> make_homes(StepModel& model, const StepConfig& config, const Plan& plan,
                                  HostLink* link) {
  check_homes(config, plan);
  if (!uses_homes(plan)) return nullptr;
  auto homes = std::make_unique<Homes>(model.parameters(), *link, plan, config.accumulate);
  check_homes(config, model.parameters());
  return homes;
}

}  // namespace

StepResults::StepResults(Stream& stream)
    : stream_(stream),
      waiting_(stream.side_stream()),
      host_(stream.host_memory(2 * floats * sizeof(float))) {}

// Copies may still be running.
StepResults::~StepResults() { stream_.destroy_after_work(std::move(host_)); }

void StepResults::enqueue(int64_t number, const Tensor& loss, const Tensor& clip) {
  float* const to = memory(number);
  stream_.copy_out(to, loss.view().data(), sizeof(float));
  stream_.copy_out(to + 1, clip.view().data(), (floats - 1) * sizeof(float));
  slots_[static_cast<size_t>(number) % 2] = {.number = number, .done = stream_.record()};
}

StepResult StepResults::read(int64_t number) {
  try {
    waiting_->wait(slot(number).done);
    waiting_->synchronize();
  } catch (const Error&) {
    stream_.synchronize();  // its error names the kernels
    throw;
  }
  const float* const from = memory(number);
  return step_result(from[0], from + 1);
}

Program run_micro_batch(StepModel& model, Stream& stream, TapeOptions options,
                        const Tensor& loss_sum) {
  options.backward_follows = true;
  Tape tape(stream, std::move(options));
  {
    const Var loss = model.loss(tape);
    launch(Add{.out = add_to(loss_sum), .a = loss.tensor()}, stream);
    tape.backward(loss);
  }
  return tape.take_program();
}

StepExecutor::StepExecutor(StepModel& model, const StepConfig& config, const StepPlans& plans,
                           Stream& stream)
    : model_(model),
      config_(config),
      plans_(plans),
      stream_(stream),
      exchange_(make_exchange(model, config, plans, stream)),
      shared_(make_shared_state(model, exchange_.get(), stream)),
      neighbour_sums_(make_neighbour_sums(model, exchange_.get(), stream)),
      link_(make_link(model, config.optimizer, plans, exchange_.get(), stream)),
      offloader_(make_offloader(plans, link_.get())),
      homes_(make_homes(model, config, plans.step, link_.get())),
      optimizer_(make_optimizer(model.parameters().trainable(), config.optimizer, stream,
                                optimizer_memory(plans.step, exchange_.get(), link_.get(),
                                                 shared_.get(), homes_.get()))) {
  const auto make = [&](Name name, const Shape& shape, DType type) {
    return Tensor({shape, type}, stream, {.name = name, .purpose = Purpose::input});
  };
  loss_ = make("loss", {1}, accumulator(config.dtype));
  loss_scale_ = make("loss scale", {1}, accumulator(config.dtype));
  random_ = make("random state", {4}, DType::i32);
  optimizer_->set_random(random_);
  if (exchange_) {
    const int64_t asked = int64_t{2} * config.ranks;
    losses_ = make("losses", {config.accumulate + asked}, DType::f32);
  }
  if (stream.captures() && !host_works() && !exchange_) results_.emplace(stream);
}

bool StepExecutor::share_state(const std::function<void()>& work) {
  if (shared_) return shared_->share(*optimizer_, work);
  work();
  return true;
}

bool StepExecutor::host_works() const {
  return plans_.step.optimizer_state == OptimizerState::cpu || offloads_to_disk(plans_.step);
}

void StepExecutor::prepare(double learning_rate) {
  if (prepared_ || !stream_.captures()) return;
  try {
    run_placeholder(learning_rate);
  } catch (...) {
    abandon_exchanges();
    free_gradients();
    throw;
  }
  prepared_ = true;
}

void StepExecutor::run_placeholder(double learning_rate) {
  free_gradients();  // of other work
  const int64_t done = optimizer_->steps();
  model_.upload_placeholder();
  set_random(/*step=*/0, /*micro=*/0);
  // NaN gradients: the optimizer skips the step.
  launch(Fill{.out = loss_scale_, .value = std::numeric_limits<float>::quiet_NaN()}, stream_);
  optimizer_->prepare(/*t=*/1, learning_rate);
  PlacedStep memory(stream_.arena(), plans_.layout);
  const int64_t count = std::min<int64_t>(config_.micro_batches_of_rank(), 2);
  for (int64_t micro = 0; micro < count; ++micro) {
    run_micro_step(step_phase(micro, count), /*is_last=*/micro + 1 == count);
  }
  optimizer_->update(random_);
  if (exchange_) {
    launch(Fill{.out = losses_}, stream_);
    exchange_losses();
  }
  memory.finish();
  optimizer_->set_steps(done);
  stream_.synchronize();
  if (exchange_) {
    exchange_->synchronize();
    exchange_->communicator().forget_sent();
  }
}

void StepExecutor::run(const Step& step, const UploadBatch& upload) {
  try {
    prepare(step.learning_rate);
    free_gradients();  // of other work, which the step's would be added to
    run_micro_steps(step, upload);
  } catch (const std::exception& e) {
    survey_ = nullptr;
    if (exchange_) {
      exchange_->communicator().fail(e.what());  // or this rank would wait for others for ever
      abandon_exchanges();
    }
    free_gradients();
    graphs_.discard();
    throw;
  }
}

void StepExecutor::abandon_exchanges() noexcept {
  if (exchange_) exchange_->abandon();
  if (neighbour_sums_) neighbour_sums_->abandon();
}

void StepExecutor::free_gradients() {
  for (Parameter* p : model_.parameters()) p->grad = {};
  if (homes_) homes_->forget();
}

void StepExecutor::run_micro_steps(const Step& step, const UploadBatch& upload) {
  if (survey_) survey_->start(stream_);
  if (results_) results_->forget(step.number);
  const float scale = 1 / static_cast<float>(std::max<int64_t>(step.targets, 1));
  write<float>(loss_scale_, std::span(&scale, 1));
  optimizer_->prepare(step.number + 1, step.learning_rate);
  launch(Fill{.out = loss_}, stream_);
  if (exchange_) begin_losses(step);
  graphs_.begin(stream_);
  PlacedStep memory(stream_.arena(), plans_.layout);
  for (int64_t micro = 0; micro < config_.micro_batches_of_rank(); ++micro) {
    const int64_t of_step = exchange_ ? micro * config_.replicas() + exchange_->rank() : micro;
    upload(of_step);
    set_random(step.number, of_step);
    enqueue_micro_step(micro);
    if (exchange_) keep_loss(of_step);
  }
  if (exchange_) exchange_losses();
  memory.finish();
  optimizer_->set_steps(step.number + 1);  // a replayed graph has not counted it
  if (results_ && !stream_.trace()) results_->enqueue(step.number, loss_, optimizer_->clip());
  survey_ = nullptr;
}

// A replayed graph takes no arguments: what differs between micro-steps is written to device memory
// before each of them.
void StepExecutor::set_random(int64_t step, int64_t micro) {
  const std::array<int32_t, 4> random{static_cast<int32_t>(config_.seed),
                                      static_cast<int32_t>(config_.seed >> 32),
                                      static_cast<int32_t>(step), static_cast<int32_t>(micro)};
  write<int32_t>(random_, random);
}

void StepExecutor::enqueue_micro_step(int64_t micro) {
  const int64_t count = config_.micro_batches_of_rank();
  const bool first = micro == 0, last = micro + 1 == count;
  const auto work = [&] {
    run_micro_step(step_phase(micro, count), last);
    if (!last) return;
    const SurveyScope surveyed(survey_, stream_, Phase::optimizer);
    optimizer_->update(random_);
  };
  const bool captures = plans_.graph && !host_works() && !stream_.trace() && stream_.captures();
  if (!captures) return work();
  graphs_.enqueue({first, last}, work, stream_);
}

// What this rank asks of all is given beside the losses.
void StepExecutor::begin_losses(const Step& step) {
  launch(Fill{.out = losses_}, stream_);
  const std::array asked{step.asks_to_stop ? 1.0F : 0.0F, step.asks_to_save ? 1.0F : 0.0F};
  write<float>(losses_.slice(asked_of(exchange_->rank())), asked);
}

// Of all ranks that have the same place among their neighbours, one after another.
Range StepExecutor::asked_of(int replica) const {
  const int place = model_.shards() ? model_.shards()->rank() : 0;
  const int64_t at = config_.accumulate + int64_t{2} * (place * config_.replicas() + replica);
  return {at, at + 2};
}

void StepExecutor::keep_loss(int64_t micro) {
  launch(Add{.out = add_to(losses_.slice({micro, micro + 1})), .a = loss_}, stream_);
  launch(Fill{.out = loss_}, stream_);
}

void StepExecutor::exchange_losses() {
  stream_.arena().begin_phase(phase_of_losses);  // a replayed graph began none of its own
  const int replicas = config_.replicas();
  exchange_->gather("losses", [&](int replica) {
    std::vector<View> all{losses_.slice(asked_of(replica))};
    for (int64_t micro = replica; micro < config_.accumulate; micro += replicas) {
      all.push_back(losses_.slice({micro, micro + 1}));
    }
    return all;
  });
  if (config_.neighbours == 1) return;  // who have the same losses, but may ask for something else
  const Tensor asked = losses_.slice({config_.accumulate, losses_.numel()});
  const View own = losses_.slice({asked_of(0).begin, asked_of(replicas - 1).end});
  model_.shards()->all().all_gather(asked, own, stream_, "losses");
}

GradientSink* StepExecutor::sink() const {
  if (neighbour_sums_) return neighbour_sums_.get();
  if (exchange_) return exchange_.get();
  return homes_.get();
}

void StepExecutor::run_micro_step(size_t phase, bool is_last) {
  const bool sums = exchange_ ? exchange_->stage() >= 2 || is_last : homes_ != nullptr;
  stream_.arena().begin_phase(phase);
  if (homes_) homes_->begin_micro_batch(/*first=*/phase == 0, is_last);
  run_micro_batch(model_, stream_,
                  {.plan = plans_.step,
                   .micro_batches = static_cast<int>(config_.accumulate) * config_.neighbours,
                   .loss_scale = loss_scale_,
                   .random = random_,
                   .offloader = offloader_.get(),
                   .homes = homes_.get(),
                   .sink = sums ? sink() : nullptr,
                   .survey = survey_},
                  loss_);
}

StepResult StepExecutor::result() const {
  optimizer_->synchronize();
  const std::vector<float> clip = read<float>(optimizer_->clip());
  if (!exchange_) return step_result(read<float>(loss_).front(), clip.data());
  exchange_->synchronize();  // the compute stream does not see that an exchange failed
  const std::vector<float> losses = read<float>(losses_);
  const auto asked = losses.begin() + config_.accumulate;
  StepResult result = step_result(std::accumulate(losses.begin(), asked, 0.0F), clip.data());
  for (auto of_rank = asked; of_rank != losses.end(); of_rank += 2) {
    result.stops = result.stops || *of_rank > 0;
    result.saves = result.saves || *(of_rank + 1) > 0;
  }
  return result;
}

StepResult StepExecutor::result(int64_t number) {
  if (results_ && results_->has(number)) return results_->read(number);
  check(optimizer_->steps() == number + 1, "there is no result of step ", number, " after ",
        optimizer_->steps(),
        " steps: only that of the last one, or of the last two where the device "
        "runs ahead, is kept");
  return result();
}

}  // namespace spool
