#pragma once

// The checks that settings have: of a text that is given, and of a value.

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "spool/models/training/settings/setting.h"
#include "spool/runtime/units.h"

namespace spool {

inline constexpr int64_t largest_count = std::numeric_limits<int32_t>::max();

// A text of a whole number from `min` to `max`.
TextCheck at_least(int64_t min, int64_t max = std::numeric_limits<int64_t>::max());
TextCheck threads_of_this_machine();
// A text of a finite number above 0.
TextCheck number_above_zero(const std::string& what);
TextCheck known_chat_format();
// An amount of memory, such as 2GiB; or 0, too.
TextCheck memory_amount();
TextCheck memory_amount_or_none();
// One of these words, which help lists; one of an enum's.
TextCheck one_of(const std::vector<std::string>& words);
template <NamedEnum Enum>
TextCheck one_of() {
  return one_of({enumerator_names<Enum>.begin(), enumerator_names<Enum>.end()});
}
// The names of outputs.  - and /dev/stdout are standard output: where `name` is the one that the
// writer knows, or where a file is needed, of what.
TextCheck standard_output_as(const char* name);
TextCheck file_of(const char* what);
// The name of a file, or a pattern of names, that a run takes as an absolute path without a slash
// at the end; or the name of a preset, too.
TextCheck path();
TextCheck preset_or_path();

// A mesh as --mesh gives it: its ranks, and the axes along which they share each batch, which are
// all but a first one called data.  Throws if it is none, or has too many ranks.
struct RankMesh {
  int ranks = 0;
  std::string shared_axes = {};
};
RankMesh rank_mesh(const std::string& text);

// "the seed must be even, not 3" of a value that is not right, as it was written.
template <class T, class Right>
std::function<std::string(const T&)> must(const std::string& what, Right is_right) {
  return [=](const T& n) -> std::string {
    if (is_right(n)) return {};
    if constexpr (std::is_integral_v<T>) return sentence(what, ", not ", n);
    if constexpr (std::is_same_v<T, float>) {
      return sentence(what, ", not ", format_number(as_written(n)));
    }
    return sentence(what, ", not ", format_number(static_cast<double>(n)));
  };
}
// From 1 to the largest count; from 0 on; the rows of a chunk of something.
std::function<std::string(const int64_t&)> positive(const std::string& what);
std::function<std::string(const int64_t&)> not_negative(const std::string& what);
std::function<std::string(const int64_t&)> rows_of_chunk(const std::string& of);
// A finite number from 0 on, as the words say; one in [0, 1).
std::function<std::string(const double&)> finite_from_zero(const std::string& must_be);
std::function<std::string(const double&)> below_one(const std::string& what);

// Throws if what is given of adapters contradicts itself (adapter_settings.cpp).
void check_given_adapters(const RunOptions&);

}  // namespace spool
