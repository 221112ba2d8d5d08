#include "spool/models/data/example_reader.h"

#include "spool/runtime/check.h"
#include "spool/runtime/files/file.h"

namespace spool {

namespace fs = std::filesystem;

std::optional<Chat> ExampleReader::chat() const {
  if (!chat_format.empty()) {
    return open_chat(choose_chat(chat_format, directory).choice, tokenizer, directory);
  }
  if (directory.empty()) return {};
  return find_chat(tokenizer, directory);
}

bool ExampleReader::lacks_own_message() const {
  if (!options.system.empty() || directory.empty()) return false;
  const bool is_known = !chat_format.empty() || find_chat(tokenizer, directory);
  return is_known && choose_chat(chat_format, directory).has_own_message;
}

std::shared_ptr<const Examples> ExampleReader::read(std::span<const fs::path> files) const {
  const std::optional<Chat> chat = this->chat();
  size_t total = 0, before = 0;
  for (const fs::path& file : files) total += File::open(file).size();
  ExampleOptions of_file = options;
  of_file.progress = [&](uint64_t bytes) {
    if (progress) progress(before + bytes, total);
  };
  const auto examples = std::make_shared<Examples>();
  for (const fs::path& file : files) {
    examples->read(file, tokenizer, chat, of_file);
    before += File::open(file).size();
  }
  const int64_t count = examples->counts().examples;
  check_file(count > 0, files.front(), "has no example, nor has any file that is given with it");
  check_file_setting(examples->size() > 0, files.front(), {"seq"}, "of ", count,
                     count == 1 ? " example" : " examples",
                     " none has anything to learn in rows of ", options.seq,
                     " tokens, at which they are cut");
  return examples;
}

}  // namespace spool
