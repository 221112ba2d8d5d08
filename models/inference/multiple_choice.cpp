#include "spool/models/inference/multiple_choice.h"

#include <algorithm>

#include "spool/models/data/batches.h"

namespace spool {
namespace {

// A row of a batch: one completion of one question.
struct Choice {
  size_t question = 0, completion = 0;
};

void fill_row(const Question& q, const std::vector<int32_t>& completion, std::span<int32_t> tokens,
              std::span<int32_t> targets) {
  std::ranges::fill(tokens, 0);
  std::ranges::fill(targets, ignored_target);
  std::ranges::copy(q.context, tokens.begin());
  std::copy(completion.begin(), completion.end() - 1,
            tokens.begin() + static_cast<int64_t>(q.context.size()));
  std::ranges::copy(completion, targets.begin() + static_cast<int64_t>(q.context.size()) - 1);
}

// The sum of the losses of each row.
std::vector<double> row_losses(std::span<const Question> questions, std::span<const Choice> rows,
                               Evaluator& evaluator, int64_t seq) {
  const Tensor all = evaluator.losses([&](int64_t b, auto tokens, auto targets) {
    if (b >= static_cast<int64_t>(rows.size())) {
      std::ranges::fill(tokens, 0);
      std::ranges::fill(targets, ignored_target);
      return;
    }
    const Choice& row = rows.begin()[b];
    const Question& q = questions[row.question];
    fill_row(q, q.completions[row.completion], tokens, targets);
  });
  const std::vector<float> losses = read<float>(all);
  std::vector<double> sums;
  for (size_t b = 0; b < rows.size(); ++b) {
    const auto row =
        std::span(losses).subspan(b * static_cast<size_t>(seq), static_cast<size_t>(seq));
    double sum = 0;
    for (const float loss : row) sum += static_cast<double>(loss);
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
  std::vector<double> sums;  // of the current question
  for (size_t first = 0; first < rows.size(); first += static_cast<size_t>(batch)) {
    const auto some = std::span(rows).subspan(first).first(
        std::min(static_cast<size_t>(batch), rows.size() - first));
    const std::vector<double> losses = row_losses(questions, some, evaluator, seq);
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
