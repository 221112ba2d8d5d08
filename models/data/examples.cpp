#include "spool/models/data/examples.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "spool/models/data/json_lines.h"
#include "spool/runtime/files/file_kind.h"

namespace spool {
namespace {

// A text, or a list of parts that are text.
std::string content_of(const JsonField& field) {
  if (!field.is_list()) return field.string();
  std::string text;
  for (const JsonField& part : field.items()) {
    const std::string type = part.member("type").string();
    part.member("type").expect(type == "text", "a part of the type '", type,
                               "'; Spool trains on text alone");
    text += part.member("text").string();
  }
  return text;
}

std::vector<ChatMessage> messages_of(const JsonField& list) {
  std::vector<ChatMessage> messages;
  for (const JsonField& item : list.items()) {
    const auto tools = item.present("tool_calls");
    if (tools) tools->refuse("calls of tools; Spool trains on text alone");
    messages.push_back({item.member("role").string(), content_of(item.member("content"))});
  }
  return messages;
}

std::vector<ChatMessage> messages_of_sharegpt(const JsonField& list) {
  const std::map<std::string, std::string> roles{
      {"system", "system"}, {"human", "user"}, {"gpt", "assistant"}};
  std::vector<ChatMessage> messages;
  for (const JsonField& item : list.items()) {
    const JsonField from = item.member("from");
    const auto role = roles.find(from.string());
    from.expect(role != roles.end(), "'", from.string(), "' is none of system, human and gpt");
    messages.push_back({role->second, content_of(item.member("value"))});
  }
  return messages;
}

std::vector<ChatMessage> messages_of_alpaca(const JsonField& line) {
  std::string says = line.member("instruction").string();
  const auto input = line.present("input");
  if (input && !input->string().empty()) says = sentence(says, "\n", input->string());
  return {{"user", says}, {"assistant", line.member("output").string()}};
}

bool is_json_object(const std::string& text) {
  return nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false).is_object();
}

// The whole line is read only of a file that begins as an object does.
bool begins_with_an_object(const std::filesystem::path& path) {
  std::string begin = beginning_of(File::open(path), JsonLines::utf8_mark.size() + 1);
  if (begin.starts_with(JsonLines::utf8_mark)) begin.erase(0, JsonLines::utf8_mark.size());
  if (!begin.starts_with('{')) return false;
  try {
    return is_json_object(JsonLines(path).next_line().value_or(""));
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::file) throw;
    return false;  // no line of text is as long
  }
}

bool is_named_as_examples(const std::filesystem::path& path) {
  std::string extension = path.extension().string();
  std::ranges::transform(extension, extension.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension == ".jsonl" || extension == ".ndjson";
}

Example example_of(const Tokenizer& tokenizer, const std::string& prompt,
                   const std::string& completion, std::optional<int32_t> stop) {
  Example example{.tokens = tokenizer.begin_of_text()};
  append(tokenizer, prompt, {}, example);
  tokenizer.encode_rest(completion, example.tokens);
  if (stop) example.tokens.push_back(*stop);
  example.learnt.resize(example.tokens.size(), 1);
  return example;
}

// The first token has none before it.
int64_t targets_in(std::span<const uint8_t> learnt) {
  return learnt.empty() ? 0 : std::ranges::count(learnt.subspan(1), 1);
}

class Reader {
 public:
  Reader(const Tokenizer& tokenizer, const std::optional<Chat>& chat, const ExampleOptions& options)
      : tokenizer_(tokenizer), chat_(chat), options_(options) {}

  Example read(const JsonField& line) const {
    if (const auto list = line.find("messages")) return conversation(*list, messages_of(*list));
    if (const auto list = line.find("conversations")) {
      return conversation(*list, messages_of_sharegpt(*list));
    }
    if (const auto prompt = line.find("prompt")) {
      const auto completion = line.find("completion");
      const JsonField says = completion ? *completion : line.member("response");
      return example_of(tokenizer_, prompt->string(), says.string(), options_.stop);
    }
    if (const auto says = line.find("instruction")) {
      return conversation(*says, messages_of_alpaca(line));
    }
    const auto text = line.find("text");
    line.expect(text.has_value(), "is an example of no known form: it has none of messages, ",
                "conversations, prompt, instruction and text");
    return example_of(tokenizer_, "", text->string(), options_.stop);
  }

 private:
  Example conversation(const JsonField& field, std::vector<ChatMessage> messages) const {
    field.expect(!messages.empty(), "is empty; a conversation has messages");
    check_file_setting(chat_.has_value(), field.file(), {"chat-format"},
                       "it is a conversation, and the model has no template of chats that Spool "
                       "knows; name a format, such as chatml");
    const auto answers = [](const ChatMessage& m) { return m.role == "assistant"; };
    field.expect(std::ranges::any_of(messages, answers), "has no message of the assistant");
    if (!options_.system.empty() && messages.front().role != "system") {
      messages.insert(messages.begin(), {"system", options_.system});
    }
    try {
      return chat_->encode(messages);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::invalid) throw;
      field.refuse(e.what());
    }
  }

  const Tokenizer& tokenizer_;
  const std::optional<Chat>& chat_;
  const ExampleOptions& options_;
};

}  // namespace

bool are_examples(std::span<const std::filesystem::path> files, DataFormat format) {
  if (format != DataFormat::automatic) return false;
  const std::filesystem::path *examples = nullptr, *others = nullptr;
  for (const auto& path : files) {
    const bool is_one = is_named_as_examples(path) || begins_with_an_object(path);
    (is_one ? examples : others) = &path;
  }
  check_setting(!examples || !others, {"data"}, "the data has both examples in lines of JSON, as ",
                examples ? examples->string() : "", ", and text or tokens, as ",
                others ? others->string() : "", "; give only one kind");
  return examples != nullptr;
}

void Examples::read(const std::filesystem::path& path, const Tokenizer& tokenizer,
                    const std::optional<Chat>& chat, const ExampleOptions& options) {
  const Reader reader(tokenizer, chat, options);
  JsonLines lines(path);
  while (const auto line = lines.next()) {
    Example read = reader.read(*line);
    check_rows(tokenizer, read.tokens, options.rows, line->file());
    add(std::move(read), options);
    if (options.progress) options.progress(lines.bytes_read());
  }
}

int64_t Examples::targets(int64_t example) const { return targets_in(learnt(example)); }

void Examples::add(Example e, const ExampleOptions& options) {
  ++counts_.examples;
  const auto prompt = std::ranges::find(e.learnt, 1) - e.learnt.begin();
  if (options.learn_all) std::ranges::fill(e.learnt, 1);
  const auto most = static_cast<size_t>(options.seq) + 1;  // with the last target
  if (options.seq > 0 && e.tokens.size() > most) {
    e.tokens.resize(most);
    e.learnt.resize(most);
    ++counts_.cut;
  }
  const int64_t learnt = targets_in(e.learnt);
  if (learnt == 0) {
    ++counts_.dropped;
    return;
  }
  counts_.tokens += std::ssize(e.tokens);
  counts_.learnt += learnt;
  tokens_.insert(tokens_.end(), e.tokens.begin(), e.tokens.end());
  learnt_.insert(learnt_.end(), e.learnt.begin(), e.learnt.end());
  begins_.push_back(tokens_.size());
  prompts_.push_back(static_cast<int32_t>(std::min(prompt, std::ssize(e.tokens))));
}

std::vector<std::vector<int64_t>> rows_of(const Examples& examples, Range among, int64_t seq,
                                          bool packs) {
  std::vector<int64_t> order(static_cast<size_t>(among.size()));
  std::iota(order.begin(), order.end(), among.begin);
  std::vector<std::vector<int64_t>> rows;
  if (!packs) {
    for (const int64_t e : order) rows.push_back({e});
    return rows;
  }
  std::ranges::stable_sort(order, std::greater{}, [&](int64_t e) { return examples.inputs(e); });
  std::multimap<int64_t, size_t> room;  // of rows, in tokens
  for (const int64_t e : order) {
    auto at = room.lower_bound(examples.inputs(e));
    if (at == room.end()) {
      rows.emplace_back();
      at = room.emplace(seq, rows.size() - 1);
    }
    const auto [left, row] = *at;
    room.erase(at);
    rows[row].push_back(e);
    room.emplace(left - examples.inputs(e), row);
  }
  return rows;
}

}  // namespace spool
