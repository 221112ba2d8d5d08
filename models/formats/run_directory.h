#pragma once

// The directory of a run: its checkpoints, step-000100/ and so on, and `latest`, a relative link to
// a complete one.  A second link, `best`, may name another.  On file systems without links each is
// a file with the name in it.  A copy of the directory may have lost the links, or have a copied
// checkpoint in their place; both are read.
//
// A checkpoint is written as .step-000100.partial/, synced, and renamed; then `latest` is replaced,
// also by a rename.  So a crash at any byte leaves the previous checkpoint usable, and at most some
// hidden partial directories, which the next run removes.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

#include "spool/runtime/files/file.h"

namespace spool {

// The checkpoint that `latest` names or is; without `latest`, the complete one with the highest
// step, if any.  Needs no lock.  Throws if `latest` names no checkpoint.
std::optional<std::filesystem::path> latest_checkpoint(const std::filesystem::path& run);

// The checkpoint that a file such as `latest` or `best` names on a file system without links;
// nothing for any other file.
std::optional<std::filesystem::path> checkpoint_named_by(const std::filesystem::path& file);

// Throws if the directory, which need not exist, cannot be a run's.  Creates nothing.
void check_run_directory(const std::filesystem::path&);

// Throws if the name of the link to the best checkpoint is taken by something else.
void check_best_link(const std::filesystem::path& run);

class RunDirectory {
 public:
  // Creates the directory if it is missing, locks it (throws if another run has the lock), removes
  // partial directories, and renames checkpoints that are called `latest` or `best`.
  explicit RunDirectory(const std::filesystem::path&, int keep = 2);

  const std::filesystem::path& path() const { return path_; }
  std::optional<std::filesystem::path> latest() const { return latest_checkpoint(path_); }

  // write_files() writes the checkpoint's files into the directory it is given; if it throws, they
  // are removed.  Then removes all but the `keep` checkpoints with the highest steps and those that
  // `latest` and `best` name.  Directories that Spool did not write are never removed.
  void write(int64_t step,
             const std::function<void(const std::filesystem::path& partial)>& write_files);

  // Makes `best` name the checkpoint of this step; returns the link, or nothing if there is no such
  // checkpoint.  Throws if something else has that name.
  std::optional<std::filesystem::path> point_best_to(int64_t step);

 private:
  void publish(const std::filesystem::path& partial, const std::filesystem::path& checkpoint);
  void point(const char* link, const std::string& checkpoint);
  void repair_link(const char* link);
  void check_half_copies() const;
  void remove_checkpoint(const std::filesystem::path& checkpoint);
  void remove_old();

  std::filesystem::path path_;
  int keep_;
  File lock_;
};

}  // namespace spool
