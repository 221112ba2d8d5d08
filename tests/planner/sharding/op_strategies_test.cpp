// The ways to cut an op by itself: what ranks exchange, in bytes, and what each costs.

#include "spool/planner/sharding/op_strategies.h"

#include <nlohmann/json.hpp>

#include "spool/autograd/notation/part_of_op.h"
#include "spool/autograd/ops.h"
#include "spool/autograd/ops/rows.h"
#include "spool/kernels/elementwise.h"
#include "spool/planner/machines/machine.h"
#include "spool/planner/rehearsal.h"
#include "spool/planner/sharding/strategies_json.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr Link link{.seconds = 1e-5, .bytes_per_second = 1e9};

OpStrategies found(const OpDescription& d, const char* mesh, bool is_priced = false) {
  const MeshAxes axes = parse_mesh(mesh);
  const auto machine = is_priced ? std::optional(mesh_machine("h200", axes, link)) : std::nullopt;
  return op_strategies(describe_op(d), axes, machine);
}

const OpStrategy& way(const OpStrategies& all, const std::vector<std::string>& cut) {
  for (const OpStrategy& s : all.all) {
    if (all.cut_in_words(s.cut.axes) == cut) return s;
  }
  fail(ErrorKind::invalid, "no such way");
}

// "y:1 64, dw:0 128": value, axes and bytes.
std::string in_words(const std::vector<ValueExchange>& exchanges) {
  std::string words;
  for (const ValueExchange& e : exchanges) {
    words += (words.empty() ? "" : ", ") + e.value + ":";
    for (const int axis : e.axes) words += std::to_string(axis);
    words += " " + std::to_string(static_cast<int64_t>(e.bytes));
  }
  return words;
}

const OpDescription linear_of{.op = "linear", .shape = {4, 4, 4, 16}, .out = 32};
const OpDescription loss_of{.op = "loss", .shape = {4, 8, 16}, .vocab = 32};

TEST(OpStrategies, SayWhatIsSummed) {
  const OpStrategies all = found(linear_of, "2x2");
  EXPECT_EQ(all.all.size(), 36u);
  const auto expect = [&](const std::vector<std::string>& cut, const char* forward,
                          const char* backward) {
    EXPECT_EQ(in_words(way(all, cut).forward), forward) << cut[0] << cut[1];
    EXPECT_EQ(in_words(way(all, cut).backward), backward) << cut[0] << cut[1];
  };
  expect({"-", "-"}, "", "");
  expect({"-", "k"}, "y:1 8192", "");
  expect({"n0", "k"}, "y:1 4096", "dw:0 1024, db:0 128");
  expect({"n0", "o"}, "", "dx:1 2048, dw:0 1024, db:0 64");
  expect({"n0", "n1"}, "", "dw:01 4096, db:01 256");
  expect({"k", "k"}, "y:01 16384", "");
}

TEST(OpStrategies, LeaveOutWhatHasNoGradient) {
  const OpStrategies rope =
      found({.op = "rope", .shape = {2, 4, 32}, .heads = Heads{.query = 4, .key = 2}}, "2");
  for (const OpStrategy& s : rope.all) EXPECT_EQ(in_words(s.backward), "");
  EXPECT_EQ(rope.all.size(), 3u);
  EXPECT_EQ(rope.outputs.size(), 1u);
}

// Three numbers a row, or four with smoothing, which a rank gives each of the others.
TEST(OpStrategies, SayWhatTheLossGathers) {
  const OpStrategies all = found(loss_of, "2x4");
  EXPECT_EQ(in_words(way(all, {"-", "v"}).forward), "v*:1 1152");  // 32 rows, 12 bytes, 3 others
  EXPECT_EQ(in_words(way(all, {"n0", "v"}).forward), "y:0 4, v*:1 576");
  EXPECT_EQ(in_words(way(all, {"v", "v"}).forward), "v*:01 2688");
  EXPECT_EQ(in_words(way(all, {"-", "v"}).backward), "dx:1 3072");
  OpDescription smoothed = loss_of;
  smoothed.label_smoothing = 0.1F;
  EXPECT_EQ(in_words(way(found(smoothed, "2x4"), {"-", "v"}).forward), "v*:1 1536");
}

// Parts along v give each other two numbers a row.
struct Joined final : Op {
  const char* name() const override { return "joined"; }
  const char* indices() const override { return "nC,v*C->n"; }
  Specs infer(const Specs& in) const override { return {{without_rows(in[0].shape)}}; }
  void forward(Forward& f) const override {
    auto [y] = f.outputs<1>();
    f.launch(Fill{.out = y});
    const PartOfIndex* const part = f.place() ? f.place()->part('v') : nullptr;
    if (!part) return;
    const int64_t numbers = 2 * y.numel();
    const Tensor own = f.scratch({Shape{numbers}}), all = f.scratch({Shape{numbers * part->of}});
    f.place()->exchange->all_gather('v', own, all, f.stream());
  }
  Slots saves(const Needs&) const override { return {}; }
  void backward(Backward&) const override {}
};

TEST(OpStrategies, SayWhatAnOpJoins) {
  DescribedOp op{.inputs = {{"x", "x"}, {"weight", "w"}}};
  rehearse_totals(Machine{}, [&](MetaStream& stream) {
    Tape tape(stream);
    const Var x = tape.input(Tensor({{4, 6, 16}}, stream)),
              w = tape.input(Tensor({{8, 16}}, stream));
    apply<Joined>(tape, {x, w});
    op.program = tape.take_program();
  });
  const MeshAxes mesh = parse_mesh("2x4");
  const MeshMachine machine = mesh_machine("h200", mesh, link);
  const OpStrategies all = op_strategies(op, mesh, machine);
  EXPECT_EQ(in_words(way(all, {"-", "v"}).forward), "v*:1 576");  // 24 rows, 8 bytes, 3 others
  EXPECT_EQ(in_words(way(all, {"n0", "v"}).forward), "v*:1 288");
  EXPECT_EQ(in_words(way(all, {"v", "v"}).forward), "v*:01 1344");
  const double alone = *way(all, {"-", "-"}).seconds;
  EXPECT_DOUBLE_EQ(*way(all, {"-", "v"}).seconds,
                   alone + link.seconds + 576 / link.bytes_per_second);
  EXPECT_DOUBLE_EQ(*way(all, {"v", "v"}).seconds,
                   alone + 2 * link.seconds + 1344 / link.bytes_per_second);
}

TEST(OpStrategies, ListWhatDoesNotDivide) {
  const OpStrategies all =
      found({.op = "attention", .shape = {3, 4, 40}, .heads = Heads{.query = 6, .key = 2}}, "4");
  EXPECT_EQ(all.all.size(), 1u);
  ASSERT_EQ(all.refused.size(), 2u);
  for (const StrategyOrReason& r : all.refused) {
    EXPECT_NE(r.why.find(all.cut_in_words(r.axes)[0] == "h" ? "2" : "3"), std::string::npos);
  }
}

double rehearsed(const Shape& shape, int64_t outputs, const Machine& machine) {
  double seconds = 0;
  rehearse_totals(machine, [&](MetaStream& stream) {
    Parameter weight{.data = Tensor({{outputs, shape.row()}}, stream)},
        bias{.data = Tensor({{outputs}}, stream)};
    Tape tape(stream);
    const Var x = tape.input(Tensor({shape}, stream), /*needs_grad=*/true);
    const double begin = stream.now();
    {
      const Var y = linear(x, weight, bias);
      tape.backward({Root{y, Tensor(y.spec(), stream)}});
    }
    seconds = stream.now() - begin;
  });
  return seconds;
}

TEST(OpStrategies, CostTheirPartAndTheirExchanges) {
  const OpDescription d{.op = "linear", .shape = {512, 1024}, .out = 2048};
  const OpStrategies all = found(d, "2", /*is_priced=*/true);
  const Machine h200 = *named_machine("h200");
  EXPECT_DOUBLE_EQ(*way(all, {"-"}).seconds, rehearsed({512, 1024}, 2048, h200));
  const auto sum = [](int64_t elements) {  // among two, there and back
    return 2 * link.seconds + static_cast<double>(4 * elements) / link.bytes_per_second;
  };
  EXPECT_DOUBLE_EQ(*way(all, {"n"}).seconds,
                   rehearsed({256, 1024}, 2048, h200) + sum(2048 * 1024) + sum(2048));
  EXPECT_DOUBLE_EQ(*way(all, {"o"}).seconds, rehearsed({512, 1024}, 1024, h200) + sum(512 * 1024));
  EXPECT_DOUBLE_EQ(*way(all, {"k"}).seconds, rehearsed({512, 512}, 2048, h200) + sum(512 * 2048));
}

TEST(OpStrategies, OfEachOpHaveAPrice) {
  const Heads heads{.query = 4, .key = 4};
  for (const OpDescription& d : std::initializer_list<OpDescription>{
           linear_of,
           loss_of,
           {.op = "matmul", .shape = {4, 8, 16}, .dtype = DType::bf16, .out = 8},
           {.op = "matmul", .shape = {4, 8, 16}, .out = 8, .shared = true},
           {.op = "attention", .shape = {4, 8, 96}, .dtype = DType::bf16, .heads = heads},
           {.op = "rope", .shape = {4, 8, 96}, .heads = heads},
           {.op = "head_norm", .shape = {4, 8, 96}, .heads = heads},
           {.op = "embedding", .shape = {4, 8}, .vocab = 64, .channels = 16, .positions = 8},
           {.op = "embedding", .shape = {4, 8}, .vocab = 64, .channels = 16},
           {.op = "layer_norm", .shape = {4, 8, 16}},
           {.op = "rms_norm", .shape = {4, 8, 16}},
           {.op = "softmax", .shape = {4, 8, 16}},
           {.op = "gelu", .shape = {4, 8, 16}},
           {.op = "swiglu", .shape = {4, 8, 16}}}) {
    const OpStrategies all = found(d, "2x2", /*is_priced=*/true);
    EXPECT_GT(all.all.size(), 1u) << d.op;
    EXPECT_TRUE(all.refused.empty()) << d.op << ": " << all.refused[0].why;
    for (const OpStrategy& s : all.all) EXPECT_GT(*s.seconds, 0) << d.op;
  }
}

TEST(OpStrategies, AreWrittenAsJson) {
  const nlohmann::json all = to_json(found(linear_of, "2x2", /*is_priced=*/true));
  EXPECT_EQ(all["op"], "linear");
  EXPECT_EQ(all["notation"], "nk,ok,+o->no");
  EXPECT_EQ(all["mesh"], "2x2");
  EXPECT_TRUE(is_of_strategies(all));
  for (nlohmann::json s : all["strategies"]) {
    if (s["axes"] != nlohmann::json{"n0", "k"}) continue;
    EXPECT_GT(s["seconds"], 0);
    s.erase("seconds");
    EXPECT_EQ(s, nlohmann::json::parse(R"({"axes": ["n0", "k"],
        "inputs": ["S0RRS1", "RS1+H0", "R+H0+P1"], "outputs": ["S0RRR+P1"],
        "forward": [{"value": "y", "move": "all-reduce", "axes": [1], "bytes": 4096}],
        "backward": [{"value": "dw", "move": "all-reduce", "axes": [0], "bytes": 1024},
                     {"value": "db", "move": "all-reduce", "axes": [0], "bytes": 128}],
        "colossalai": "S0R = S0S1 x S1R_0"})"));
    return;
  }
  ADD_FAILURE() << "no n0 k";
}

TEST(MeshMachine, HasALinkForEachAxis) {
  const auto rates = [](const char* name, const char* mesh) {
    std::vector<double> all;
    for (const Link& l : mesh_machine(name, parse_mesh(mesh)).links) {
      all.push_back(l.bytes_per_second);
    }
    return all;
  };
  const double within = rates("h200", "2")[0], between = rates("2x8xh200", "16")[0];
  EXPECT_GT(within, between);
  EXPECT_EQ(rates("2x8xh200", "2x8"), (std::vector{between, within}));
  EXPECT_EQ(rates("2x8xh200", "4x4"), (std::vector{between, within}));
  EXPECT_EQ(rates("2x8xh200", "2x2x4"), (std::vector{between, within, within}));
  EXPECT_EQ(rates("2x8xh200", "1x16"), (std::vector{within, between}));
  EXPECT_EQ(mesh_machine("h200", parse_mesh("2x2"), link).links[1].bytes_per_second, 1e9);
  expect_error(ErrorKind::invalid, {"8xh200 has 8 ranks", "mesh 2x2 has 4"},
               [] { mesh_machine("8xh200", parse_mesh("2x2")); });
}

TEST(MeshMachine, ReadsALink) {
  EXPECT_EQ(parse_link("450e9,8e-6").bytes_per_second, 450e9);
  EXPECT_EQ(parse_link("1e9,0").seconds, 0);
  for (const char* text : {"", "1e9", "1e9,", ",1", "0,1", "-1,1", "1,-1", "nan,1", "inf,0",
                           "1,1,1", "1e9 ,1", "1e999,0"}) {
    expect_error(ErrorKind::invalid, {"is no link", "450e9,8e-6"}, [&] { parse_link(text); });
  }
}

}  // namespace
}  // namespace spool::testing
