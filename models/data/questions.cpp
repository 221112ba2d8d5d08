#include "spool/models/data/questions.h"

#include <algorithm>

#include "spool/models/data/json_lines.h"
#include "spool/models/formats/llmc_header.h"
#include "spool/runtime/files/file.h"

namespace spool {
namespace {

constexpr uint16_t start_of_question = 65535;

// Parses one question from the front of a file's words.
class QuestionParser {
 public:
  QuestionParser(const std::string& file, size_t index, std::span<const uint16_t> words)
      : file_(file), index_(index), words_(words) {}

  // Sets `rest` to the words after the question.
  Question parse(int64_t vocabulary, std::span<const uint16_t>& rest) {
    const size_t before = words_.size();
    expect(take("start") == start_of_question, "does not start with 65535");
    const size_t bytes = take("bytes");
    expect(take("index") == index_, "has another index");
    Question question;
    question.answer = take("answer");
    const size_t count = take("completions");
    expect(count > 0 && question.answer < static_cast<int32_t>(count), "has ", count,
           " completions, so ", question.answer, " cannot be the right one");
    question.context = tokens("context", vocabulary);
    for (size_t i = 0; i < count; ++i) {
      question.completions.push_back(tokens("completion", vocabulary));
    }
    const size_t taken = (before - words_.size()) * sizeof(uint16_t);
    expect(bytes == taken, "claims ", bytes, " bytes, and its fields have ", taken);
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

// Reads all words after the header.
std::vector<uint16_t> read_words(const File& file, int32_t questions) {
  const uint64_t bytes = file.size() - LlmcHeader::bytes;
  check_file(bytes % sizeof(uint16_t) == 0, file.name(), "has an odd number of bytes");
  check_file(bytes / UINT16_MAX <= static_cast<uint64_t>(questions), file.name(), "has ", bytes,
             " bytes after its header, more than its ", questions, " questions can have");
  std::vector<uint16_t> words(bytes / sizeof(uint16_t));
  file.read(LlmcHeader::bytes, std::as_writable_bytes(std::span(words)));
  return words;
}

Question question_of(const JsonField& line, const Tokenizer& tokenizer, int64_t vocabulary) {
  Question question;
  const JsonField context = line.member("ctx");
  tokenizer.encode(context.string(), question.context);
  const auto before = begin_of_text_before(tokenizer, question.context, vocabulary);
  question.context.insert(question.context.begin(), before.begin(), before.end());
  context.expect(!question.context.empty(), "is empty; a completion needs a token before it");
  check_rows(tokenizer, question.context, vocabulary, sentence(line.file(), ": field ctx"));
  for (const JsonField& ending : line.member("endings").items()) {
    std::vector<int32_t>& completion = question.completions.emplace_back();
    tokenizer.encode_rest(sentence(" ", ending.string()), completion);
    check_rows(tokenizer, completion, vocabulary, sentence(line.file(), ": field endings"));
  }
  const int64_t count = std::ssize(question.completions);
  line.member("endings").expect(count > 0, "is empty; a question has endings to choose from");
  question.answer = line.member("label").integer<int32_t>(0, static_cast<int32_t>(count) - 1);
  return question;
}

}  // namespace

bool has_questions(const std::filesystem::path& path) {
  return has_llmc_magic(File::open(path), llmc_choices_magic) || has_question_lines(path);
}

bool has_question_lines(const std::filesystem::path& path) {
  const File file = File::open(path);
  std::string begin(std::min<uint64_t>(file.size(), 256), '\0');
  file.read(0, std::as_writable_bytes(std::span(begin)));
  const size_t first = begin.find_first_not_of("\xef\xbb\xbf \t\r\n");
  if (first == begin.npos || begin[first] != '{') return false;
  try {
    const auto line = JsonLines(path).next();
    return line && line->find("endings");
  } catch (const Error& e) {  // no such file, which its reader will say
    if (e.kind() != ErrorKind::file) throw;
    return false;
  }
}

std::vector<Question> read_questions(const std::filesystem::path& path, int64_t vocabulary) {
  const File file = File::open(path);
  const LlmcHeader header(file, "a file of questions");
  header.expect(header[0] == llmc_choices_magic, 0, "magic", llmc_choices_magic, " is expected");
  header.expect(header[1] == 1, 1, "version", "only 1 can be read");
  header.expect(header[2] > 0 && header[2] <= UINT16_MAX, 2, "questions",
                "it must be between 1 and 65535");
  const std::vector<uint16_t> all = read_words(file, /*questions=*/header[2]);
  std::span<const uint16_t> words(all);
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

std::vector<Question> read_questions(const std::filesystem::path& path, const Tokenizer& tokenizer,
                                     int64_t vocabulary) {
  std::vector<Question> questions;
  for (JsonLines lines(path); const auto line = lines.next();) {
    questions.push_back(question_of(*line, tokenizer, vocabulary));
  }
  check_file(!questions.empty(), path, "has no question");
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

}  // namespace spool
