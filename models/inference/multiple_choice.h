#pragma once

// Multiple-choice questions such as HellaSwag (Zellers et al. 2019), from the files that llm.c
// makes of them: a context, and completions of which one is right.  A model's answer is the
// completion to whose tokens it gives the highest probability.
//
// A file is 256 x int32 [20240522, 1, questions, bytes of the longest], then for each question
// uint16: 65535, its bytes, its index, the right completion, how many completions there are, and
// the context and each completion as a count and as many tokens.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "spool/models/inference/evaluator.h"

namespace spool {

struct Question {
  int32_t answer = 0;  // the completion that is right
  std::vector<int32_t> context;
  std::vector<std::vector<int32_t>> completions;
};

// Throws where a field is wrong, or a token is not in the vocabulary.
std::vector<Question> read_questions(const std::filesystem::path&, int64_t vocabulary);

// By how the file begins.
bool has_questions(const std::filesystem::path&);

// Tokens of the longest row that the questions make.
int64_t longest_row(std::span<const Question>);

struct ChoiceResult {
  int64_t questions = 0;
  // Correct answers by the mean of a completion's losses, as llm.c counts, and by their sum.
  int64_t right_by_mean = 0, right_by_sum = 0;
};

// A row has a question's context, whose losses are not counted, then one completion.  `batch` and
// `seq` are those of the evaluator's input.  on_progress is called after each batch.
ChoiceResult answer_questions(std::span<const Question>, Evaluator&, int64_t batch, int64_t seq,
                              const std::function<void(const ChoiceResult&)>& on_progress = {});

}  // namespace spool
