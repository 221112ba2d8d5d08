#pragma once

// Turns the tokens that a model adds into text, one by one, up to a stop text.

#include <string>
#include <vector>

#include "spool/models/inference/stop_texts.h"
#include "spool/models/tokenizers/tokenizer.h"

namespace spool {

class Continuation {
 public:
  Continuation(const Tokenizer& tokenizer, TextStream::From from, std::vector<std::string> stops)
      : stream_(tokenizer, from), stops_(std::move(stops)) {}

  // Adds a token; returns the text that can be shown now.
  std::string add(int32_t token) {
    ++tokens_;
    return stops_.add(stream_.add(token));
  }
  // The rest of the text, when no token follows.
  std::string finish() {
    std::string rest = stops_.add(stream_.finish());
    return rest + stops_.finish();
  }
  // Whether a stop text was found; nothing from there on is shown.
  bool is_stopped() const { return stops_.found(); }
  int64_t tokens() const { return tokens_; }

 private:
  TextStream stream_;
  StopTexts stops_;
  int64_t tokens_ = 0;
};

}  // namespace spool
