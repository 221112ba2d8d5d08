#pragma once

// An open file.  Every failure throws an Error (file) with the file's name and the system's reason.
// Reads and writes are at given offsets; nothing is durable before sync().

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "spool/runtime/check.h"

namespace spool {

class File {
 public:
  // Opens a regular file for reading.
  static File open(const std::filesystem::path&);
  // Opens an empty file for writing.
  static File create(const std::filesystem::path&);
  // A file without a name in the system's temporary folder; it disappears when it is closed, also
  // when the process is killed.
  static File temporary();
  ~File();
  File(File&&) noexcept;
  File& operator=(File&&) = delete;

  const std::string& name() const { return name_; }
  int descriptor() const { return descriptor_; }
  uint64_t size() const;
  void read(uint64_t begin, std::span<std::byte> out) const;
  void write(uint64_t begin, std::span<const std::byte> bytes);
  void sync();
  void close();

 private:
  File(std::string name, int descriptor) : name_(std::move(name)), descriptor_(descriptor) {}

  std::string name_;
  int descriptor_;
};

// Throws "FILE: cannot be DONE: No space left on device", with the text of errno's value `error`.
[[noreturn]] void fail_file(const std::string& file, const char* done, int error);

// Whether a path, or what it links to, exists, and whether it is a directory.  Both throw if the
// system cannot tell, as for a loop of links.
bool path_exists(const std::filesystem::path&);
bool path_is_directory(const std::filesystem::path&);

// Reads a file of at most `max_bytes`.
std::string read_text_file(const std::filesystem::path&, uint64_t max_bytes);

// Makes a file's content, or the names in a directory, durable.
void sync_path(const std::filesystem::path&);
// Makes a directory and everything below it durable.
void sync_tree(const std::filesystem::path&);

// Writes a file or a directory atomically: a reader sees the old one or the complete new one, even
// after a power cut.  The caller creates it as path(), FOLDER/.NAME.partial, and syncs it; commit()
// gives it its name.
class AtomicWrite {
 public:
  // Throws if the name belongs to something other than a regular file.
  explicit AtomicWrite(const std::filesystem::path&);
  // Without commit(), removes the partial file.  If the program is killed, the next AtomicWrite of
  // the same name does.
  ~AtomicWrite();
  AtomicWrite(const AtomicWrite&) = delete;
  AtomicWrite& operator=(const AtomicWrite&) = delete;

  const std::filesystem::path& path() const { return partial_; }
  void commit();

 private:
  std::filesystem::path path_, partial_;
};

// Throws, naming these settings, if no file can be written atomically under this name; leaves
// nothing behind.
void check_writable(const std::filesystem::path&, SettingKeys);

void write_text_file_atomically(const std::filesystem::path&, std::string_view text);

}  // namespace spool
