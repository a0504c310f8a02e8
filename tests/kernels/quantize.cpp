#include "tests/kernels/testing.h"
