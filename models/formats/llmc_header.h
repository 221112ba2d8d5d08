#pragma once

// The header of llm.c's binary files (github.com/karpathy/llm.c): 256 x int32, the first of which
// is the kind of file (magic) and the second its version.

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
  // Throws if the file is too short; the error names the `kind` of file.
  LlmcHeader(const File&, const char* kind);

  int32_t& operator[](size_t field) { return words_[field]; }
  int32_t operator[](size_t field) const { return words_[field]; }

  // Throws an error that names the field unless the condition holds.
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

// Whether a file, of any size, begins with `magic`.
bool has_llmc_magic(const File&, int32_t magic);

}  // namespace spool
