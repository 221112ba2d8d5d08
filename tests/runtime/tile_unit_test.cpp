// The tile unit of this processor, the setting that replaces it, and the architecture that says so.

#include "spool/runtime/cpu/tile_unit.h"

#include <fstream>
#include <optional>
#include <string>

#include "spool/runtime/cpu/bf16_products.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/runtime/environment.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

// The setting for the length of a scope; nothing: what the hardware has.
struct UnitSetting : EnvironmentVariable {
  explicit UnitSetting(const std::optional<std::string>& value)
      : EnvironmentVariable("SPOOL_TILE_UNIT", value) {}
};

bool processor_lists(const std::string& flag) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string word; file >> word;) {
    if (word == flag) return true;
  }
  return false;
}

TEST(TileUnit, IsThatOfTheSettingAtEachCall) {
  for (const TileUnit unit : {TileUnit::absent, TileUnit::emulated}) {
    const UnitSetting setting(name(unit));
    EXPECT_EQ(tile_unit(), unit);
  }
  const UnitSetting setting("present");
  const std::string error = error_of([] { EXPECT_EQ(tile_unit(), TileUnit::present); });
  EXPECT_TRUE(error.empty() || error.ends_with("this build has no kernels for the tile unit"));
}

TEST(TileUnit, RefusesOtherWords) {
  for (const char* word : {"Present", "amx", "1", " absent"}) {
    const UnitSetting setting(word);
    expect_error(ErrorKind::invalid, {}, tile_unit);
    EXPECT_EQ(error_of(tile_unit), sentence("SPOOL_TILE_UNIT is '", word,
                                            "'; set it to absent, emulated or present, or leave it "
                                            "unset"));
  }
}

TEST(TileUnit, IsTheHardwaresWithoutTheSetting) {
  const UnitSetting unset({});
  const TileUnit unit = tile_unit();
  EXPECT_NE(unit, TileUnit::emulated);
  if (!processor_lists("amx_bf16") || !processor_lists("avx512_bf16")) {
    EXPECT_EQ(unit, TileUnit::absent);
  }
  EXPECT_EQ(bf16_products() == Bf16Products::tiles, unit == TileUnit::present);
  const UnitSetting empty("");
  EXPECT_EQ(tile_unit(), unit);
}

TEST(TileUnit, DecidesHowBf16IsMultiplied) {
  EXPECT_EQ(bf16_products(TileUnit::emulated), Bf16Products::tiles);
  EXPECT_EQ(bf16_products(TileUnit::present), Bf16Products::tiles);
  EXPECT_NE(bf16_products(TileUnit::absent), Bf16Products::tiles);
  const UnitSetting setting("emulated");
  EXPECT_EQ(bf16_products(), Bf16Products::tiles);
}

TEST(TileUnit, IsTheStreamsAsItWasMade) {
  for (const TileUnit unit : {TileUnit::absent, TileUnit::emulated}) {
    std::optional<UnitSetting> setting(name(unit));
    CpuStream stream(Arena::granule, 3);
    const CpuArchitecture expected = this_processor(3);
    setting.emplace(name(unit == TileUnit::absent ? TileUnit::emulated : TileUnit::absent));
    CpuStream second(stream);
    for (const CpuStream* each : {&stream, &second}) {
      EXPECT_EQ(each->tile_unit(), unit);
      EXPECT_EQ(each->cpu().threads, 3);
      EXPECT_EQ(each->cpu().bf16_products, expected.bf16_products);
    }
    EXPECT_EQ(expected.threads, 3);
    EXPECT_EQ(expected.bf16_products, bf16_products(unit));
  }
}

TEST(TileUnit, IsAskedOfAProcessorWithTheThreadsOfAStream) {
  EXPECT_EQ(this_processor(0).threads, CpuStream(Arena::granule).threads());
  expect_error(ErrorKind::invalid, {"threads: -1"}, [] { this_processor(-1); });
  expect_error(ErrorKind::invalid, {"threads: 4097"}, [] { this_processor(4097); });
}

}  // namespace
}  // namespace spool::testing
