#include "spool/autograd/sharding/mesh_axes.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "spool/runtime/check.h"

namespace spool {
namespace {

constexpr int max_ranks = std::numeric_limits<int>::max();

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_letter_or_digit(char c) { return is_letter(c) || (c >= '0' && c <= '9'); }

class MeshParser {
 public:
  explicit MeshParser(std::string_view text) : text_(text) {}

  MeshAxes parse() {
    require(!text_.empty(), " has no axes; a mesh is 2x4, or data=2,tensor=4");
    const bool is_named = text_.find_first_of("=,") != std::string_view::npos;
    for (std::string_view rest = text_; !is_done_;) {
      const size_t end = rest.find(is_named ? ',' : 'x');
      add(rest.substr(0, end), is_named);
      is_done_ = end == std::string_view::npos;
      if (!is_done_) rest.remove_prefix(end + 1);
    }
    return std::move(mesh_);
  }

 private:
  template <class... Words>
  void require(bool holds, const Words&... words) const {
    check(holds, "mesh '", text_, "'", words...);
  }

  void add(std::string_view axis, bool is_named) {
    require(mesh_.size() < MeshAxes::max_axes, " has more than ", MeshAxes::max_axes, " axes");
    std::string name = std::to_string(mesh_.size());
    if (is_named) {
      const size_t equals = axis.find('=');
      require(equals != std::string_view::npos, ": '", axis,
              "' is not an axis with its number of ranks, such as tensor=4");
      name = axis.substr(0, equals);
      check_name(name);
      axis.remove_prefix(equals + 1);
    }
    const int size = size_of_axis(name, axis);
    require(size <= max_ranks / mesh_.ranks(), ": more than ", max_ranks, " ranks");
    mesh_.axes.push_back({.name = std::move(name), .size = size});
  }

  void check_name(const std::string& name) const {
    const bool is_name =
        !name.empty() && is_letter(name[0]) && std::ranges::all_of(name, is_letter_or_digit);
    require(is_name, ": '", name, "' is not the name of an axis: letters, digits and _");
    require(std::ranges::none_of(mesh_.axes, [&](const MeshAxis& a) { return a.name == name; }),
            ": two axes are named ", name);
  }

  int size_of_axis(const std::string& name, std::string_view digits) const {
    int size = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), size);
    require(error != std::errc::result_out_of_range, ": more than ", max_ranks, " ranks");
    require(error == std::errc() && end == digits.data() + digits.size(), ": '", digits,
            "' is not a number of ranks, for axis ", name);
    require(size > 0, ": axis ", name, " has ", size, " ranks, and has at least 1");
    return size;
  }

  std::string_view text_;
  bool is_done_ = false;
  MeshAxes mesh_ = {};
};

}  // namespace

int MeshAxes::ranks() const {
  int product = 1;
  for (const MeshAxis& axis : axes) product *= axis.size;
  return product;
}

std::string MeshAxes::text() const {
  std::string all;
  for (size_t a = 0; a < size(); ++a) {
    const bool is_numbered = axes[a].name == std::to_string(a);
    if (a > 0) all += is_numbered ? 'x' : ',';
    if (!is_numbered) all += axes[a].name + '=';
    all += std::to_string(axes[a].size);
  }
  return all;
}

MeshAxes parse_mesh(std::string_view text) { return MeshParser(text).parse(); }

}  // namespace spool
