// Plans in words, layer by layer.

#include "spool/planner/report/explanation.h"

#include "spool/autograd/ops.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

// An embedding, and three layers of two norms, two products and an activation.
class LayeredNet {
 public:
  LayeredNet() {
    for (int i = 0; i < 3; ++i) {
      const std::string h = "h." + std::to_string(i) + ".";
      for (const char* norm : {"ln_1", "ln_2"}) {
        add(h + norm + ".weight", Shape{4});
        add(h + norm + ".bias", Shape{4});
      }
      add(h + "mlp.fc.weight", Shape{4, 4});
      add(h + "mlp.out.weight", Shape{4, 4});
    }
    Var x = gelu(tape_.input(normal({2, 4}, DType::f32, stream_, /*seed=*/1)));
    for (size_t at = 0; at < parameters_.size(); at += 6) x = layer(x, at);
    gelu(x);
  }

  const Program& program() const { return tape_.program(); }
  NodeId first_of(int layer) const { return program().scopes[layer].first; }

  // Recomputes what the k-th node of the layer computes first.
  void recompute(Plan& plan, int layer, NodeId k) const {
    place(plan, layer, k, Placement::recompute);
  }
  void place(Plan& plan, int layer, NodeId k, Placement placement) const {
    plan.placement.resize(program().values.size(), Placement::keep);
    plan.placement[output(layer, k)] = placement;
  }
  ValueId output(int layer, NodeId k) const {
    return program().nodes[first_of(layer) + k].outputs.front();
  }

 private:
  void add(const std::string& name, const Shape& shape) {
    parameters_.push_back(std::make_unique<Parameter>(
        Parameter{.name = intern(name), .data = Tensor({shape, DType::f32}, stream_)}));
  }
  Var layer(Var x, size_t at) {
    const Tape::Scope scope(tape_, {.name = "block"});
    Parameter* p[6] = {};
    for (size_t i = 0; i < 6; ++i) p[i] = parameters_[at + i].get();
    constexpr float epsilon = 1e-5f;
    Var h = linear(layer_norm(x, *p[0], *p[1], epsilon), *p[4]);
    x = spool::add(x, gelu(h));
    h = linear(layer_norm(x, *p[2], *p[3], epsilon), *p[5]);
    return spool::add(x, gelu(h));
  }

  CpuStream stream_{size_t{1} << 20, /*threads=*/1};
  std::vector<std::unique_ptr<Parameter>> parameters_;
  Tape tape_{stream_, {.backward_follows = true}};
};

TEST(Explanation, NamesNodesByTheirParametersOrOps) {
  const LayeredNet net;
  const IdTable<NodeId, std::string> names = node_names(net.program());
  const std::vector<std::string> layer{"ln_1", "mlp.fc",  "gelu_1", "add_1",
                                       "ln_2", "mlp.out", "gelu_2", "add_2"};
  for (int l = 0; l < 3; ++l) {
    for (NodeId k = 0; k < 8; ++k) {
      EXPECT_EQ(names[net.first_of(l) + k], layer[static_cast<size_t>(k)]);
    }
  }
  EXPECT_EQ(names[0], "gelu_1");
}

TEST(Explanation, GroupsLayersThatAreTreatedAlike) {
  const LayeredNet net;
  EXPECT_EQ(explain(net.program(), {}),
            (std::vector<LayerGroup>{{.layers = {{0, 2}}, .treatment = "keep all"}}));
  Plan plan;
  for (const int layer : {0, 2}) {
    net.recompute(plan, layer, 0);
    net.recompute(plan, layer, 1);
  }
  EXPECT_EQ(
      explain(net.program(), plan),
      (std::vector<LayerGroup>{{.layers = {{0, 0}, {2, 2}}, .treatment = "recompute ln_1 mlp.fc"},
                               {.layers = {{1, 1}}, .treatment = "keep all"}}));
}

TEST(Explanation, TellsOfWhatIsOffloadedAndOfRegions) {
  const LayeredNet net;
  Plan plan;
  net.place(plan, 0, 1, Placement::offload);
  net.place(plan, 0, 5, Placement::offload);
  net.place(plan, 1, 1, Placement::offload);
  plan.offloads = {{.value = net.output(0, 5), .rows = 1},
                   {.value = net.output(1, 1), .target = OffloadTarget::disk}};
  plan.regions = {{.first = net.first_of(1), .last = net.first_of(1) + 7},
                  {.first = net.first_of(2) + 4, .last = net.first_of(2) + 7, .chunks = 2}};
  const auto groups = explain(net.program(), plan);
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[0].treatment, "to the host: mlp.fc mlp.out (1 row)");
  EXPECT_EQ(groups[1].treatment, "recompute the whole layer; to the disk: mlp.fc");
  EXPECT_EQ(groups[2].treatment, "ln_2 to add_2 in 2 chunks");
}

TEST(Explanation, TellsOfWhatIsOutsideOfLayersAndIsNotKept) {
  const LayeredNet net;
  Plan plan;
  plan.placement.resize(net.program().values.size(), Placement::keep);
  plan.placement[net.program().nodes[0].outputs[0]] = Placement::recompute;
  const auto groups = explain(net.program(), plan);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(layers_of(groups[1]) + ": " + groups[1].treatment,
            "outside the layers: recompute gelu_1");
}

TEST(Explanation, WritesRangesOfLayers) {
  EXPECT_EQ(layers_of({.layers = {{0, 13}}}), "layers 0–13");
  EXPECT_EQ(layers_of({.layers = {{4, 4}}}), "layer 4");
  EXPECT_EQ(layers_of({.layers = {{0, 2}, {5, 5}, {7, 9}}}), "layers 0–2, 5, 7–9");
}

}  // namespace
}  // namespace spool::testing
