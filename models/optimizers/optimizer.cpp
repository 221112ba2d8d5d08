#include "spool/models/optimizers/optimizer.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "spool/autograd/sharding/parameter_part.h"
#include "spool/kernels/clip_factor.h"
#include "spool/kernels/elementwise.h"
#include "spool/kernels/reduce.h"
#include "spool/kernels/weights.h"
#include "spool/models/optimizers/other_ranks.h"
#include "spool/models/optimizers/own_row.h"
#include "spool/models/optimizers/state_rows.h"
#include "spool/models/optimizers/update_loop.h"
#include "spool/runtime/integer.h"

namespace spool {
namespace {

static_assert(norm_granule == weights_granule, "ranges of the row have whole granules of the norm");

constexpr const char* master_row = "master";

bool has_masters(const std::vector<Parameter*>& parameters, Rounding rounding) {
  return !parameters.empty() && parameters.front()->spec().dtype == DType::bf16 &&
         rounding == Rounding::nearest;
}

std::vector<StateRow> rows_of(const UpdateRule& rule, bool masters) {
  std::vector<StateRow> rows = rule.rows();
  check(rows.size() <= UpdateEntry::max_rows, rule.name(), ": ", rows.size(),
        " rows of state were asked for, and there are at most ", UpdateEntry::max_rows);
  for (const StateRow& row : rows) {
    check(size_of(row.type) > 1 && std::string_view(row.name) != master_row, rule.name(),
          ": a row of state cannot be '", row.name, "' of ", name(row.type),
          "; its elements have two bytes or more, and '", master_row, "' is the masters' name");
  }
  if (masters) rows.push_back({master_row});
  return rows;
}

// All parameters, in the order of the row.
std::vector<OwnRow::Slice> whole_row(const std::vector<Parameter*>& parameters) {
  std::vector<OwnRow::Slice> all;
  for (size_t i = parameters.size(); i-- > 0;) {
    all.push_back({.parameter = i, .elements = {0, parameters[i]->gathered().shape.numel()}});
  }
  return all;
}

void check_parameters(const char* who, const std::vector<Parameter*>& parameters,
                      const UpdateSettings& settings) {
  check(!parameters.empty(), who, ": no parameters were given");
  const DType type = parameters.front()->spec().dtype;
  for (const Parameter* p : parameters) {
    check(p->spec().dtype == type, who, ": parameters must be all f32 or all bf16");
  }
  check(std::isfinite(settings.clip) && settings.clip >= 0, who,
        ": the limit of the gradients' norm must be a finite number, 0 for none, not ",
        settings.clip);
}

}  // namespace

OptimizerState place_of_state(const std::vector<Parameter*>& parameters, const UpdateRule& rule,
                              Rounding rounding, const OptimizerMemory& memory) {
  const std::vector<StateRow> rows = rows_of(rule, has_masters(parameters, rounding));
  // An own row may have nothing but padding on the host, where other ranks have state.
  if (memory.own && own_elements_on_device(*memory.own, rows, memory) < memory.own->elements()) {
    return memory.state;
  }
  for (const PlacedRange& range : places_of(parameters, rows, memory)) {
    if (range.place != OptimizerState::device) return range.place;
  }
  return OptimizerState::device;
}

Optimizer::Optimizer(std::unique_ptr<const UpdateRule> rule, std::vector<Parameter*> parameters,
                     const UpdateSettings& settings, Stream& stream, const OptimizerMemory& memory)
    : rule_(std::move(rule)),
      parameters_(std::move(parameters)),
      limit_(static_cast<float>(settings.clip)),
      rounding_(settings.rounding),
      stream_(stream),
      own_(memory.own),
      others_(memory.others),
      homes_(memory.homes) {
  const char* const who = rule_->name();
  check_parameters(who, parameters_, settings);
  std::vector<ParameterRate> rates = rates_of(parameters_, settings.groups, settings.decay, who);
  const auto scheduled = static_cast<int64_t>(rule_->schedule_at(1, 0).size());
  const Label label{.name = "optimizer scalars", .purpose = Purpose::optimizer};
  schedule_ = Tensor({Shape{scheduled}, DType::f32}, stream, label);
  clip_ = Tensor({Shape{3}, DType::f32}, stream, label);
  squared_ = Tensor({Shape{1}, DType::f64}, stream, label);
  first_granules_.resize(parameters_.size());
  for (size_t i = parameters_.size(); i-- > 0;) {
    first_granules_[i] = granules_;
    granules_ += ceil_div(parameters_[i]->gathered().shape.numel(), norm_granule);
  }
  const bool masters = has_masters(parameters_, rounding_);
  state_ =
      std::make_unique<StateRows>(parameters_, rows_of(*rule_, masters), masters, stream, memory);
  loop_ = std::make_unique<UpdateLoop>(*rule_, parameters_, std::move(rates), *state_, scheduled,
                                       homes_);
  if (!homes_) return;
  check(!homes_->updates_in_backward() || limit_ == 0, who, ": parameters that are updated in ",
        "backward cannot wait for the norm of all gradients, by which a clip of ", limit_,
        " cuts them; set the clip to 0, or update them at the end");
  for (size_t i = 0; i < parameters_.size(); ++i) numbers_.emplace(parameters_[i], i);
  squares_ = squares();
  if (homes_->updates_in_backward()) {
    squared_of_one_ = Tensor({Shape{1}, DType::f64}, stream, label);
    clip_of_one_ = Tensor({Shape{3}, DType::f32}, stream, label);
  }
  homes_->set_user(this);
}

// Waits, since enqueued work must not outlive its memory.
Optimizer::~Optimizer() { state_->wait_quietly(); }

void Optimizer::initialise() {
  initialised_ = measures_ahead_ = false;
  prepared_ = 0;
  state_->initialise();
  loop_->forget_failure();
  initialised_ = true;
  set_steps(0);
}

// Call it before the state is used.
void Optimizer::make_ready() {
  check_whole();
  if (initialised_) return;
  state_->initialise();
  initialised_ = true;
}

void Optimizer::check_whole() const {
  check(!loop_->half_updated(), rule_->name(),
        ": an update failed halfway, and has changed some of the parameters ",
        "and not others; call initialise() and load a checkpoint");
}

void Optimizer::prepare(int64_t t, double learning_rate) {
  check(t >= 1, rule_->name(), ": step ", t, " was asked for, and steps are counted from 1");
  make_ready();
  state_->synchronize();
  write<float>(schedule_, rule_->schedule_at(t, learning_rate));
  prepared_ = t;
}

void Optimizer::check_update(const Tensor& random) const {
  if (!measures_ahead_) check_whole();  // else backward has begun the update
  check_prepared(random);
  const char* const who = rule_->name();
  const auto has_gradient = [](const Parameter* p) { return bool(p->grad); };
  check(own_ || measures_ahead_ || std::ranges::any_of(parameters_, has_gradient), who,
        ": no parameter has a gradient; run backward of a loss that depends on them before ",
        "each update, which frees the gradients");
  for (const Parameter* p : parameters_) {
    check(!p->grad || p->grad.shape() == p->gathered().shape, who, ": the gradient of ", p->name,
          " is ", p->grad.spec(), ", and the parameter is ", p->gathered());
  }
}

void Optimizer::check_prepared(const Tensor& random) const {
  check(prepared_ > 0, rule_->name(), ": the step has no number and no learning rate; call ",
        "prepare() before each update(), or step() for both; and before backward, if that updates");
  check(rounding_ == Rounding::nearest || random, rule_->name(),
        ": stochastic rounding needs a random state");
}

void Optimizer::update(const Tensor& random) {
  check_update(random);
  const TraceScope scope(stream_.trace(), "optimizer");
  measure_gradients();
  try {
    loop_->update(scalars(clip_, random));
    if (own_) own_->gather_parameters();
  } catch (...) {
    if (loop_->half_updated()) free_gradients();
    throw;
  }
  set_steps(prepared_);
  prepared_ = 0;
  free_gradients();
}

UpdateStep::Scalars Optimizer::scalars(const Tensor& clip, const Tensor& random) const {
  return {.schedule = schedule_,
          .clip = clip,
          .random = rounding_ == Rounding::nearest ? View() : View(random)};
}

void Optimizer::free_gradients() {
  measures_ahead_ = false;
  for (Parameter* p : parameters_) {
    p->grad = {};
    if (homes_) homes_->free_gradient(*p);
  }
  if (own_) own_->free_gradients();
}

// The norm is a sum over the granules of the row of parameters, wherever their state is; those of a
// parameter without a gradient are zero.
void Optimizer::measure_gradients() {
  const std::vector<OwnRow::Slice> slices = own_ ? own_->slices() : whole_row(parameters_);
  const Tensor squares = measures_ahead_ ? squares_ : this->squares();
  const auto has_gradient = [](const Parameter* p) { return bool(p->grad); };
  if (!measures_ahead_ && (own_ || others_ || !std::ranges::all_of(parameters_, has_gradient))) {
    launch(Fill{.out = squares}, stream_);
  }
  SquaredNorm norm;
  Range measured;  // granules of the norm
  const auto launch_norm = [&] {
    norm.out = squares.view().slice_elements(measured);
    if (norm.x.size() > 0) launch(norm, stream_);
    norm = {};
  };
  for (const OwnRow::Slice& slice : slices) {
    const View gradient = own_ ? own_->gradient(slice.parameter, slice.elements)
                               : View(parameters_[slice.parameter]->grad);
    if (!gradient || (others_ && !others_->is_counted(*parameters_[slice.parameter]))) continue;
    const int64_t begin = first_granules_[slice.parameter] + slice.elements.begin / norm_granule;
    if (norm.x.full() || begin != measured.end) {
      launch_norm();
      measured.begin = begin;
    }
    measured.end = begin + ceil_div(slice.elements.size(), norm_granule);
    norm.x.add(gradient);
  }
  launch_norm();
  if (own_) own_->gather_granules(squares);
  launch(SumGranules{.out = squared_, .granules = squares}, stream_);
  if (others_) others_->add_up(squared_);
  launch(ClipFactor{.clip = clip_, .squared = squared_, .limit = limit_}, stream_);
}

Tensor Optimizer::squares() const {
  return {{Shape{granules_}, DType::f64},
          stream_,
          {.name = Name::never_freed(SquaredNorm::name), .purpose = Purpose::workspace}};
}

View Optimizer::squares_of(size_t parameter) const {
  const int64_t begin = first_granules_[parameter];
  const int64_t count = ceil_div(parameters_[parameter]->spec().shape.numel(), norm_granule);
  return squares_.view().slice_elements({begin, begin + count});
}

void Optimizer::begin_final() {
  check_whole();
  if (homes_->updates_in_backward()) check_prepared(random_);
  launch(Fill{.out = squares_}, stream_);
  measures_ahead_ = true;
}

void Optimizer::measure(const Parameter& p) {
  SquaredNorm norm{.out = squares_of(numbers_.at(&p))};
  norm.x.add(p.grad);
  launch(norm, stream_);
}

std::vector<View> Optimizer::state_on_host(const Parameter& p) const {
  std::vector<View> rows;
  const StateRows::Part* const part = loop_->part_on_host(numbers_.at(&p));
  if (!part) return rows;
  for (const Tensor& row : part->rows) rows.emplace_back(row);
  return rows;
}

// Whether its own gradient is finite decides, as that of others is not known yet.
void Optimizer::update(const Parameter& p, const std::vector<Tensor>& fetched) {
  const size_t i = numbers_.at(&p);
  launch(SumGranules{.out = squared_of_one_, .granules = squares_of(i)}, stream_);
  launch(ClipFactor{.clip = clip_of_one_, .squared = squared_of_one_}, stream_);
  loop_->update_one(i, fetched, scalars(clip_of_one_, random_));
}

void Optimizer::set_steps(int64_t steps) {
  check(steps >= 0, "an optimizer cannot have done ", steps,
        " steps; a run that begins has done 0");
  steps_ = steps;
}

void Optimizer::synchronize() const { state_->synchronize(); }

const std::vector<StateRow>& Optimizer::state_rows() const { return state_->rows(); }

StateRows& Optimizer::open_state(const StateRange& range, const Spec& of, size_t bytes) {
  const Parameter& p = parameter_of(range);
  const Range& elements = range.elements;
  const StateRow& row = state_->rows()[range.row];
  check(0 <= elements.begin && elements.begin <= elements.end && elements.end <= of.shape.numel() &&
            static_cast<size_t>(elements.size()) * size_of(row.type) == bytes,
        rule_->name(), ": elements ", elements.begin, " to ", elements.end, " of ", row.name,
        " of ", p.name, ", ", name(row.type), ", which has ", of.shape.numel(), ", were asked for ",
        "with room for ", bytes, " bytes");
  make_ready();
  state_->synchronize();
  return *state_;
}

const Parameter& Optimizer::parameter_of(const StateRange& range) const {
  check(range.row < state_->rows().size() && range.parameter < parameters_.size(), rule_->name(),
        ": there is no row ", range.row, " of the state of parameter ", range.parameter);
  return *parameters_[range.parameter];
}

void Optimizer::read_state(const StateRange& range, std::span<std::byte> out) {
  const Parameter& p = parameter_of(range);
  StateRows& state = open_state(range, p.whole(), out.size());
  if (others_ && others_->answer()) {
    return others_->read_state(range, size_of(state.rows()[range.row].type), out);
  }
  check(!p.part || !p.part->is_cut(), rule_->name(), ": the state of ", p.name,
        " is in parts on several ranks, which do not answer now");
  state.read(range, out);
}

void Optimizer::read_own_state(const StateRange& range, std::span<std::byte> out) {
  open_state(range, parameter_of(range).gathered(), out.size()).read(range, out);
}

void Optimizer::write_state(const StateRange& range, std::span<const std::byte> in) {
  const Parameter& p = parameter_of(range);
  StateRows& state = open_state(range, p.whole(), in.size());
  if (!p.part) return state.write(range, in);
  const ParameterPart part = p.part->gathered_part();
  state.write({range.row, range.parameter, part.stretches(range.elements).own},
              part.pick(range.elements, in, size_of(state.rows()[range.row].type)));
}

}  // namespace spool
