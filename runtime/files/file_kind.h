#pragma once

// Knows files by their first bytes: those that are neither text nor weights that can be read, and
// what to do with each.

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

// The kind of a file that begins so; nothing if it is of none that is known.  Text that is only
// likely to be something else, such as XML, is none.
std::optional<FileKind> file_kind(std::string_view begin);
std::optional<FileKind> file_kind(const File&);

// Whether a file that begins so is a web page, as browsers know it.
bool is_web_page(std::string_view begin);

// Up to so many bytes from the file's beginning.
std::string beginning_of(const File&, size_t max);

// Whether the file's beginning is text, in UTF-8.
bool begins_as_text(const File&);

// A name under which programs keep a file that they have not received as a whole yet, such as
// model.safetensors.incomplete.
bool is_partial_download(const std::filesystem::path&);

// Throws, if the file has the beginning of another kind than weights, or its name is that of a
// partial download.
void check_is_weights(const File&);

}  // namespace spool
