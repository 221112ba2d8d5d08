#include <memory>

#include "spool/models/cli/command_line.h"
#include "spool/models/cli/commands.h"
#include "spool/models/cli/generation.h"
#include "spool/models/cli/ranks/launched_command.h"
#include "spool/models/cli/ranks/processes.h"
#include "spool/models/cli/setting_flags.h"
#include "spool/models/cli/text_model.h"
#include "spool/models/families/families.h"
#include "spool/models/formats/finite_tensors.h"
#include "spool/models/inference/text_reader.h"
#include "spool/models/steps/sharding/step_shards.h"
#include "spool/models/training/settings/setting_checks.h"
#include "spool/runtime/log.h"
#include "spool/runtime/ranks/run_ranks.h"

namespace spool {
namespace {

void check_sampling(const GenerateArguments& a) {
  check(a.temperature.value_or(0) >= 0, "--temperature must be 0 or more, not ",
        a.temperature.value_or(0));
  check(a.top_k.value_or(0) >= 0, "--top-k must be 0 or more, not ", a.top_k.value_or(0));
  const double top_p = a.top_p.value_or(1), min_p = a.min_p.value_or(0);
  check(top_p > 0 && top_p <= 1, "--top-p must be above 0 and at most 1, not ", top_p);
  check(min_p >= 0 && min_p <= 1, "--min-p must be from 0 to 1, not ", min_p);
  const double penalty = a.repetition_penalty.value_or(1);
  check(penalty > 0 && penalty <= 1e9, "--repetition-penalty must be above 0, not ", penalty);
}

void check_arguments(const GenerateArguments& a) {
  check(a.tokens > 0 && a.tokens < (1 << 30), "--tokens must be between 1 and 2^30, not ",
        a.tokens);
  check(a.context >= 0, "--context must be 1 or more, not ", a.context);
  check(a.batch > 0 && a.batch <= 4096, "--batch must be from 1 to 4096, not ", a.batch);
  check(a.samples > 0 && a.samples <= 4096, "--samples must be from 1 to 4096, not ", a.samples);
  check(a.samples == 1 || !a.interactive, "--samples goes with texts, not with --interactive");
  check_sampling(a);
  check(a.prompts.empty() || (a.prompt.empty() && !a.interactive),
        "--prompts has all prompts, so it goes with neither --prompt nor --interactive");
  check(a.chat || (a.system.empty() && a.chat_format.empty()),
        a.system.empty() ? "--chat-format" : "--system", " is for a conversation; add --chat");
  if (!a.chat_format.empty()) named_chat_format(a.chat_format);
  check(!model_preset(a.model), "--model ", a.model,
        " has no trained weights to generate text with; give the directory or the file of a model");
}

int generate(GenerateArguments a) {
  if (a.chat && a.prompt.empty() && a.prompts.empty()) {
    check(a.samples == 1, "--samples of an answer need its message; give --prompt or --prompts");
    a.interactive = true;
  }
  const ModelFile file({a.model, a.adapter, a.base});
  if (const int64_t context = file.config().shape().context; a.context > context) {
    logger().warn("--context {} is beyond the model's, which sees {} tokens at a time", a.context,
                  context);
  }
  const auto tokenizer = open_tokenizer(choose_tokenizer(a.tokenizer, file.directory()));
  const Generation generation(a, file, *tokenizer);
  try {
    const bool in_batches = !a.prompts.empty() || (a.samples > 1 && fits_batches(generation));
    in_batches ? write_batches(generation) : write_texts(generation);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::numeric) file.check_finite();
    throw;
  }
  return interrupted() ? stopped_by_a_signal : 0;
}

// On a rank above 0: does its part of what rank 0 writes, which alone is interrupted.
void follow(const GenerateArguments& a) {
  if (!a.own_rank->are_threads()) leave_interrupts();
  const ModelFile file({a.model, a.adapter, a.base});
  const TextModel model(a, file, {});
  follow_reader(model.model(), model.stream(), *model.shared());
}

int generate_as_rank(GenerateArguments a, const std::shared_ptr<Communicator>& own) {
  a.own_rank = own;
  if (own->rank() == 0) return generate(a);
  follow(a);
  return 0;
}

// The number of ranks that share the model; 0: none do.
int read_mesh(GenerateArguments& a) {
  check_arguments(a);
  const auto [ranks, axes] = rank_mesh(a.mesh);
  if (ranks == 0) return 0;
  check(!axes.empty(), "--mesh ", a.mesh,
        " has no axis other than data, and texts are not divided among ranks; give it one along "
        "which ranks share the model, such as tensor=",
        std::max(ranks, 2));
  check(ranks == parse_mesh(axes).ranks(), "--mesh ", a.mesh,
        " has the axis data, and texts are not divided among ranks; give it ", axes, " alone");
  a.shards = shards(axes, "megatron");
  return ranks;
}

std::string left_of_texts() { return "start it again"; }

int generate_launched(GenerateArguments a, const LaunchedRank& launched) {
  return run_launched(launched, /*meet=*/"", [&] {
    const int ranks = read_mesh(a);
    check(ranks > 0, "spool generate runs in one process, or in ranks that share the model, and ",
          launched.launcher, " started ", launched.size, "; give --mesh tensor=", launched.size,
          ", or start it without ", launched.launcher);
    check(ranks == launched.size, launched.launcher, " started ", launched.size,
          " ranks, and --mesh ", a.mesh, " has ", ranks, "; give it as many");
    return RankWork{.run = [&a](const auto& own) { return generate_as_rank(a, own); },
                    .is_left = left_of_texts};
  });
}

// Without a mesh, what is wrong with a launcher's variables is for spool train to say.
std::optional<LaunchedRank> launched_with(const std::string& mesh) {
  try {
    return rank_of_launcher();
  } catch (const Error&) {
    if (!mesh.empty()) throw;
    return {};
  }
}

int generate_on_ranks(GenerateArguments a) {
  if (const auto launched = launched_with(a.mesh)) return generate_launched(a, *launched);
  const int ranks = read_mesh(a);
  if (ranks == 0) return generate(a);
  if (chooses_gpus(a.device)) {
    check_gpus(ranks, gpu_count());
    if (ranks > 1) return run_as_processes(ranks, left_of_texts, FirstRank::reads_the_terminal);
  }
  int code = 0;
  run_ranks(ranks, [&](const std::shared_ptr<Communicator>& own) {
    const int of_rank = generate_as_rank(a, own);
    if (own->rank() == 0) code = of_rank;
  });
  return code;
}

void add_sampling_flags(CLI::App& app, GenerateArguments& a) {
  const auto by_default = [](const char* what, const char* otherwise) {
    return sentence(what, "; by default what the model's generation_config.json says, or else ",
                    otherwise);
  };
  app.add_option("--temperature", a.temperature,
                 by_default("Temperature of sampling; 0: always the most probable token", "0.8"));
  app.add_option("--top-k", a.top_k,
                 by_default("Number of most probable tokens to draw from; 0: all", "0"));
  app.add_option("--top-p", a.top_p,
                 by_default("Draw from the fewest tokens that have this share of the probability "
                            "together",
                            "1"));
  app.add_option("--min-p", a.min_p,
                 by_default("Draw from the tokens that are at least this share as probable as the "
                            "first",
                            "0"));
  app.add_option("--repetition-penalty", a.repetition_penalty,
                 by_default("Above 1: tokens that the text has become less probable", "1"));
  app.add_option("--stop", a.stops,
                 "A text that ends the continuation, and is not printed; may be given several "
                 "times")
      ->allow_extra_args(false);
  app.add_option("--seed", a.seed, "Seed of the random draws")->capture_default_str();
}

void add_chat_flags(CLI::App& app, GenerateArguments& a) {
  app.add_flag("--chat", a.chat,
               "Prompts are messages to an assistant, in the format of chats that the model's "
               "folder names; without a prompt, a conversation line by line");
  app.add_option("--chat-format", a.chat_format,
                 sentence("The format of chats: ", chat_format_names(),
                          "; with +bos after it, the token that begins texts comes first; or a "
                          "file of JSON that describes it; by default that of the model's "
                          "template, if it is a known one"));
  app.add_option("--system", a.system, "What the assistant is told before the conversation");
}

}  // namespace

std::function<int()> add_generate(CLI::App& app) {
  const auto a = std::make_shared<GenerateArguments>();
  add_model_flag(app, a->model)->required();
  add_adapter_flags(app, a->adapter, a->base);
  app.add_option("--prompt", a->prompt, "Text to continue; by default a new text");
  app.add_option("--prompts", a->prompts,
                 "A file, or - for standard input, with a prompt in each line");
  app.add_option("--samples", a->samples, "Number of texts to write for each prompt")
      ->capture_default_str();
  app.add_option("--batch", a->batch, "Number of texts that are written at a time")
      ->capture_default_str();
  app.add_flag("--json", a->json, "Print a line of JSON for each text");
  app.add_option("--tokens", a->tokens,
                 "Maximum number of tokens to write; the text may end earlier")
      ->capture_default_str();
  app.add_option("--context", a->context,
                 "Maximum number of tokens that the model sees at a time, which takes memory for "
                 "their keys and values; by default as many as the text will have, and of a "
                 "conversation 4096 if the model's context is not smaller");
  app.add_flag("--interactive", a->interactive,
               "Read prompts line by line; an empty line continues the text");
  add_chat_flags(app, *a);
  add_sampling_flags(app, *a);
  add_tokenizer_flags(app, a->tokenizer);
  add_dtype_flag(app, a->dtype, "Type of the computation: f32 or bf16")->capture_default_str();
  add_parameters_flag(app, a->parameters);
  add_setting(app, "device", a->device);
  add_setting(app, "threads", a->threads);
  app.add_option(
      "--mesh", a->mesh,
      "How ranks are arranged that share the model, such as tensor=4, without an axis data: "
      "threads of this program, on GPUs processes with a GPU each, or those of a launcher; each "
      "has its part of the weights and of the keys and values");
  return [a] { return generate_on_ranks(*a); };
}

}  // namespace spool
