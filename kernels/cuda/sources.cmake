# Every file here is compiled twice: by nvcc for a GPU, by the C++ compiler for the shim.
set(CUDA_SOURCES
  cuda/attention_backward.cu
  cuda/attention_forward.cu
  cuda/cuda_device.cu
  cuda/elementwise.cu
  cuda/matmul.cu
  cuda/table.cu)
