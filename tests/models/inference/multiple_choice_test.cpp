// Files of multiple-choice questions, right and wrong ones.

#include "spool/models/inference/multiple_choice.h"

#include "tests/models/inference/questions_testing.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

class Questions : public ::testing::Test {
 protected:
  void read(const std::string& content) { read_questions(d_.file("q.bin", content), 20); }
  void refused(const std::string& content, std::initializer_list<std::string_view> words) {
    expect_error(ErrorKind::file, {"q.bin: "}, [&] { read(content); });
    expect_error(ErrorKind::file, words, [&] { read(content); });
  }

  const TemporaryDirectory d_;
  const Words words_ = two_questions();
};

TEST_F(Questions, AreRefusedWithAHeaderThatIsWrong) {
  EXPECT_NO_THROW(read(file_of({20240522, 1, 2, 30}, words_)));
  refused(file_of({20240520, 1, 2}, words_), {"magic"});
  refused(file_of({20240522, 2, 2}, words_), {"version"});
  for (const int32_t count : {0, -1, 65536, INT32_MIN})
    refused(file_of({20240522, 1, count}, words_), {"questions"});
  refused(file_of({20240522, 1, 1, 28}, words_), {"words after its 1"});
  refused(file_of({20240522, 1, 2, 29}, words_), {"header field 3"});
  refused(file_of({20240522, 1, 3}, words_), {"question 2 ends before"});
}

TEST_F(Questions, AreRefusedByTheWordThatIsWrong) {
  const std::pair<size_t, const char*> fields[] = {
      {0, "start"}, {1, "bytes"},   {2, "index"}, {3, "completions"},
      {4, ""},      {5, "context"}, {6, "token"}, {9, "completion"}};
  for (const auto& [field, word] : fields) {
    SCOPED_TRACE(field);
    Words wrong = words_;
    wrong[field] = field == 0 ? 3 : 60000;
    refused(file_of({20240522, 1, 2}, wrong), {"question 0", word});
    wrong[field] = 0;
    if (field == 2 || field == 3 || field == 6) continue;  // 0 is valid there
    refused(file_of({20240522, 1, 2}, wrong), {"question 0"});
  }
}

TEST_F(Questions, AreRefusedWhenCutShort) {
  const std::string good = file_of({20240522, 1, 2, 30}, words_);
  for (size_t size = 0; size < good.size(); ++size) refused(good.substr(0, size), {});
}

TEST(QuestionLines, AreContextsEndingsAndTheRightOne) {
  const TemporaryDirectory d;
  const auto tokenizer = make_byte_tokenizer();
  const auto read = [&](const std::string& text) {
    const auto path = d.file("q.jsonl", text);
    EXPECT_EQ(has_question_lines(path), has_questions(path));
    return read_questions(path, *tokenizer, /*vocabulary=*/128);
  };
  const std::string first = R"({"ctx": "ab", "endings": ["c", "de"], "label": 1, "ind": "x"})";
  const auto questions = read("\n" + first + "\n\n" + first + "\n");
  ASSERT_EQ(questions.size(), 2u);
  EXPECT_EQ(questions[1].answer, 1);
  EXPECT_EQ(questions[1].context, (std::vector<int32_t>{'a', 'b'}));
  EXPECT_EQ(questions[1].completions,
            (std::vector<std::vector<int32_t>>{{' ', 'c'}, {' ', 'd', 'e'}}));
  const auto refused = [&](const std::string& line, std::initializer_list<std::string_view> words) {
    expect_error(ErrorKind::file, words, [&] { read(first + "\n" + line); });
  };
  refused(R"({"ctx": "a", "endings": ["b"], "label": 1})", {"q.jsonl, line 2", "field label"});
  refused(R"({"ctx": "a", "endings": ["b"], "label": "0"})", {"line 2", "field label"});
  refused(R"({"ctx": "a", "endings": "b", "label": 0})", {"line 2", "field endings"});
  refused(R"({"ctx": "a", "endings": ["b"]})", {"line 2", "label"});
  refused(R"({"ctx": ["a"], "endings": ["b"], "label": 0})", {"line 2", "field ctx"});
  refused("[]", {"line 2", "no JSON object"});
  refused("{", {"line 2"});
  expect_error(ErrorKind::invalid, {"line 1: field ctx", "number 195"},
               [&] { read(R"({"ctx": "\u00e9", "endings": ["b"], "label": 0})"); });
  for (const char* other : {"", "\n", "text", "{", "{}", R"({"text": "endings"})", "[1]"}) {
    EXPECT_FALSE(has_question_lines(d.file("other", other))) << other;
  }
  EXPECT_FALSE(has_question_lines(d.file("other", "{" + std::string(size_t{17} << 20, ' '))));
}

}  // namespace
}  // namespace spool::testing
