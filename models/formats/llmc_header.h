#pragma once

// What the binary files of llm.c (github.com/karpathy/llm.c) have in common: they begin with 256
// int32, of which the first says what the file is and the second which version of that.

#include <array>
#include <cstdint>

#include "spool/runtime/check.h"
#include "spool/runtime/files/file.h"

namespace spool {

inline constexpr int32_t llmc_model_magic = 20240326;
inline constexpr int32_t llmc_tokenizer_magic = 20240328;
inline constexpr int32_t llmc_tokens_magic = 20240520;        // uint16, version 1
inline constexpr int32_t llmc_choices_magic = 20240522;       // multiple choice, version 1
inline constexpr int32_t llmc_llama_tokens_magic = 20240801;  // uint32, version 7

class LlmcHeader {
 public:
  static constexpr size_t fields = 256;
  static constexpr uint64_t bytes = fields * sizeof(int32_t);

  // All fields zero.
  LlmcHeader() = default;
  // Throws if the file is too short to have one.  `what` it should be is for the sentence.
  LlmcHeader(const File&, const char* what);

  int32_t& operator[](size_t field) { return words_[field]; }
  int32_t operator[](size_t field) const { return words_[field]; }

  // Throws a sentence that names the field unless the condition holds.
  template <class... Parts>
  void expect(bool ok, size_t field, const char* name, const Parts&... wanted) const {
    check_file(ok, file_, "header field ", field, ", ", name, ", is ", words_[field], ", and ",
               wanted...);
  }

  void write(File&) const;

 private:
  std::string file_;
  std::array<int32_t, fields> words_{};
};

// Of any file, however short.
bool has_llmc_magic(const File&, int32_t magic);

}  // namespace spool
