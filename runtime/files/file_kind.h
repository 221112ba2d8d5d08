#pragma once

// Recognises, by its first bytes, a file that is neither text nor weights that can be read, and
// says what to do with it.

#include <optional>
#include <string>
#include <string_view>

#include "spool/runtime/files/file.h"

namespace spool {

struct FileKind {
  const char* what;      // "is compressed by gzip"
  const char* as_text;   // what to do where text is expected: "unpack it first, as with gunzip"
  const char* as_model;  // where a model's file is: "it came in place of the file, ..."
};

// The part of a file that file_kind() looks at, from its beginning.
inline constexpr size_t bytes_of_file_kind = 512;

// The kind of a file that begins with these bytes; nothing if it is unknown.  Text that is only
// likely to be another format, such as XML, counts as unknown.
std::optional<FileKind> file_kind(std::string_view begin);
std::optional<FileKind> file_kind(const File&);

// Whether a file that begins with these bytes is a web page, by the rules of browsers.
bool is_web_page(std::string_view begin);

// The first bytes of the file, at most `max`.
std::string beginning_of(const File&, size_t max);

// Whether the file's beginning is text, in UTF-8.
bool begins_as_text(const File&);

// Whether programs give this name to an unfinished download, such as model.safetensors.incomplete.
bool is_partial_download(const std::filesystem::path&);

// Throws if the file begins as another kind than weights, or has the name of a partial download.
void check_is_weights(const File&);

}  // namespace spool
