#pragma once

// What the fuzz targets share.  A target hands any bytes to one reader, which may refuse them with
// an Error and nothing else: no crash, no other exception, no memory but what the bytes ask for
// with good reason.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>

namespace spool::fuzz {

using Bytes = std::span<const uint8_t>;

// A file that has these bytes, for as long as the process lives or until the next call.
std::filesystem::path file_with(Bytes);

// Calls the reader; an Error is well.
void read(const std::function<void()>& reader);

}  // namespace spool::fuzz

// Defined by each target.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
