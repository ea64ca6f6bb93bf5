package workers

import (
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"inferplan/engine/worker"
	"inferplan/executor/turn"
)

// A process that gets CPU time has a pulse, one that is stopped has none.
func TestStoppedProcessHasNoPulse(t *testing.T) {
	busy := startLoop(t)
	proc := &worker.Process{Welcome: worker.Welcome{PID: busy.Process.Pid}}
	var p cpuPulse
	began := time.Now()
	look := func() bool {
		time.Sleep(turn.WatchInterval + 10*time.Millisecond)
		now := time.Since(began)
		p.check(now, proc)
		return p.activeAt == now
	}
	look()
	if moved := look(); !moved {
		t.Error("a process that works has no pulse")
	}
	if err := busy.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	look()
	if moved := look(); moved {
		t.Error("a process that is stopped has a pulse")
	}
}

// A process that hardly gets CPU time because another one takes it has a pulse.
func TestStarvedProcessHasAPulse(t *testing.T) {
	var oneCPU unix.CPUSet
	if err := unix.SchedGetaffinity(0, &oneCPU); err != nil {
		t.Fatal(err)
	}
	for cpu := 0; oneCPU.Count() > 1; cpu++ {
		oneCPU.Clear(cpu)
	}
	starved, busy := startLoop(t), startLoop(t)
	for _, loop := range []*exec.Cmd{starved, busy} {
		if err := unix.SchedSetaffinity(loop.Process.Pid, &oneCPU); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.SchedSetAttr(starved.Process.Pid, &unix.SchedAttr{Policy: unix.SCHED_IDLE}, 0); err != nil {
		t.Fatal(err)
	}
	var p cpuPulse
	proc := &worker.Process{Welcome: worker.Welcome{PID: starved.Process.Pid}}
	p.check(time.Hour, proc) // waits for a CPU at the first look of two
	before := proc.CPU()
	time.Sleep(turn.WatchInterval)
	if p.check(2*time.Hour, proc); p.activeAt != 2*time.Hour {
		t.Errorf("a process that got %v of CPU time in an hour, and waits for it, has no pulse", proc.CPU()-before)
	}
}

// startLoop starts a shell that takes all the CPU time that it gets, until the test ends.
func startLoop(t *testing.T) *exec.Cmd {
	t.Helper()
	loop := exec.Command("sh", "-c", "while :; do :; done")
	if err := loop.Start(); err != nil {
		t.Skip("no shell (sh)")
	}
	t.Cleanup(func() {
		loop.Process.Kill()
		loop.Wait()
	})
	return loop
}
