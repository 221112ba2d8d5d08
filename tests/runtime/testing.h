#pragma once

// Helpers of all tests: filling and comparing tensors, and checking errors.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "spool/runtime/check.h"
#include "spool/runtime/numbers.h"
#include "spool/runtime/random.h"
#include "spool/runtime/tensor.h"
#include "spool/runtime/units.h"

namespace spool::testing {

using numbers::difference;
using numbers::normal;
using numbers::values;

// Expects that work() throws an Error of this kind, and that its sentence has each of the words.
// Returns the error's fields.
ErrorFields expect_error(ErrorKind kind, std::initializer_list<std::string_view> words,
                         const std::function<void()>& work, const char* file = __builtin_FILE(),
                         int line = __builtin_LINE());

// The sentence of the Error that work() throws, for a test of the whole sentence; "" if none.
std::string error_of(const std::function<void()>& work);

// Whether this machine has a GPU, real or emulated, and this build a backend for it.
bool there_is_cuda();

// Whether tests are to have their full sizes: SPOOL_NIGHTLY=1 is in the environment.
bool nightly();

// Whether ThreadSanitizer looks on, under which a loop takes up to a hundred times as long.  It
// wants threads that meet; that numbers are right in every size is for other builds to say.
bool finds_races();

bool contains(const std::string& text, const std::string& part);

}  // namespace spool::testing
