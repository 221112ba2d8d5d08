#include "spool/models/data/data_reader.h"

#include <algorithm>
#include <utility>

#include "spool/models/data/token_files.h"
#include "spool/models/tokenizers/parallel_encode.h"
#include "spool/runtime/check.h"
#include "spool/runtime/files/input_file.h"

namespace spool {

namespace fs = std::filesystem;

Tokens DataReader::open(std::span<const fs::path> files) const {
  if (std::ranges::all_of(files, is_shard)) return open_shards(files, vocabulary);
  for (const fs::path& file : files) {
    check(!is_shard(file), "the data has both text and shards of tokens (*.bin), such as ",
          file.string(), "; give only one kind");
  }
  return tokenizer.name() == "bytes" ? open_texts(files, vocabulary) : encode(files);
}

Tokens DataReader::encode(std::span<const fs::path> files) const {
  uint64_t total = 0, before = 0;
  for (const fs::path& path : files) total += File::open(path).size();
  File shard = File::temporary();
  ShardWriter writer(shard, tokenizer.vocabulary());
  for (const fs::path& path : files) {
    const InputFile text(path);
    check_file(text.size() > 0, path, "is empty");
    uint64_t begin = 0;
    encode_document(tokenizer, text, threads, [&](std::span<const int32_t> tokens, uint64_t done) {
      check_rows(tokenizer, tokens, vocabulary, path.string(), std::exchange(begin, done));
      writer.append(tokens);
      if (progress) progress(before + done, total);
    });
    before += text.size();
  }
  writer.finish();
  const size_t others = files.size() - 1;
  const std::string first = files[0].string();
  return open_shard(std::move(shard), others ? sentence(first, " and ", others, " more") : first,
                    vocabulary);
}

}  // namespace spool
