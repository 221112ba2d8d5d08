#include <unistd.h>

#include <iostream>
#include <memory>

#include "spool/models/cli/commands.h"
#include "spool/models/cli/generation.h"
#include "spool/models/cli/interrupt.h"
#include "spool/models/cli/terminal/text.h"
#include "spool/models/cli/text_model.h"
#include "spool/models/inference/continuation.h"
#include "spool/models/inference/generator.h"

namespace spool {
namespace {

// Generates and prints text with a model on a stream of its own.
class Writer {
 public:
  explicit Writer(const Generation& g)
      : g_(g),
        random_(g.arguments.seed),
        model_(g.arguments, g.file, work_of(g)),
        generator_(model_.model(), model_.stream(), longest_text(g), model_.shared()),
        json_(g.arguments.json) {}

  void sample(int64_t number) {
    random_ = draws_of(g_.arguments.seed, /*prompt=*/0, number);
    if (g_.arguments.samples > 1) sample_ = number;
  }

  // Starts a new text.
  void begin(const std::string& prompt) {
    generator_.begin();
    generator_.read(g_.tokens_of(prompt));
    prompt_ = prompt;
    const bool whole = prompt.empty() && !g_.chat;
    from_ = whole ? TextStream::From::begin : TextStream::From::middle;
    is_begun_ = true;
  }

  // Adds the next message of a conversation.
  void say(const std::string& message) {
    if (!is_begun_) return begin(message);
    generator_.read(g_.checked(g_.chat->next_turn(last_, message)));
    prompt_ = message;
  }

  // Continues the text and prints what is added.
  void write() {
    Continuation added(g_.tokenizer, from_, g_.arguments.stops);
    from_ = TextStream::From::middle;
    std::string_view ended_by = "limit";
    std::string all;
    const auto show_part = [&](const std::string& part) { json_ ? void(all += part) : show(part); };
    while (added.tokens() < g_.arguments.tokens && !interrupted()) {
      last_ = generator_.next(g_.sampling, random_);
      if (g_.sampling.stops_at(last_)) {
        ended_by = "stop token";
        break;
      }
      show_part(added.add(last_));
      if (added.is_stopped()) break;
    }
    show_part(added.finish());
    if (added.is_stopped()) ended_by = "stop text";
    if (json_) return print_json(prompt_, sample_, all, added.tokens(), ended_by);
    print(text_.rest() + "\n");
  }

  // Files and pipes get the bytes unchanged.
  void show(const std::string& bytes) { print(is_terminal_ ? text_(bytes) : bytes); }
  // Prints the prompt before what is added to it; a reply to a message stands alone.
  void show_prompt(const std::string& prompt) {
    if (!json_ && !g_.chat) show(prompt);
  }

 private:
  // The length of a conversation is not known in advance.
  static int64_t longest_text(const Generation& g) {
    constexpr int64_t of_conversation = 4096;
    const GenerateArguments& a = g.arguments;
    if (a.context > 0) return a.context;
    return a.interactive ? std::min(of_conversation, g.file.config().shape().context)
                         : std::ssize(g.tokens_of(a.prompt)) + a.tokens;
  }
  static TextWork work_of(const Generation& g) {
    const GenerateArguments& a = g.arguments;
    return {.tokens = longest_text(g),
            .prompt = std::ssize(g.tokens_of(a.prompt)),
            .added = a.interactive ? 0 : a.tokens};
  }

  const Generation& g_;
  Random random_;
  TextModel model_;
  Generator generator_;
  TextStream::From from_ = TextStream::From::begin;
  bool is_terminal_ = ::isatty(STDOUT_FILENO), json_, is_begun_ = false;
  int32_t last_ = -1;
  std::optional<int64_t> sample_;
  std::string prompt_;
  TerminalText text_;
};

constexpr const char* help_of_texts =
    "A line starts a new text, an empty line continues it; Ctrl-C ends a text, Ctrl-D the "
    "program.\n";
constexpr const char* help_of_chat =
    "A line is a message; Ctrl-C ends an answer, Ctrl-D the conversation.\n";

// Each line of standard input starts a new text, and an empty line continues the current one; in a
// conversation each line is a message.
void converse(Writer& writer, const Generation& g) {
  const std::string& prompt = g.arguments.prompt;
  const bool terminal = ::isatty(STDIN_FILENO), chats = g.chat.has_value();
  if (terminal) print(chats ? help_of_chat : help_of_texts);
  if (!chats || !prompt.empty()) writer.begin(prompt);
  if (!prompt.empty()) {
    writer.show_prompt(prompt);
    writer.write();
  }
  for (std::string line;;) {
    clear_interrupt();
    if (terminal) print("> ");
    if (!std::getline(std::cin, line)) return print(terminal ? "\n" : "");
    if (line.ends_with('\r')) line.pop_back();  // text from Windows
    if (chats && line.empty()) continue;
    if (chats) {
      writer.say(line);
    } else if (!line.empty()) {
      writer.begin(line);
    }
    writer.show_prompt(line);
    writer.write();
  }
}

}  // namespace

void write_texts(const Generation& g) {
  Writer writer(g);
  catch_interrupts();
  if (g.arguments.interactive) return converse(writer, g);
  for (int64_t i = 0; i < g.arguments.samples && !interrupted(); ++i) {
    if (i > 0 && !g.arguments.json) print(sentence(between_samples, "\n"));
    writer.sample(i);
    writer.begin(g.arguments.prompt);
    writer.show_prompt(g.arguments.prompt);
    writer.write();
  }
}

}  // namespace spool
