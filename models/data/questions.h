#pragma once

// Reads multiple-choice questions such as HellaSwag (Zellers et al. 2019): each is a context with
// completions, one of which is right.
//
// A file has lines of JSON, as HellaSwag is published,
//
//   {"ctx": "A man sits.", "endings": ["He stands up.", "He flies."], "label": 0}
//
// where a completion is an ending after a blank and other fields are passed over; or it is one of
// llm.c's, of 256 x int32 [20240522, 1, questions, bytes of the longest], then for each question
// uint16: 65535, its bytes, its index, the right completion, the number of completions, and the
// context and each completion as a count and that many tokens.

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "spool/models/tokenizers/tokenizer.h"

namespace spool {

struct Question {
  int32_t answer = 0;  // index of the right completion
  std::vector<int32_t> context;
  std::vector<std::vector<int32_t>> completions;
};

// Reads one of llm.c's files.  Throws if a field is wrong or a token is outside the vocabulary.
std::vector<Question> read_questions(const std::filesystem::path&, int64_t vocabulary);

// Reads lines of JSON, for a model with this vocabulary.  Throws an error that names the line and
// the field.
std::vector<Question> read_questions(const std::filesystem::path&, const Tokenizer&,
                                     int64_t vocabulary);

// Whether the file begins like a file of questions; whether these are lines of JSON.
bool has_questions(const std::filesystem::path&);
bool has_question_lines(const std::filesystem::path&);

// The length in tokens of the longest row: a context and a completion without its last token.
int64_t longest_row(std::span<const Question>);

}  // namespace spool
