#include <iostream>
#include <memory>

#include "spool/models/cli/commands.h"
#include "spool/models/cli/generation.h"
#include "spool/models/cli/interrupt.h"
#include "spool/models/cli/text_model.h"
#include "spool/models/inference/batch_generator.h"
#include "spool/models/inference/continuation.h"
#include "spool/runtime/files/file.h"

namespace spool {
namespace {

struct Prompt {
  std::string text;
  std::vector<int32_t> tokens;
};

std::string all_of_prompts(const std::string& file) {
  constexpr uint64_t max_bytes = uint64_t{1} << 28;
  if (file != "-") return read_text_file(file, max_bytes);
  return {std::istreambuf_iterator<char>(std::cin), {}};
}

int64_t seen_at_a_time(const Generation& g) {
  const int64_t context = g.file.config().shape().context, asked = g.arguments.context;
  return asked > 0 ? std::min(asked, context) : context;
}

// Every line that is not empty.
std::vector<Prompt> read_prompts(const Generation& g) {
  const GenerateArguments& a = g.arguments;
  if (a.prompts.empty()) return {{.text = a.prompt, .tokens = g.tokens_of(a.prompt)}};
  std::string all = all_of_prompts(a.prompts);
  if (all.starts_with("\xef\xbb\xbf")) all.erase(0, 3);  // UTF-8's byte order mark
  const std::string name = a.prompts == "-" ? "standard input" : a.prompts;
  const int64_t longest = seen_at_a_time(g);
  std::vector<Prompt> prompts;
  int64_t number = 0;
  for (size_t begin = 0; begin < all.size();) {
    const size_t end = std::min(all.find('\n', begin), all.size());
    std::string line = all.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    Prompt& p = prompts.emplace_back(Prompt{.text = line, .tokens = g.tokens_of(line)});
    const int64_t n = std::ssize(p.tokens);
    check(n + a.tokens <= longest, name, ": line ", number, " has ", n, " tokens; with the ",
          a.tokens, " of --tokens they are more than the ", longest,
          " that the model sees at a time");
  }
  check(!prompts.empty(), name, ": there is no prompt; each line that is not empty is one");
  return prompts;
}

// Prints each text once those before it are printed.
class BatchWriter {
 public:
  BatchWriter(const Generation& g, std::vector<Prompt> prompts)
      : g_(g), prompts_(std::move(prompts)) {
    for (const Prompt& p : prompts_) longest_ = std::max(longest_, std::ssize(p.tokens));
    texts_ = g.arguments.samples * std::ssize(prompts_);
    rows_ = std::min(g.arguments.batch, texts_);
    const int64_t tokens = longest_ + g.arguments.tokens;
    model_.emplace(
        g.arguments, g.file,
        TextWork{
            .texts = rows_, .tokens = tokens, .prompt = longest_, .added = g.arguments.tokens});
    generator_.emplace(model_->model(), model_->stream(), rows_, tokens, model_->shared());
  }

  void write() {
    for (int64_t first = 0; first < texts_ && !interrupted(); first += rows_) {
      write(first, std::min(rows_, texts_ - first));
    }
  }

 private:
  struct Text {
    Continuation added;
    std::string text = {};
  };

  void write(int64_t first, int64_t count) {
    std::vector<BatchGenerator::Row> rows;
    std::vector<Text> texts;
    for (int64_t i = first; i < first + count; ++i) {
      rows.push_back({.tokens = prompt_of(i).tokens,
                      .random = draws_of(g_.arguments.seed, i / g_.arguments.samples,
                                         i % g_.arguments.samples)});
      const bool whole = prompt_of(i).text.empty() && !g_.chat;
      texts.push_back({.added = Continuation(
                           g_.tokenizer, whole ? TextStream::From::begin : TextStream::From::middle,
                           g_.arguments.stops)});
    }
    generator_->extend(rows, g_.arguments.tokens, g_.sampling, [&](size_t i, int32_t token) {
      texts[i].text += texts[i].added.add(token);
      return !texts[i].added.is_stopped() && !interrupted();
    });
    if (interrupted()) return;
    for (size_t i = 0; i < texts.size(); ++i) {
      texts[i].text += texts[i].added.finish();
      print_text(first + static_cast<int64_t>(i), texts[i]);
    }
  }

  // Samples of a prompt follow each other.
  const Prompt& prompt_of(int64_t text) const {
    return prompts_[static_cast<size_t>(text / g_.arguments.samples)];
  }

  void print_text(int64_t number, const Text& t) const {
    const std::string& prompt = prompt_of(number).text;
    const int64_t samples = g_.arguments.samples, sample = number % samples;
    const bool at_limit = t.added.tokens() == g_.arguments.tokens;
    if (g_.arguments.json) {
      return print_json(prompt, samples > 1 ? std::optional(sample) : std::nullopt, t.text,
                        t.added.tokens(),
                        t.added.is_stopped() ? "stop text"
                        : at_limit           ? "limit"
                                             : "stop token");
    }
    const std::string before = sample > 0   ? sentence(between_samples, "\n")
                               : number > 0 ? "\n"
                                            : "";
    print_generated(
        sentence(before, g_.chat ? "> " : "", prompt, g_.chat ? "\n" : "", t.text, "\n"));
  }

  const Generation& g_;
  std::vector<Prompt> prompts_;
  int64_t longest_ = 0, texts_ = 0, rows_ = 0;
  std::optional<TextModel> model_;
  std::optional<BatchGenerator> generator_;
};

}  // namespace

bool fits_batches(const Generation& g) {
  const int64_t given = std::ssize(g.tokens_of(g.arguments.prompt));
  return given + g.arguments.tokens <= seen_at_a_time(g);
}

void write_batches(const Generation& g) {
  BatchWriter writer(g, read_prompts(g));
  catch_interrupts();
  writer.write();
}

}  // namespace spool
