#pragma once

// Examples to train on, from files in which each line is a JSON object (JSONL), of any of
//
//   {"messages": [{"role": "user", "content": ...}, ...]}      a conversation
//   {"conversations": [{"from": "human", "value": ...}, ...]}  the same, as ShareGPT writes it:
//                                                              system, human and gpt
//   {"prompt": ..., "completion": ...}                         or "response"
//   {"instruction": ..., "input": ..., "output": ...}          as Alpaca does: a conversation
//                                                              whose user says instruction, line
//                                                              end, input
//   {"text": ...}
//
// and the rows of tokens that they become.  Other fields are passed over.  Of a conversation what
// the assistant says is learnt (chat.h), of a prompt with a completion the completion and a token
// that ends a text, of a text all of it.

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "spool/models/data/chats/chat.h"
#include "spool/models/data/text_files.h"
#include "spool/models/tokenizers/tokenizer.h"
#include "spool/runtime/shape.h"

namespace spool {

// Whether files are examples, by their name, .jsonl or .ndjson, or their first line, a JSON object.
// Throws if some are and others are not.
bool are_examples(std::span<const std::filesystem::path> files, DataFormat = DataFormat::automatic);

// What of examples a model learns to write: answers, as above, or every token.
enum class Learn : uint8_t { assistant, all };
template <>
inline constexpr std::array enumerator_names<Learn>{"assistant", "all"};

struct ExampleOptions {
  int64_t seq = 0;  // tokens of a row; longer examples are cut at their end
  bool learn_all = false;
  std::string system = {};           // for conversations without a system message
  std::optional<int32_t> stop = {};  // after a completion and a text
  int64_t rows = INT32_MAX;          // tokens that the model knows
  // Called now and then with the bytes of a file that are read.
  std::function<void(uint64_t bytes)> progress = {};
};

struct ExampleCounts {
  int64_t examples = 0;
  int64_t cut = 0;      // were longer than a row
  int64_t dropped = 0;  // had nothing left to learn
  int64_t tokens = 0;   // of those that are left, of which so many are learnt
  int64_t learnt = 0;
};

class Examples {
 public:
  // Reads a file's lines after those of others.  Throws an error that names the file, the line and
  // the field; of conversations also if there is no chat.
  void read(const std::filesystem::path&, const Tokenizer&, const std::optional<Chat>&,
            const ExampleOptions&);

  const ExampleCounts& counts() const { return counts_; }
  int64_t size() const { return std::ssize(begins_) - 1; }
  std::span<const int32_t> tokens(int64_t example) const { return part(tokens_, example); }
  std::span<const uint8_t> learnt(int64_t example) const { return part(learnt_, example); }
  // The tokens before the first that is an answer, which may be none.
  std::span<const int32_t> prompt(int64_t example) const {
    return tokens(example).first(static_cast<size_t>(prompts_[static_cast<size_t>(example)]));
  }
  // Tokens that a row needs for it: all but the last, which is a target alone.
  int64_t inputs(int64_t example) const { return std::ssize(tokens(example)) - 1; }
  // Tokens that are learnt after others.
  int64_t targets(int64_t example) const;

 private:
  template <class T>
  std::span<const T> part(const std::vector<T>& all, int64_t example) const {
    const auto at = static_cast<size_t>(example);
    return std::span(all).subspan(begins_[at], begins_[at + 1] - begins_[at]);
  }
  void add(Example, const ExampleOptions&);

  std::vector<int32_t> tokens_ = {};
  std::vector<uint8_t> learnt_ = {};
  std::vector<size_t> begins_{0};
  std::vector<int32_t> prompts_ = {};  // their lengths
  ExampleCounts counts_ = {};
};

// Which examples each row of `seq` tokens has: as many as fit, the longest first, each in the row
// with the least room that suffices (best fit decreasing; Johnson et al., "Worst-Case Performance
// Bounds for Simple One-Dimensional Packing Algorithms", 1974); or one.
std::vector<std::vector<int64_t>> rows_of(const Examples&, Range among, int64_t seq, bool packs);
inline std::vector<std::vector<int64_t>> rows_of(const Examples& all, int64_t seq, bool packs) {
  return rows_of(all, {0, all.size()}, seq, packs);
}

}  // namespace spool
