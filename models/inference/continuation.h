#pragma once

// The text that a model adds, token by token.

#include <string>
#include <vector>

#include "spool/models/inference/stop_texts.h"
#include "spool/models/tokenizers/tokenizer.h"

namespace spool {

class Continuation {
 public:
  Continuation(const Tokenizer& tokenizer, TextStream::From from, std::vector<std::string> stops)
      : stream_(tokenizer, from), stops_(std::move(stops)) {}

  // What can be shown now.
  std::string add(int32_t token) {
    ++tokens_;
    return stops_.add(stream_.add(token));
  }
  // The rest, when no token follows.
  std::string finish() {
    std::string rest = stops_.add(stream_.finish());
    return rest + stops_.finish();
  }
  // Whether one of the texts that stop it was found; nothing from there on is shown.
  bool is_stopped() const { return stops_.found(); }
  int64_t tokens() const { return tokens_; }

 private:
  TextStream stream_;
  StopTexts stops_;
  int64_t tokens_ = 0;
};

}  // namespace spool
