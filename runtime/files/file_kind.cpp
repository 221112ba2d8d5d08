#include "spool/runtime/files/file_kind.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>

#include "spool/runtime/files/json.h"

namespace spool {

using namespace std::string_view_literals;

namespace {

// Bytes at an offset in the file that identify a kind.
struct Signature {
  std::string_view bytes;
  FileKind kind;
  size_t at = 0;
};

constexpr const char *unpack = "unpack it first",
                     *to_text = "write what it says into a file of text, in UTF-8",
                     *column_to_text = "write its column of texts into files of text, in UTF-8",
                     *tokens_to_shard =
                         "tokens are read from shards in llm.c's format, and text as it is",
                     *to_utf8 = "convert it to UTF-8, as iconv does",
                     *get_safetensors =
                         "get the model in the form of transformers, with its weights in "
                         "safetensors",
                     *save_safetensors =
                         "save the model again with save_pretrained(safe_serialization=True)",
                     *fetch_lfs =
                         "fetch the file itself, as git lfs pull does in a clone, or download it";

constexpr FileKind compressed(const char* what, const char* how) { return {what, how, how}; }
constexpr FileKind document(const char* what) { return {what, to_text, get_safetensors}; }
constexpr FileKind table(const char* what) { return {what, column_to_text, get_safetensors}; }
constexpr FileKind utf(const char* what) { return {what, to_utf8, to_utf8}; }
constexpr FileKind weights(const char* what) { return {what, to_text, get_safetensors}; }
constexpr FileKind of_torch(const char* what) { return {what, to_text, save_safetensors}; }

constexpr FileKind zip_archive = compressed("is a zip archive", "unpack it first, as with unzip"),
                   lfs_pointer{"is a pointer of Git LFS, which stands for a file that is elsewhere",
                               fetch_lfs, fetch_lfs},
                   web_page{"is a web page",
                            "write its text into a file of text; or it came in place of the file, "
                            "which then has to be downloaded again",
                            "it came in place of the file, which has to be downloaded again"};

// A signature comes before its own prefixes.
constexpr Signature signatures[] = {
    {"\x1f\x8b", compressed("is compressed by gzip", "unpack it first, as with gunzip")},
    {"\x28\xb5\x2f\xfd", compressed("is compressed by zstd", "unpack it first, as with unzstd")},
    {"\xfd"
     "7zXZ\0"sv,
     compressed("is compressed by xz", "unpack it first, as with unxz")},
    {"\x04\x22\x4d\x18", compressed("is compressed by lz4", "unpack it first, as with unlz4")},
    {"\x1f\x9d", compressed("is compressed by compress", "unpack it first, as with uncompress")},
    {"7z\xbc\xaf\x27\x1c", compressed("is a 7z archive", unpack)},
    {"Rar!\x1a\x07", compressed("is a rar archive", unpack)},
    {"ustar", compressed("is a tar archive", "unpack it first, as with tar -xf"), /*at=*/257},
    {"\xff\xfe\0\0"sv, utf("is text in UTF-32")},
    {"\0\0\xfe\xff"sv, utf("is text in UTF-32")},
    {"\xff\xfe", utf("is text in UTF-16")},
    {"\xfe\xff", utf("is text in UTF-16")},
    {"PAR1\x15", table("is a table in Parquet")},
    {"ARROW1\0\0"sv, table("is a table in Arrow's format")},
    {"FEA1\0"sv, table("is a table in Feather's format")},
    {"Obj\x01", table("is a table in Avro")},
    {"SQLite format 3\0"sv, table("is a database of SQLite")},
    {"\x89HDF\r\n\x1a\n",
     {"is a file of HDF5, as Keras and h5py write", column_to_text, get_safetensors}},
    {"\x93NUMPY", {"is an array of NumPy", tokens_to_shard, get_safetensors}},
    {"GGUF", weights("is a model in GGUF, the format of llama.cpp")},
    {"lmgg", weights("is a model in an early format of llama.cpp")},
    {"tjgg", weights("is a model in an early format of llama.cpp")},
    {"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", document("is a document of an office program")},
    {"\x89PNG\r\n\x1a\n", document("is a picture (PNG)")},
    {"\xff\xd8\xff", document("is a picture (JPEG)")},
    {"GIF89a", document("is a picture (GIF)")},
    {"\x7f"
     "ELF",
     document("is a program")},
};

// Signatures of files that may otherwise be taken for text.
constexpr Signature text_signatures[] = {
    {"version https://git-lfs.github.com/spec/", lfs_pointer},
    {"version https://hawser.github.com/spec/", lfs_pointer},
    {"%PDF-1.", document("is a PDF")},
    {"%PDF-2.", document("is a PDF")},
    {"{\\rtf1", document("is a document in RTF")},
};

bool has_at(std::string_view begin, size_t at, std::string_view bytes) {
  return begin.size() >= at && begin.substr(at).starts_with(bytes);
}

bool is_text(std::string_view bytes) {
  return std::ranges::all_of(bytes, [](char c) { return c >= ' ' && c <= '~'; });
}

// Kinds whose signature has a number in it, such as a version.
std::optional<FileKind> kind_with_numbers(std::string_view begin) {
  const auto byte = [&](size_t i) { return i < begin.size() ? begin[i] : '\0'; };
  if (begin.starts_with("BZh") && byte(3) >= '1' && byte(3) <= '9' && has_at(begin, 4, "1AY&SY")) {
    return compressed("is compressed by bzip2", "unpack it first, as with bunzip2");
  }
  if (begin.starts_with("\xff\xff\xff\xff") && has_at(begin, 6, "\0\0"sv)) {
    return table("is a stream of tables in Arrow's format");
  }
  if (byte(0) == '\x80' && byte(1) >= 2 && byte(1) <= 5) {
    return of_torch("is a pickle of Python, as torch.save() of early versions writes");
  }
  return {};
}

// The kind of a zip archive, by the name of its first file.
std::optional<FileKind> kind_of_zip(std::string_view begin) {
  constexpr size_t length_at = 26, name_at = 30;
  if (!begin.starts_with("PK\x03\x04") || begin.size() < name_at) return {};
  uint16_t length = 0;
  std::memcpy(&length, begin.data() + length_at, sizeof(length));
  const std::string_view name = begin.substr(name_at, length);
  if (name.ends_with("data.pkl") || name.ends_with(".format_version")) {
    return of_torch("is a file of PyTorch, as torch.save() writes");
  }
  if (name.ends_with(".npy")) {
    return FileKind{"has arrays of NumPy (npz)", tokens_to_shard, get_safetensors};
  }
  const bool is_office = name == "[Content_Types].xml" || name == "mimetype" ||
                         name.starts_with("_rels/") || name.starts_with("docProps/");
  return is_office ? document("is a document of an office program") : zip_archive;
}

// Whether it has the length of a JSON header, and the header's first characters.
bool begins_as_safetensors(std::string_view begin) {
  constexpr size_t length_bytes = 8;
  if (begin.size() < length_bytes + 2 || begin.substr(4, 4) != "\0\0\0\0"sv) return false;
  return begin[8] == '{' && (begin[9] == '"' || begin[9] == '}' || begin[9] == ' ');
}

// Printable characters of ASCII, in one line.
std::string_view first_words(std::string_view begin) {
  constexpr size_t max = 40;
  size_t n = 0;
  while (n < begin.size() && n < max && begin[n] >= ' ' && begin[n] <= '~') ++n;
  return begin.substr(0, n);
}

}  // namespace

bool is_web_page(std::string_view begin) {
  if (begin.starts_with("\xef\xbb\xbf")) begin.remove_prefix(3);
  const size_t first = begin.find_first_not_of(" \t\r\n\f");
  if (first == std::string_view::npos) return false;
  begin.remove_prefix(first);
  for (const std::string_view mark : {"<!doctype html"sv, "<html"sv}) {
    if (begin.size() <= mark.size()) continue;
    std::string lower(begin.substr(0, mark.size()));
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const bool is_whole =
        std::string_view("> \t\r\n\f").find(begin[mark.size()]) != std::string::npos;
    if (lower == mark && is_whole) return true;
  }
  return false;
}

std::optional<FileKind> file_kind(std::string_view begin) {
  if (is_web_page(begin)) return web_page;
  if (auto kind = kind_of_zip(begin)) return kind;
  if (auto kind = kind_with_numbers(begin)) return kind;
  for (const Signature& known : text_signatures) {
    if (begin.starts_with(known.bytes)) return known.kind;
  }
  const bool may_be_text = begin.find('\0') == std::string_view::npos;
  for (const Signature& known : signatures) {
    if (may_be_text && is_text(known.bytes)) continue;  // a text may begin with that word
    if (has_at(begin, known.at, known.bytes)) return known.kind;
  }
  if (begins_as_safetensors(begin)) {
    return FileKind{"has tensors of a model, in safetensors", to_text,
                    "give it a name that ends in .safetensors"};
  }
  return {};
}

std::optional<FileKind> file_kind(const File& file) {
  return file_kind(beginning_of(file, bytes_of_file_kind));
}

std::string beginning_of(const File& file, size_t max) {
  std::string begin(std::min<uint64_t>(file.size(), max), '\0');
  file.read(0, std::as_writable_bytes(std::span(begin)));
  return begin;
}

// A character may be cut where the beginning ends.
bool begins_as_text(const File& file) {
  constexpr size_t max = size_t{1} << 16, longest_character = 4;
  std::string begin = beginning_of(file, max);
  if (begin.find('\0') != std::string::npos) return false;
  for (size_t cut = 0; cut < longest_character && !begin.empty(); ++cut) {
    if (is_utf8(begin)) return true;
    if (file.size() <= max) return false;
    begin.pop_back();
  }
  return false;
}

bool is_partial_download(const std::filesystem::path& path) {
  constexpr std::array endings = {".incomplete", ".part", ".partial", ".crdownload", ".aria2"};
  return std::ranges::find(endings, path.extension().string()) != endings.end();
}

void check_is_weights(const File& file) {
  constexpr size_t length_bytes = 8;
  check_file(!is_partial_download(file.name()), file.name(),
             "is a part of a download that has not come to its end; download the file again");
  const std::string begin = beginning_of(file, bytes_of_file_kind);
  if (begins_as_safetensors(begin)) return;
  if (const auto kind = file_kind(begin)) {
    check_file(/*ok=*/false, file.name(), kind->what, "; ", kind->as_model);
  }
  const std::string_view words = first_words(begin);
  check_file(
      words.size() <= length_bytes, file.name(), "is text that begins \"", words,
      "\", and no weights in safetensors; if that came in place of the file, download it again");
  const bool is_blank =
      begin.size() > length_bytes && std::ranges::all_of(begin, [](char c) { return c == '\0'; });
  check_file(!is_blank, file.name(),
             "begins with nothing but zeros, as a download that has not come to its end; download "
             "it again");
}

}  // namespace spool
