#pragma once

// A mark that all files of one checkpoint share, to detect files of another step or run.  It is in
// the metadata of safetensors files and in the checkpoint's JSON.

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "spool/models/formats/safetensors.h"

namespace spool {

struct CheckpointMark {
  int64_t step = 0;
  std::string run;  // a hash of what determines the run's numbers, in hexadecimal digits

  friend bool operator==(const CheckpointMark&, const CheckpointMark&) = default;
};

struct MarkedFile {
  std::filesystem::path path;
  std::optional<CheckpointMark> mark;  // none: a file of an older version
};

// 16 hexadecimal digits.
std::string hash_in_words(uint64_t);

Metadata metadata_of(const CheckpointMark&);
MarkedFile marked_file(const std::filesystem::path& safetensors);

// Throws unless all files have the same mark, and names the one that differs from the others.
void check_belong_together(const std::filesystem::path& checkpoint,
                           const std::array<MarkedFile, 3>&);
// The remedy for a mixed checkpoint, as the end of a message.
inline constexpr const char* remedy_of_mixed_checkpoint =
    "; copy the checkpoint's own file back, or let the link `latest` name another checkpoint";

}  // namespace spool
