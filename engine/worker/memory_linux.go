package worker

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"inferplan/engine"
)

// Segment is memory that processes share: a memfd mapped into this one.
type Segment struct {
	ID   uint32
	Data []byte // the memory
	fd   int    // the memfd, which other processes map
	// unpin unlocks the memory if it is locked for a GPU.
	unpin func() error
	// device is memory of the device with the same layout, or nil.
	device DeviceMemory
}

// maxSegment bounds what one worker may map (virtual; pages that nobody
// touches cost nothing).
const maxSegment = 1 << 40

// NewSegment creates a segment, memory that processes share, of the given size in bytes, filled with zeros. Its size
// is sealed, so that no process can make another's access fail.
func NewSegment(id uint32, size int64) (*Segment, error) {
	if size <= 0 || size > maxSegment {
		return nil, fmt.Errorf("shared segment %d: %d bytes, expected 1 to %d", id, size, int64(maxSegment))
	}
	fd, err := unix.MemfdCreate(fmt.Sprintf("inferplan-%d", id), unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("create shared segment %d: %w", id, err)
	}
	if err := unix.Ftruncate(fd, size); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("size shared segment %d to %d bytes: %w", id, size, err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("seal shared segment %d: %w", id, err)
	}
	return mapSegment(id, fd, size)
}

// mapSegment maps size bytes of the memory behind fd, which the segment then owns. It returns an error if there are
// fewer.
func mapSegment(id uint32, fd int, size int64) (*Segment, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("shared segment %d: %w", id, err)
	}
	if size <= 0 || size > maxSegment || st.Size < size {
		unix.Close(fd)
		return nil, fmt.Errorf("%w: shared segment %d has %d bytes, announced %d", ErrProtocol, id, st.Size, size)
	}
	data, err := unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("map shared segment %d (%d bytes): %w", id, size, err)
	}
	return &Segment{ID: id, Data: data, fd: fd}, nil
}

// Close unmaps a segment (memory that processes share), and frees the device's memory beside it. Nothing may use it
// any more.
func (s *Segment) Close() error {
	if s.Data == nil {
		return nil
	}
	var err error
	if s.device != nil {
		err = s.device.Close()
	}
	if s.unpin != nil {
		err = errors.Join(err, s.unpin())
	}
	err = errors.Join(err, unix.Munmap(s.Data))
	unix.Close(s.fd)
	s.Data = nil
	return err
}

// monotonic is CLOCK_MONOTONIC in nanoseconds, the clock of Result.Start and Result.End.
func monotonic() int64 { return clock(unix.CLOCK_MONOTONIC) }

// clock reads one of Linux's clocks, in nanoseconds. It returns 0 if there is no such clock.
func clock(id int32) int64 {
	var ts unix.Timespec
	if unix.ClockGettime(id, &ts) != nil {
		return 0
	}
	return ts.Nano()
}

// align is the alignment of every tensor in a slot, in bytes.
const align = 64

// Span returns how many bytes the tensors of specs take side by side at a batch size. Each is aligned to 64 bytes.
func Span(specs []engine.Spec, batch int) int64 {
	var n int64
	for _, s := range specs {
		n += (s.BytesAt(batch) + align - 1) &^ (align - 1) // rounded up to a multiple of align
	}
	return n
}

// TensorAt returns the memory of tensor i of specs in the segment (shared memory), where all of them lie side by
// side from offset on.
func (s *Segment) TensorAt(specs []engine.Spec, i, batch int, offset int64) []byte {
	offset += Span(specs[:i], batch)
	n := specs[i].BytesAt(batch)
	return s.Data[offset : offset+n : offset+n]
}

// hostTensors returns tensors for specs in host memory, which lie side by side in the segment (shared memory) from
// offset on.
func (s *Segment) hostTensors(specs []engine.Spec, batch int, offset int64) ([]engine.Tensor, error) {
	if err := s.checkBounds(specs, batch, offset); err != nil {
		return nil, err
	}
	tensors := make([]engine.Tensor, len(specs))
	for i := range specs {
		t, err := engine.NewHostTensor(specs[i], batch, s.TensorAt(specs, i, batch, offset))
		if err != nil {
			return nil, err
		}
		tensors[i] = t
	}
	return tensors, nil
}

// checkBounds returns an error if the tensors of specs, side by side from offset on, do not lie inside the segment.
func (s *Segment) checkBounds(specs []engine.Spec, batch int, offset int64) error {
	if offset < 0 || offset%align != 0 || Span(specs, batch) > int64(len(s.Data))-offset {
		return fmt.Errorf("%w: tensors of %d bytes at offset %d of segment %d (%d bytes)", ErrProtocol, Span(specs, batch), offset, s.ID, len(s.Data))
	}
	return nil
}
