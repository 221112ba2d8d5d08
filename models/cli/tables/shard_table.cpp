#include "spool/models/cli/tables/shard_table.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>

#include "spool/models/cli/terminal/width.h"
#include "spool/runtime/units.h"

namespace spool {
namespace {

// A unit in which the largest of some numbers is 1 or more.
struct Unit {
  const char* name;
  double size;
};
constexpr std::array byte_units{Unit{"B", 1}, Unit{"KiB", 1024}, Unit{"MiB", 1048576},
                                Unit{"GiB", 1073741824}};
constexpr std::array second_units{Unit{"us", 1e-6}, Unit{"ms", 1e-3}, Unit{"s", 1}};

template <size_t N>
Unit unit_of(const std::array<Unit, N>& units, double largest) {
  Unit found = units.front();
  for (const Unit& unit : units) {
    if (largest >= unit.size) found = unit;
  }
  return found;
}

// Three digits, as far as there are so many.
std::string amount(double n, const Unit& unit) {
  const double value = n / unit.size;
  if (value == 0) return "0";
  const bool is_whole = std::string_view(unit.name) == "B" || value >= 99.95;
  return fmt::format("{:.{}f}", value, is_whole ? 0 : value >= 9.995 ? 1 : 2);
}

std::string axes_in_words(const std::vector<int>& axes) {
  std::string words;
  for (const int axis : axes) words += std::to_string(axis);
  return words;
}

std::string exchanges_in_words(const std::vector<ValueExchange>& all) {
  std::string words;
  for (const ValueExchange& e : all) {
    words += (words.empty() ? "" : " ") + e.value + ":" + axes_in_words(e.axes);
  }
  return words;
}

// "S0R", and where an axis adds a value on one rank alone "R+P0": that it is shared, or partial
// after the op, is seen in what is summed.
std::string state_in_words(Sharding s, const WholeValue& value, bool is_input,
                           const MeshAxes& mesh) {
  for (State& state : s.along) {
    const bool is_said = state == State::shared() || (state == State::partial() && !is_input);
    if (is_said) state = State::whole();
  }
  return in_words(s, value.spec.shape.rank(), mesh);
}

std::string without_spaces(std::string text) {
  std::erase(text, ' ');
  return text;
}

constexpr size_t page_columns = 80;

using Row = std::vector<std::string>;

class Table {
 public:
  explicit Table(const OpStrategies& list) : list_(list) {
    double most = 0, longest = 0;
    for (const OpStrategy& s : list.all) {
      most = std::max(most, s.sent_bytes());
      longest = std::max(longest, s.seconds.value_or(0));
      has_names_ |= s.colossalai.has_value();
    }
    is_priced_ = longest > 0;
    bytes_ = unit_of(byte_units, most);
    seconds_ = unit_of(second_units, longest);
  }

  std::string text() const {
    std::vector<Row> rows{head()};
    for (const OpStrategy& s : list_.all) rows.push_back(row(s));
    std::vector<size_t> widths(rows[0].size(), 0);
    for (const Row& r : rows) {
      for (size_t i = 0; i < r.size(); ++i) widths[i] = std::max(widths[i], r[i].size());
    }
    std::string lines;
    for (const Row& r : rows) lines += line(r, widths);
    return lines;
  }

  bool is_priced() const { return is_priced_; }
  const char* byte_unit() const { return bytes_.name; }
  const char* second_unit() const { return seconds_.name; }

 private:
  size_t first_number() const { return list_.inputs.size() + list_.outputs.size() + 3; }

  Row head() const {
    Row cells{"cut"};
    for (const auto* names : {&list_.inputs, &list_.outputs}) {
      for (const OperandName& each : *names) cells.push_back(each.symbol);
    }
    cells.insert(cells.end(), {"forward", "backward", bytes_.name});
    if (is_priced_) cells.emplace_back(seconds_.name);
    if (has_names_) cells.emplace_back("ColossalAI");
    return cells;
  }

  Row row(const OpStrategy& s) const {
    Row cells{fmt::format("{}", fmt::join(list_.cut_in_words(s.cut.axes), " "))};
    for (size_t i = 0; i < list_.inputs.size(); ++i) {
      cells.push_back(
          state_in_words(s.cut.inputs[i], list_.whole.inputs[i], /*is_input=*/true, list_.mesh));
    }
    for (size_t i = 0; i < list_.outputs.size(); ++i) {
      cells.push_back(
          state_in_words(s.cut.outputs[i], list_.whole.outputs[i], /*is_input=*/false, list_.mesh));
    }
    cells.push_back(exchanges_in_words(s.forward));
    cells.push_back(exchanges_in_words(s.backward));
    cells.push_back(amount(s.sent_bytes(), bytes_));
    if (is_priced_) cells.push_back(amount(s.seconds.value_or(0), seconds_));
    if (has_names_) cells.push_back(without_spaces(s.colossalai.value_or("")));
    return cells;
  }

  // Numbers end below each other, words begin so.
  std::string line(const Row& cells, const std::vector<size_t>& widths) const {
    std::string text;
    for (size_t i = 0; i < cells.size(); ++i) {
      const bool is_number = i >= first_number() && i < first_number() + (is_priced_ ? 2 : 1);
      text += is_number ? fmt::format(" {:>{}}", cells[i], widths[i])
                        : fmt::format(" {:<{}}", cells[i], widths[i]);
    }
    return text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
  }

  const OpStrategies& list_;
  bool is_priced_ = false, has_names_ = false;
  Unit bytes_ = byte_units[0], seconds_ = second_units[0];
};

// "x (4, 16), weight w (32, 16)"
std::string operands_in_words(const OpStrategies& list) {
  std::string words;
  for (size_t i = 0; i < list.inputs.size(); ++i) {
    const auto& [name, symbol] = list.inputs[i];
    words += sentence(i == 0 ? "" : ", ", name, name == symbol ? "" : " " + symbol, " ",
                      list.whole.inputs[i].spec.shape);
  }
  return words;
}

// An exchange of this kind, "dw:1"; empty if there is none.
std::string example_of(const OpStrategies& list, Collective move) {
  for (const OpStrategy& s : list.all) {
    for (const auto* exchanges : {&s.forward, &s.backward}) {
      for (const ValueExchange& e : *exchanges) {
        if (e.move == move && e.axes.size() == 1) return exchanges_in_words({e});
      }
    }
  }
  return "";
}

// The first axis along which an input is added on one rank; none: -1.
int axis_of_one_rank(const OpStrategies& list) {
  for (const OpStrategy& s : list.all) {
    for (const Sharding& input : s.cut.inputs) {
      for (size_t a = 0; a < list.mesh.size(); ++a) {
        if (input[a] == State::partial()) return static_cast<int>(a);
      }
    }
  }
  return -1;
}

// What the table says, as far as it does.
std::string legend(const OpStrategies& list, const Table& table) {
  std::string words = "R: whole; S0: cut along axis 0";
  const auto say = [&](const std::string& example, const char* what) {
    if (!example.empty()) words += fmt::format("; {}: {} {}", example, what, example.back());
  };
  say(example_of(list, Collective::all_reduce), "summed along axis");
  say(example_of(list, Collective::all_gather), "gathered by the op itself along axis");
  const int once = axis_of_one_rank(list);
  if (once >= 0) words += fmt::format("; +P{}: on the first rank of axis {} alone", once, once);
  words += fmt::format("; {}: what a rank sends", table.byte_unit());
  if (table.is_priced()) words += fmt::format("; {}: forward and backward", table.second_unit());
  return words + ".";
}

std::string fastest_in_words(const OpStrategies& list) {
  const auto fastest = std::ranges::min_element(
      list.all, {}, [](const OpStrategy& s) { return s.seconds.value_or(0); });
  if (fastest == list.all.end() || !fastest->seconds) return "";
  return fmt::format("The fastest: {}, {} forward and backward.\n",
                     fmt::join(list.cut_in_words(fastest->cut.axes), " "),
                     format_seconds(*fastest->seconds));
}

// Each reason once, behind those that it holds for.
std::string refused_in_words(const OpStrategies& list) {
  std::vector<std::pair<std::string, std::string>> reasons;  // why, and which
  for (const StrategyOrReason& r : list.refused) {
    const auto cut = fmt::format("{}", fmt::join(list.cut_in_words(r.axes), " "));
    const auto known = std::ranges::find(reasons, r.why, [](const auto& x) { return x.first; });
    if (known == reasons.end()) {
      reasons.emplace_back(r.why, cut);
    } else {
      known->second += ", " + cut;
    }
  }
  std::string lines = reasons.empty() ? "" : "\nDo not divide:\n";
  for (const auto& [why, cuts] : reasons) {
    lines += wrapped(fmt::format(" {}: {}\n", cuts, why), page_columns);
  }
  return lines;
}

}  // namespace

std::string shard_table(const OpStrategies& list) {
  const auto named =
      std::ranges::count_if(list.all, [](const OpStrategy& s) { return s.colossalai.has_value(); });
  const Table table(list);
  const size_t count = list.all.size();
  std::string text = wrapped(
      fmt::format("{} {}: {}\n{} way{} on {}. {}", list.op, list.notation, operands_in_words(list),
                  count, count == 1 ? "" : "s", list.mesh.text(), legend(list, table)),
      page_columns);
  text += "\n\n" + table.text();
  if (named > 0) text += fmt::format("{} of them are ColossalAI's.\n", named);
  text += fastest_in_words(list) + refused_in_words(list);
  text.pop_back();
  return text;
}

}  // namespace spool
