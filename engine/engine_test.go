package engine

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestSpecGivesBytesAndShapePerBatch(t *testing.T) {
	s := Spec{Name: "x", Type: F16, Shape: []int64{BatchDim, 3, 4}}
	if s.BytesAt(5) != 5*3*4*2 || !slices.Equal(s.ShapeAt(5), []int64{5, 3, 4}) || s.String() != "x float16[N,3,4]" {
		t.Errorf("%s: %d bytes, shape %v", s, s.BytesAt(5), s.ShapeAt(5))
	}
	names := map[string]bool{}
	for d := range dtypes {
		if names[d.String()] {
			t.Errorf("%s: the name of another type, too", d)
		}
		names[d.String()] = true
	}
	if DType(8).Size() != 0 {
		t.Error("an unknown type has a size")
	}
}

func TestHostTensor(t *testing.T) {
	s := Spec{Name: "x", Type: F32, Shape: []int64{BatchDim, 2}}
	data := make([]byte, 16)
	x, err := NewHostTensor(s, 2, data)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Write([]byte("0123456789abcdef")); err != nil || string(data) != "0123456789abcdef" {
		t.Errorf("written %q, %v: the memory is not the caller's", data, err)
	}
	back := make([]byte, 16)
	if err := x.Read(back); err != nil || string(back) != string(data) {
		t.Errorf("read %q, %v", back, err)
	}
	if err := errors.Join(x.Write(data[:3]), x.Read(back[:3])); !errors.Is(err, ErrShape) {
		t.Errorf("short copies: %v", err)
	}
	for name, f := range map[string]func() (*HostTensor, error){
		"batch 0":      func() (*HostTensor, error) { return NewHostTensor(s, 0, nil) },
		"other length": func() (*HostTensor, error) { return NewHostTensor(s, 3, data) },
		"no type":      func() (*HostTensor, error) { return NewHostTensor(Spec{Name: "x", Shape: s.Shape}, 1, nil) },
	} {
		if _, err := f(); err == nil {
			t.Errorf("%s: passes", name)
		}
	}
	if err := CheckFits(x, s, 2); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]Spec{
		"rank": {Type: F32, Shape: []int64{BatchDim, 2, 1}}, "size": {Type: F32, Shape: []int64{BatchDim, 3}}, "type": {Type: I32, Shape: s.Shape},
	} {
		if err := CheckFits(x, want, 2); !errors.Is(err, ErrShape) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := CheckFits(x, s, 3); !errors.Is(err, ErrShape) {
		t.Errorf("batch: %v", err)
	}
}

func TestDeviceIndexFollowsID(t *testing.T) {
	d := CPUDevice(2, 3)
	if i, err := d.Index(); d.ID != "cpu:2,3" || d.Kind != "cpu-2" || i != 2 || err != nil || !d.IsCPU() {
		t.Errorf("%+v, index %d, %v", d, i, err)
	}
	for _, id := range []string{"", "cuda", "cuda:", "cuda:x", "cuda:-1"} {
		if _, err := (Device{ID: id}).Index(); err == nil {
			t.Errorf("device %q has an index", id)
		}
	}
	if got, err := FindDevice([]Device{CPUDevice(0), d}, "cpu:2,3"); err != nil || got.Kind != d.Kind {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestMissingError(t *testing.T) {
	err := error(&MissingError{Target: "device cuda:0", Missing: []string{"libcuda.so.1", "libcudnn.so.9"}, Hint: "install them", Kind: ErrNoDevice})
	if !errors.Is(err, ErrNoDevice) || errors.Is(err, ErrNoLibrary) {
		t.Errorf("%v is of another kind", err)
	}
	for _, s := range []string{"cuda:0", "libcuda.so.1", "libcudnn.so.9", "install them"} {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%q does not say %q", err, s)
		}
	}
}

func TestPinThread(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("pinning needs Linux")
	}
	before, err := CPUs()
	if err != nil || len(before) == 0 {
		t.Fatalf("%v, %v", before, err)
	}
	done := make(chan error)
	go func() {
		unpin, err := PinThread(before[len(before)-1])
		if err == nil {
			begin := ThreadCPU()
			for x, end := 1.0, time.Now().Add(2*time.Millisecond); time.Now().Before(end); x *= 1.1 {
				runtime.KeepAlive(x)
			}
			if ThreadCPU() <= begin {
				err = errors.New("the thread's clock stands still")
			}
			unpin()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := PinThread(1023); err == nil {
		t.Error("a CPU that is not there passes")
	}
	if MemoryBytes() < 1<<20 {
		t.Errorf("the machine has %d bytes", MemoryBytes())
	}
}
