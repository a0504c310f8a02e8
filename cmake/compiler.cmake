# How every target is compiled: one place, so that no file can round differently.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)

find_program(CCACHE ccache)
if(CCACHE)
  # Without these it keeps nothing that was compiled with precompiled headers.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
endif()

# A newer compiler may warn where ours, GCC 12 of Debian, does not.
set(werror OFF)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  set(werror ON)
endif()
option(LADDER_WERROR "Warnings are errors; by default with GCC up to 12" ${werror})

add_library(ladder_options INTERFACE)
target_include_directories(ladder_options INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(ladder_options INTERFACE
  -Wall -Wextra -Wpedantic $<$<BOOL:${LADDER_WERROR}>:-Werror> -Wshadow -Wnon-virtual-dtor -Wold-style-cast
  # Always an error: a table of kernels may lack no operation.
  -Werror=missing-field-initializers
  # GCC 12 at -O3 sees these in fmt and std::string, where there is nothing to see.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overflow -Wno-maybe-uninitialized>
  # From GCC 13 on AddressSanitizer puts stack frames on the heap, where GCC 14 misaligns vectors of
  # 64 bytes.
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<CONFIG:Debug>>:--param=asan-use-after-return=0>
  # GCC looks for memory it no longer needs once it has taken 128 MB, and again when it has 30% more.
  # With more room it compiles in nine tenths of the time.
  $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=524288>
  # Fused multiply-adds are written out: the compiler must not choose where they are.
  -ffp-contract=off)

# The cpu kernels are vectors of one width, chosen here. Without them a build takes any processor.
if(LADDER_CPU_TABLE)
  target_compile_options(ladder_options INTERFACE -march=${LADDER_MARCH})
  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_FLAGS -march=${LADDER_MARCH})
  check_cxx_source_compiles("
  #if !(defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)) && !defined(__aarch64__)
  #error
  #endif
  int main() {}" LADDER_MARCH_SUFFICES_${LADDER_MARCH})
  unset(CMAKE_REQUIRED_FLAGS)
  if(NOT LADDER_MARCH_SUFFICES_${LADDER_MARCH})
    message(FATAL_ERROR "LADDER_MARCH=${LADDER_MARCH}: the cpu kernels need AVX2, FMA and F16C, or "
      "arm64; legal are x86-64-v3 and what has more, armv8-a+crypto and what has more, or native on such a "
      "machine. -DLADDER_CPU_TABLE=OFF builds the ref kernels alone, for any processor")
  endif()
else()
  message(STATUS "LADDER_CPU_TABLE is OFF: this build computes with ref, plain loops, alone")
endif()

# A sanitizer's objects are large, and lld links them four times as fast.
find_program(LADDER_LLD ld.lld)
if(LADDER_LLD AND CMAKE_BUILD_TYPE STREQUAL Debug)
  add_link_options(-fuse-ld=lld)
endif()

# For common/ and programs, which call kernels but do little themselves: compile time counts
# there, and a sanitizer's checks of CLI11 and JSON take a minute a file when optimized.
add_library(ladder_compile_quickly INTERFACE)
target_compile_options(ladder_compile_quickly INTERFACE $<IF:$<CONFIG:Release>,-O1,-O0>)

# For tests and the checks of labs, most of which run for a shorter time than they are compiled.
add_library(ladder_compile_at_once INTERFACE)
target_compile_options(ladder_compile_at_once INTERFACE -O0)

# Half of the time that a small source takes to compile goes to the headers it includes. So a library
# is compiled several files at a time; a file that is changed takes its neighbors along. Two files of
# a library may not give one name to two things.
option(LADDER_UNITY "Compile several files of a library at a time" ON)
function(ladder_unity library files)
  set_target_properties(${library} PROPERTIES
    UNITY_BUILD ${LADDER_UNITY} UNITY_BUILD_BATCH_SIZE ${files})
endfunction()
