#include "spool/planner/sharding/cut_words.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "spool/runtime/check.h"

namespace spool {
namespace {

constexpr char idle = ' ';

// "attn.c_attn" of "h.0.attn.c_attn.weight".
std::string name_in_block(std::string_view parameter) {
  size_t begin = 0;
  for (size_t dot = parameter.find('.'); dot != parameter.npos;
       dot = parameter.find('.', dot + 1)) {
    const std::string_view part = parameter.substr(begin, dot - begin);
    const bool is_number = !part.empty() && std::ranges::all_of(part, [](unsigned char c) {
      return std::isdigit(c) != 0;
    });
    begin = dot + 1;
    if (is_number) break;
  }
  const size_t last = parameter.rfind('.');
  return std::string(begin < last ? parameter.substr(begin, last - begin) : parameter);
}

class Words {
 public:
  Words(const Program& program, const Assignment& how) : program_(program), how_(how) {}

  std::string along(size_t axis) const {
    const auto block = std::ranges::find_if(program_.scopes, &TapeScope::is_block);
    const bool has_blocks = block != program_.scopes.end();
    std::vector<std::string> inside, beside;
    for (NodeId n = 0; n < program_.nodes.next_id(); ++n) {
      const bool is_first = has_blocks && n >= block->first && n <= block->last;
      if (is_first || !is_in_block(n)) add(n, axis, is_first, is_first ? inside : beside);
    }
    std::string words = joined(inside);
    if (!words.empty()) words += " in each block";
    if (!words.empty() && !beside.empty()) words += "; ";
    words += joined(beside);
    return words.empty() ? "nothing" : words;
  }

 private:
  bool is_in_block(NodeId n) const {
    return std::ranges::any_of(program_.scopes, [&](const TapeScope& s) {
      return s.is_block() && n >= s.first && n <= s.last;
    });
  }

  // The matrix that is the op's second input; null: it has none.
  const Parameter* matrix_of(NodeId n) const {
    const Few<ValueId>& in = program_.nodes[n].inputs;
    if (in.size() < 2 || program_.values[in[1]].spec.shape.rank() < 2) return nullptr;
    return program_.values[in[1]].parameter;
  }

  void add(NodeId n, size_t axis, bool is_in_block, std::vector<std::string>& all) const {
    const Op& op = *program_.nodes[n].op;
    const char index = how_.nodes[static_cast<size_t>(n)].axes[axis].index;
    const Parameter* const matrix = matrix_of(n);
    if (index == idle && !matrix && op.kind() != OpKind::attention) return;
    const std::string name = matrix && is_in_block ? name_in_block(matrix->name) : op.name();
    std::string words = name + (index == idle ? " whole" : " by " + counted_by(index));
    if (std::ranges::find(all, words) == all.end()) all.push_back(std::move(words));
  }

  static std::string joined(const std::vector<std::string>& all) {
    std::string words;
    for (const std::string& one : all) words += (words.empty() ? "" : ", ") + one;
    return words;
  }

  const Program& program_;
  const Assignment& how_;
};

}  // namespace

std::string counted_by(char index) {
  switch (index) {
    case 'n':
    case 'b':
      return "rows";
    case 'o':
      return "outputs";
    case 'k':
      return "inputs";
    case 'h':
      return "heads";
    case 'v':
      return "vocabulary";
    case 'c':
    case 'i':
      return "channels";
    default:
      return sentence("index ", index);
  }
}

std::vector<std::string> cuts_in_words(const Program& program, const Assignment& how,
                                       const MeshAxes& mesh) {
  std::vector<std::string> lines;
  for (size_t a = 0; a < mesh.size(); ++a) {
    lines.push_back(sentence("along ", mesh.axes[a].name, ": ", Words(program, how).along(a)));
  }
  return lines;
}

}  // namespace spool
