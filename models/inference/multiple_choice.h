#pragma once

// Answers multiple-choice questions (data/questions.h): the model's answer is the completion to
// which it gives the highest probability.

#include <cstdint>
#include <functional>
#include <span>

#include "spool/models/data/questions.h"
#include "spool/models/inference/evaluator.h"

namespace spool {

struct ChoiceResult {
  int64_t questions = 0;
  // Correct answers by the mean of a completion's losses, as llm.c counts, and by their sum.
  int64_t right_by_mean = 0, right_by_sum = 0;
};

// Evaluates a row per completion: the context, whose losses do not count, and the completion.
// `batch` and `seq`: of the evaluator's input.  on_progress is called after each batch.
ChoiceResult answer_questions(std::span<const Question>, Evaluator&, int64_t batch, int64_t seq,
                              const std::function<void(const ChoiceResult&)>& on_progress = {});

}  // namespace spool
