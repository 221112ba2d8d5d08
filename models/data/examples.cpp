#include "spool/models/data/examples.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

#include "spool/models/data/json_lines.h"

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
  if (input && !input->string().empty()) says += "\n" + input->string();
  return {{"user", says}, {"assistant", line.member("output").string()}};
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

void Examples::read(const std::filesystem::path& path, const Tokenizer& tokenizer,
                    const std::optional<Chat>& chat, const ExampleOptions& options) {
  const Reader reader(tokenizer, chat, options);
  JsonLines lines(path);
  while (const auto example = lines.next()) add(reader.read(*example), options);
}

void Examples::add(Example e, const ExampleOptions& options) {
  ++counts_.examples;
  if (options.learn_all) std::ranges::fill(e.learnt, 1);
  const auto most = static_cast<size_t>(options.seq) + 1;  // with the last target
  if (options.seq > 0 && e.tokens.size() > most) {
    e.tokens.resize(most);
    e.learnt.resize(most);
    ++counts_.cut;
  }
  const int64_t learnt = e.tokens.empty() ? 0 : std::count(e.learnt.begin() + 1, e.learnt.end(), 1);
  if (learnt == 0) {
    ++counts_.dropped;
    return;
  }
  counts_.tokens += std::ssize(e.tokens);
  counts_.learnt += learnt;
  tokens_.insert(tokens_.end(), e.tokens.begin(), e.tokens.end());
  learnt_.insert(learnt_.end(), e.learnt.begin(), e.learnt.end());
  begins_.push_back(tokens_.size());
}

std::vector<std::vector<int64_t>> rows_of(const Examples& examples, int64_t seq, bool packs) {
  std::vector<int64_t> order(static_cast<size_t>(examples.size()));
  std::iota(order.begin(), order.end(), 0);
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
