package engine

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
)

// Device is one place that executes: a set of CPUs or a GPU (or a share of it).
type Device struct {
	ID    string // "cpu:0", "cuda:0"; "cpu:0,1" for a set of two
	Kind  string // the name plans use: "cpu-1", "L4", "H100"
	Name  string // the name that the hardware gives itself
	UUID  string // empty unless the device is a GPU
	Share int    // v, for a share 1/v; 1 is the whole device

	MemoryBytes int64
	CPUs        []int // the CPUs of a CPU device
	Driver      string

	// For GPUs only, if the driver reports them.
	Architecture    string // CUDA compute capability: "9.0"
	Multiprocessors int
	PowerLimitWatts float64
}

// IsCPU reports whether the device is a set of CPUs.
func (d Device) IsCPU() bool { return strings.HasPrefix(d.ID, "cpu:") }

// Index returns the number of the GPU (1 for cuda:1), or of the first CPU of a set (2 for cpu:2,3).
func (d Device) Index() (int, error) {
	_, s, ok := strings.Cut(d.ID, ":")
	if ok {
		s, _, _ = strings.Cut(s, ",")
		if n, err := strconv.Atoi(s); err == nil && n >= 0 {
			return n, nil
		}
	}
	return 0, fmt.Errorf("device %q: %w: expected a form such as cpu:0 or cuda:0", d.ID, ErrNoDevice)
}

// CPUDevice returns the device that consists of the CPUs with these numbers. Its kind, by which plans name it, is
// cpu-N for N CPUs.
func CPUDevice(cpus ...int) Device {
	s := make([]string, len(cpus))
	for i, c := range cpus {
		s[i] = strconv.Itoa(c)
	}
	return Device{
		ID: "cpu:" + strings.Join(s, ","), Kind: fmt.Sprintf("cpu-%d", len(cpus)), Name: runtime.GOARCH + " CPU",
		Share: 1, CPUs: cpus,
	}
}

// FindDevice returns the device with an ID such as cuda:0. If there is none, the error lists the IDs that exist.
func FindDevice(devices []Device, id string) (Device, error) {
	var ids []string
	for _, d := range devices {
		if d.ID == id {
			return d, nil
		}
		ids = append(ids, d.ID)
	}
	return Device{}, fmt.Errorf("device %q: %w; this machine has %s", id, ErrNoDevice, strings.Join(ids, ", "))
}
