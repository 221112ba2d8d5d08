#include "spool/models/data/data_reader.h"

#include <utility>

#include "spool/models/data/token_files.h"
#include "spool/models/tokenizers/parallel_encode.h"
#include "spool/runtime/check.h"
#include "spool/runtime/files/input_file.h"

namespace spool {

namespace fs = std::filesystem;

Tokens DataReader::open(std::span<const fs::path> files) const {
  if (are_shards(files, format)) return open_shards(files, vocabulary);
  return tokenizer.name() == "bytes" ? open_texts(files, format, vocabulary) : encode(files);
}

Tokens DataReader::encode(std::span<const fs::path> files) const {
  uint64_t total = 0, before = 0;
  for (const fs::path& path : files) total += TextFile(path, format).size();
  File shard = File::temporary();
  ShardWriter writer(shard, tokenizer.vocabulary());
  DocumentWriter documents(separate ? end_of_text_within(tokenizer, vocabulary) : std::nullopt,
                           [&](std::span<const int32_t> tokens) { writer.append(tokens); });
  for (const fs::path& path : files) {
    const TextFile text(path, format);
    check_file(text.size() > 0, path, "is empty");
    documents.begin_document();
    uint64_t begin = 0;
    const auto write = [&](std::span<const int32_t> tokens, uint64_t done) {
      check_rows(tokenizer, tokens, vocabulary, path.string(), std::exchange(begin, done));
      documents.append(tokens);
      if (progress) progress(before + done, total);
    };
    encode_document(tokenizer, text.file, threads, write, text.begin, vocabulary);
    before += text.size();
  }
  writer.finish();
  const size_t others = files.size() - 1;
  const std::string first = files[0].string();
  return open_shard(std::move(shard), others ? sentence(first, " and ", others, " more") : first,
                    vocabulary);
}

}  // namespace spool
