#include <spdlog/fmt/fmt.h>

#include <cstdio>
#include <limits>
#include <memory>

#include "spool/models/cli/commands.h"
#include "spool/models/cli/setting_flags.h"
#include "spool/models/cli/terminal/progress_bar.h"
#include "spool/models/cli/terminal/width.h"
#include "spool/models/data/find_files.h"
#include "spool/models/data/shard_writer.h"
#include "spool/models/data/token_files.h"
#include "spool/models/tokenizers/tokenizer_choice.h"
#include "spool/runtime/check.h"
#include "spool/runtime/files/file.h"
#include "spool/runtime/log.h"
#include "spool/runtime/units.h"

namespace spool {
namespace {

struct TokenizeArguments {
  std::vector<std::string> in;
  TokenizerChoice tokenizer = {};
  TokenizeOptions options = {};
  bool decode = false, before_each = false, between = true;
};

// Only a shard may be replaced.
void check_replaceable(const std::filesystem::path& out) {
  std::error_code none;
  if (!std::filesystem::exists(out, none)) return;
  try {
    (void)open_shard(File::open(out), out.string(), std::numeric_limits<int32_t>::max());
  } catch (const Error&) {
    check_file(/*ok=*/false, out, "exists already and is no shard; choose another --out");
  }
}

void encode_files(const TokenizeArguments& a, const Tokenizer& tokenizer) {
  check(a.between || !a.before_each,
        "--separate and --no-separate contradict each other; give one");
  check(!a.options.out.empty(), "give --out FILE.bin, the file to write the tokens to");
  check(a.options.out.extension() == ".bin", "--out ", a.options.out.string(),
        ": the name of a shard must end in .bin");
  check_replaceable(a.options.out);
  ProgressBar bar("encoding");
  TokenizeOptions options = a.options;
  options.separation = a.before_each ? Separation::before_each
                       : a.between   ? Separation::between
                                     : Separation::none;
  options.progress = [&](size_t done, size_t total) {
    if (interrupted()) throw Interrupted();
    bar(done, total);
  };
  const auto files = find_files(a.in);
  const TokenizeResult result = tokenize(tokenizer, files, options);
  bar.clear();
  if (options.separation == Separation::between) {
    const auto words = describe_joined_documents(files.size(), tokenizer, BeginOfText::left_out);
    if (!words.empty()) logger().warn("{}", words);
  }
  const double each = static_cast<double>(result.bytes) / static_cast<double>(result.tokens);
  const size_t others = result.shards.size() - 1;
  print_lines(fmt::format("{} of text, {} tokens ({:.2f} bytes each), in {}{}",
                          format_bytes(result.bytes), result.tokens, each,
                          result.shards[0].string(),
                          others ? fmt::format(" and {} more", others) : ""));
}

void decode_files(const TokenizeArguments& a, const Tokenizer& tokenizer) {
  check(!a.before_each && a.between && a.options.shard_tokens == 0 &&
            a.options.format == DataFormat::automatic,
        "--decode cannot be combined with --separate, --no-separate, --data-format or "
        "--shard-tokens");
  const auto shards = find_files(a.in);
  if (a.options.out.empty()) {
    return detokenize(tokenizer, shards, [](std::string_view text) {
      if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) {
        fail_file("standard output", "written", errno);
      }
    });
  }
  for (const auto& shard : shards) {
    std::error_code absent;
    check_file(!std::filesystem::equivalent(shard, a.options.out, absent), shard,
               "is also an input; choose another --out");
  }
  std::error_code absent;
  const auto size = std::filesystem::file_size(a.options.out, absent);
  check_file(absent || size == 0, a.options.out, "exists already; choose another --out");
  AtomicWrite partial(a.options.out);
  File out = File::create(partial.path());
  uint64_t written = 0;
  detokenize(tokenizer, shards, [&](std::string_view text) {
    if (interrupted()) throw Interrupted();
    out.write(written, std::as_bytes(std::span(text)));
    written += text.size();
  });
  out.sync();
  partial.commit();
}

}  // namespace

std::function<int()> add_tokenize(CLI::App& app) {
  const auto a = std::make_shared<TokenizeArguments>();
  app.add_option("IN", a->in, "Text files or globs; with --decode, shards of tokens")->required();
  add_tokenizer_flags(app, a->tokenizer);
  app.add_option(
      "--out", a->options.out,
      "Shard to write, FILE.bin; with --decode, text file to write, by default standard output");
  app.add_flag("--decode", a->decode, "Turn shards back into text, byte for byte");
  app.add_flag("--separate", a->before_each,
               "Put the token that ends a text, <|endoftext|> of GPT-2, before each file, and not "
               "only between them; --decode writes it as text");
  add_data_format_flags(app, a->options.format, a->between);
  app.add_option(
         "--shard-tokens", a->options.shard_tokens,
         "Tokens per shard; writes shards FILE_000000.bin and so on; 0: one shard, FILE.bin")
      ->capture_default_str();
  add_setting(app, "threads", a->options.threads);
  return [a] {
    catch_interrupts();
    const auto tokenizer = open_tokenizer(choose_tokenizer(a->tokenizer));
    a->decode ? decode_files(*a, *tokenizer) : encode_files(*a, *tokenizer);
    return 0;
  };
}

}  // namespace spool
