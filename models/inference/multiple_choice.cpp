#include "spool/models/inference/multiple_choice.h"

#include <algorithm>

namespace spool {
namespace {

// A row of a batch: one completion of one question.
struct Choice {
  size_t question = 0, completion = 0;
};

// Fills row `row` of the batch with the context and the completion, whose tokens alone are targets.
void fill_row(const Question& q, const std::vector<int32_t>& completion, int64_t row,
              TokenBatch& batch) {
  const auto context = static_cast<int64_t>(q.context.size());
  const auto tokens = batch.tokens.begin() + row * batch.T;
  std::ranges::copy(q.context, tokens);
  std::copy(completion.begin(), completion.end() - 1, tokens + context);
  std::ranges::copy(completion, batch.targets.begin() + row * batch.T + context - 1);
  batch.valid += static_cast<int64_t>(completion.size());
}

// The sum of the losses of each of these rows, which are the first of the batch.
std::vector<double> row_losses(std::span<const Question> questions, std::span<const Choice> rows,
                               Evaluator& evaluator, TokenBatch& batch) {
  for (size_t b = 0; b < rows.size(); ++b) {
    const Question& q = questions[rows[b].question];
    fill_row(q, q.completions[rows[b].completion], static_cast<int64_t>(b), batch);
  }
  const std::vector<float> losses = read<float>(evaluator.losses(batch));
  const auto seq = static_cast<size_t>(batch.T);
  std::vector<double> sums;
  for (size_t b = 0; b < rows.size(); ++b) {
    double sum = 0;
    for (const float loss : std::span(losses).subspan(b * seq, seq))
      sum += static_cast<double>(loss);
    sums.push_back(sum);
  }
  return sums;
}

void count(const Question& q, const std::vector<double>& sums, ChoiceResult& result) {
  std::vector<double> means;
  for (size_t i = 0; i < sums.size(); ++i) {
    means.push_back(sums[i] / static_cast<double>(q.completions[i].size()));
  }
  const auto right = [&](const std::vector<double>& losses) {
    return std::ranges::min_element(losses) - losses.begin() == q.answer;
  };
  ++result.questions;
  result.right_by_mean += right(means);
  result.right_by_sum += right(sums);
}

}  // namespace

ChoiceResult answer_questions(std::span<const Question> questions, Evaluator& evaluator,
                              int64_t batch, int64_t seq,
                              const std::function<void(const ChoiceResult&)>& on_progress) {
  std::vector<Choice> rows;
  for (size_t q = 0; q < questions.size(); ++q) {
    for (size_t c = 0; c < questions[q].completions.size(); ++c) rows.push_back({q, c});
  }
  ChoiceResult result;
  TokenBatch input;
  std::vector<double> sums;  // of the current question
  for (size_t first = 0; first < rows.size(); first += static_cast<size_t>(batch)) {
    const auto some = std::span(rows).subspan(first).first(
        std::min(static_cast<size_t>(batch), rows.size() - first));
    input.clear(batch, seq);
    const std::vector<double> losses = row_losses(questions, some, evaluator, input);
    for (size_t i = 0; i < some.size(); ++i) {
      const Question& q = questions[some[i].question];
      sums.push_back(losses[i]);
      if (sums.size() < q.completions.size()) continue;
      count(q, sums, result);
      sums.clear();
    }
    if (on_progress) on_progress(result);
  }
  return result;
}

}  // namespace spool
