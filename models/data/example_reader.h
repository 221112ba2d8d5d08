#pragma once

// Reads files of examples (examples.h) for a model.

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "spool/models/data/examples.h"

namespace spool {

struct ExampleReader {
  const Tokenizer& tokenizer;
  std::filesystem::path directory = {};  // with the model's template of chats; empty: there is none
  std::string chat_format = {};          // in place of the template's; empty: not given
  ExampleOptions options = {};
  // Called now and then, with bytes.
  std::function<void(size_t done, size_t total)> progress = {};

  // Throws if the files have no example, or none of them has anything to learn.
  std::shared_ptr<const Examples> read(std::span<const std::filesystem::path> files) const;
  // How conversations are written; none if that is not known.
  std::optional<Chat> chat() const;
  // Whether the template adds a message of its own, which conversations here lack.
  bool lacks_own_message() const;
};

}  // namespace spool
