#include "spool/planner/sharding/shards_file.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "spool/autograd/fingerprint.h"
#include "spool/planner/sharding/named_op.h"
#include "spool/runtime/files/file.h"
#include "spool/runtime/files/json.h"

namespace spool {

using nlohmann::json;

namespace {

constexpr uint64_t max_shards_bytes = 32'000'000;

std::string fingerprint_of(const Program& program) {
  const auto all = fingerprints(program);
  uint64_t last = all.next_id() > 0 ? all[all.next_id() - 1] : empty_fingerprint;
  std::string digits(16, '0');
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit, last >>= 4) {
    *digit = "0123456789abcdef"[last & 15];
  }
  return digits;
}

std::map<std::string, ValueId> parameters_of(const Program& program) {
  std::map<std::string, ValueId> all;
  for (ValueId v = 0; v < program.values.next_id(); ++v) {
    const Value& value = program.values[v];
    if (value.parameter) all[std::string(std::string_view(value.parameter->name))] = v;
  }
  return all;
}

json shards_to_json(const Program& program, const MeshAxes& mesh, const Assignment& how) {
  json nodes = json::array(), parameters = json::object();
  for (const Strategy& s : how.nodes) {
    std::string indices;
    for (size_t a = 0; a < mesh.size(); ++a) {
      indices += s.axes[a].index == ' ' ? '-' : s.axes[a].index;
    }
    nodes.push_back(std::move(indices));
  }
  for (const auto& [name, v] : parameters_of(program)) {
    json& axes = parameters[name] = json::array();
    for (size_t a = 0; a < mesh.size(); ++a) axes.push_back(in_words(how.given.at(v)[a]));
  }
  json links = json::array();
  for (const Link& link : how.links) {
    links.push_back({{"bytes_per_second", link.bytes_per_second}, {"seconds", link.seconds}});
  }
  return {{"spool_shards", newest_shards_version},
          {"mesh", mesh.text()},
          {"links", std::move(links)},
          {"tape_fingerprint", fingerprint_of(program)},
          {"parameters", std::move(parameters)},
          {"nodes", std::move(nodes)}};
}

class ShardsReader {
 public:
  ShardsReader(const JsonField& root, const Program& program, const MeshAxes& mesh)
      : root_(root), program_(program), mesh_(mesh), values_(whole_values(program)) {}

  Assignment read() {
    check_version();
    for (const JsonField& f : root_.members()) {
      constexpr std::string_view all[] = {"links",      "mesh",         "nodes",
                                          "parameters", "spool_shards", "tape_fingerprint"};
      root_.expect(std::ranges::find(all, f.key()) != std::end(all),
                   "a file of shards has no field ", excerpt(f.key()));
    }
    check_origin();
    if (root_.value()["spool_shards"] >= 2) read_links(root_.member("links"));
    read_nodes(root_.member("nodes"));
    read_parameters(root_.member("parameters"));
    return std::move(how_);
  }

 private:
  void check_version() const {
    const json& j = root_.value();
    root_.expect(j.is_object() && j.contains("spool_shards"),
                 "is not a file of shards: that is a JSON object that has \"spool_shards\"");
    const json& version = j["spool_shards"];
    root_.expect(version.is_number_integer() && 1 <= version && version <= newest_shards_version,
                 "has shards of version ", excerpt(version), ", and this program reads versions 1 ",
                 "to ", newest_shards_version, "; choose them again with this program");
  }

  void check_origin() const {
    const std::string mesh = root_.member("mesh").string();
    root_.expect(mesh == mesh_.text(), "has shards for the mesh ", excerpt(mesh),
                 ", and the mesh here is ", mesh_.text(), "; give that mesh, or choose them again");
    const JsonField of = root_.member("tape_fingerprint");
    const std::string found = of.string(), wanted = fingerprint_of(program_);
    of.expect(found == wanted, excerpt(found),
              " is that of another model, batch or type: here it is ", wanted,
              "; give those that the shards were chosen for, or choose them again");
  }

  void read_links(const JsonField& list) {
    const std::vector<JsonField> links = list.items();
    list.expect(links.empty() || links.size() == mesh_.size(), "there are ", links.size(),
                " links, and the mesh ", mesh_.text(), " has ", mesh_.size(), " axes");
    for (const JsonField& field : links) {
      const JsonField seconds = field.member("seconds"), rate = field.member("bytes_per_second");
      seconds.expect(seconds.number() >= 0, "an exchange cannot take ", excerpt(seconds.value()));
      rate.expect(rate.number() > 0, excerpt(rate.value()), " is no rate of a link");
      how_.links.push_back({.seconds = seconds.number(), .bytes_per_second = rate.number()});
    }
  }

  void read_nodes(const JsonField& list) {
    const std::vector<JsonField> nodes = list.items();
    list.expect(std::ssize(nodes) == program_.nodes.next_id(), "there are ", nodes.size(),
                ", and the program has ", program_.nodes.next_id());
    for (NodeId n = 0; n < program_.nodes.next_id(); ++n) {
      how_.nodes.push_back(read_node(n, nodes[static_cast<size_t>(n)]));
    }
  }

  Strategy read_node(NodeId n, const JsonField& field) const {
    const std::string indices = field.string();
    const std::string known = parse_notation(program_.nodes[n].op->indices()).separable();
    field.expect(indices.size() == mesh_.size(), excerpt(field.value()), " has ", indices.size(),
                 " indices, and the mesh ", mesh_.text(), " has ", mesh_.size(), " axes");
    CutIndices axes = {};
    for (size_t a = 0; a < std::min(axes.size(), indices.size()); ++a) {
      if (indices[a] == '-') continue;
      field.expect(known.find(indices[a]) != std::string::npos, excerpt(field.value()),
                   " cuts an index that ", node_in_words(program_, n), " does not have; it has '",
                   known, "'");
      axes[a].index = indices[a];
    }
    StrategyOrReason found = strategy(named_op(program_, n, values_), axes, mesh_);
    field.expect(found.strategy.has_value(), node_in_words(program_, n), " cannot be cut by ",
                 excerpt(field.value()), ": ", found.why);
    return std::move(*found.strategy);
  }

  void read_parameters(const JsonField& all) {
    const auto known = parameters_of(program_);
    for (const JsonField& field : all.members()) {
      const auto at = known.find(field.key());
      field.expect(at != known.end(), "the model has no parameter of this name");
      how_.given[at->second] = read_storage(field, at->second);
    }
    for (const auto& [name, v] : known) {
      all.expect(how_.given.contains(v), "the parameter ", excerpt(name), " is missing");
    }
  }

  Sharding read_storage(const JsonField& field, ValueId v) const {
    const std::vector<JsonField> axes = field.items();
    const WholeValue& value = values_[static_cast<size_t>(v)];
    field.expect(axes.size() == mesh_.size(), "there are ", axes.size(), " states, and the mesh ",
                 mesh_.text(), " has ", mesh_.size(), " axes");
    Sharding stored;
    for (size_t a = 0; a < std::min(stored.along.size(), axes.size()); ++a) {
      stored[a] = read_state(axes[a], value.spec.shape);
      if (stored[a] == State::shared() && mesh_[a] > 1) check_shared(field, v, a);
    }
    field.expect(local_shape(value, stored, mesh_).has_value(), value.spec,
                 " does not divide so on the mesh ", mesh_.text(), ": ",
                 in_words(stored, value.spec.shape.rank(), mesh_));
    return stored;
  }

  static State read_state(const JsonField& field, const Shape& shape) {
    const std::string words = field.string();
    if (words == "whole") return State::whole();
    if (words == "shared") return State::shared();
    int dimension = -1;
    constexpr std::string_view cut = "cut ";
    if (words.starts_with(cut)) {
      const char* const end = words.data() + words.size();
      const auto [at, error] = std::from_chars(words.data() + cut.size(), end, dimension);
      if (error != std::errc() || at != end) dimension = -1;
    }
    field.expect(dimension >= 0 && dimension < shape.rank(), excerpt(field.value()),
                 " is none of whole, shared, and cut 0 to cut ", shape.rank() - 1);
    return State::cut(dimension);
  }

  // What is shared leads nowhere, so all that read it share it.
  void check_shared(const JsonField& field, ValueId v, size_t axis) const {
    for (NodeId n = 0; n < program_.nodes.next_id(); ++n) {
      const Few<ValueId>& inputs = program_.nodes[n].inputs;
      for (size_t i = 0; i < inputs.size(); ++i) {
        const State read = how_.nodes[static_cast<size_t>(n)].inputs[i][axis];
        const bool is_shared = read == State::shared() && program_.values[v].needs_grad;
        field.expect(inputs[i] != v || is_shared, "it is shared along axis ", mesh_.axes[axis].name,
                     ", and ", node_in_words(program_, n),
                     " does not share it there; store it whole");
      }
    }
  }

  const JsonField& root_;
  const Program& program_;
  const MeshAxes& mesh_;
  const std::vector<WholeValue> values_;
  Assignment how_ = {};
};

bool is_same(const Assignment& a, const Assignment& b) {
  return a.given == b.given && a.links == b.links &&
         std::ranges::equal(a.nodes, b.nodes, {}, &Strategy::axes, &Strategy::axes);
}

}  // namespace

std::string shards_text(const Program& program, const MeshAxes& mesh, const Assignment& how) {
  return shards_to_json(program, mesh, how)
      .dump(2, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
}

Assignment parse_shards(const std::string& text, const std::string& name, const Program& program,
                        const MeshAxes& mesh) {
  return ShardsReader(parse_json(text, name), program, mesh).read();
}

void save_shards(const std::string& path, const Program& program, const MeshAxes& mesh,
                 const Assignment& how) {
  const std::string text = shards_text(program, mesh, how);
  const bool is_read_back =
      text.size() <= max_shards_bytes && is_same(parse_shards(text, path, program, mesh), how);
  check_file(is_read_back, path, "the shards could not be read again: they are too many, or ",
             "parameters have names that are not UTF-8, or equal ones");
  write_text_file_atomically(path, text + "\n");
}

Assignment load_shards(const std::string& path, const Program& program, const MeshAxes& mesh) {
  return parse_shards(read_text_file(path, max_shards_bytes), path, program, mesh);
}

}  // namespace spool
