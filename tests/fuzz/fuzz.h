#pragma once

// Helpers of the fuzz targets.  A target gives arbitrary bytes to one reader, which may refuse them
// with an Error only: no crash, no other exception, no disproportionate allocation.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace spool::fuzz {

using Bytes = std::span<const uint8_t>;

// A file with these bytes; it lives until the next call or the end of the process.
std::filesystem::path file_with(Bytes);

// The same in a folder of this process alone, for readers of several files.
std::filesystem::path file_in_folder(const std::string& name, Bytes);
std::filesystem::path file_in_folder(const std::string& name, std::string_view text);

// Calls the reader, which may throw an Error.
void read(const std::function<void()>& reader);

}  // namespace spool::fuzz

// Defined by each target.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
