// spool shard: says how an op can be cut over a mesh of ranks, and what that costs, or how a model
// is best cut (shard_model.h).  Writes it as JSON, too.

#include <spdlog/fmt/fmt.h>

#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>

#include "spool/models/cli/command_line.h"
#include "spool/models/cli/commands.h"
#include "spool/models/cli/shard_model.h"
#include "spool/models/cli/tables/shard_table.h"
#include "spool/models/cli/terminal/width.h"
#include "spool/models/training/plan_report.h"
#include "spool/models/training/settings/setting_checks.h"
#include "spool/planner/machines/machine.h"
#include "spool/planner/sharding/strategies_json.h"
#include "spool/runtime/files/file.h"

namespace spool {
namespace {

struct ShardFlags {
  std::string shape, heads, transposed, dtype = "f32", mesh, machine, link, json;
  OpDescription op;
};

// The whole numbers between the separators; nothing if one is none, negative or too large.
std::optional<std::vector<int64_t>> numbers_in(std::string_view text, char separator) {
  std::vector<int64_t> numbers;
  while (true) {
    const size_t end = text.find(separator);
    const std::string_view word = text.substr(0, end);
    int64_t n = -1;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), n);
    const bool is_number = error == std::errc() && stop == word.data() + word.size();
    if (!is_number || n < 0) return {};
    numbers.push_back(n);
    if (end == std::string_view::npos) return numbers;
    text.remove_prefix(end + 1);
  }
}

Shape shape_of(const std::string& text) {
  const auto n = numbers_in(text, ',');
  check_setting(n.has_value(), {"shape"}, "'", text,
                "' is no shape; give whole numbers below 2^63 ", "with commas, such as 4,4,16");
  try {
    switch (n->size()) {
      case 1:
        return {n->at(0)};
      case 2:
        return {n->at(0), n->at(1)};
      case 3:
        return {n->at(0), n->at(1), n->at(2)};
      case 4:
        return {n->at(0), n->at(1), n->at(2), n->at(3)};
      default:
        break;
    }
  } catch (const Error& e) {
    fail_setting(ErrorKind::invalid, {"shape"}, e.what());
  }
  fail_setting(ErrorKind::invalid, {"shape"}, "the shape ", text, " has ", n->size(),
               " dimensions; a tensor has at most ", Shape::max_rank);
}

std::optional<Heads> heads_of(const std::string& text) {
  if (text.empty()) return {};
  const auto n = numbers_in(text, '/');
  const auto fits = [](int64_t heads) { return 0 < heads && heads <= largest_count; };
  check_setting(n && n->size() <= 2 && fits(n->front()) && fits(n->back()), {"heads"}, "'", text,
                "' are no heads; give their number, such as 12, or 24/8 with 8 key heads");
  return Heads{.query = n->front(), .key = n->back()};
}

std::optional<Transposed> transposed_of(const std::string& text) {
  if (text.empty()) return {};
  return Transposed{.a = text != "b", .b = text != "a"};
}

MeshAxes mesh_of(const std::string& text) {
  try {
    return parse_mesh(text);
  } catch (const Error& e) {
    fail_setting(e.kind(), {"mesh"}, e.what());
  }
}

std::optional<MeshMachine> machine_of(const ShardFlags& flags, const MeshAxes& mesh) {
  check_setting(flags.link.empty() || !flags.machine.empty(), {"link", "machine"},
                "a link is of a machine that foretells seconds; name one");
  if (flags.machine.empty()) return {};
  std::optional<Link> link;
  if (!flags.link.empty()) link = parse_link(flags.link);
  return mesh_machine(flags.machine, mesh, link);
}

int shard_op(const ShardFlags& flags) {
  OpDescription description = flags.op;
  description.shape = shape_of(flags.shape);
  description.dtype = *parse<DType>(flags.dtype);
  description.heads = heads_of(flags.heads);
  description.transposed = transposed_of(flags.transposed);
  const DescribedOp op = describe_op(description);
  const MeshAxes mesh = mesh_of(flags.mesh);
  const std::optional<MeshMachine> machine = machine_of(flags, mesh);
  const bool has_file = !flags.json.empty() && flags.json != "-";
  if (has_file) check_strategies_file(flags.json);
  const OpStrategies found = op_strategies(op, mesh, machine);
  if (flags.json.empty() || has_file) print_lines(shard_table(found));
  if (flags.json.empty()) return 0;
  const std::string report = report_text(to_json(found));
  if (has_file) {
    write_text_file_atomically(flags.json, report);
  } else {
    fmt::print("{}", report);
  }
  return 0;
}

void add_op_flags(CLI::App& app, ShardFlags& flags) {
  OpDescription& op = flags.op;
  app.add_option("--op", op.op, "Op: " + CLI::detail::join(described_ops(), ", "));
  app.add_option("--shape", flags.shape,
                 "Shape of its first operand, such as 4,4,16: x, a, tokens, or packed q, k and v");
  app.add_option("--out", op.out, "Outputs of linear and matmul");
  app.add_flag("--no-bias", op.no_bias, "linear without a bias");
  app.add_option("--transposed", flags.transposed, "Which factors of matmul are stored transposed")
      ->check(validator(one_of({"a", "b", "both"})));
  app.add_flag("--shared", op.shared, "One second factor for all matrices of matmul's first");
  app.add_option("--heads", flags.heads,
                 "Heads of attention, rope and head_norm, such as 12, or 24/8 with 8 key heads");
  app.add_option("--vocab", op.vocab, "Vocabulary of embedding and loss");
  app.add_option("--channels", op.channels, "Channels of embedding");
  app.add_option("--positions", op.positions, "Positions that embedding adds; by default none");
  app.add_option("--label-smoothing", op.label_smoothing, "Label smoothing of loss");
  add_dtype_flag(app, flags.dtype, "Type of all values: f32 or bf16")->capture_default_str();
}

// Those of one kind of question alone; --dtype is of both.
const std::vector<const char*> op_flags{
    "--shape", "--out",   "--no-bias",  "--transposed", "--shared",
    "--heads", "--vocab", "--channels", "--positions",  "--label-smoothing"};
const std::vector<const char*> model_flags{"--layers",      "--batch",      "--seq",
                                           "--accumulate",  "--zero",       "--memory",
                                           "--host-memory", "--save-shard", "--report"};

}  // namespace

std::function<int()> add_shard(CLI::App& app) {
  const auto flags = std::make_shared<ShardFlags>();
  add_op_flags(app, *flags);
  add_shard_model_flags(app);
  app.add_option("--mesh", flags->mesh,
                 "How ranks are arranged: 2x4, or data=2,tensor=4 with names; four axes at most, "
                 "the last of neighbouring ranks.  Of a model a number alone, such as 8: any way "
                 "to arrange as many along at most three axes")
      ->required();
  app.add_option("--machine", flags->machine,
                 "Machine by whose clock seconds are foretold, as of spool plan: h200, or 2x8xh200 "
                 "for a mesh of 16 ranks; of an op none is needed");
  app.add_option("--link", flags->link,
                 "BYTES_PER_SECOND,SECONDS of exchanges along each axis, such as 450e9,8e-6, in "
                 "place of the machine's");
  app.add_option("--json", flags->json,
                 "File to write the strategies of an op, or the candidates of a model, to, as "
                 "JSON; -: standard output, and nothing else there")
      ->transform(validator(standard_output_as("-")));
  return [flags, &app] {
    const bool is_of_model = app.count("--model") > 0, is_of_op = app.count("--op") > 0;
    check(is_of_model != is_of_op, "spool shard is of one op or of a model: give --op or --model");
    for (const char* flag : is_of_model ? op_flags : model_flags) {
      check(app.count(flag) == 0, flag, " is of ", is_of_model ? "an op" : "a model", ", and ",
            is_of_model ? "--model" : "--op", " is given");
    }
    if (is_of_model) {
      return shard_model(app, {flags->mesh, flags->machine, flags->link, flags->json});
    }
    check_setting(!flags->shape.empty(), {"shape"},
                  "an op needs the shape of its first operand, such as 4,4,16");
    return shard_op(*flags);
  };
}

}  // namespace spool
