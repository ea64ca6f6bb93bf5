//go:build cgo && !noort

package ort

/*
#include <stdlib.h>
#include "cuda.h"
*/
import "C"

import (
	"fmt"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"inferplan/engine"
)

// Names of the GPU driver's libraries. Tests replace them.
var (
	driverLibrary = "libcuda.so.1"
	nvmlLibrary   = "libnvidia-ml.so.1"
)

// driver is held while the driver is opened. Calls to it need no lock.
var driver sync.Mutex

// openDriver opens the GPU driver's library, if it is not open yet. Every function that calls the driver calls it
// first.
func openDriver() error {
	driver.Lock()
	defer driver.Unlock()
	name := C.CString(driverLibrary)
	defer C.free(unsafe.Pointer(name))
	if err := goError(C.ip_cuda_open(name)); err != nil {
		return &engine.MissingError{Target: "the GPU driver", Missing: []string{err.Error()}, Hint: "install NVIDIA's driver; in a container, start it with the GPU", Kind: engine.ErrNoDevice}
	}
	return nil
}

// Driver is the driver's description of a GPU.
type Driver struct {
	CUDA                     string // the newest version that the driver runs: "13.0"
	Multiprocessors          int
	Architecture             string // "9.0": sm_90
	ClockMHz, MemoryClockMHz int    // rated; 0 if not reported
	BusBits                  int
	FreeBytes, TotalBytes    int64
}

// AboutGPU asks the driver about a GPU by its number, and returns its properties. The driver initialises the GPU for
// this process.
func AboutGPU(index int) (Driver, error) {
	if err := openDriver(); err != nil {
		return Driver{}, err
	}
	var d C.ip_cuda_device
	if err := goError(C.ip_cuda_about(C.int(index), &d)); err != nil {
		return Driver{}, fmt.Errorf("cuda:%d: %w", index, err)
	}
	v := int(d.driver_version) // 13000 stands for 13.0
	return Driver{
		CUDA: fmt.Sprintf("%d.%d", v/1000, v%1000/10), Multiprocessors: int(d.multiprocessors), Architecture: fmt.Sprintf("%d.%d", d.major, d.minor),
		ClockMHz: int(d.clock_khz) / 1000, MemoryClockMHz: int(d.memory_clock_khz) / 1000, BusBits: int(d.bus_bits),
		FreeBytes: int64(d.free_bytes), TotalBytes: int64(d.total_bytes),
	}, nil
}

// The directions of a copy, as the wrapper numbers them.
const (
	toDevice = 1 + iota
	toHost
	onDevice
)

// copyBytes copies n bytes between the host and GPU number index, or within that GPU, as kind says (toDevice,
// toHost, onDevice). It returns when the bytes have arrived. Host memory must not move meanwhile.
func copyBytes(index int, dst, src unsafe.Pointer, n, kind int) error {
	if err := openDriver(); err != nil {
		return err
	}
	return goError(C.ip_cuda_copy(C.int(index), C.uint64_t(uintptr(dst)), C.uint64_t(uintptr(src)), C.size_t(n), C.int(kind)))
}

// Pin locks host memory so that GPU number index can copy directly from and to it, which is faster. The memory must
// not be freed or moved before unpin.
func Pin(index int, data []byte) (unpin func() error, err error) {
	if len(data) == 0 {
		return func() error { return nil }, nil
	}
	if err := openDriver(); err != nil {
		return nil, err
	}
	p := unsafe.Pointer(&data[0])
	if err := goError(C.ip_cuda_pin(C.int(index), p, C.size_t(len(data)))); err != nil {
		return nil, fmt.Errorf("cuda:%d: %w", index, err)
	}
	return func() error { return goError(C.ip_cuda_unpin(C.int(index), p)) }, nil
}

// Memory is a piece of a GPU's memory, allocated by this process or by another one.
type Memory struct {
	index  int        // number of the GPU
	at     C.uint64_t // address on the GPU; 0 once closed
	size   int
	mapped bool      // another process allocated it
	views  []*tensor // tensors in this memory, which Close frees
}

// Allocate allocates size bytes on GPU number index, which Close frees.
func Allocate(index, size int) (*Memory, error) {
	if err := openDriver(); err != nil {
		return nil, err
	}
	m := &Memory{index: index, size: size}
	if err := goError(C.ip_cuda_alloc(C.int(index), C.size_t(size), &m.at)); err != nil {
		return nil, fmt.Errorf("cuda:%d: %d bytes: %w", index, size, err)
	}
	return m, nil
}

// Handle names a piece of GPU memory for another process of this machine.
type Handle [64]byte

// Export returns a handle to memory that Allocate has allocated, by which another process of this machine can map it
// (Import).
func (m *Memory) Export() (Handle, error) {
	var h Handle
	err := goError(C.ip_cuda_export(C.int(m.index), m.at, (*C.uchar)(unsafe.Pointer(&h[0]))))
	if err != nil {
		return h, fmt.Errorf("cuda:%d: %w", m.index, err)
	}
	return h, nil
}

// Import maps size bytes of GPU number index that another process has allocated, by the handle that its Export
// returned. The memory stays until the exporting process and all importing ones have closed it.
func Import(index int, h Handle, size int) (*Memory, error) {
	if err := openDriver(); err != nil {
		return nil, err
	}
	m := &Memory{index: index, size: size, mapped: true}
	if err := goError(C.ip_cuda_import(C.int(index), (*C.uchar)(unsafe.Pointer(&h[0])), &m.at)); err != nil {
		return nil, fmt.Errorf("cuda:%d: %w", index, err)
	}
	return m, nil
}

// Close frees memory that this process has allocated, or unmaps another process's. The tensors in it become invalid.
// A second call does nothing.
func (m *Memory) Close() error {
	if m.at == 0 {
		return nil
	}
	m.closeViews()
	address := m.at
	m.at = 0
	if m.mapped {
		return goError(C.ip_cuda_unmap(C.int(m.index), address))
	}
	return goError(C.ip_cuda_free(C.int(m.index), address))
}

// Write copies from the host's memory, Read to it.
func (m *Memory) Write(src []byte) error { return m.move(src, toDevice) }
func (m *Memory) Read(dst []byte) error  { return m.move(dst, toHost) }

// move copies the whole memory from (kind toDevice) or to (toHost) a slice of the host.
func (m *Memory) move(host []byte, kind int) error {
	if len(host) != m.size || m.at == 0 {
		return fmt.Errorf("GPU memory: %w: %d bytes, expected %d", engine.ErrShape, len(host), m.size)
	}
	if len(host) == 0 {
		return nil
	}
	var pin runtime.Pinner
	pin.Pin(&host[0])
	defer pin.Unpin()
	h := C.uint64_t(uintptr(unsafe.Pointer(&host[0])))
	if kind == toHost {
		return goError(C.ip_cuda_copy(C.int(m.index), h, m.at, C.size_t(m.size), toHost))
	}
	return goError(C.ip_cuda_copy(C.int(m.index), m.at, h, C.size_t(m.size), toDevice))
}

// timeCopies copies size bytes n times from src to dst on GPU number index, as kind says (toDevice, toHost,
// onDevice), and returns the mean time of a copy by the GPU's clock.
func timeCopies(index int, dst, src C.uint64_t, size, kind, n int) (time.Duration, error) {
	var ms C.double
	if err := goError(C.ip_cuda_time(C.int(index), dst, src, C.size_t(size), C.int(kind), C.int(n), &ms)); err != nil {
		return 0, fmt.Errorf("cuda:%d: %w", index, err)
	}
	return time.Duration(float64(ms) * 1e6 / float64(n)), nil
}

// CopyTime returns the time of one copy of m's bytes from another piece (which may be another process's), by the
// device's clock, as the mean of n copies.
func (m *Memory) CopyTime(source *Memory, n int) (time.Duration, error) {
	return timeCopies(m.index, m.at, source.at, min(m.size, source.size), onDevice, n)
}

// CopyRates are rates in bytes per second, by the device's own clock. InDevice
// counts the bytes copied once: memory moves twice as many, a read and a write.
type CopyRates struct {
	Bytes                    int
	ToDevice, ToHost         float64 // bytes per second from and to pinned memory
	ToDevicePaged, FromPaged float64 // the same for ordinary memory
	InDevice                 float64
}

// MeasureCopies measures a GPU's copy rates, each as the mean of n copies of size bytes: to and from ordinary and
// pinned host memory, and within the GPU. Rates are in bytes per second.
func MeasureCopies(index, size, n int) (r CopyRates, err error) {
	r.Bytes = size

	// Allocate two blocks on the GPU and one of ordinary memory on the host.
	a, err := Allocate(index, size)
	if err != nil {
		return r, err
	}
	defer a.Close()
	b, err := Allocate(index, size)
	if err != nil {
		return r, err
	}
	defer b.Close()
	p := C.malloc(C.size_t(size))
	defer C.free(p)
	host := unsafe.Slice((*byte)(p), size)
	for i := 0; i < size; i++ { // write any values, so that no copy has to wait for a page to be allocated
		host[i] = byte(i*7 + i>>11)
	}
	address := C.uint64_t(uintptr(p))

	// rate measures one direction, unless an earlier one failed.
	rate := func(result *float64, dst, src C.uint64_t, kind int) {
		if err != nil {
			return
		}
		var duration time.Duration
		if duration, err = timeCopies(index, dst, src, size, kind, n); err == nil && duration > 0 {
			*result = float64(size) / duration.Seconds()
		}
	}

	// Copy from and to pageable memory, then the same memory pinned.
	rate(&r.ToDevicePaged, a.at, address, toDevice)
	rate(&r.FromPaged, address, a.at, toHost)
	if err != nil {
		return r, err
	}
	unpin, err := Pin(index, host)
	if err != nil {
		return r, err
	}
	rate(&r.ToDevice, a.at, address, toDevice)
	rate(&r.ToHost, address, a.at, toHost)
	rate(&r.InDevice, b.at, a.at, onDevice)
	if e := unpin(); err == nil {
		err = e
	}
	return r, err
}

// Sizes of the copies that CopyRates times.
const (
	copyBytesEach = 256 << 20
	copyTimes     = 8
)

// CopyRates measures a GPU's rates from and to pinned memory of the host, and
// inside the device, in bytes copied per second.
func (e *Engine) CopyRates(d engine.Device) (toDevice, fromDevice, inDevice float64, err error) {
	i, err := d.Index()
	if err != nil {
		return 0, 0, 0, err
	}
	r, err := MeasureCopies(i, copyBytesEach, copyTimes)
	return r.ToDevice, r.ToHost, r.InDevice, err
}

// GPUState holds what a GPU reports of itself at a moment. A value is 0 if it is not reported.
type GPUState struct {
	Watts                        float64
	ClockMHz, MemoryMHz, Celsius int
	Throttled                    uint64 // NVML's reasons for lowered clocks, one bit each
}

// Watch reads a GPU's power and clocks.
type Watch struct{ w *C.ip_watch }

// OpenWatch opens NVML, NVIDIA's library for monitoring, to read the power and clocks of GPU number index.
func OpenWatch(index int) (*Watch, error) {
	lib := C.CString(nvmlLibrary)
	defer C.free(unsafe.Pointer(lib))
	w := &Watch{}
	if err := goError(C.ip_watch_open(lib, C.int(index), &w.w)); err != nil {
		return nil, fmt.Errorf("watch cuda:%d: %w", index, err)
	}
	return w, nil
}

// Read returns the GPU's power, clocks and temperature now.
func (w *Watch) Read() (GPUState, error) {
	var s C.ip_gpu_state
	if err := goError(C.ip_watch_read(w.w, &s)); err != nil {
		return GPUState{}, err
	}
	return GPUState{Watts: float64(s.power_mw) / 1000, ClockMHz: int(s.sm_mhz), MemoryMHz: int(s.memory_mhz), Celsius: int(s.celsius), Throttled: uint64(s.throttled)}, nil
}

// Close closes NVML.
func (w *Watch) Close() {
	C.ip_watch_close(w.w)
	w.w = nil
}

// GPUs lists the GPUs that NVML knows or, without NVML (as in containers with a GPU only for computing), the
// driver. If both are missing, the list is empty.
func GPUs() ([]engine.Device, error) { return gpusOf(nvmlLibrary) }

// gpusOf lists the GPUs with NVML's library at the given path, or with the driver if that is missing.
func gpusOf(nvml string) ([]engine.Device, error) {
	const maxGPUs, versionSize = 64, 96 // capacities of the list and of the version's text
	lib := C.CString(nvml)
	defer C.free(unsafe.Pointer(lib))

	// Ask NVML and, if it lists none, the driver.
	list := (*[maxGPUs]C.ip_gpu)(C.calloc(maxGPUs, C.sizeof_ip_gpu))
	defer C.free(unsafe.Pointer(list))
	version := (*C.char)(C.calloc(1, versionSize))
	defer C.free(unsafe.Pointer(version))
	var n C.int
	if err := goError(C.ip_gpus(lib, &list[0], maxGPUs, &n, version, versionSize)); err != nil {
		return nil, fmt.Errorf("list GPUs: %w", err)
	}
	if n == 0 && openDriver() == nil {
		if err := goError(C.ip_cuda_list(&list[0], maxGPUs, &n)); err != nil {
			return nil, fmt.Errorf("list GPUs: %w", err)
		}
	}

	// Describe each GPU as a device.
	var out []engine.Device
	for i := range int(n) {
		g := &list[i]
		name := C.GoString(&g.name[0])
		processors := int(g.multiprocessors) // NVML reports cores instead
		if processors == 0 {
			processors = multiprocessors(int(g.cores), int(g.major), int(g.minor))
		}
		out = append(out, engine.Device{ID: fmt.Sprintf("cuda:%d", i), Kind: kindOfGPU(name), Name: name, UUID: C.GoString(&g.uuid[0]),
			Share: 1, MemoryBytes: int64(g.memory), Driver: C.GoString(version), Architecture: architecture(int(g.major), int(g.minor)),
			Multiprocessors: processors, PowerLimitWatts: float64(g.power_limit_mw) / 1000})
	}
	return out, nil
}
