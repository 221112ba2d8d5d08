#include "tests/planner/search/synthetic.h"

#include <algorithm>
#include <deque>

#include "spool/autograd/tape.h"
#include "spool/planner/chunks.h"
#include "spool/planner/offsets.h"
#include "spool/planner/search/measured_options.h"

namespace spool::testing {
namespace {

constexpr int64_t floats = static_cast<int64_t>(Arena::granule / sizeof(float));

Spec granules(int64_t count) { return {Shape{count * floats}}; }

// A kernel that takes the given seconds.
struct SyntheticWork {
  static constexpr const char* name = "synthetic";
  double seconds = 0;
  Cost cost() const { return {.flops = seconds}; }
};
void run(const SyntheticWork&, CpuStream&) {}

struct Synthetic final : Op {
  SyntheticOp costs;
  explicit Synthetic(SyntheticOp c) : costs(std::move(c)) {}

  const char* name() const override { return "synthetic"; }
  const char* indices() const override { return ""; }
  std::string attributes() const override {
    return in_words({{"output", costs.output},
                     {"statistics", costs.statistics},
                     {"scratch", costs.scratch},
                     {"scratch of backward", costs.backward_scratch},
                     {"seconds", costs.forward},
                     {"seconds of backward", costs.backward},
                     {"saves inputs", costs.saves_inputs},
                     {"saves output", costs.saves_output},
                     {"runs again", costs.is_recomputable},
                     {"rows", costs.rows}});
  }
  Specs infer(const Specs&) const override {
    Specs out{costs.output > 0 ? granules(costs.output) : Spec{Shape{1}}};
    if (costs.statistics > 0) out.push_back(granules(costs.statistics));
    return out;
  }
  bool recomputable() const override { return costs.is_recomputable; }
  int64_t max_chunks(const Specs&) const override { return costs.rows; }

  void forward(Forward& f) const override {
    const int chunks = f.chunks();
    Tensor scratch;
    if (costs.scratch > 0) scratch = f.scratch(granules(ceil_div<int64_t>(costs.scratch, chunks)));
    f.launch(SyntheticWork{.seconds = costs.forward * (1 + (chunks - 1) / 64.0)});
  }
  Slots saves(const Needs&) const override {
    Slots slots;
    const int count = static_cast<int>(costs.inputs.size()) + (costs.parameter > 0 ? 1 : 0);
    for (int i = 0; i < count && costs.saves_inputs; ++i) slots.push_back(in(i));
    if (costs.saves_output) slots.push_back(out(0));
    if (costs.statistics > 0) slots.push_back(out(1));
    return slots;
  }
  void backward(Backward& b) const override {
    const Slots saved = saves({});
    for (int i = 0; i < static_cast<int>(saved.size()); ++i) b.saved_at(i);
    const int count = static_cast<int>(costs.inputs.size()) + (costs.parameter > 0 ? 1 : 0);
    for (int i = 0; i < count; ++i) b.grad_input(i);
    Tensor scratch;
    if (costs.backward_scratch > 0) scratch = b.scratch(granules(costs.backward_scratch));
    b.launch(SyntheticWork{.seconds = costs.backward});
  }
};

// The parts of a step that live beyond its tapes.
class SyntheticRun {
 public:
  SyntheticRun(const SyntheticModel& model, Stream& stream)
      : model_(model), stream_(stream), input_(granules(model.input), stream) {
    for (const SyntheticOp& op : model.ops) {
      if (op.parameter == 0) continue;
      parameters_.push_back({.name = "weight", .data = Tensor(granules(op.parameter), stream)});
    }
  }

  Program run_tape(const Plan& plan, Survey* survey) {
    Tape tape(stream_, {.plan = plan, .backward_follows = true, .survey = survey});
    {
      const Var loss = forward(tape);
      tape.backward(loss);
    }
    return tape.take_program();
  }

  void run_step(const Plan& plan, const std::optional<Layout>& layout, Survey* survey) {
    if (survey) survey->start(stream_);
    PlacedStep memory(stream_.arena(), layout);
    const int64_t count = std::min<int64_t>(model_.micro_batches, 3);
    for (int64_t micro = 0; micro < count; ++micro) {
      stream_.arena().begin_phase(static_cast<size_t>(micro));
      run_tape(plan, survey);
      if (micro + 1 == count) update(survey);
    }
    memory.finish();
  }
  void free_gradients() {
    for (Parameter& p : parameters_) p.grad = {};
  }

 private:
  // Values live no longer than their last reader.
  Var forward(Tape& tape) {
    std::vector<int> last_reader(model_.ops.size() + 1, -1);
    const int count = static_cast<int>(model_.ops.size());
    for (int i = 0; i < count; ++i) {
      for (const int from : model_.ops[static_cast<size_t>(i)].inputs) last_reader[at(from)] = i;
    }
    std::vector<Var> vars(model_.ops.size() + 1);
    vars[0] = tape.input(input_, /*needs_grad=*/true);
    std::unique_ptr<Tape::Scope> scope;
    size_t parameter = 0;
    for (int i = 0; i < count; ++i) {
      const SyntheticOp& op = model_.ops[static_cast<size_t>(i)];
      const int before = i > 0 ? model_.ops[static_cast<size_t>(i) - 1].layer : -1;
      if (op.layer != before) scope.reset();
      if (op.layer >= 0 && op.layer != before) {
        scope = std::make_unique<Tape::Scope>(tape, ScopeOptions{.name = "layer"});
      }
      std::vector<Operand> inputs;
      for (const int from : op.inputs) inputs.emplace_back(vars[at(from)]);
      if (op.parameter > 0) inputs.emplace_back(parameters_[parameter++]);
      vars[at(i)] = apply<Synthetic>(tape, inputs, op);
      for (const int from : op.inputs) {
        if (last_reader[at(from)] == i) vars[at(from)] = {};
      }
    }
    scope.reset();
    const SyntheticOp loss{.inputs = {count - 1},
                           .output = 0,
                           .forward = 0,
                           .backward = 0,
                           .saves_inputs = false,
                           .is_recomputable = false};
    return apply<Synthetic>(tape, {vars.back()}, loss);
  }
  static size_t at(int op) { return static_cast<size_t>(int64_t{op} + 1); }

  void update(Survey* survey) {
    const SurveyScope surveyed(survey, stream_, Phase::optimizer);
    Tensor scratch;
    if (model_.update > 0) scratch = Tensor(granules(model_.update), stream_);
    launch(SyntheticWork{.seconds = model_.update_seconds}, stream_);
    free_gradients();
  }

  const SyntheticModel& model_;
  Stream& stream_;
  Tensor input_;
  std::deque<Parameter> parameters_;
};

RehearsedStep rehearse_synthetic(const SyntheticModel& model, const Plan& plan,
                                 const std::optional<Layout>& layout,
                                 const RehearsalOptions& asked) {
  RehearsedStep rehearsed;
  rehearsed.report = rehearse_totals(synthetic_machine(), [&](MetaStream& stream) {
    SyntheticRun run(model, stream);
    std::optional<AllocationLog> log;
    if (asked.lifetimes) log.emplace(stream.arena());
    run.run_step(plan, layout, asked.survey ? &rehearsed.survey : nullptr);
    if (log) rehearsed.lifetimes = log->lifetimes();
  });
  return rehearsed;
}

RehearsedTape rehearse_synthetic_tape(const SyntheticModel& model, const Plan& plan) {
  RehearsedTape rehearsed;
  MetaStream stream(synthetic_machine());
  SyntheticRun run(model, stream);
  rehearsed.program = run.run_tape(plan, &rehearsed.survey);
  run.free_gradients();
  return rehearsed;
}

}  // namespace

Machine synthetic_machine() {
  return {.name = "synthetic",
          .f32_flops = 1,
          .bf16_flops = 1,
          .bytes_per_second = 1e30,
          .launch_seconds = 0};
}

SearchedStep searched_step(const SyntheticModel& model) {
  return {
      .machine = synthetic_machine(),
      .micro_batches = model.micro_batches,
      .rehearse =
          [model](const Plan& plan, const std::optional<Layout>& layout,
                  const RehearsalOptions& asked) {
            return rehearse_synthetic(model, plan, layout, asked);
          },
      .rehearse_tape = [model](const Plan& plan) { return rehearse_synthetic_tape(model, plan); },
      .other_peak = [](const Plan&) { return size_t{0}; }};
}

Program program_of(const SyntheticModel& model) {
  return rehearse_synthetic_tape(model, {}).program;
}

int64_t draw(Random& random, int64_t min, int64_t max) {
  return min + random.next() % (max - min + 1);
}

bool draw_bool(Random& random, double probability) { return random.uniform() < probability; }

SyntheticOp random_op(Random& random, int position) {
  SyntheticOp op{.inputs = {position - 1}};
  while (position > 0 && op.inputs.size() < 3 && draw_bool(random, 0.3)) {
    const auto other = static_cast<int>(draw(random, -1, position - 2));
    if (std::ranges::find(op.inputs, other) == op.inputs.end()) op.inputs.push_back(other);
  }
  op.output = draw(random, 1, 16);
  if (draw_bool(random, 0.2)) op.statistics = 1;
  if (draw_bool(random, 0.4)) op.parameter = draw(random, 1, 4);
  if (draw_bool(random, 0.3)) op.scratch = draw(random, 1, 8);
  if (draw_bool(random, 0.3)) op.backward_scratch = draw(random, 1, 8);
  op.forward = static_cast<double>(draw(random, 1, 16)) / 8;
  op.backward = 2 * op.forward;
  op.saves_inputs = draw_bool(random, 0.7);
  op.saves_output = draw_bool(random, 0.3);
  op.is_recomputable = draw_bool(random, 0.9);
  return op;
}

SyntheticModel random_graph(Random& random, int ops) {
  SyntheticModel model;
  for (int i = 0; i < ops; ++i) model.ops.push_back(random_op(random, i));
  return model;
}

SyntheticModel random_stack(Random& random, const StackOptions& options) {
  SyntheticModel model{.update = draw(random, 0, 4)};
  std::vector<SyntheticOp> layer;
  for (int i = 0; i < options.ops; ++i) layer.push_back(random_op(random, i));
  layer.back().output = model.input = draw(random, 1, 8);
  for (int l = 0; l < options.layers; ++l) {
    const auto first = static_cast<int>(model.ops.size());
    for (SyntheticOp op : layer) {
      for (int& from : op.inputs) from += first;
      op.layer = l;
      model.ops.push_back(std::move(op));
    }
  }
  if (options.rows > 1) {
    const auto last = static_cast<int>(model.ops.size()) - 1;
    model.ops.push_back({.inputs = {last},
                         .output = 1,
                         .scratch = draw(random, 8, 64),
                         .is_recomputable = false,
                         .rows = options.rows});
  }
  return model;
}

SyntheticModel scaled(SyntheticModel model, double seconds, int64_t bytes) {
  model.input *= bytes;
  model.update *= bytes;
  model.update_seconds *= seconds;
  for (SyntheticOp& op : model.ops) {
    for (int64_t* size :
         {&op.output, &op.statistics, &op.parameter, &op.scratch, &op.backward_scratch}) {
      *size *= bytes;
    }
    op.forward *= seconds;
    op.backward *= seconds;
  }
  return model;
}

std::vector<ValueId> recomputable_values(const Program& program) {
  std::vector<ValueId> values;
  for (const Node& node : program.nodes) {
    if (!node.op->recomputable()) continue;
    for (const ValueId v : node.outputs) values.push_back(v);
  }
  return values;
}

Plan random_plan(Random& random, const Program& program) {
  Plan plan;
  plan.placement.assign(program.values.size(), Placement::keep);
  const double probability = random.uniform();
  for (const ValueId v : recomputable_values(program)) {
    if (draw_bool(random, probability)) plan.placement[v] = Placement::recompute;
  }
  if (draw_bool(random))
    plan.chunks = chunk_rows(program, int64_t{128} << draw(random, 0, 2)).chunks;
  return plan;
}

LaidOut laid_out(const SearchedStep& step, const Plan& plan) {
  RehearsedStep rehearsed = step.rehearse(plan, std::nullopt, {.survey = true, .lifetimes = true});
  const Layout layout = assign_offsets(std::move(rehearsed.lifetimes));
  const size_t placed = step.rehearse(plan, layout, {}).report.memory.peak;
  return {.peak = std::min(placed, rehearsed.report.memory.peak),
          .seconds = step_seconds(rehearsed, step.micro_batches)};
}

}  // namespace spool::testing
