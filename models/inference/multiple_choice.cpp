#include "spool/models/inference/multiple_choice.h"

#include <algorithm>

#include "spool/models/data/batches.h"
#include "spool/models/formats/llmc_header.h"
#include "spool/runtime/files/mapped_file.h"

namespace spool {
namespace {

constexpr uint16_t start_of_question = 65535;

// One question's words, taken one after the other.
class QuestionParser {
 public:
  QuestionParser(const std::string& file, size_t index, std::span<const uint16_t> words)
      : file_(file), index_(index), words_(words) {}

  // Leaves the words after it.
  Question parse(int64_t vocabulary, std::span<const uint16_t>& rest) {
    const size_t before = words_.size();
    expect(take("start") == start_of_question, "does not start with 65535");
    const size_t bytes = take("bytes");
    expect(take("index") == index_, "has another index");
    Question question;
    question.answer = take("answer");
    const size_t count = take("completions");
    expect(count > 0 && question.answer < static_cast<int32_t>(count), "has ", count,
           " completions, of which ", question.answer, " is to be the right one");
    question.context = tokens("context", vocabulary);
    for (size_t i = 0; i < count; ++i) {
      question.completions.push_back(tokens("completion", vocabulary));
    }
    const size_t taken = (before - words_.size()) * sizeof(uint16_t);
    expect(bytes == taken, "says it has ", bytes, " bytes, and its fields make ", taken);
    rest = words_;
    return question;
  }

 private:
  template <class... Parts>
  void expect(bool ok, const Parts&... parts) const {
    check_file(ok, file_, "question ", index_, " ", parts...);
  }

  uint16_t take(const char* field) {
    expect(!words_.empty(), "ends before its ", field);
    const uint16_t word = words_.front();
    words_ = words_.subspan(1);
    return word;
  }

  std::vector<int32_t> tokens(const char* what, int64_t vocabulary) {
    const size_t count = take(what);
    expect(count > 0 && count <= words_.size(), "has a ", what, " of ", count, " tokens, and ",
           words_.size(), " words are left");
    const auto words = words_.first(count);
    words_ = words_.subspan(count);
    const uint16_t largest = std::ranges::max(words);
    expect(largest < vocabulary, "has a ", what, " with token ", largest,
           ", which is not in the vocabulary, 0 to ", vocabulary - 1);
    return {words.begin(), words.end()};
  }

  const std::string& file_;
  size_t index_;
  std::span<const uint16_t> words_;
};

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

bool has_questions(const std::filesystem::path& path) {
  return has_llmc_magic(File::open(path), llmc_choices_magic);
}

std::vector<Question> read_questions(const std::filesystem::path& path, int64_t vocabulary) {
  const File file = File::open(path);
  const LlmcHeader header(file, "a file of questions");
  header.expect(header[0] == llmc_choices_magic, 0, "magic", llmc_choices_magic, " is expected");
  header.expect(header[1] == 1, 1, "version", "only 1 can be read");
  header.expect(header[2] > 0 && header[2] <= UINT16_MAX, 2, "questions",
                "it must be between 1 and 65535");
  const MappedFile mapping(file);
  const auto bytes = mapping.bytes().subspan(LlmcHeader::bytes);
  check_file(bytes.size() % sizeof(uint16_t) == 0, file.name(), "has an odd number of bytes");
  std::span<const uint16_t> words(reinterpret_cast<const uint16_t*>(bytes.data()),
                                  bytes.size() / sizeof(uint16_t));
  std::vector<Question> questions;
  size_t longest = 0;
  for (size_t i = 0; i < static_cast<size_t>(header[2]); ++i) {
    const size_t before = words.size();
    questions.push_back(QuestionParser(file.name(), i, words).parse(vocabulary, words));
    longest = std::max(longest, (before - words.size()) * sizeof(uint16_t));
  }
  header.expect(header[3] == static_cast<int32_t>(longest), 3, "bytes of the longest question",
                "the longest has ", longest);
  check_file(words.empty(), file.name(), "has ", words.size(), " words after its ", header[2],
             " questions");
  return questions;
}

int64_t longest_row(std::span<const Question> questions) {
  size_t longest = 1;
  for (const Question& q : questions) {
    for (const auto& c : q.completions) {
      longest = std::max(longest, q.context.size() + c.size() - 1);
    }
  }
  return static_cast<int64_t>(longest);
}

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
