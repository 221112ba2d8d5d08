#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

#include "spool/kernels/sum_ranks.h"
#include "spool/models/cli/command_line.h"
#include "spool/models/cli/commands.h"
#include "spool/models/cli/ranks/launched_command.h"
#include "spool/models/cli/ranks/processes.h"
#include "spool/models/cli/setting_flags.h"
#include "spool/models/cli/terminal/long_work.h"
#include "spool/models/cli/terminal/width.h"
#include "spool/models/data/data_reader.h"
#include "spool/models/data/example_reader.h"
#include "spool/models/data/example_rows.h"
#include "spool/models/data/find_files.h"
#include "spool/models/data/questions.h"
#include "spool/models/families/families.h"
#include "spool/models/formats/finite_tensors.h"
#include "spool/models/inference/loaded_model.h"
#include "spool/models/inference/multiple_choice.h"
#include "spool/models/inference/stop_tokens.h"
#include "spool/models/steps/run_request.h"
#include "spool/models/steps/sharding/step_shards.h"
#include "spool/models/training/planned_run.h"
#include "spool/models/training/run/ranks.h"
#include "spool/models/training/settings/home_settings.h"
#include "spool/models/training/settings/setting_checks.h"
#include "spool/runtime/cpu/usable_cores.h"
#include "spool/runtime/log.h"
#include "spool/runtime/ranks/run_ranks.h"
#include "spool/runtime/units.h"

namespace spool {
namespace {

struct EvalArguments {
  std::string model, adapter, base, device, dtype = "f32", memory, parameters = "device";
  std::vector<std::string> data;
  DataFormat format = DataFormat::automatic;
  bool separate = true;
  TokenizerChoice tokenizer = {};
  std::string chat_format = {}, system = {};  // of examples
  LoadedModel::Options options = {};
  bool json = false;
  int ranks = 0;                                // 0: one computes alone
  std::string mesh = {};                        // of them
  std::shared_ptr<Communicator> own_rank = {};  // of a process; none: ranks are threads
  int64_t limit = ValidationRows::all;          // rows
};

LoadedModel::Options resolve(const EvalArguments& a) {
  LoadedModel::Options options = a.options;
  options.dtype = *parse<DType>(a.dtype);
  const int ranks = std::max(a.ranks, 1);
  const bool has_own_gpu = a.own_rank && chooses_gpus(a.device);
  options.device = has_own_gpu ? gpu_of_rank(*a.own_rank) : device_of(a.device);
  options.parameters_on_device = parameters_on_device(a.parameters);
  options.ranks = a.own_rank;
  if (has_own_gpu && options.shards) options.ranks = connected(a.own_rank, options.device);
  if (a.ranks > 0 && options.threads == 0) options.threads = std::max(usable_cores() / ranks, 1);
  if (!a.memory.empty()) {
    const size_t asked = parse_bytes(a.memory);
    RunRequest limit{.device = options.device, .capacity = device_memory(options.device)};
    if (options.device.type == DeviceType::cpu) divide_memory(limit, ranks);
    // So that all ranks run the same chunks.
    if (has_own_gpu) limit.capacity = least_of_ranks(limit.capacity, *a.own_rank);
    options.memory = std::min(asked, limit.capacity);
    const std::string words = lowered_budget(asked, limit);
    if (!words.empty()) logger().warn("{}", words);
  }
  return options;
}

void check_finite(double loss, const ModelFile& file) {
  if (std::isfinite(loss)) return;
  file.check_finite();
  fail(ErrorKind::numeric, file.name(), ": the loss is ", loss,
       "; some weights are too large for --dtype");
}

bool tells(const EvalArguments& a) { return !a.own_rank || a.own_rank->rank() == 0; }

// On standard error: the result alone is on standard output.
void tell_plan(const LoadedModel& model, int ranks = 0) {
  if (!model.planned()) return;
  const auto& [rows, plan, foretold] = *model.planned();
  const auto in_chunks = [](int64_t n) {
    return n == 0 ? std::string("all rows at once") : fmt::format("{} rows at a time", n);
  };
  const std::string line = fmt::format(
      "foretold peak {} ({} bytes){}{}, {} a batch: the loss of {}, MLPs of {}",
      format_bytes(foretold.memory.peak), foretold.memory.peak,
      ranks > 1 ? fmt::format(" of each of {} ranks", ranks) : "",
      foretold.host.peak
          ? fmt::format(", with {} of parameters on the host", format_bytes(foretold.host.peak))
          : "",
      format_seconds(foretold.seconds), in_chunks(rows.loss), in_chunks(rows.mlp));
  fmt::print(stderr, "{}\n", wrapped(line, terminal_width(STDERR_FILENO)));
}

LoadedModel load(const ModelFile& file, const LoadedModel::Options& options) {
  CommandWork work("preparing the model");
  return LoadedModel(file, options, work.loading());
}

using OnRows = std::function<void(int64_t done)>;

double loss_of(const EvalArguments& a, const ModelFile& file, const LoadedModel::Options& options,
               const RowSource& rows, const OnRows& on_rows) {
  LoadedModel evaluation = load(file, options);
  if (tells(a)) tell_plan(evaluation, a.ranks);
  return evaluation.evaluator().mean_loss(rows, on_rows);
}

// Threads of this program, each with the model, share the batches; rank 0 alone tells of it.
double loss_of_ranks(int ranks, const ModelFile& file, const LoadedModel::Options& options,
                     const RowSource& rows, const OnRows& on_rows) {
  double loss = 0;
  run_ranks(ranks, [&](const std::shared_ptr<Communicator>& own) {
    LoadedModel::Options of_rank = options;
    of_rank.ranks = own;
    if (own->rank() == 0) {
      LoadedModel evaluation = load(file, of_rank);
      tell_plan(evaluation, ranks);
      loss = evaluation.evaluator().mean_loss(rows, on_rows);
    } else {
      LoadedModel(file, of_rank).evaluator().mean_loss(rows);
    }
  });
  return loss;
}

// Measures the loss over rows, and prints it.
void measure_loss(const EvalArguments& a, const ModelFile& file, LoadedModel::Options options,
                  const RowSource& rows) {
  ProgressBar measuring("measuring", "rows");
  options.batch = std::min(options.batch, rows.rows());
  const OnRows on_rows = [&](int64_t done) {
    measuring(static_cast<size_t>(done), static_cast<size_t>(rows.rows()));
  };
  const bool on_threads = a.ranks > 0 && !a.own_rank;
  const double loss = on_threads ? loss_of_ranks(a.ranks, file, options, rows, on_rows)
                                 : loss_of(a, file, options, rows, on_rows);
  measuring.clear();
  check_finite(loss, file);
  if (!tells(a)) return;
  const double perplexity = std::exp(loss);
  // JSON has no infinity.
  const std::string shown =
      std::isfinite(perplexity) || !a.json ? fmt::format("{:.7g}", perplexity) : "null";
  const char* form = a.json ? R"({{"loss":{:.7f},"perplexity":{},"tokens":{}}})"
                            : "loss {:.7f} nats a token, perplexity {}, over {} tokens";
  print_lines(fmt::format(fmt::runtime(form), loss, shown, targets_of(rows)));
}

// The context, if it is not very long, or all of shorter data.
int64_t usual_row(const ModelConfig& model, int64_t tokens) {
  return std::min(
      {model.shape().context, model.defaults().longest_row, std::max<int64_t>(tokens - 1, 1)});
}

// The loss of what of examples is learnt.
void measure_examples(const EvalArguments& a, const ModelFile& file,
                      std::span<const std::filesystem::path> data) {
  const auto tokenizer = open_tokenizer(choose_tokenizer(a.tokenizer, file.directory()));
  const int64_t vocabulary = file.config().shape().vocabulary;
  LoadedModel::Options options = resolve(a);
  options.packed = true;
  if (options.seq == 0) options.seq = usual_row(file.config(), INT64_MAX);
  check(options.seq > 0, "--seq must be above 0, not ", options.seq);
  ProgressBar encoding("encoding");
  const ExampleReader reader{
      .tokenizer = *tokenizer,
      .directory = file.directory(),
      .chat_format = a.chat_format,
      .options = {.seq = options.seq,
                  .system = a.system,
                  .stop = first_stop_token(file.directory(), *tokenizer, vocabulary),
                  .rows = vocabulary},
      .progress = std::ref(encoding)};
  const auto examples = reader.read(data);
  const auto list = std::make_shared<const RowList>(examples, Range{0, examples->size()},
                                                    options.seq, options.packed);
  measure_loss(a, file, options, ValidationExamples(list, a.limit));
}

void measure_texts(const EvalArguments& a, const ModelFile& file,
                   std::span<const std::filesystem::path> data) {
  const bool shards = are_shards(data, a.format);
  // The loss over a shard does not depend on what its tokens mean.
  const auto tokenizer = shards ? make_byte_tokenizer()
                                : open_tokenizer(choose_tokenizer(a.tokenizer, file.directory()));
  ProgressBar encoding("encoding");
  const Tokens tokens = DataReader{.tokenizer = *tokenizer,
                                   .vocabulary = file.config().shape().vocabulary,
                                   .threads = a.options.threads,
                                   .format = a.format,
                                   .separate = a.separate,
                                   .progress = std::ref(encoding)}
                            .open(data);
  if (a.separate && !shards) {
    const auto words = describe_joined_documents(data.size(), *tokenizer, BeginOfText::written,
                                                 file.config().shape().vocabulary);
    if (!words.empty()) logger().warn("{}", words);
  }
  LoadedModel::Options options = resolve(a);
  if (options.seq == 0) options.seq = usual_row(file.config(), tokens->size());
  check(options.seq > 0, "--seq must be above 0, not ", options.seq);
  measure_loss(a, file, options, ValidationRows(tokens, options.seq, a.limit));
}

std::vector<Question> questions_in(const std::filesystem::path& path, const EvalArguments& a,
                                   const ModelFile& file) {
  const int64_t vocabulary = file.config().shape().vocabulary;
  if (!has_question_lines(path)) return read_questions(path, vocabulary);
  const auto tokenizer = open_tokenizer(choose_tokenizer(a.tokenizer, file.directory()));
  return read_questions(path, *tokenizer, vocabulary);
}

void answer(const EvalArguments& a, const ModelFile& file, const std::filesystem::path& path) {
  const auto questions = questions_in(path, a, file);
  LoadedModel::Options options = resolve(a);
  const int64_t longest = longest_row(questions);
  if (options.seq == 0) options.seq = longest;
  check(longest <= options.seq && longest <= file.config().shape().context, path.string(),
        ": its longest question with an answer is ", longest, " tokens, beyond the ",
        std::min(options.seq, file.config().shape().context), " of a row");
  LoadedModel evaluation = load(file, options);
  tell_plan(evaluation);
  ProgressBar measuring("answering", "questions");
  const ChoiceResult r =
      answer_questions(questions, evaluation.evaluator(), evaluation.batch(), evaluation.seq(),
                       [&](const ChoiceResult& so_far) {
                         measuring(static_cast<size_t>(so_far.questions), questions.size());
                       });
  const auto fraction = [&](int64_t right) {
    return static_cast<double>(right) / static_cast<double>(r.questions);
  };
  const char* form =
      a.json ? R"({{"accuracy":{:.7f},"accuracy_by_sum":{:.7f},"questions":{}}})"
             : "accuracy {:.7f} by the mean of a completion's losses, {:.7f} by their sum, over {} "
               "questions";
  measuring.clear();
  print_lines(fmt::format(fmt::runtime(form), fraction(r.right_by_mean), fraction(r.right_by_sum),
                          r.questions));
}

void evaluate(const EvalArguments& a) {
  check(!model_preset(a.model), "--model ", a.model,
        " has no weights to measure; give the directory or the file of a model");
  const ModelFile file({a.model, a.adapter, a.base});
  const auto data = find_files(a.data);
  const auto questions = std::ranges::find_if(data, has_questions);
  const bool as_text = a.format == DataFormat::text;
  const bool has_examples = questions == data.end() && are_examples(data, a.format);
  for (const auto& [flag, text] :
       {std::pair{"--chat-format", a.chat_format}, {"--system", a.system}}) {
    check(has_examples || text.empty(), flag,
          " is of conversations in lines of JSON, and the data is none; leave it out");
  }
  if (has_examples) return measure_examples(a, file, data);
  if (as_text || questions == data.end()) return measure_texts(a, file, data);
  const auto launched = rank_of_launcher();
  const bool has_launcher = launched && launched->launcher != "spool";
  check(a.ranks == 0, "ranks share batches of rows of text or tokens, and ", questions->string(),
        " has multiple-choice questions; ",
        has_launcher     ? "start the program without a launcher"
        : a.mesh.empty() ? "leave --ranks out"
                         : "leave --mesh out");
  check(a.limit == ValidationRows::all, "--limit is for rows of text or tokens, and ",
        questions->string(), " has multiple-choice questions; leave it out");
  check(data.size() == 1, questions->string(),
        " has multiple-choice questions; give it to --data without other files");
  answer(a, file, *questions);
}

std::string left_of_evaluation() { return "start the evaluation again"; }

void read_mesh(EvalArguments& a) {
  const auto [ranks, shared_axes] = rank_mesh(a.mesh);
  if (ranks == 0) return;
  check(a.ranks == 0 || a.ranks == ranks, "--mesh ", a.mesh, " has ", ranks,
        " ranks, and --ranks says ", a.ranks, "; give one of them");
  a.ranks = ranks;
  if (shared_axes.empty()) return;
  a.options.shards = shards(shared_axes, "megatron");
}

// Where this process is one of the ranks, it evaluates its part.
int evaluate_on_ranks(EvalArguments a) {
  if (const auto launched = rank_of_launcher()) {
    return run_launched(*launched, /*meet=*/"", [&] {
      read_mesh(a);
      check(a.ranks == 0 || a.ranks == launched->size, launched->launcher, " started ",
            launched->size, " ranks, and ", a.mesh.empty() ? "--ranks" : "--mesh", " says ",
            a.ranks, "; say the same number, or none");
      a.ranks = launched->size;
      const auto run = [&a](const std::shared_ptr<Communicator>& own) {
        a.own_rank = own;
        evaluate(a);
        return 0;
      };
      return RankWork{.run = run, .is_left = left_of_evaluation};
    });
  }
  read_mesh(a);
  const bool has_gpus = a.ranks > 0 && chooses_gpus(a.device);
  if (has_gpus) check_gpus(a.ranks, gpu_count());
  if (has_gpus && a.ranks > 1) return run_as_processes(a.ranks, left_of_evaluation);
  evaluate(a);
  return 0;
}

}  // namespace

std::function<int()> add_eval(CLI::App& app) {
  const auto a = std::make_shared<EvalArguments>();
  add_model_flag(app, a->model)->required();
  add_adapter_flags(app, a->adapter, a->base);
  app.add_option("--data", a->data,
                 "Files of text, shards of tokens, or examples in lines of JSON (.jsonl), of which "
                 "what is learnt is measured, or globs; or a file of multiple-choice questions, "
                 "lines of JSON with ctx, endings and label or one of llm.c's")
      ->required();
  add_data_format_flags(app, a->format, a->separate);
  add_tokenizer_flags(app, a->tokenizer);
  add_setting(app, "chat-format", a->chat_format);
  add_setting(app, "system", a->system);
  app.add_option("--batch", a->options.batch, "Rows per pass")->capture_default_str();
  app.add_option("--seq", a->options.seq,
                 "Tokens per row; by default the model's context, or fewer if the data is shorter");
  app.add_option(
         "--memory", a->memory,
         "Memory budget of the device, such as 2GiB: the loss and each block's MLP run as "
         "many rows at a time as it allows, and the foretold peak is told first; by default "
         "what 512 rows of logits at a time take")
      ->check(validator(memory_amount()));
  add_parameters_flag(app, a->parameters);
  app.add_option("--limit", a->limit,
                 "Rows of the data to read, evenly spread and always the same; 0: all")
      ->check(validator(at_least(0)))
      ->capture_default_str();
  app.add_option(
         "--ranks", a->ranks,
         "Number of ranks that share the batches, threads of this program, or on GPUs "
         "processes with a GPU each, or those of a launcher, such as torchrun; each has the "
         "weights, a --memory and --threads of its own, by default its part of the "
         "machine: the loss is the same on any number of them")
      ->check(validator(at_least(1, SumRanks::max_ranks)));
  app.add_option(
      "--mesh", a->mesh,
      "How the ranks are arranged: data=N is --ranks N; along other axes, such as tensor=2 or "
      "those of data=2,tensor=2, ranks share each batch, and each has its part of the weights");
  add_dtype_flag(app, a->dtype, "Type of the computation: f32 or bf16")->capture_default_str();
  app.add_flag("--json", a->json, "Print the result as one JSON object");
  add_setting(app, "device", a->device);
  add_setting(app, "threads", a->options.threads);
  return [a] { return evaluate_on_ranks(*a); };
}

}  // namespace spool
