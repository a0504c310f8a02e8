# How every target is compiled: one place, so that no file can round differently.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

add_library(ladder_options INTERFACE)
target_include_directories(ladder_options INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(ladder_options INTERFACE
  -Wall -Wextra -Wpedantic -Werror -Wshadow -Wnon-virtual-dtor -Wold-style-cast
  -Wmissing-field-initializers
  # GCC 12 at -O3 sees these in fmt and std::string, where there is nothing to see.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overflow -Wno-maybe-uninitialized>
  # Fused multiply-adds are written out: the compiler must not choose where they are.
  -ffp-contract=off
  -march=${LADDER_MARCH})
if(NOT LADDER_OPENMP)
  target_compile_options(ladder_options INTERFACE -Wno-unknown-pragmas)
endif()

# For programs and tests, which call kernels and common/ but do little themselves: compile time
# counts there, and a sanitizer's checks take three times as long to compile when optimised.
add_library(ladder_compile_quickly INTERFACE)
target_compile_options(ladder_compile_quickly INTERFACE $<IF:$<CONFIG:Release>,-O1,-O0>)
