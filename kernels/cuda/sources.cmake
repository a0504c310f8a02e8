# Every file here is compiled twice: by nvcc for a GPU, by the C++ compiler for the stand-in.
set(CUDA_SOURCES
  cuda/adafactor.cu
  cuda/adamw.cu
  cuda/adamw8bit.cu
  cuda/attention_backward.cu
  cuda/attention_cached.cu
  cuda/attention_forward.cu
  cuda/attention_pieces.cu
  cuda/bias.cu
  cuda/cast.cu
  cuda/cross_entropy.cu
  cuda/cuda_device.cu
  cuda/elementwise.cu
  cuda/embed.cu
  cuda/experts.cu
  cuda/fp8_factors.cu
  cuda/lion.cu
  cuda/matmul.cu
  cuda/norm.cu
  cuda/rope.cu
  cuda/route.cu
  cuda/sgd.cu
  cuda/squared_norm.cu
  cuda/swiglu.cu
  cuda/table.cu)
# For nvcc apart, because its instructions are in code that runs on no other GPU than Hopper.
set(HOPPER_SOURCES cuda/attention_hopper.cu)
