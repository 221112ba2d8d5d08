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

// From here on a power cut does not change what a file holds, or which names a directory has.
void sync_path(const std::filesystem::path&);
// The same for a directory and all that is below it.
void sync_tree(const std::filesystem::path&);

// A reader sees the old text or the new one, whole, whenever the power goes.
void write_text_file_atomically(const std::filesystem::path&, std::string_view text);

}  // namespace spool
