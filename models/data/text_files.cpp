#include "spool/models/data/text_files.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "spool/models/formats/llmc_header.h"
#include "spool/runtime/check.h"
#include "spool/runtime/files/file_kind.h"

namespace spool {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view utf8_mark = "\xef\xbb\xbf";

constexpr const char
    *json_lines =
        "is JSON lines, which only training and evaluation read, as examples; write the texts of "
        "its lines into files of text",
    *table_of_text = "is a table of separated values; write its column of texts into files of text";

// The kind of a file by its name; null for most.
const char* kind_by_name(const fs::path& path) {
  constexpr std::pair<std::string_view, const char*> kinds[] = {{".jsonl", json_lines},
                                                                {".ndjson", json_lines},
                                                                {".csv", table_of_text},
                                                                {".tsv", table_of_text}};
  std::string extension = path.extension().string();
  std::ranges::transform(extension, extension.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto* found =
      std::ranges::find(kinds, extension, &std::pair<std::string_view, const char*>::first);
  return found == std::end(kinds) ? nullptr : found->second;
}

bool is_named_as_shard(const fs::path& path) { return path.extension() == ".bin"; }

template <class... Parts>
[[noreturn]] void refuse_data(const fs::path& path, const Parts&... parts) {
  throw Error(ErrorKind::file,
              sentence(path.string(), ": ", parts...,
                       ", or say that it is text, to take its bytes as they are"),
              {.file = path.string(), .settings = {"data-format"}});
}

// In UTF-16, text of the Latin alphabet has a NUL in every other byte.
const char* utf16_of(std::string_view begin) {
  constexpr size_t min = 8, share = 3;
  size_t zeros[2] = {0, 0};
  for (size_t i = 0; i < begin.size(); ++i) zeros[i % 2] += begin[i] == '\0' ? 1 : 0;
  if (begin.size() < min) return nullptr;
  const size_t many = begin.size() / share;
  if (zeros[0] == 0 && zeros[1] > many) return "little";
  return zeros[1] == 0 && zeros[0] > many ? "big" : nullptr;
}

void refuse_other_files_of_llmc(const fs::path& path, const File& file) {
  for (const int32_t magic : {llmc_model_magic, llmc_tokenizer_magic, llmc_choices_magic}) {
    if (!has_llmc_magic(file, magic)) continue;
    refuse_data(path, "is ",
                magic == llmc_model_magic       ? "a model of llm.c"
                : magic == llmc_tokenizer_magic ? "a tokenizer of llm.c"
                                                : "a file of multiple-choice questions",
                ", not data of text or tokens; name another file");
  }
}

void check_is_text(const fs::path& path, std::string_view begin) {
  // A web page with the right suffix is meant as text.
  const bool is_page = path.extension() == ".html" || path.extension() == ".htm";
  const auto kind = file_kind(begin.substr(0, bytes_of_file_kind));
  if (kind && !(is_page && is_web_page(begin))) {
    refuse_data(path, kind->what, ", not text that can be read; ", kind->as_text);
  }
  if (const char* named = kind_by_name(path)) refuse_data(path, named);
  const size_t nul = begin.find('\0');
  if (nul == std::string_view::npos) return;
  if (const char* ends = utf16_of(begin)) {
    refuse_data(path, "seems to be text in UTF-16, ", ends,
                "-endian; convert it to UTF-8, as iconv does");
  }
  refuse_data(path, "byte ", nul,
              " is a NUL, which text does not have; name files of text, or of "
              "tokens in llm.c's format");
}

enum class DataKind : uint8_t { text, shard };

DataKind kind_of_data(const fs::path& path, DataFormat format) {
  constexpr size_t max = size_t{1} << 16;
  if (format == DataFormat::text) return DataKind::text;
  const bool by_name = format == DataFormat::by_name;
  if (by_name) return is_named_as_shard(path) ? DataKind::shard : DataKind::text;
  const File file = File::open(path);
  for (const int32_t magic : {llmc_tokens_magic, llmc_llama_tokens_magic}) {
    if (has_llmc_magic(file, magic)) return DataKind::shard;
  }
  refuse_other_files_of_llmc(path, file);
  const std::string begin = beginning_of(file, max);
  // A damaged shard is left to its reader, which says what is wrong.
  const bool is_damaged =
      is_named_as_shard(path) && !file_kind(file) && begin.find('\0') != std::string::npos;
  if (is_damaged) return DataKind::shard;
  check_is_text(path, begin);
  return DataKind::text;
}

}  // namespace

bool are_shards(std::span<const fs::path> files, DataFormat format) {
  const fs::path *shard = nullptr, *text = nullptr;
  for (const fs::path& path : files) {
    (kind_of_data(path, format) == DataKind::shard ? shard : text) = &path;
  }
  check_setting(!shard || !text, {"data"}, "the data has both text, such as ",
                text ? text->string() : "", ", and shards of tokens, such as ",
                shard ? shard->string() : "", "; give only one kind");
  return shard != nullptr;
}

void check_are_text(std::span<const fs::path> files, DataFormat format) {
  for (const fs::path& path : files) {
    check_file(kind_of_data(path, format) == DataKind::text, path,
               "is a shard of tokens already; give files of text");
  }
}

TextFile::TextFile(const fs::path& path, DataFormat format) : file(path) {
  if (format != DataFormat::automatic || file.size() < utf8_mark.size()) return;
  std::string first(utf8_mark.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(first)));
  if (first == utf8_mark) begin = utf8_mark.size();
}

void DocumentWriter::append(std::span<const int32_t> tokens) {
  if (tokens.empty()) return;
  if (owes_ && tokens.front() != *between_) write_(std::span(&*between_, 1));
  owes_ = false;
  write_(tokens);
  last_ = tokens.back();
}

std::string describe_joined_documents(size_t count, const Tokenizer& tokenizer, BeginOfText begin,
                                      int64_t rows) {
  const bool begins =
      begin == BeginOfText::written && !begin_of_text_before(tokenizer, {}, rows).empty();
  if (count < 2 || begins || end_of_text_within(tokenizer, rows)) return {};
  return sentence("the ", count, " files are read as one text: the tokenizer ", tokenizer.name(),
                  " has no token to put between them",
                  tokenizer.end_of_text() ? " that the model has" : "");
}

}  // namespace spool
