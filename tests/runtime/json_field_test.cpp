// Fields of JSON files: values of the expected kinds are read, and each complaint names the file
// and the field.

#include "spool/runtime/files/json.h"
#include "tests/runtime/testing.h"

namespace spool {

enum class Fruit : uint8_t { apple, pear };

template <>
inline constexpr std::array enumerator_names<Fruit>{"apple", "pear"};

namespace {

using testing::expect_error;

JsonField example() {
  return parse_json(R"({"a": {"b": [1, -2, 18446744073709551615]}, "fruit": "pear", "half": 0.5,
                        "no": null, "odd key": true, "yes": true})",
                    "x.json");
}

TEST(JsonField, ReadsValues) {
  const JsonField f = example();
  const std::vector<JsonField> numbers = f.member("a").member("b").items();
  ASSERT_EQ(numbers.size(), 3u);
  EXPECT_EQ(numbers[0].integer<uint64_t>(), 1u);
  EXPECT_EQ(numbers[1].integer<int32_t>(-2, -2), -2);
  EXPECT_EQ(numbers[2].integer<uint64_t>(), UINT64_MAX);
  EXPECT_EQ(numbers[0].number(), 1);
  EXPECT_EQ(f.member("half").number(), 0.5);
  EXPECT_EQ(f.member("fruit").string(), "pear");
  EXPECT_EQ(f.member("fruit").enumerator<Fruit>(), Fruit::pear);
  EXPECT_TRUE(f.member("yes").boolean());
  EXPECT_TRUE(f.member("no").is_null());
  EXPECT_FALSE(f.find("none").has_value());
  std::string keys;
  for (const JsonField& m : f.members()) keys += m.key() + ",";
  EXPECT_EQ(keys, "a,fruit,half,no,odd key,yes,");
}

TEST(JsonField, NamesFileAndFieldOfAWrongValue) {
  const JsonField f = example();
  const JsonField b = f.member("a").member("b");
  const std::pair<std::function<void()>, const char*> all[] = {
      {[&] { f.member("none"); }, "x.json: field none is missing"},
      {[&] { f.member("a").member("c"); }, "x.json: field a.c is missing"},
      {[&] { b.member("c"); },
       "x.json: field a.b: [1,-2,18446744073709551615] is not a JSON object"},
      {[&] { f.items(); }, "x.json: {\"a\":"},
      {[&] { b.integer<int>(); }, "field a.b: [1,-2,18446744073709551615] is not a whole number"},
      {[&] { b.items()[0].integer<int>(2, 5); },
       "x.json: field a.b[0]: 1 is not a whole number from 2 to 5"},
      {[&] { b.items()[1].integer<uint64_t>(); },
       "field a.b[1]: -2 is not a whole number from 0 to"},
      {[&] { b.items()[2].integer<int64_t>(); }, "18446744073709551615 is not a whole number"},
      {[&] { f.member("half").integer<int>(); }, "field half: 0.5 is not a whole number"},
      {[&] { f.member("yes").integer<int>(); }, "field yes: true is not a whole number"},
      {[&] { f.member("no").number(); }, "field no: null is not a number"},
      {[&] { f.member("half").boolean(); }, "field half: 0.5 is not true or false"},
      {[&] { f.member("half").string(); }, "field half: 0.5 is not a string"},
      {[&] { f.member("half").enumerator<Fruit>(); }, "field half: 0.5 is none of apple, pear"},
      {[&] { f.member("odd key").string(); }, "x.json: field \"odd key\": true is not a string"},
      {[&] { f.refuse("is ", 3); }, "x.json: is 3"},
  };
  for (const auto& [work, expected] : all) expect_error(ErrorKind::file, {expected}, work);
  const auto read_missing = [&] { f.member("none"); };
  EXPECT_EQ(expect_error(ErrorKind::file, {"none is missing"}, read_missing).file, "x.json");
}

}  // namespace
}  // namespace spool
