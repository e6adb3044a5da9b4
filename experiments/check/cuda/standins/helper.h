// Stands in for the helper_*.h of NVIDIA's samples: what their programs call, with no effect.
#pragma once
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <string>

#ifndef EXIT_WAIVED
#define EXIT_WAIVED 2
#endif
#define checkCudaErrors(call) ((void)(call))
#define getLastCudaError(message) ((void)(message))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define MIN(a, b) ((a) < (b) ? (a) : (b))

inline bool checkCmdLineFlag(int, const char**, const char*) { return false; }
inline int getCmdLineArgumentInt(int, const char**, const char*) { return 0; }
inline float getCmdLineArgumentFloat(int, const char**, const char*) { return 0; }
inline bool getCmdLineArgumentString(int, const char**, const char*, char**) { return false; }
inline int findCudaDevice(int, const char**) { return 0; }
inline int gpuGetMaxGflopsDeviceId() { return 0; }
inline bool checkCudaCapabilities(int, int) { return true; }
inline int _ConvertSMVer2Cores(int, int) { return 128; }
inline char* sdkFindFilePath(const char*, const char*) { return nullptr; }
inline bool sdkCompareL2fe(const float*, const float*, unsigned, float) { return true; }

struct StopWatchInterface {};
inline bool sdkCreateTimer(StopWatchInterface**) { return true; }
inline bool sdkStartTimer(StopWatchInterface**) { return true; }
inline bool sdkStopTimer(StopWatchInterface**) { return true; }
inline bool sdkResetTimer(StopWatchInterface**) { return true; }
inline bool sdkDeleteTimer(StopWatchInterface**) { return true; }
inline float sdkGetTimerValue(StopWatchInterface**) { return 1; }
inline float sdkGetAverageTimerValue(StopWatchInterface**) { return 1; }
