// What the rest of the program knows of CUDA: two tables made of the same sources, and the devices
// that they run on. What a program links decides which of them it has.
#pragma once

#include <memory>

#include "kernels/device.h"
#include "kernels/kernels.h"

/// For GPUs: the library ladder_cuda.
namespace ladder::cuda {

const Kernels& kernels();
/// How many GPUs there are; 0 without a driver.
int device_count();
/// @throws CheckError if there is no such device
std::unique_ptr<Device> open_device(int index);

}  // namespace ladder::cuda

/// For the CPU, which runs thread after thread: the library ladder_cuda_on_cpu. It has one device.
namespace ladder::cuda_on_cpu {

const Kernels& kernels();
int device_count();
std::unique_ptr<Device> open_device(int index);

}  // namespace ladder::cuda_on_cpu
