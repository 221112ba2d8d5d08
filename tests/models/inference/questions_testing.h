#pragma once

// A file of two multiple-choice questions, word by word.

#include <cstdint>
#include <string>
#include <vector>

namespace spool::testing {

using Words = std::vector<uint16_t>;

inline std::string file_of(std::vector<int32_t> header, const Words& words) {
  header.resize(256);
  std::string bytes(reinterpret_cast<const char*>(header.data()), 1024);
  return bytes.append(reinterpret_cast<const char*>(words.data()), 2 * words.size());
}

// The words of two questions, with completions of several lengths.
inline const Words first_question = {65535, 28, 0, 1, 2, 3, 1, 2, 3, 2, 4, 5, 1, 6};
inline const Words second_question = {65535, 28, 1, 2, 3, 1, 7, 1, 8, 3, 9, 10, 11, 1};

inline Words two_questions() {
  Words all = first_question;
  all.insert(all.end(), second_question.begin(), second_question.end());
  all.push_back(12);
  all[first_question.size() + 1] = 30;
  return all;
}

}  // namespace spool::testing
