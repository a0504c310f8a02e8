// What the rest of the program knows of CUDA: two tables of the same sources, and the devices
// that they run on. Which of them a program contains is decided by what it links.
#pragma once

#include <memory>

#include "kernels/device.h"
#include "kernels/kernels.h"

/// On GPUs: the library ladder_cuda.
namespace ladder::cuda {

const Kernels& kernels();
/// How many GPUs there are; 0 without a driver.
int device_count();
/// @throws CheckError if there is no such device
std::unique_ptr<Device> open_device(int index);

}  // namespace ladder::cuda

/// On the CPU, thread by thread: the library ladder_cuda_on_cpu. It has one device.
namespace ladder::cuda_on_cpu {

const Kernels& kernels();
int device_count();
std::unique_ptr<Device> open_device(int index);

}  // namespace ladder::cuda_on_cpu
