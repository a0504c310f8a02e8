// Names that headers of the chapters use, and that WebAssembly lacks. Nothing on the page calls
// what needs them. scripts/planner_page.py includes this file before all others.
#pragma once

#include <ctime>

#define CLOCK_THREAD_CPUTIME_ID CLOCK_MONOTONIC
extern "C" int getppid();
