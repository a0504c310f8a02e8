# A toolchain file: builds for arm64 on another processor, with Debian's cross compiler and the
# libraries of a tree of Debian for arm64, and runs what it built by qemu. scripts/machines.sh makes
# the tree.
#
#   cmake --toolchain cmake/arm64.cmake -DLADDER_ARM64_TREE=DIR ...
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES LADDER_ARM64_TREE)

set(CMAKE_SYSROOT ${LADDER_ARM64_TREE})
set(CMAKE_FIND_ROOT_PATH ${LADDER_ARM64_TREE})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${LADDER_ARM64_TREE})
set(ENV{PKG_CONFIG_LIBDIR}
  ${LADDER_ARM64_TREE}/usr/lib/aarch64-linux-gnu/pkgconfig:${LADDER_ARM64_TREE}/usr/share/pkgconfig)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L ${LADDER_ARM64_TREE})
