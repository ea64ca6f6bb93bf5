//go:build cgo && !noort

package ort

/*
#include <stdlib.h>
#include <string.h>
#include "ort.h"
*/
import "C"

import (
	"fmt"
	"runtime"
	"unsafe"

	"inferplan/engine"
)

// tensor is memory that this package allocated: of the host, aligned to 64
// bytes and zeroed, or of a GPU.
type tensor struct {
	spec   engine.Spec
	batch  int
	value  unsafe.Pointer // OrtValue, the runtime's object for the tensor
	data   unsafe.Pointer // address of the memory
	size   int            // bytes
	bytes  []byte         // the memory as a slice, if it is the host's
	device int            // number of the GPU; -1 for host memory
	view   bool           // the memory is not this tensor's own
}

// shapeC returns a shape as C reads it. It is valid while the slice is.
func shapeC(shape []int64) *C.int64_t {
	if len(shape) == 0 {
		return nil
	}
	return (*C.int64_t)(unsafe.Pointer(&shape[0]))
}

// hostValue makes a value of the runtime (OrtValue) over host memory that outlives the value and does not move.
func hostValue(data []byte, spec engine.Spec, batch int) (unsafe.Pointer, error) {
	shape := spec.ShapeAt(batch)
	var v unsafe.Pointer
	if err := goError(C.ip_value_host(unsafe.Pointer(unsafe.SliceData(data)), C.size_t(len(data)), shapeC(shape), C.int(len(shape)), C.int(spec.Type), &v)); err != nil {
		return nil, fmt.Errorf("tensor %s: %w", spec, err)
	}
	live.values.Add(1)
	return v, nil
}

// deviceValue makes a value of the runtime (OrtValue) over size bytes at an address of GPU number index, which must
// outlive the value.
func deviceValue(index int, address C.uint64_t, size int, spec engine.Spec, batch int) (unsafe.Pointer, error) {
	shape := spec.ShapeAt(batch)
	var v unsafe.Pointer
	if err := goError(C.ip_value_on(C.int(index), address, C.size_t(size), shapeC(shape), C.int(len(shape)), C.int(spec.Type), &v)); err != nil {
		return nil, fmt.Errorf("tensor %s on cuda:%d: %w", spec, index, err)
	}
	live.values.Add(1)
	return v, nil
}

// freeValue frees a value of the runtime, and counts it off the live ones. The memory under it stays.
func freeValue(v unsafe.Pointer) {
	C.ip_value_free(v)
	live.values.Add(-1)
}

// newHost allocates a zeroed tensor in host memory outside Go's, which does not move. It is aligned to 64 bytes.
func newHost(spec engine.Spec, batch int) (*tensor, error) {
	size := spec.BytesAt(batch)
	if size < 0 || size > 1<<40 {
		return nil, fmt.Errorf("%w: %d bytes", engine.ErrShape, size)
	}
	var p unsafe.Pointer
	if C.posix_memalign(&p, 64, C.size_t(max(size, 64))) != 0 {
		return nil, fmt.Errorf("no memory for %d bytes", size)
	}
	C.memset(p, 0, C.size_t(size))
	t := &tensor{spec: spec, batch: batch, data: p, size: int(size), bytes: unsafe.Slice((*byte)(p), size), device: -1}
	var err error
	if t.value, err = hostValue(t.bytes, spec, batch); err != nil {
		C.free(p)
		return nil, err
	}
	return t, nil
}

// newDevice allocates a tensor on a GPU, by the allocator of a session.
func newDevice(s *C.ip_session, d engine.Device, spec engine.Spec, batch int) (*tensor, error) {
	index, err := d.Index()
	if err != nil {
		return nil, err
	}
	shape := spec.ShapeAt(batch)
	t := &tensor{spec: spec, batch: batch, size: int(spec.BytesAt(batch)), device: index}
	if err := goError(C.ip_value_device(s, shapeC(shape), C.int(len(shape)), C.int(spec.Type), &t.value)); err != nil {
		return nil, fmt.Errorf("allocate on %s: %w", d.ID, err)
	}
	live.values.Add(1)
	if err := goError(C.ip_value_data(t.value, &t.data)); err != nil {
		t.release()
		return nil, err
	}
	return t, nil
}

// release frees the tensor, and its memory if that is the host's. The runtime frees that of a GPU with the value.
func (t *tensor) release() {
	if t.value == nil {
		return
	}
	freeValue(t.value)
	t.value = nil
	if t.device < 0 {
		C.free(t.data)
	}
	t.data, t.bytes = nil, nil
}

func (t *tensor) Spec() engine.Spec { return t.spec }
func (t *tensor) Batch() int        { return t.batch }
func (t *tensor) Bytes() []byte     { return t.bytes }

func (t *tensor) Write(src []byte) error { return t.copyData(src, false) }
func (t *tensor) Read(dst []byte) error  { return t.copyData(dst, true) }

// copyData copies the whole tensor to (isRead) or from a slice of the host.
func (t *tensor) copyData(host []byte, isRead bool) error {
	if t.value == nil {
		return fmt.Errorf("tensor %s: %w", t.spec.Name, engine.ErrClosed)
	}
	if err := engine.CheckLen(t.spec, t.size, len(host)); err != nil {
		return err
	}

	// Memory of the host is copied by Go, that of a GPU by the driver.
	switch {
	case t.device < 0 && isRead:
		copy(host, t.bytes)
	case t.device < 0:
		copy(t.bytes, host)
	case len(host) > 0:
		h := unsafe.Pointer(&host[0])
		var pin runtime.Pinner
		pin.Pin(h)
		defer pin.Unpin()
		var err error
		if isRead {
			err = copyBytes(t.device, h, t.data, t.size, toHost)
		} else {
			err = copyBytes(t.device, t.data, h, t.size, toDevice)
		}
		if err != nil {
			return fmt.Errorf("copy tensor %s: %w", t.spec.Name, err)
		}
	}
	return nil
}
