#pragma once

// Helpers of the fuzz targets.  A target gives any bytes to one reader, which may refuse them with
// an Error and in no other way: no crash, no other exception, no allocation out of proportion.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace spool::fuzz {

using Bytes = std::span<const uint8_t>;

// A file with these bytes, until the next call or the end of the process.
std::filesystem::path file_with(Bytes);

// The same in a folder that the process has to itself, for readers of several files.
std::filesystem::path file_in_folder(const std::string& name, Bytes);
std::filesystem::path file_in_folder(const std::string& name, std::string_view text);

// Calls the reader, which may throw an Error.
void read(const std::function<void()>& reader);

}  // namespace spool::fuzz

// Defined by each target.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
