#pragma once

// A File is an open file whose every failure is a sentence with the file's name and the system's
// reason.  Writing goes to the place it is told; nothing is durable before sync().

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace spool {

class File {
 public:
  // For reading; it must be a regular file.
  static File open(const std::filesystem::path&);
  // For writing, from empty.
  static File create(const std::filesystem::path&);
  // Without a name, in the system's folder for such; gone when it is closed, even by a kill.
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

// What errno says of `file`, as an Error: "FILE: cannot be DONE: No space left on device".
[[noreturn]] void fail_file(const std::string& file, const char* done, int error);

// All of a file that has at most so many bytes.
std::string read_text_file(const std::filesystem::path&, uint64_t most);

// From here on a power cut does not change what a file holds, or which names a directory has.
void sync_path(const std::filesystem::path&);
// The same for a directory and all that is below it.
void sync_tree(const std::filesystem::path&);

// A file or a directory that appears under its name when it is whole: a reader sees what was there
// before or what is new, whenever the power goes.  Until then it is FOLDER/.NAME.partial, which is
// for the caller to make.
class AtomicWrite {
 public:
  // Throws where something else than a file has that name.
  explicit AtomicWrite(const std::filesystem::path&);
  // Without commit(), nothing is left, unless the program is killed; then the next one removes it.
  ~AtomicWrite();
  AtomicWrite(const AtomicWrite&) = delete;
  AtomicWrite& operator=(const AtomicWrite&) = delete;

  const std::filesystem::path& path() const { return partial_; }
  // What it holds has been synced by then.
  void commit();

 private:
  std::filesystem::path path_, partial_;
};

void write_text_file_atomically(const std::filesystem::path&, std::string_view text);

}  // namespace spool
