#pragma once
// The TOML library, included nowhere else and the same way in every build.
//
// Its parser asserts what some texts break ("[=]"), although the error branch right after
// handles them: with assertions on, a typo would abort the process; where the assertion is an
// assumption to the optimizer, it would be undefined behaviour. So neither.

#pragma push_macro("NDEBUG")
#undef NDEBUG
#define TOML_ASSERT(expr) static_assert(true)
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")
