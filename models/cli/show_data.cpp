// spool show-data: examples in files of JSON lines, as a model would see them.

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "spool/models/cli/command_line.h"
#include "spool/models/cli/commands.h"
#include "spool/models/cli/terminal/text.h"
#include "spool/models/cli/terminal/width.h"
#include "spool/models/data/example_reader.h"
#include "spool/models/data/find_files.h"
#include "spool/models/families/model_file.h"
#include "spool/models/inference/stop_tokens.h"
#include "spool/models/training/settings/setting_checks.h"
#include "spool/runtime/files/file.h"

namespace spool {
namespace {

using nlohmann::json;

struct ShowDataArguments {
  std::vector<std::string> in;
  std::string model, adapter, base, chat_format, system, json;
  TokenizerChoice tokenizer = {};
  int64_t rows = 3, seq = 0;
  std::string learn = "assistant";
  bool packs = true;
};

struct ShownData {
  std::shared_ptr<const Examples> examples = {};
  std::vector<std::vector<int64_t>> rows = {};
  int64_t seq = 0;

  double fill() const {
    int64_t inputs = 0;
    for (int64_t e = 0; e < examples->size(); ++e) inputs += examples->inputs(e);
    return static_cast<double>(inputs) / static_cast<double>(seq * std::ssize(rows));
  }
};

ShownData read_data(const ShowDataArguments& a, const Tokenizer& tokenizer,
                    const ModelDescription& model) {
  constexpr int64_t usual_seq = 1024;
  const int64_t context = model.config.shape().context;
  check(a.seq <= context, "--seq ", a.seq, " is beyond the model's context of ", context,
        " tokens");
  ShownData data{.seq = a.seq ? a.seq : std::min(usual_seq, context)};
  const int64_t rows = model.config.shape().vocabulary;
  const ExampleReader reader{.tokenizer = tokenizer,
                             .directory = model.directory,
                             .chat_format = a.chat_format,
                             .options = {.seq = data.seq,
                                         .learn_all = a.learn == "all",
                                         .system = a.system,
                                         .stop = first_stop_token(model.directory, tokenizer, rows),
                                         .rows = rows},
                             .progress = [](size_t, size_t) {
                               if (interrupted()) throw Interrupted();
                             }};
  data.examples = reader.read(find_files(a.in));
  data.rows = rows_of(*data.examples, data.seq, a.packs);
  return data;
}

// What is learnt stands between marks.
std::string marked_text(const Examples& examples, int64_t example, const Tokenizer& tokenizer) {
  const auto tokens = examples.tokens(example);
  const auto learnt = examples.learnt(example);
  std::string text;
  for (size_t begin = 0; begin < tokens.size();) {
    const bool is_learnt = begin > 0 && learnt[begin];
    size_t end = begin + 1;
    while (end < tokens.size() && (learnt[end] != 0) == is_learnt) ++end;
    const auto run = tokens.subspan(begin, end - begin);
    const std::string part = begin == 0 ? tokenizer.decode(run) : tokenizer.decode_rest(run);
    text += is_learnt ? "\u00bb" + part + "\u00ab" : part;
    begin = end;
  }
  return text;
}

std::string words_of(const ShownData& data) {
  const ExampleCounts& counts = data.examples->counts();
  return fmt::format(
      "{}: {} cut at {} tokens, {} dropped with nothing to learn\n"
      "{} of {} tokens, {:.1f} % full; {}, of which {} are learnt\n",
      count_of(counts.examples, "example"), counts.cut, data.seq + 1, counts.dropped,
      count_of(std::ssize(data.rows), "row"), data.seq, 100 * data.fill(),
      count_of(counts.tokens, "token"), counts.learnt);
}

std::string rows_text(const ShownData& data, int64_t rows, const Tokenizer& tokenizer) {
  std::string text;
  for (int64_t r = 0; r < std::min(rows, std::ssize(data.rows)); ++r) {
    const auto& examples = data.rows[static_cast<size_t>(r)];
    int64_t inputs = 0;
    for (const int64_t e : examples) inputs += data.examples->inputs(e);
    text += fmt::format("\n--- row {}: {}, {} of {} tokens\n", r,
                        count_of(std::ssize(examples), "example"), inputs, data.seq);
    for (const int64_t e : examples) text += marked_text(*data.examples, e, tokenizer) + "\n";
  }
  return text;
}

json report_of(const ShownData& data, int64_t rows) {
  const ExampleCounts& counts = data.examples->counts();
  json shown = json::array();
  for (int64_t r = 0; r < std::min(rows, std::ssize(data.rows)); ++r) {
    json examples = json::array();
    for (const int64_t e : data.rows[static_cast<size_t>(r)]) {
      examples.push_back(
          {{"tokens", data.examples->tokens(e)}, {"learnt", data.examples->learnt(e)}});
    }
    shown.push_back(std::move(examples));
  }
  return {
      {"examples", counts.examples}, {"cut", counts.cut},       {"dropped", counts.dropped},
      {"tokens", counts.tokens},     {"learnt", counts.learnt}, {"seq", data.seq},
      {"rows", data.rows.size()},    {"fill", data.fill()},     {"first_rows", std::move(shown)}};
}

int show_data(const ShowDataArguments& a) {
  catch_interrupts();
  if (!a.chat_format.empty()) named_chat_format(a.chat_format);
  const bool has_file = !a.json.empty() && a.json != "-";
  if (has_file) check_writable(a.json, {"json"});
  const ModelDescription model = describe_model({a.model, a.adapter, a.base});
  const auto tokenizer = open_tokenizer(choose_tokenizer(a.tokenizer, model.directory));
  const ShownData data = read_data(a, *tokenizer, model);
  if (a.json != "-") {
    print_lines(words_of(data) + printable(rows_text(data, a.rows, *tokenizer)));
  }
  if (a.json.empty()) return 0;
  const std::string report = report_of(data, a.rows).dump() + "\n";
  if (has_file) {
    write_text_file_atomically(a.json, report);
  } else {
    fmt::print("{}", report);
  }
  return 0;
}

}  // namespace

std::function<int()> add_show_data(CLI::App& app) {
  const auto a = std::make_shared<ShowDataArguments>();
  app.add_option("FILE", a->in,
                 "Files or globs of JSON lines: messages, conversations (ShareGPT), prompt and "
                 "completion, instruction and output (Alpaca), or text")
      ->required();
  add_model_flag(app, a->model)->required();
  add_adapter_flags(app, a->adapter, a->base);
  app.add_option("--rows", a->rows, "Number of rows to show")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20));
  app.add_option("--seq", a->seq,
                 "Tokens of a row, at which examples are cut; by default 1024, or the model's "
                 "context if that is smaller")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  app.add_flag("!--no-pack", a->packs, "Give each example a row of its own");
  app.add_option("--learn", a->learn,
                 "What is learnt: of conversations what the assistant says, and of prompts the "
                 "completion, or all")
      ->capture_default_str()
      ->check(validator(one_of({"assistant", "all"})));
  app.add_option("--chat-format", a->chat_format,
                 "The format of chats: " + chat_format_names() +
                     ", with +bos after it or without; or a file of JSON that describes it; by "
                     "default that of the model's template, if it is a known one");
  app.add_option("--system", a->system,
                 "What the assistant is told in conversations without a system message");
  add_tokenizer_flags(app, a->tokenizer);
  app.add_option("--json", a->json,
                 "File to write the counts and the tokens of the rows to, as JSON; -: standard "
                 "output, and nothing else there")
      ->transform(validator(standard_output_as("-")));
  return [a] { return show_data(*a); };
}

}  // namespace spool
