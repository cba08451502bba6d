// Goes before mlx-c and its headers where they are compiled for Linux on x86-64: what MLX for macOS has and Linux lacks.
#pragma once

// mlx-c declares access to half-precision numbers on ARM alone; mlx-rs uses it everywhere.
#define HAS_FLOAT16
#define HAS_BFLOAT16

#ifdef __cplusplus
#include "mlx/types/half_types.h"
using mlx::core::bfloat16_t;
using mlx::core::float16_t;

// mlx-rs takes the seed of its random numbers from this clock.
#include <chrono>
extern "C" uint64_t mach_approximate_time() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

// mlx-c fills "{}" with std::format, which the standard library of GCC has from 13 on.
#include <version>
#ifndef __cpp_lib_format
#include <sstream>
#include <string_view>
namespace std {
template <class... Values> string format(string_view pattern, const Values &...values) {
  ostringstream text;
  auto fill = [&](const auto &value) {
    auto gap = pattern.find("{}");
    text << pattern.substr(0, gap) << value;
    pattern.remove_prefix(gap + 2);
  };
  (fill(values), ...);
  text << pattern;
  return text.str();
}
} // namespace std
#endif
#else
typedef _Float16 float16_t;
typedef unsigned short bfloat16_t;
#endif
