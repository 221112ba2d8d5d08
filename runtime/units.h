#pragma once

// Bytes, seconds and other numbers as text for people.

#include <cstddef>
#include <string>
#include <string_view>

namespace spool {

// "512 B", "1.50 GiB": three significant digits, powers of 1024.
std::string format_bytes(size_t bytes);

// "2GiB", "1.5 GB", "750MiB", "1048576".  B, kB, MB, GB, TB are powers of 1000, KiB, MiB, GiB, TiB
// of 1024, as are K, M, G, T; all of them in any case.  Throws for any other text, and for 0.
size_t parse_bytes(std::string_view text);

// The shortest decimal that reads as the number: "0.0003", "6e-05", "1000".
std::string format_number(double);
// The double with the shortest decimal of the float: 0.1F gives 0.1, not 0.10000000149011612.
double as_written(float);
// Rounds to 15 digits, which removes what arithmetic in doubles adds: 0.003 / 10 gives 0.0003.
double rounded_to_decimals(double);

// "350 us", "12.3 ms", "4.56 s", "3 min 20 s", "2 h 5 min".
std::string format_seconds(double seconds);

}  // namespace spool
