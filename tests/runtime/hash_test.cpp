// Hashes that files store: they stay what they are.

#include "spool/runtime/hash.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "spool/runtime/bulk_hash.h"

namespace spool {
namespace {

uint64_t hash_of(std::string_view text) {
  BulkHash hash;
  hash.add(std::as_bytes(std::span(text)));
  return hash.state();
}

TEST(BulkHash, StaysWhatItIs) {
  EXPECT_EQ(hash_of(""), 15319756052910200700u);
  EXPECT_EQ(hash_of("spool"), 15258768348138150728u);
  EXPECT_EQ(hash_of(std::string(1000, 'a')), 8048312651248706393u);
}

TEST(BulkHash, TellsEveryByteAndTheLength) {
  std::set<uint64_t> all;
  for (size_t size = 0; size < 200; ++size) {
    EXPECT_TRUE(all.insert(hash_of(std::string(size, '\0'))).second) << size;
    for (size_t i = 0; i < size; ++i) {
      std::string text(size, '\0');
      text[i] = 1;
      EXPECT_TRUE(all.insert(hash_of(text)).second) << size << ", " << i;
    }
  }
}

}  // namespace
}  // namespace spool
