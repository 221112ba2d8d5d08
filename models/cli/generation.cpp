// With --json, prints a line of JSON for each text.

#include "spool/models/cli/generation.h"

#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "spool/models/cli/terminal/text.h"
#include "spool/models/families/generation_config.h"
#include "spool/models/inference/stop_tokens.h"
#include "spool/runtime/log.h"

namespace spool {
namespace {

std::optional<Chat> chat_of(const GenerateArguments& a, const ModelFile& file,
                            const Tokenizer& tokenizer) {
  if (!a.chat) return {};
  const ChosenChat chosen = choose_chat(a.chat_format, file.directory());
  if (chosen.has_own_message && a.system.empty()) {
    logger().info(
        "the model's template of chats begins with a message of its own, which Spool does not "
        "add; give what the assistant should be told by --system");
  }
  return open_chat(chosen.choice, tokenizer, file.directory());
}

SamplingOptions sampling_of(const GenerateArguments& a, const GenerationConfig& own) {
  const SamplingOptions usual;
  return {.temperature = a.temperature.value_or(own.temperature.value_or(usual.temperature)),
          .top_k = a.top_k.value_or(own.top_k.value_or(usual.top_k)),
          .top_p = a.top_p.value_or(own.top_p.value_or(usual.top_p)),
          .min_p = a.min_p.value_or(own.min_p.value_or(usual.min_p)),
          .repetition_penalty = a.repetition_penalty.value_or(
              own.repetition_penalty.value_or(usual.repetition_penalty))};
}

}  // namespace

Generation::Generation(const GenerateArguments& a, const ModelFile& f, const Tokenizer& t)
    : arguments(a),
      file(f),
      tokenizer(t),
      chat(chat_of(a, f, t)),
      sampling(sampling_of(a, read_generation_config(f.directory()))) {
  sampling.vocabulary = t.vocabulary();
  sampling.stop_tokens = stop_tokens_of(f.directory(), t);
  if (chat) sampling.stop_tokens.push_back(chat->end());
}

std::vector<int32_t> Generation::tokens_of(const std::string& prompt) const {
  if (chat) return checked(chat->begin(arguments.system, prompt));
  if (prompt.empty()) return start_of_text(tokenizer, file.config().shape().vocabulary);
  std::vector<int32_t> tokens;
  tokenizer.encode(prompt, tokens);
  tokens = checked(std::move(tokens));
  const auto before = begin_of_text_before(tokenizer, tokens, file.config().shape().vocabulary);
  tokens.insert(tokens.begin(), before.begin(), before.end());
  return checked(std::move(tokens));
}

std::vector<int32_t> Generation::checked(std::vector<int32_t> tokens) const {
  check_rows(tokenizer, tokens, file.config().shape().vocabulary, "the prompt");
  return tokens;
}

Random draws_of(uint64_t seed, int64_t prompt, int64_t sample) {
  return Random(seed, static_cast<uint64_t>(prompt) + (static_cast<uint64_t>(sample) << 32));
}

void print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void print_generated(std::string_view text) {
  print(::isatty(STDOUT_FILENO) ? printable(text) : std::string(text));
}

void print_json(const std::string& prompt, std::optional<int64_t> sample, const std::string& text,
                int64_t tokens, std::string_view ended_by) {
  nlohmann::ordered_json line{{"prompt", prompt}};
  if (sample) line["sample"] = *sample;
  line["text"] = text;
  line["tokens"] = tokens;
  line["ended_by"] = ended_by;
  constexpr auto replace = nlohmann::ordered_json::error_handler_t::replace;
  print(line.dump(/*indent=*/-1, ' ', /*ensure_ascii=*/false, replace) + "\n");
}

}  // namespace spool
