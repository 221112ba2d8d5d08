#pragma once

// Answers multiple-choice questions (data/questions.h): a model's answer is the completion to whose
// tokens it gives the highest probability.

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

// A row has a question's context, whose losses are not counted, then one completion.  `batch` and
// `seq` are those of the evaluator's input.  on_progress is called after each batch.
ChoiceResult answer_questions(std::span<const Question>, Evaluator&, int64_t batch, int64_t seq,
                              const std::function<void(const ChoiceResult&)>& on_progress = {});

}  // namespace spool
