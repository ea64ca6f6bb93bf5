// NVIDIA's driver and management library as far as they are used here, opened
// at run time: memory, copies, events and inter-process handles of the driver
// (libcuda), what a GPU is and does of NVML. Functions return an error message
// (to be freed by the caller) or NULL. Nothing of CUDA is needed to compile.
#ifndef INFERPLAN_CUDA_H
#define INFERPLAN_CUDA_H

#include <stddef.h>
#include <stdint.h>

// ip_cuda_open opens the driver's library and initialises it. A second call
// with another path opens that one instead (tests do).
char *ip_cuda_open(const char *library);

typedef struct {
  int driver_version; // 13000: CUDA 13.0
  int multiprocessors, major, minor;
  int clock_khz, memory_clock_khz, bus_bits;
  size_t free_bytes, total_bytes;
} ip_cuda_device;
char *ip_cuda_about(int device, ip_cuda_device *out);
// ip_cuda_wait returns when everything that this process gave the device to do,
// in whatever stream, is done.
char *ip_cuda_wait(int device);

// Memory of the device, and memory of the host that the device copies from
// directly.
char *ip_cuda_alloc(int device, size_t len, uint64_t *out);
char *ip_cuda_free(int device, uint64_t at);
char *ip_cuda_pin(int device, void *data, size_t len);
char *ip_cuda_unpin(int device, void *data);

// A copy that has arrived when the call returns. kind: 1 to the device, 2 to
// the host, 3 inside the device; the addresses are as the driver sees them.
char *ip_cuda_copy(int device, uint64_t dst, uint64_t src, size_t len, int kind);
// ip_cuda_time copies n times in a stream of its own and gives the time of all
// of them by the device's own clock.
char *ip_cuda_time(int device, uint64_t dst, uint64_t src, size_t len, int kind, int n, double *ms);

// Memory of the device that another process may map.
char *ip_cuda_export(int device, uint64_t at, unsigned char handle[64]);
char *ip_cuda_import(int device, const unsigned char handle[64], uint64_t *out);
char *ip_cuda_unmap(int device, uint64_t at);

typedef struct {
  char name[96], uuid[96];
  unsigned long long memory;
  int major, minor;  // compute capability, 0 where it is not told
  unsigned cores;    // 0 where it is not told
  int multiprocessors;  // likewise
  unsigned power_limit_mw;
} ip_gpu;
// ip_gpus lists GPUs through NVML; found stays 0 where the library is absent.
// ip_cuda_list lists them through the driver, for machines that have it without
// NVML (containers with the capability compute and not utility).
char *ip_cuda_list(ip_gpu *out, int cap, int *found);
char *ip_gpus(const char *library, ip_gpu *out, int cap, int *found, char *driver, int driver_cap);

typedef struct {
  unsigned power_mw, sm_mhz, memory_mhz, celsius;
  unsigned long long throttled; // NVML's reasons why clocks are lowered, a bit each
} ip_gpu_state;
// A watch keeps NVML open; what a GPU does not tell stays 0.
typedef struct ip_watch ip_watch;
char *ip_watch_open(const char *library, int device, ip_watch **out);
char *ip_watch_read(ip_watch *w, ip_gpu_state *out);
void ip_watch_close(ip_watch *w);

#endif
