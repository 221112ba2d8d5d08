#pragma once

// The mark that the files of a checkpoint have in common, by which one of another step or run is
// found: in the metadata of a safetensors file, and in the checkpoint's JSON.

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

// As 16 hexadecimal digits.
std::string hash_in_words(uint64_t);

Metadata metadata_of(const CheckpointMark&);
MarkedFile marked_file(const std::filesystem::path& safetensors);

// Throws, naming the file that differs from both others, unless all have the same mark.
void check_belong_together(const std::filesystem::path& checkpoint,
                           const std::array<MarkedFile, 3>&);
// What to do about a file that does not belong to its checkpoint: the end of a sentence.
inline constexpr const char* remedy_of_mixed_checkpoint =
    "; copy the checkpoint's own file back, or let the link `latest` name another checkpoint";

}  // namespace spool
