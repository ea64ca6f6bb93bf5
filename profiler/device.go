package profiler

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"inferplan/engine"
	"inferplan/formats"
)

// selectDevice returns the device to measure on, by Options.Device (requested): "auto" (the first GPU, or one CPU
// thread if there is none), "cpu", "cpu-N" for N threads, or the ID of a device. It also accepts a GPU ("cuda:N")
// that the engine does not list.
func selectDevice(eng engine.Engine, requested string) (engine.Device, error) {
	devices, err := eng.Devices()
	if err != nil {
		return engine.Device{}, err
	}
	switch threads, isThreads := strings.CutPrefix(requested, "cpu-"); {
	case requested == "auto":
		for _, d := range devices {
			if !d.IsCPU() {
				return d, nil
			}
		}
		return cpuDevice(devices, 1)
	case requested == "cpu":
		return cpuDevice(devices, 1)
	case isThreads:
		n, err := strconv.Atoi(threads)
		if err != nil || n < 1 {
			return engine.Device{}, inputError("device %q: expected auto, cpu, cpu-<threads>, cuda:<n> or an ID that plan doctor lists", requested)
		}
		return cpuDevice(devices, n)
	}
	d, err := engine.FindDevice(devices, requested)
	if err != nil && strings.HasPrefix(requested, "cuda:") {
		// A GPU that is not listed cannot be used. The engine gives the reason when a model is loaded onto it.
		d = engine.Device{ID: requested, Kind: requested, Share: 1}
		_, err = d.Index()
	}
	return d, err
}

// cpuDevice returns a device of the last n CPUs that this process may use. The first CPUs handle most interrupts,
// and a server keeps one for its front end.
func cpuDevice(devices []engine.Device, n int) (engine.Device, error) {
	cpus, err := engine.CPUs()
	if err != nil {
		return engine.Device{}, err
	}
	if n > len(cpus) {
		return engine.Device{}, inputError("device cpu-%d: this process may use %d CPUs (%v)", n, len(cpus), cpus)
	}
	d := engine.CPUDevice(cpus[len(cpus)-n:]...)

	// Describe it as the engine describes a CPU, and otherwise as Linux does.
	for _, machine := range devices {
		if machine.IsCPU() {
			d.Name, d.Driver, d.MemoryBytes = machine.Name, machine.Driver, machine.MemoryBytes
			break
		}
	}
	if d.Name == "" || strings.HasSuffix(d.Name, " CPU") { // the engine knows only the architecture ("amd64 CPU")
		if name := cpuName(); name != "" {
			d.Name = name
		}
	}
	if d.MemoryBytes == 0 {
		d.MemoryBytes = engine.MemoryBytes()
	}
	if d.Driver == "" {
		d.Driver = kernelVersion()
	}
	return d, nil
}

// provenance describes the device and the way of measuring for the profile, without the values that are measured.
// Numbers of equal provenance are comparable.
func provenance(d engine.Device, info engine.Info, o *Options, now time.Time) formats.ProfileDevice {
	p := formats.ProfileDevice{
		Device: d.Kind, Name: d.Name, Driver: d.Driver, Engine: info.Name, EngineVersion: info.Version,
		Provider: "cpu", Method: measuringMethod(d, o), Date: now.UTC().Format(time.RFC3339), MemoryBytes: d.MemoryBytes,
	}
	if !d.IsCPU() {
		p.Provider, _, _ = strings.Cut(d.ID, ":")
		if o.EngineOptions.TensorRT {
			p.Provider = "tensorrt"
		}
		p.Options = providerOptions(d, o)
	}
	if o.FP16 {
		p.Precision = formats.PrecisionFP16
	}
	return p
}

// measuringMethod returns a text that describes how numbers were measured. Profiles of one kind are comparable if
// it is equal, so it names options and no results.
func measuringMethod(d engine.Device, o *Options) string {
	s := "blocks as cut, tensors bound, runs interleaved in rounds over blocks, batches and models after warm-up; medians over the quieter half of the rounds, p99 over all"
	switch n := len(d.CPUs); {
	case d.IsCPU() && n > 1:
		s += "; " + strconv.Itoa(n) + " intra-op threads pinned to " + strconv.Itoa(n) + " CPUs, at raised priority where allowed, no spinning; cpu_us is the calling thread's CPU time"
	case d.IsCPU():
		priority := "raised priority where allowed"
		if o.RealTime {
			priority = "real-time priority"
		}
		s += "; 1 pinned thread, at " + priority + "; cpu_us is its CPU time"
	default:
		s += "; tensors on the device; each run ends with a synchronisation; host_us ends before it; a session per batch size"
	}
	if e := o.EngineOptions; e.Optimization != "" && e.Optimization != "all" {
		s += "; optimisation " + e.Optimization
	}
	if o.FP16 {
		s += "; models compute in float16"
	}
	if o.EngineOptions.CUDAGraph {
		s += "; CUDA graphs"
	}
	options := providerOptions(d, o)
	for _, k := range slices.Sorted(maps.Keys(options)) {
		s += "; " + k + "=" + options[k]
	}
	if d.IsCPU() {
		return s + "; memory is the growth of the resident set, at least weights and bound tensors"
	}
	return s + "; memory is weights and bound tensors"
}

// optionReporter is an engine that can say which options a device's provider gets.
type optionReporter interface {
	ProviderOptions(d engine.Device, o engine.Options) map[string]string
}

// providerOptions returns the options that measured numbers depend on. The index of the GPU is not one of them.
func providerOptions(d engine.Device, o *Options) map[string]string {
	t, ok := o.Engine.(optionReporter)
	if !ok || d.IsCPU() {
		return nil
	}
	out := t.ProviderOptions(d, o.EngineOptions)
	delete(out, "device_id")
	return out
}

// sameProvenance reports whether numbers that were measured under a and under b are comparable, and may stand under
// one device in a profile.
func sameProvenance(a, b formats.ProfileDevice) bool {
	return a.Name == b.Name && a.Driver == b.Driver && a.Engine == b.Engine &&
		a.EngineVersion == b.EngineVersion && a.Provider == b.Provider && a.Method == b.Method
}

// prioritise gives the measuring thread priority over others: raised if the system allows it or, with realTime,
// above all ordinary threads, which is an error if the system does not allow it.
func prioritise(realTime bool) (undo func(), err error) {
	if !realTime {
		return raisePriority(), nil
	}
	undo, err = engine.RealTime()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInput, err)
	}
	return undo, nil
}

// raisePriority raises the priority of the measuring thread, and of the threads that it starts, if the system
// allows it (root, CAP_SYS_NICE). Other work on its CPU then interrupts fewer runs and empties its caches less
// often. The returned function restores the old priority.
func raisePriority() (undo func()) {
	const raisedNice = -10
	oldNice, err := unix.Getpriority(unix.PRIO_PROCESS, 0) // 0 stands for the calling thread
	if err != nil || unix.Setpriority(unix.PRIO_PROCESS, 0, raisedNice) != nil {
		return func() {}
	}
	// The system call returns 20 minus the nice value.
	return func() { _ = unix.Setpriority(unix.PRIO_PROCESS, 0, 20-oldNice) }
}

// cpuName returns the processor's name as Linux reports it, or "".
func cpuName() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if k, v, ok := strings.Cut(sc.Text(), ":"); ok && strings.TrimSpace(k) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// kernelVersion returns the name of the operating system's kernel, which is the driver of a CPU.
func kernelVersion() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return "linux " + unix.ByteSliceToString(u.Release[:])
}

// hostCopyGbps measures the rate at which one core copies memory that does not
// fit into its caches, in gigabits per second: the best of several copies from one
// half of 64 MiB to the other.
func hostCopyGbps() float64 {
	const halfBytes = 32 << 20
	memory := make([]byte, 2*halfBytes)
	// Write to every page of the source. Pages that were never written may all be one page of zeros, which fits into
	// the caches.
	for i := 0; i < halfBytes; i += 4096 {
		memory[i] = byte(i >> 12)
	}
	return copyGbps(halfBytes, func() error { copy(memory[halfBytes:], memory[:halfBytes]); return nil })
}

// copyGbps times run, which copies size bytes, and returns the rate of the fastest of five copies in gigabits per
// second, rounded down to two decimals. It returns 0 if a copy fails.
func copyGbps(size int64, run func() error) float64 {
	var fastest time.Duration
	for i := range 6 {
		begin := time.Now()
		if run() != nil {
			return 0
		}
		// The first copy is not timed, because it causes the page faults.
		if d := time.Since(begin); i > 0 && (fastest == 0 || d < fastest) {
			fastest = d
		}
	}
	if fastest <= 0 {
		return 0
	}
	hundredths := int64(float64(size) * 8 / fastest.Seconds() / 1e7) // of a gigabit (1e9 bits) per second
	return float64(hundredths) / 100
}
