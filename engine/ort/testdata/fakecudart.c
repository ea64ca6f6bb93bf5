// A stand-in for CUDA 13's runtime library, as far as ONNX Runtime's CUDA
// provider calls it. Kernels are counted and do nothing, save for the few that
// launch knows. Signatures, numbers and offsets are those of the CUDA Runtime
// API's reference manual.
#define _GNU_SOURCE
#include "fakecuda.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int cudaError_t;
typedef fake_stream *cudaStream_t;
typedef fake_event *cudaEvent_t;
typedef struct { unsigned x, y, z; } dim3;

enum { DEVICES = 1, MULTIPROCESSORS = 132, MAJOR = 9, MINOR = 0 };

static __thread cudaError_t last;
static cudaError_t result(cudaError_t e) { return e ? (last = e) : 0; }
#undef SAY
#define SAY if (said(__func__)) return result(UNKNOWN)
#define SAFE if (fake_unsafe(__func__)) return result(CAPTURE_FORBIDS)

// Devices.

cudaError_t cudaGetDeviceCount(int *n) { SAY; *n = DEVICES; return 0; }
cudaError_t cudaGetDevice(int *d) { *d = 0; return 0; }
cudaError_t cudaSetDevice(int d) { return result(d == 0 ? 0 : NO_DEVICE); }
cudaError_t cudaRuntimeGetVersion(int *v) { *v = 13000; return 0; }
cudaError_t cudaDriverGetVersion(int *v) { *v = 13010; return 0; }
cudaError_t cudaDeviceSynchronize(void) { SAY; SAFE; return result(fake_wait_all()); }
cudaError_t cudaMemGetInfo(size_t *free, size_t *total) { SAY; fake_memory(free, total); return 0; }

cudaError_t cudaGetDeviceProperties(void *out, int d) {
  SAY;
  if (d) return result(NO_DEVICE);
  // The beginning of cudaDeviceProp as CUDA 13 has it.
  struct {
    char name[256], uuid[16], luid[8];
    unsigned mask;
    size_t memory, shared;
    int registers, warp;
    size_t pitch;
    int threads, block[3], grid[3];
    size_t constant;
    int major, minor;
    size_t texture, texture_pitch;
    int multiprocessors, integrated, map_host;
  } *p = out;
  memset(p, 0, sizeof *p);
  size_t free;
  strcpy(p->name, "NVIDIA H100 80GB HBM3");
  fake_memory(&free, &p->memory);
  p->shared = 49152;
  p->registers = 65536;
  p->warp = 32;
  p->pitch = 2147483647;
  p->threads = 1024;
  p->block[0] = p->block[1] = 1024, p->block[2] = 64;
  p->grid[0] = 2147483647, p->grid[1] = p->grid[2] = 65535;
  p->constant = 65536;
  p->major = MAJOR, p->minor = MINOR;
  p->texture = 512, p->texture_pitch = 32;
  p->multiprocessors = MULTIPROCESSORS;
  p->map_host = 1;
  return 0;
}

cudaError_t cudaDeviceGetAttribute(int *v, int attribute, int d) {
  if (d) return result(NO_DEVICE);
  static const int values[][2] = {
      {1, 1024}, {2, 1024}, {3, 1024}, {4, 64}, {5, 2147483647}, {6, 65535}, {7, 65535}, {8, 49152}, {9, 65536}, {10, 32}, {12, 65536},
      {16, MULTIPROCESSORS}, {38, 50 << 20}, {39, 2048}, {75, MAJOR}, {76, MINOR}, {81, 233472}, {82, 65536}, {95, 1}, {97, 232448}, {106, 32}, {115, 1},
  };
  for (size_t i = 0; i < sizeof values / sizeof *values; i++)
    if (values[i][0] == attribute) {
      *v = values[i][1];
      return 0;
    }
  noted("cudaDeviceGetAttribute %d is not known\n", attribute);
  *v = 0;
  return 0;
}

// Errors.

cudaError_t cudaGetLastError(void) { cudaError_t e = last; last = 0; return e; }
cudaError_t cudaPeekAtLastError(void) { return last; }
const char *cudaGetErrorName(cudaError_t e) { return e == 2 ? "cudaErrorMemoryAllocation" : e == 900 ? "cudaErrorStreamCaptureUnsupported" : e ? "cudaErrorStandIn" : "cudaSuccess"; }
const char *cudaGetErrorString(cudaError_t e) {
  switch (e) {
    case OK: return "no error";
    case INVALID_VALUE: return "invalid argument";
    case OUT_OF_MEMORY: return "out of memory";
    case NO_DEVICE: return "invalid device ordinal";
    case 209: return "no kernel image is available for execution on the device";
    case CAPTURE_FORBIDS: return "operation not permitted when stream is capturing";
    default: return "unknown error";
  }
}

// Memory.

cudaError_t cudaMalloc(void **p, size_t len) {
  SAY; SAFE;
  if (!len) { *p = NULL; return 0; }
  return result((*p = (void *)fake_take(len)) ? 0 : OUT_OF_MEMORY);
}
cudaError_t cudaFree(void *p) { SAY; if (!p) return 0; SAFE; return result(fake_give((uint64_t)p)); }
cudaError_t cudaHostAlloc(void **p, size_t len, unsigned flags) {
  SAY; SAFE;
  (void)flags;
  if (posix_memalign(p, 4096, len ? len : 1)) return result(OUT_OF_MEMORY);
  fake_pin(*p, len);
  return 0;
}
cudaError_t cudaMallocHost(void **p, size_t len) { return cudaHostAlloc(p, len, 0); }
cudaError_t cudaFreeHost(void *p) {
  SAY;
  if (!p) return 0;
  fake_wait_all();
  cudaError_t e = fake_unpin(p);
  if (!e) free(p);
  return result(e);
}
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t len, int kind, cudaStream_t s) {
  SAY;
  // 4 is "by the addresses"; the others must agree with them.
  if (len && kind != 4 && kind != on_device(dst) + 2 * on_device(src)) return result(INVALID_VALUE);
  return result(fake_copy(s, dst, src, len));
}
cudaError_t cudaMemcpy(void *dst, const void *src, size_t len, int kind) {
  SAY; SAFE;
  cudaError_t e = cudaMemcpyAsync(dst, src, len, kind, NULL);
  return e ? e : result(fake_wait(NULL));
}
cudaError_t cudaMemcpy2DAsync(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height, int kind, cudaStream_t s) {
  SAY;
  for (size_t i = 0; i < height; i++) {
    cudaError_t e = cudaMemcpyAsync((char *)dst + i * dpitch, (const char *)src + i * spitch, width, kind, s);
    if (e) return e;
  }
  return 0;
}

typedef struct { char *at; int value; size_t len; } setting;
static void set_run(void *args) { setting *s = args; memset(s->at, s->value, s->len); }
cudaError_t cudaMemsetAsync(void *p, int value, size_t len, cudaStream_t s) {
  SAY;
  setting x = {device((uint64_t)p, len), value, len};
  if (!len) return 0;
  return result(x.at ? fake_do(s, "memset", set_run, &x, sizeof x) : INVALID_VALUE);
}
cudaError_t cudaMemset(void *p, int value, size_t len) { return cudaMemsetAsync(p, value, len, NULL); }

typedef struct pool { int x; } *cudaMemPool_t;
cudaError_t cudaMemPoolCreate(cudaMemPool_t *p, const void *properties) { SAY; (void)properties; *p = calloc(1, sizeof **p); return 0; }
cudaError_t cudaMemPoolDestroy(cudaMemPool_t p) { SAY; free(p); return 0; }
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t p, int a, void *v) { (void)p; (void)a; *(uint64_t *)v = 0; return 0; }
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t p, int a, void *v) { (void)p; (void)a; (void)v; return 0; }
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t p, size_t keep) { (void)p; (void)keep; return 0; }
cudaError_t cudaMallocFromPoolAsync(void **p, size_t len, cudaMemPool_t pool, cudaStream_t s) { (void)pool; (void)s; return cudaMalloc(p, len); }
cudaError_t cudaFreeAsync(void *p, cudaStream_t s) { (void)s; return cudaFree(p); }

// Streams and events.

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags) { SAY; *s = fake_stream_new(flags & 1); return 0; }
cudaError_t cudaStreamCreate(cudaStream_t *s) { return cudaStreamCreateWithFlags(s, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t s) { SAY; return result(fake_stream_free(s)); }
cudaError_t cudaStreamSynchronize(cudaStream_t s) { SAY; return result(fake_wait(s)); }
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags) { SAY; (void)flags; return result(fake_stream_waits(s, e)); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags) { SAY; (void)flags; *e = fake_event_new(); return 0; }
cudaError_t cudaEventCreate(cudaEvent_t *e) { return cudaEventCreateWithFlags(e, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t e) { SAY; free(e); return 0; }
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) { SAY; return result(fake_event_record(e, s)); }
cudaError_t cudaEventSynchronize(cudaEvent_t e) { SAY; SAFE; return result(fake_event_wait(e)); }
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b) { SAY; (void)a; (void)b; *ms = 0.01f; return 0; }

typedef struct { void (*f)(void *); void *data; } calling;
static void call_run(void *args) { calling *c = args; c->f(c->data); }
cudaError_t cudaLaunchHostFunc(cudaStream_t s, void (*f)(void *), void *data) {
  SAY;
  calling c = {f, data};
  return result(fake_do(s, "host function", call_run, &c, sizeof c));
}

// Graphs.

cudaError_t cudaStreamBeginCapture(cudaStream_t s, int mode) { SAY; return result(fake_capture(s, mode)); }
cudaError_t cudaStreamEndCapture(cudaStream_t s, fake_graph **g) { SAY; return result(fake_captured(s, g)); }
cudaError_t cudaStreamIsCapturing(cudaStream_t s, int *is) { *is = fake_capturing(s); return 0; }
cudaError_t cudaGraphInstantiate(fake_graph **exec, fake_graph *g, unsigned long long flags) { SAY; (void)flags; *exec = g; return 0; }
cudaError_t cudaGraphLaunch(fake_graph *exec, cudaStream_t s) { SAY; return result(fake_graph_launch(exec, s)); }
cudaError_t cudaGraphDestroy(fake_graph *g) { SAY; (void)g; return 0; } // instantiated ones are freed below
cudaError_t cudaGraphExecDestroy(fake_graph *exec) { SAY; fake_graph_free(exec); return 0; }

// Kernels: found by the address of their host function.

typedef struct kernel { const void *host; const char *name; const char *images; struct kernel *next; } kernel;
static kernel *table[1 << 14];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static kernel **slot(const void *host) { return &table[((uintptr_t)host >> 4) % (sizeof table / sizeof *table)]; }

void **__cudaRegisterFatBinary(void *binary) {
  void **h = malloc(sizeof *h);
  *h = binary;
  return h;
}
void __cudaRegisterFatBinaryEnd(void **h) { (void)h; }
void __cudaUnregisterFatBinary(void **h) { free(h); }
void __cudaRegisterVar(void **h, char *var, char *address, const char *name, int ext, size_t size, int constant, int global) {
  (void)h; (void)var; (void)address; (void)name; (void)ext; (void)size; (void)constant; (void)global;
}
void __cudaRegisterFunction(void **h, const char *host, char *fun, const char *name, int limit, void *tid, void *bid, void *block, void *grid, int *warp) {
  (void)fun; (void)limit; (void)tid; (void)bid; (void)block; (void)grid; (void)warp;
  kernel *k = malloc(sizeof *k);
  *k = (kernel){host, name, ((const struct { int magic, version; const char *data; } *)*h)->data, NULL};
  pthread_mutex_lock(&lock);
  k->next = *slot(host);
  *slot(host) = k;
  pthread_mutex_unlock(&lock);
}
static kernel *find(const void *host) {
  pthread_mutex_lock(&lock);
  kernel *k = *slot(host);
  while (k && k->host != host) k = k->next;
  pthread_mutex_unlock(&lock);
  return k;
}

// The configuration of a launch, between the caller and the kernel's host function.
static __thread struct { dim3 grid, block; size_t shared; cudaStream_t stream; } pushed;
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t s) {
  pushed.grid = grid, pushed.block = block, pushed.shared = shared, pushed.stream = s;
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *s) {
  *grid = pushed.grid, *block = pushed.block, *shared = pushed.shared, *(cudaStream_t *)s = pushed.stream;
  return 0;
}

// Whether the container of a kernel holds code for the device's architecture (third_party/trimfatbin tells the layout):
// zeroes are none.
static int has_image(const char *p) {
  const char *sm = getenv("FAKECUDA_SM");
  uint32_t want = sm && *sm ? atoi(sm) : MAJOR * 10 + MINOR;
  uint16_t header = *(uint16_t *)(p + 6);
  const char *end = p + header + *(uint64_t *)(p + 8);
  if (*(uint32_t *)p != 0xBA55ED50) return 0;
  for (p += header; p < end;) {
    uint32_t h = *(uint32_t *)(p + 4), arch = *(uint32_t *)(p + 28);
    uint64_t payload = *(uint64_t *)(p + 8);
    // Code for an architecture runs on later ones of the same generation.
    if (arch / 10 == want / 10 && arch <= want && payload >= 4 && *(uint32_t *)(p + h)) return 1;
    p += h + payload;
  }
  return 0;
}

static void nothing(void *args) { (void)args; }

// The kernels of a multi-layer perceptron, so that its answers can be looked at.
typedef struct { const float *x; float *y, v; int64_t n; } elements;
static void relu(void *args) { elements *e = args; for (int64_t i = 0; i < e->n; i++) e->y[i] = e->x[i] > 0 ? e->x[i] : 0; }
static void fill(void *args) { elements *e = args; for (int64_t i = 0; i < e->n; i++) e->y[i] = e->v; }

static cudaError_t launch(kernel *k, dim3 grid, void **args, cudaStream_t s) {
  (void)grid;
  if (!k) return result(98); // invalid device function
  if (!has_image(k->images)) {
    noted("no kernel image for %s\n", k->name);
    return result(209);
  }
  noted("kernel %s%s\n", k->name, fake_capturing(s) ? " captured" : "");
  elements e = {0};
  if (strstr(k->name, "17_UnaryElementWiseIffNS0_7OP_ReluIfEE")) { // (x, y, operator, n)
    e.n = *(int64_t *)args[3];
    e.x = (void *)device(*(uint64_t *)args[0], 4 * e.n);
    e.y = (void *)device(*(uint64_t *)args[1], 4 * e.n);
    return result(e.x && e.y ? fake_do(s, "relu", relu, &e, sizeof e) : INVALID_VALUE);
  }
  if (strstr(k->name, "5_FillIfLi256ELi4EE")) { // (y, value, n)
    e.n = *(int *)args[2];
    e.v = *(float *)args[1];
    e.y = (void *)device(*(uint64_t *)args[0], 4 * e.n);
    return result(e.y ? fake_do(s, "fill", fill, &e, sizeof e) : INVALID_VALUE);
  }
  return result(fake_do(s, k->name, nothing, NULL, 0));
}

cudaError_t __cudaGetKernel(kernel **k, const void *host) { return (*k = find(host)) ? 0 : result(98); }
cudaError_t __cudaLaunchKernel(kernel *k, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t s) {
  (void)block; (void)shared;
  if (said("cudaLaunchKernel")) return result(UNKNOWN);
  return launch(k, grid, args, s);
}
cudaError_t cudaLaunchKernel(const void *host, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t s) {
  (void)block; (void)shared;
  SAY;
  return launch(find(host), grid, args, s);
}
cudaError_t cudaLaunchKernelExC(const void *config, const void *host, void **args) {
  const struct { dim3 grid, block; size_t shared; cudaStream_t stream; } *c = config;
  if (said("cudaLaunchKernel")) return result(UNKNOWN);
  return launch(find(host), c->grid, args, c->stream);
}
cudaError_t cudaFuncGetAttributes(void *out, const void *host) {
  struct { size_t shared, constant, local; int threads, registers, ptx, binary; } *a = out;
  if (!find(host)) return result(98);
  memset(a, 0, sizeof *a);
  a->threads = 1024, a->registers = 32, a->ptx = a->binary = MAJOR * 10 + MINOR;
  return 0;
}
cudaError_t cudaFuncSetAttribute(const void *host, int a, int v) { (void)host; (void)a; (void)v; return 0; }
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *host, int block, size_t shared, unsigned flags) {
  (void)host; (void)block; (void)shared; (void)flags;
  *n = 2;
  return 0;
}
cudaError_t cudaMemcpyFromSymbol(void *dst, const void *symbol, size_t len, size_t off, int kind) {
  (void)symbol; (void)off; (void)kind;
  memset(dst, 0, len);
  return 0;
}
cudaError_t cudaLibraryLoadData(void **lib, const void *code, void *a, void *b, unsigned c, void *d, void *e, unsigned f) {
  SAY; (void)lib; (void)code; (void)a; (void)b; (void)c; (void)d; (void)e; (void)f;
  return result(UNKNOWN);
}
cudaError_t cudaLibraryUnload(void *lib) { (void)lib; return 0; }
cudaError_t cudaLibraryGetKernel(void **k, void *lib, const char *name) { (void)k; (void)lib; (void)name; return result(UNKNOWN); }
cudaError_t cudaKernelSetAttributeForDevice(void *k, int a, int v, int d) { (void)k; (void)a; (void)v; (void)d; return 0; }
cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **f, unsigned version, unsigned long long flags, int *status) {
  (void)version; (void)flags;
  noted("cudaGetDriverEntryPointByVersion %s\n", symbol);
  *f = NULL;
  if (status) *status = 1; // not found
  return 0;
}
