// runs: numbers
// Megatron's cut of the bundled families: what each op is cut by, and what ranks exchange.

#include "spool/planner/sharding/shard_choice.h"

#include <map>
#include <numeric>
#include <set>

#include "spool/autograd/sharding/sharded_model.h"
#include "spool/models/families/families.h"
#include "spool/models/families/model.h"
#include "spool/planner/sharding/cut_words.h"
#include "spool/runtime/meta/stream.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr int64_t batch = 8, tokens = 64;

class TextModel final : public StepModel {
 public:
  TextModel(const ModelConfig& config, Stream& stream)
      : model_(config.make(DType::f32, stream, tokens)),
        tokens_({Shape{batch, tokens}, DType::i32}, stream),
        targets_({Shape{batch, tokens}, DType::i32}, stream) {}
  Parameters& parameters() override { return model_->parameters(); }
  Var loss(Tape& tape) override {
    return model_->loss(tape.input(tokens_), tape.input(targets_), /*dropout=*/0.1F);
  }

 private:
  std::shared_ptr<Model> model_;
  Tensor tokens_, targets_;
};

// What a policy makes of a model, and the moves of a rank along the last axis.
struct CutModel {
  MeshAxes mesh = {};
  std::vector<std::pair<std::string, char>> cut = {};  // by op, the index of the last axis
  ShardChoice choice = {};
  std::map<Collective, int> forward = {}, backward = {};
  std::map<std::string, Sharding> stored = {};
  std::vector<std::string> words = {};  // by axis
};

void count_moves(const ShardedModel& model, CutModel& found) {
  const ShardProgram& part = model.program();
  const size_t last = found.mesh.size() - 1;
  for (const ShardNode& node : part.nodes) {
    if (!node.is_move) continue;
    const State from = part.values[static_cast<size_t>(node.inputs[0])].sharding[last],
                to = part.values[static_cast<size_t>(node.outputs[0])].sharding[last];
    if (from == to) continue;
    const Move m{.axis = static_cast<int>(last), .from = from, .to = to};
    ++found.forward[forward_of(m)];
    ++found.backward[backward_of(m)];
  }
  for (const ShardParameter& p : part.parameters) {
    found.stored[std::string(std::string_view(p.name))] = p.stored;
  }
}

CutModel cut_model(const ModelConfig& config, const char* mesh, ShardPolicy policy) {
  CutModel found{.mesh = parse_mesh(mesh)};
  const MeshMachine machine = mesh_machine("h200", found.mesh);
  MetaStream stream(Machine{.mesh = {.ranks = found.mesh.ranks(), .rank = 0}});
  const auto choose = [&](const RecordedLoss& recorded) {
    found.choice = choose_shards(recorded.program, found.mesh, machine, policy);
    for (NodeId n = 0; n < recorded.program.nodes.next_id(); ++n) {
      const CutIndices& axes = found.choice.how.nodes[static_cast<size_t>(n)].axes;
      found.cut.emplace_back(recorded.program.nodes[n].op->name(),
                             axes[found.mesh.size() - 1].index);
    }
    found.words = cuts_in_words(recorded.program, found.choice.how, found.mesh);
    return found.choice.how;
  };
  const ShardedModel model([&](Stream& s) { return std::make_unique<TextModel>(config, s); },
                           choose, found.mesh, stream);
  count_moves(model, found);
  return found;
}

// Of the ops of one name, in order: "okok".
std::string letters(const CutModel& found, const std::string& op) {
  std::string all;
  for (const auto& [name, index] : found.cut) {
    if (name == op) all += index == ' ' ? '-' : index;
  }
  return all;
}

ModelConfig two_layers(const char* preset) {
  return model_preset(preset)->config.with("layers", 2);
}

constexpr const char* meshes[] = {"2", "4", "2x2", "1x2", "2x4", "2x2x2"};

// Sums forward: what the projection and the second product of an MLP make, and the embedding.
// Backward: of what the first products read, and the loss.
void expect_sums_of_megatron(CutModel& found) {
  EXPECT_EQ(found.forward[Collective::all_reduce], 2 * 2 + 1);
  EXPECT_EQ(found.backward[Collective::all_reduce], 2 * 2 + 1);
  for (const Collective e :
       {Collective::all_gather, Collective::reduce_scatter, Collective::all_to_all}) {
    EXPECT_EQ(found.forward[e], 0) << name(e);
    EXPECT_EQ(found.backward[e], 0) << name(e);
  }
}

TEST(ShardChoice, SaysWhatEachAxisCuts) {
  const CutModel gpt2 = cut_model(two_layers("gpt2-124m"), "2x4", ShardPolicy::megatron);
  EXPECT_EQ(
      gpt2.words[1],
      "along 1: attn.c_attn by outputs, attention by heads, attn.c_proj by inputs, mlp.c_fc by "
      "outputs, gelu by channels, mlp.c_proj by inputs in each block; embedding by "
      "vocabulary, linear_cross_entropy by vocabulary");
  EXPECT_TRUE(contains(gpt2.words[0], "along 0: ")) << gpt2.words[0];
  const CutModel odd = cut_model(two_layers("gpt2-1558m"), "2", ShardPolicy::megatron);  // 25 heads
  EXPECT_TRUE(contains(odd.words[0], "attention whole")) << odd.words[0];
  const CutModel llama = cut_model(two_layers("llama-tiny"), "2", ShardPolicy::megatron);
  EXPECT_TRUE(contains(llama.words[0], "self_attn.o_proj by inputs")) << llama.words[0];
  EXPECT_EQ(cut_model(two_layers("gpt2-tiny"), "2", ShardPolicy::none).words[0],
            "along 0: attn.c_attn whole, attention whole, attn.c_proj whole, mlp.c_fc whole, "
            "mlp.c_proj whole in each block; embedding whole, linear_cross_entropy whole");
}

TEST(ShardChoice, CutsGpt2AsMegatronDoes) {
  for (const char* preset : {"gpt2-124m", "gpt2-tiny"}) {
    for (const char* mesh : meshes) {
      SCOPED_TRACE(sentence(preset, " on ", mesh));
      const bool divides =
          preset != std::string("gpt2-tiny") || mesh[std::string(mesh).size() - 1] == '2';
      if (!divides) continue;  // 6 heads
      CutModel found = cut_model(two_layers(preset), mesh, ShardPolicy::megatron);
      expect_sums_of_megatron(found);
      EXPECT_EQ(letters(found, "linear"), "okokokok");
      EXPECT_EQ(letters(found, "attention"), "hh");
      EXPECT_EQ(letters(found, "gelu"), "cc");
      EXPECT_EQ(letters(found, "layer_norm"), "-----");
      EXPECT_EQ(letters(found, "embedding"), "v");
      EXPECT_EQ(letters(found, "linear_cross_entropy"), "v");
      EXPECT_EQ(letters(found, "add"), "----");
      const size_t last = found.mesh.size() - 1;
      EXPECT_EQ(found.stored.at("wte.weight")[last], State::cut(0));
      EXPECT_EQ(found.stored.at("h.1.ln_1.weight")[last], State::whole());
      for (const UncutOp& op : found.choice.uncut) {
        ADD_FAILURE() << op.node << " along " << op.axis << ": " << op.why;
      }
    }
  }
}

TEST(ShardChoice, CutsLlamaAsMegatronDoes) {
  for (const char* preset : {"llama-3.2-1b", "tinyllama-1.1b", "qwen3-0.6b"}) {
    for (const char* mesh : meshes) {
      SCOPED_TRACE(sentence(preset, " on ", mesh));
      CutModel found = cut_model(two_layers(preset), mesh, ShardPolicy::megatron);
      expect_sums_of_megatron(found);
      EXPECT_EQ(letters(found, "linear"), "okokokok");
      EXPECT_EQ(letters(found, "rope"), "hh");
      EXPECT_EQ(letters(found, "attention"), "hh");
      EXPECT_EQ(letters(found, "swiglu"), "ii");
      EXPECT_EQ(letters(found, "rms_norm"), "-----");
      EXPECT_EQ(letters(found, "embedding"), "v");
      EXPECT_EQ(letters(found, "linear_cross_entropy"), "v");
    }
  }
}

TEST(ShardChoice, SaysWhichOpsDoNotDivide) {
  const CutModel found = cut_model(two_layers("gpt2-1558m"), "2", ShardPolicy::megatron);
  EXPECT_EQ(letters(found, "attention"), "--");
  ASSERT_FALSE(found.choice.uncut.empty());
  bool has_heads = false;
  for (const UncutOp& op : found.choice.uncut) {
    has_heads |= op.why ==
                 "the 25 heads of the output of linear (8, 64, 4800) do not divide by 2; "
                 "only 1 would";
  }
  EXPECT_TRUE(has_heads) << found.choice.uncut.front().why;
}

TEST(ShardChoice, CutsRowsOrNothing) {
  for (const char* mesh : meshes) {
    const CutModel rows = cut_model(two_layers("gpt2-124m"), mesh, ShardPolicy::rows);
    EXPECT_EQ(letters(rows, "linear"), "nnnnnnnn");
    EXPECT_EQ(letters(rows, "attention"), "bb");
    EXPECT_EQ(letters(rows, "embedding"), "b");
    EXPECT_EQ(letters(rows, "linear_cross_entropy"), "n");
    const size_t last = rows.mesh.size() - 1;
    for (const auto& [name, stored] : rows.stored) EXPECT_EQ(stored[last], State::shared()) << name;
    const CutModel none = cut_model(two_layers("gpt2-124m"), mesh, ShardPolicy::none);
    EXPECT_EQ(letters(none, "linear"), "--------");
    EXPECT_GT(none.choice.seconds, 0);
  }
}

TEST(ShardChoice, RefusesWhatDoesNotDivide) {
  expect_error(
      ErrorKind::invalid,
      {"rows do not divide on the mesh 3: embedding bT,vc,+Pc->bTc of wte.weight (node 0): ",
       "3 ranks do not divide; 1 or 2 would"},
      [] { cut_model(two_layers("gpt2-124m"), "3", ShardPolicy::rows); });
  expect_error(ErrorKind::invalid,
               {"no op of the model can be cut along axis 0 of the mesh, which has 7 ranks; ",
                "7 ranks do not divide"},
               [] { cut_model(two_layers("gpt2-124m"), "7", ShardPolicy::megatron); });
}

}  // namespace
}  // namespace spool::testing
