# What the CUDA kernels need: Boost.Context to run them on the CPU; a toolkit to build them for
# GPUs. At the top of the tree, because whoever links the kernels needs to see it.

# They are a quarter of all that is compiled, and most programs never call them.
option(LADDER_CUDA_ON_CPU "Build the CUDA kernels for the CPU, and --backend cuda-on-cpu" OFF)
if(LADDER_CUDA_ON_CPU)
  find_package(Boost REQUIRED CONFIG COMPONENTS context)
else()
  find_package(Boost QUIET CONFIG COMPONENTS context)  # labs have kernels of their own
endif()

set(LADDER_CUDA AUTO CACHE STRING "Build the CUDA kernels for GPUs: AUTO (if nvcc is there), ON, OFF")
set(CMAKE_CUDA_ARCHITECTURES "80-real;90" CACHE STRING "GPUs to build for")
set(LADDER_HAS_CUDA OFF)
if(NOT LADDER_CUDA STREQUAL "OFF")
  find_program(NVCC nvcc HINTS ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
  if(NVCC)
    set(CMAKE_CUDA_COMPILER ${NVCC})
    set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
    enable_language(CUDA)
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.3)  # the first with cudaFuncGetName()
      message(FATAL_ERROR "${NVCC} is of CUDA ${CMAKE_CUDA_COMPILER_VERSION}; legal: 12.3 or newer, "
        "or -DLADDER_CUDA=OFF, which builds without GPUs")
    endif()
    # nvcc has C++20 since 12.0; CMake 3.25 does not know.
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    find_package(CUDAToolkit REQUIRED)
    set(LADDER_HAS_CUDA ON)
  elseif(LADDER_CUDA STREQUAL "ON")
    message(FATAL_ERROR "LADDER_CUDA is ON, but there is no nvcc on PATH or in /usr/local/cuda")
  else()
    message(STATUS "No CUDA toolkit: built without GPUs; preset cuda-on-cpu needs none")
  endif()
endif()
