package worker

import (
	"fmt"

	"inferplan/engine"
)

// DeviceMemory is memory of a device, in which tensors lie.
type DeviceMemory interface {
	Tensor(spec engine.Spec, batch int, off int64) (engine.Tensor, error)
	Close() error
}

// memorySharer is a Loader whose device has memory that other processes of this machine can map (CUDA IPC).
type memorySharer interface {
	// ShareMemory allocates memory and returns a handle to it. MapMemory maps the memory behind another process's
	// handle.
	ShareMemory(size int64) (m DeviceMemory, handle []byte, err error)
	MapMemory(handle []byte, size int64) (DeviceMemory, error)
}

// DeviceSpec asks a worker to allocate memory of its device beside a segment, with the same layout as the segment.
// With a handle it asks the worker to map the memory of another worker.
type DeviceSpec struct {
	ID     uint32 `json:"id"` // the segment's number
	Size   int64  `json:"size"`
	Handle []byte `json:"handle,omitempty"`
}

// shareMemory handles a share frame: it allocates memory of the device beside a segment, or maps that of another
// worker by its handle. It returns the request with the handle. The parent sends such a frame over the control
// socket.
func (s *server) shareMemory(p []byte) (*DeviceSpec, error) {
	spec, err := parseJSON[DeviceSpec](TypeShare, p)
	if err != nil {
		return nil, err
	}
	seg := s.segments[spec.ID]
	l, sharesMemory := s.loader.(memorySharer)
	switch {
	case !sharesMemory:
		return nil, fmt.Errorf("%w: this device has no memory that processes share", engine.ErrNoDevice)
	case seg == nil:
		return nil, fmt.Errorf("segment %d is not attached", spec.ID)
	case seg.device != nil:
		return nil, fmt.Errorf("segment %d has memory of the device already", spec.ID)
	case spec.Size != int64(len(seg.Data)):
		return nil, fmt.Errorf("%w: %d bytes of the device beside %d of segment %d", ErrProtocol, spec.Size, len(seg.Data), spec.ID)
	case len(spec.Handle) == 0:
		seg.device, spec.Handle, err = l.ShareMemory(spec.Size)
	default:
		seg.device, err = l.MapMemory(spec.Handle, spec.Size)
	}
	if err != nil {
		seg.device = nil
		return nil, err
	}
	return &spec, nil
}

// placedTensors returns tensors for specs that lie side by side in a segment (shared memory), from offset on: in the
// device's memory beside the segment if onDevice is set, and otherwise in the host's.
func (s *Segment) placedTensors(onDevice bool, specs []engine.Spec, batch int, offset int64) ([]engine.Tensor, error) {
	if !onDevice {
		return s.hostTensors(specs, batch, offset)
	}
	if s.device == nil {
		return nil, fmt.Errorf("%w: segment %d has no memory of the device here", ErrProtocol, s.ID)
	}
	if err := s.checkBounds(specs, batch, offset); err != nil {
		return nil, err
	}
	tensors := make([]engine.Tensor, len(specs))
	for i := range specs {
		var err error
		if tensors[i], err = s.device.Tensor(specs[i], batch, offset+Span(specs[:i], batch)); err != nil {
			return nil, err
		}
	}
	return tensors, nil
}
