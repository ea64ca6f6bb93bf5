package workers

import (
	"os/exec"
	"syscall"
	"testing"
	"time"

	"inferplan/engine/worker"
	"inferplan/executor/turn"
)

// A process that gets CPU time has a pulse, one that is stopped has none.
func TestStoppedProcessHasNoPulse(t *testing.T) {
	busy := exec.Command("sh", "-c", "while :; do :; done")
	if err := busy.Start(); err != nil {
		t.Skip("no shell (sh)")
	}
	defer busy.Wait()
	defer busy.Process.Kill()
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
